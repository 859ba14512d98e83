"""Edges as the text that people write in a team's file, and read beside an arrow."""

from mas.core.team import EdgeSpec


def edge_text(edge: EdgeSpec) -> str:
    """`a -> b when ROUTE loop N`, as it is written in a team's file."""
    when = f" when {edge.when}" if edge.when else ""
    loop = f" loop {edge.loop}" if edge.loop else ""
    return f"{edge.source} -> {edge.target}{when}{loop}"


def edge_label(edge: EdgeSpec) -> str:
    """What stands beside an arrow: the route and the loop's bound; empty where it has neither."""
    parts = [edge.when or "", f"up to {edge.loop}×" if edge.loop else ""]
    return ", ".join(part for part in parts if part)
