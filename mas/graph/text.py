"""Edges as the text that people write in a team's file."""

from mas.core.team import EdgeSpec


def edge_text(edge: EdgeSpec) -> str:
    """`a -> b when ROUTE loop N`, as it is written in a team's file."""
    return f"{edge.source} -> {edge.target}{_label(edge, ' ')}"


def edge_label(edge: EdgeSpec) -> str:
    """What stands beside an edge in a drawing: its route and its bound; empty where it has neither."""
    parts = [edge.when or "", f"loop {edge.loop}" if edge.loop else ""]
    return ", ".join(part for part in parts if part)


def _label(edge: EdgeSpec, space: str) -> str:
    when = f"{space}when {edge.when}" if edge.when else ""
    return f"{when}{space}loop {edge.loop}" if edge.loop else when
