"""Edges as the text that people write in a team's file, and read beside an arrow."""

from mas.core.team import START, EdgeSpec, TeamSpec


def edge_text(edge: EdgeSpec) -> str:
    """`a -> b when ROUTE loop N map`, as it is written in a team's file."""
    when = f" when {edge.when}" if edge.when else ""
    loop = f" loop {edge.loop}" if edge.loop else ""
    return f"{edge.source} -> {edge.target}{when}{loop}{' map' if edge.map else ''}"


def edge_label(edge: EdgeSpec) -> str:
    """What stands beside an arrow: the route, the loop's bound, that each item goes alone; empty where it has none."""
    parts = [edge.when or "", f"up to {edge.loop}×" if edge.loop else "", "each" if edge.map else ""]
    return ", ".join(part for part in parts if part)


def join_label(spec: TeamSpec, node: str) -> str:
    """How a node waits, as it stands in its box; empty for one that waits for all without a limit."""
    join = spec.join(node.removesuffix(f".{START}"))
    parts = [f"{join.need}" if join.need != "all" else "", f"{join.timeout_s:g} s" if join.timeout_s else ""]
    waits = ", ".join(part for part in parts if part)
    return f"waits: {waits}" if waits else ""
