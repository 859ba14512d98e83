"""A team as an SVG picture for inside a page: its arrows can be lit one by one, its colours are those of the page.

Columns and rows are those of `mas.graph.layout`. A team that is not well formed is drawn as far as possible: edges with
an unknown end are left out, and an edge that closes a cycle without a bound is drawn like a loop.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import networkx as nx
from markupsafe import Markup, escape

from mas.core.naming import local_name
from mas.core.team import DONE, START, EdgeSpec, TeamSpec
from mas.graph.layout import GraphLayout, place
from mas.graph.wiring import drawn_edges, edge_label, edge_text, gates, join_label
from mas.observe.palette import role_numbers

SERIES = 8
"""Colours of the palette; the ninth role has the first one again."""
_LETTER, _SMALL_LETTER = 8.1, 6.6
"""Width of a letter in a box and of one on an arrow, in pixels."""
_BOX, _END, _ROW, _GAP, _MARGIN, _LANE = 50.0, 30.0, 92.0, 54.0, 22.0, 34.0
_LONGEST = 22
"""Letters of a name that a box shows; the whole name is in its title."""

Point = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Arrow:
    """One arrow: the edges that it stands for, by position, and their common ends."""

    edges: tuple[int, ...]
    source: str
    target: str
    kind: str
    label: str


@dataclass(frozen=True, slots=True)
class _Picture:
    """Everything placed, in pixels. `floors`: by loop arrow, the height that it reaches down to."""

    layout: GraphLayout
    centre: Mapping[str, Point]
    width_of: Mapping[str, float]
    floors: Mapping[Arrow, float]
    width: float
    height: float


def role_colours(spec: TeamSpec) -> dict[str, int]:
    """Agent -> the number of its role's colour, as in every chart and conversation: the role's place in the team."""
    members = spec.members()
    number = role_numbers(members)
    return {agent: number[role] % SERIES for agent, role in members.items()}


def team_svg(spec: TeamSpec, kinds: Mapping[str, str], prefix: str = "") -> Markup:
    """The drawing of a team, whether or not it is well formed.

    Args:
        kinds: role -> the kind of its output; a role without one shows none.
        prefix: begins every id in it, unique on the page.
    """
    shown = _drawable(spec)
    arrows = _arrows(shown)
    nodes = (START, *shown.members(), *gates(shown), DONE)
    titles = {node: _titles(shown, node, kinds) for node in nodes}
    picture = _placed(shown, arrows, titles)
    colours = role_colours(spec)
    parts = [_arrow(picture, arrow, prefix) for arrow in arrows]
    parts += [_node(picture, spec, node, titles[node], colours.get(node)) for node in nodes]
    words = "; ".join(edge_text(edge) for edge in spec.edges) or "no edges"
    return Markup(
        '<svg class="team{size}" xmlns="http://www.w3.org/2000/svg" role="img" aria-label="{label}" '
        'viewBox="0 0 {w:.0f} {h:.0f}" width="{w:.0f}" height="{h:.0f}"><defs>{heads}</defs>{parts}'
        '<circle class="courier" r="7"/></svg>'
    ).format(
        label=f"team {spec.name}: {words}"[:2000],
        size=" huge" if picture.width > 1000 else " large" if picture.width > 620 else "",
        w=picture.width,
        h=picture.height,
        heads=Markup("").join(_heads(prefix)),
        parts=Markup("").join(parts),
    )


def _heads(prefix: str) -> Iterator[Markup]:
    """Arrow heads, one for each look that a line can have."""
    for name in ("plain", "route", "loop", "map", "lit"):
        yield Markup(
            '<marker id="{}head-{}" class="head {}" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="9" '
            'markerHeight="9" markerUnits="userSpaceOnUse" orient="auto"><path d="M0 1 L10 5 L0 9 z"/></marker>'
        ).format(prefix, name, name)


def _drawable(spec: TeamSpec) -> TeamSpec:
    """The team with the edges that can be drawn, each at its position; others become a loop of `start` and are left
    out by `_arrows`."""
    known = {START, *spec.members(), *gates(spec), *spec.teams, DONE}
    forward: nx.DiGraph[str] = nx.DiGraph()
    edges = []
    for edge, drawn in zip(spec.edges, drawn_edges(spec), strict=True):
        if edge.source not in known or edge.target not in known or edge.source == DONE or edge.target == START:
            edges.append(EdgeSpec(source=START, target=START, loop=1))
            continue
        if edge.loop is None:
            closes = drawn.source == drawn.target or (
                drawn.target in forward and drawn.source in nx.descendants(forward, drawn.target)
            )
            if closes:
                edge = edge.model_copy(update={"loop": 0})
            else:
                forward.add_edge(drawn.source, drawn.target)
        edges.append(edge)
    return spec.model_copy(update={"edges": tuple(edges)})


def _arrows(spec: TeamSpec) -> list[Arrow]:
    """Forward edges with the same ends share an arrow; every loop has its own."""
    forward: dict[tuple[str, str], list[int]] = {}
    arrows = []
    drawn = drawn_edges(spec)
    for number, edge in enumerate(drawn):
        if edge.source == edge.target == START:
            continue
        if edge.loop is None:
            forward.setdefault((edge.source, edge.target), []).append(number)
        else:
            label = edge_label(edge) or "without a bound"
            arrows.append(Arrow((number,), edge.source, edge.target, "loop", label))
    for (source, target), numbers in forward.items():
        edges = [drawn[number] for number in numbers]
        kind = "map" if edges[0].map else "route" if edges[0].when else "plain"
        label = " / ".join(text for edge in edges if (text := edge_label(edge)))
        arrows.append(Arrow(tuple(numbers), source, target, kind, label))
    return arrows


def _titles(spec: TeamSpec, node: str, kinds: Mapping[str, str]) -> tuple[str, ...]:
    """What stands in a box: the agent, and below it what it emits and how it waits."""
    members, wait = spec.members(), join_label(spec, node)
    if node not in members:
        return (f"{node}, {wait}" if wait else node,)
    role = members[node]
    kind = kinds.get(role, "")
    below = kind if role == local_name(node) else f"{role}: {kind}" if kind else role
    text = ", ".join(part for part in (below, wait) if part)
    return (node, text) if text else (node,)


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


def _placed(spec: TeamSpec, arrows: Sequence[Arrow], titles: Mapping[str, tuple[str, ...]]) -> _Picture:
    layout = place(spec)
    letters = {node: max(len(_short(line)) * (1.0 if at == 0 else 0.86) for at, line in enumerate(lines))
               for node, lines in titles.items()}  # fmt: skip
    width_of = {node: max(letters[node] * _LETTER + 28, 56) for node in titles}
    columns = range(max(layout.column.values()) + 1)
    widths = [max(width_of.get(node, 0.0) for node, at in layout.column.items() if at == column) for column in columns]
    gaps = [_GAP] * len(widths)
    for arrow in arrows:
        if arrow.kind != "loop" and arrow.label:
            column = layout.column[arrow.source]
            gaps[column] = max(gaps[column], len(arrow.label) * _SMALL_LETTER * 1.25 + 30)
    lefts = [_MARGIN + sum(widths[:column]) + sum(gaps[:column]) for column in columns]
    loops = sorted((one for one in arrows if one.kind == "loop"), key=lambda one: _span(layout, one))
    top = max(layout.row.values())
    height_of = {node: (top - row) * _ROW + _MARGIN + _BOX / 2 for node, row in layout.row.items()}
    floors = _floors(layout, loops, height_of)
    lowest = max(*(y + _BOX / 2 for y in height_of.values()), *(y + 10 for y in floors.values()), 0)
    return _Picture(
        layout=layout,
        centre={node: (lefts[at] + widths[at] / 2, height_of[node]) for node, at in layout.column.items()},
        width_of=width_of | {node: widths[at] for node, at in layout.column.items() if node not in width_of},
        floors=floors,
        width=lefts[-1] + widths[-1] + _MARGIN,
        height=lowest + _MARGIN,
    )


def _span(layout: GraphLayout, arrow: Arrow) -> int:
    return abs(layout.column[arrow.source] - layout.column[arrow.target])


def _floors(layout: GraphLayout, loops: Sequence[Arrow], height_of: Mapping[str, float]) -> dict[Arrow, float]:
    """How far down each loop reaches: below the boxes between its ends, and below shorter loops there."""
    floors: dict[Arrow, float] = {}
    taken: list[tuple[int, int, float]] = []
    for arrow in loops:
        first, last = sorted((layout.column[arrow.source], layout.column[arrow.target]))
        under = max(height_of[node] for node, column in layout.column.items() if first <= column <= last)
        floor = under + _BOX / 2 + _LANE
        while any(a <= last and first <= b and abs(y - floor) < _LANE - 1 for a, b, y in taken):
            floor += _LANE
        taken.append((first, last, floor))
        floors[arrow] = floor
    return floors


def _arrow(picture: _Picture, arrow: Arrow, prefix: str) -> Markup:
    path, (x, y) = _loop(picture, arrow) if arrow.kind == "loop" else _forward(picture, arrow)
    parts = [Markup('<path class="line" d="{}" marker-end="url(#{}head-{})"/>').format(path, prefix, arrow.kind)]
    if arrow.label:
        width = len(arrow.label) * _SMALL_LETTER + 12
        parts.append(
            Markup(
                '<rect class="paper" x="{:.1f}" y="{:.1f}" width="{:.1f}" height="18" rx="9"/>'
                '<text class="label" x="{:.1f}" y="{:.1f}">{}</text>'
            ).format(x - width / 2, y - 9, width, x, y + 4, arrow.label)
        )
    return Markup('<g class="edge {}" data-edges="{}" data-source="{}" data-target="{}">{}</g>').format(
        arrow.kind, " ".join(map(str, arrow.edges)), arrow.source, arrow.target, Markup("").join(parts)
    )


def _forward(picture: _Picture, arrow: Arrow) -> tuple[str, Point]:
    """The curve of a forward arrow, and the place of its label: on its first piece, past the middle, where the arrows
    that leave one box are apart already."""
    path, middle = "", (0.0, 0.0)
    for node, following in pairwise(picture.layout.paths[arrow.source, arrow.target]):
        (x, y), (next_x, next_y) = picture.centre[node], picture.centre[following]
        right, left = x + picture.width_of[node] / 2, next_x - picture.width_of[following] / 2 - 2
        half = (right + left) / 2
        path += f"M{right:.1f} {y:.1f}" if not path else f" L{right:.1f} {y:.1f}"
        path += f" C{half:.1f} {y:.1f} {half:.1f} {next_y:.1f} {left:.1f} {next_y:.1f}"
        middle = middle if middle != (0.0, 0.0) else (right + 0.59 * (left - right), y + 0.68 * (next_y - y))
    return path, middle


def _loop(picture: _Picture, arrow: Arrow) -> tuple[str, Point]:
    """The line of a loop: down, along its floor with round corners, and up."""
    floor = picture.floors[arrow]
    (x, y), (to_x, to_y) = picture.centre[arrow.source], picture.centre[arrow.target]
    shift = picture.width_of[arrow.source] / 5
    x, to_x = (x + shift, to_x - shift) if arrow.source == arrow.target else (x - shift, to_x + shift)
    y, to_y, turn = y + _BOX / 2, to_y + _BOX / 2 + 3, 12 if to_x > x else -12
    path = (
        f"M{x:.1f} {y:.1f} L{x:.1f} {floor - 12:.1f} Q{x:.1f} {floor:.1f} {x + turn:.1f} {floor:.1f} "
        f"L{to_x - turn:.1f} {floor:.1f} Q{to_x:.1f} {floor:.1f} {to_x:.1f} {floor - 12:.1f} L{to_x:.1f} {to_y:.1f}"
    )
    return path, ((x + to_x) / 2, floor)


def _node(picture: _Picture, spec: TeamSpec, node: str, lines: Sequence[str], colour: int | None) -> Markup:
    (x, y), width = picture.centre[node], picture.width_of[node]
    is_end = colour is None
    height = _END if is_end else _BOX
    look = "end" if is_end else f"agent series-{colour}{' output' if node in spec.outputs else ''}"
    parts = [
        Markup(
            '<title>{}</title><rect class="box" x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.0f}" rx="{}"/>'
        ).format(
            "\n".join(lines), x - width / 2, y - height / 2, width, height, height / 2 if is_end else 10
        )
    ]  # fmt: skip
    if not is_end:
        parts.append(
            Markup('<rect class="bar" x="{:.1f}" y="{:.1f}" width="5" height="{:.0f}" rx="2.5"/>').format(
                x - width / 2 + 7, y - height / 2 + 9, height - 18
            )
        )
    shift = 0 if is_end else 4
    for at, line in enumerate(lines):
        level = y + 5 if len(lines) == 1 else y - 3 if at == 0 else y + 14
        parts.append(
            Markup('<text class="{}" x="{:.1f}" y="{:.1f}">{}</text>').format(
                "name" if at == 0 else "kind", x + shift, level, _short(line)
            )
        )
    return Markup('<g class="node {}" data-node="{}">{}</g>').format(look, escape(node), Markup("").join(parts))
