"""Pictures of a team: Mermaid text for documents, SVG for reports. The same team always gives the same characters."""

from collections.abc import Mapping
from dataclasses import dataclass
from io import StringIO
from itertools import pairwise

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch
from matplotlib.path import Path

from mas.core.naming import local_name, scope_of, scoped
from mas.core.team import DONE, START, EdgeSpec, TeamSpec
from mas.graph.layout import GraphLayout, place
from mas.graph.plan import TeamPlan
from mas.graph.wiring import drawn_edges, edge_label, gates, join_label

_CHARACTER_IN, _GAP_IN, _ROW_IN, _BOX_IN, _MARGIN_IN = 0.098, 0.62, 0.95, 0.52, 0.3
_INK, _LOOP_INK, _PAPER = "#33415c", "#b5542b", "#ffffff"
_FILLS = {
    "plan": "#dbe9fb",
    "action": "#dcf2e1",
    "verdict": "#fdeccb",
    "feedback": "#fbdfd6",
    "note": "#ece9f6",
    "items": "#d9f1f3",
}

Point = tuple[float, float]


def mermaid(team: TeamPlan | TeamSpec) -> str:
    """A Mermaid flowchart; loops are dotted, routes and bounds stand on the arrows, teams within are frames."""
    spec = team.spec if isinstance(team, TeamPlan) else team
    names = {START: START, DONE: f"{DONE}_"} | {agent: f"n{index}" for index, agent in enumerate(spec.members())}
    names |= {gate: f"g{index}" for index, gate in enumerate(gates(spec))}
    lines = ["flowchart LR", *_mermaid_nodes(spec, names, "", "    ")]
    for edge in drawn_edges(spec):
        label = f'|"{_quoted(edge_label(edge))}"|' if edge_label(edge) else ""
        lines.append(f"    {names[edge.source]} {'-.->' if edge.loop else '-->'}{label} {names[edge.target]}")
    return "\n".join(lines) + "\n"


def _mermaid_nodes(spec: TeamSpec, names: Mapping[str, str], scope: str, indent: str) -> list[str]:
    """The nodes of one team, each team within it in its place."""
    start, done = scoped(scope, START), scoped(scope, DONE)
    lines = [f'{indent}{names[start]}(["{_mermaid_title(spec, start, START)}"])']
    for agent, role in spec.members().items():
        if scope_of(agent) == scope:
            own = local_name(agent)
            lines.append(f'{indent}{names[agent]}["{_mermaid_title(spec, agent, own, "" if role == own else role)}"]')
    for number, team in enumerate(spec.teams):
        if scope_of(team) == scope:
            lines.append(f'{indent}subgraph t{number}["{_quoted(local_name(team))}"]')
            lines += [*_mermaid_nodes(spec, names, team, f"{indent}    "), f"{indent}end"]
    return [*lines, f'{indent}{names[done]}(["{_mermaid_title(spec, done, DONE)}"])']


def _mermaid_title(spec: TeamSpec, node: str, *lines: str) -> str:
    return _quoted("<br/>".join(line for line in (*lines, join_label(spec, node)) if line))


def svg(plan: TeamPlan, outlines: Mapping[str, str] | None = None) -> str:
    """An SVG drawing, laid out from left to right, loops as dashed curves below.

    Args:
        outlines: agent -> colour of its box's outline; None: all have the same.
    """
    sheet = _measure(plan)
    figure = Figure(figsize=(sheet.width, sheet.height))
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set_xlim(0, sheet.width)
    axes.set_ylim(0, sheet.height)
    axes.set_axis_off()
    for ends, label in _labels(plan.spec).items():
        _draw_forward(axes, sheet, ends, label)
    for lane, edge in enumerate(sheet.loops):
        _draw_loop(axes, sheet, edge, lane)
    for node in _nodes(plan):
        _draw_node(axes, sheet, plan, node, (outlines or {}).get(node))
    text = StringIO()
    with rc_context({"svg.hashsalt": plan.digest, "svg.fonttype": "path"}):
        figure.savefig(text, format="svg", metadata={"Date": None, "Creator": None, "Title": plan.spec.name})
    return text.getvalue()


@dataclass(frozen=True, slots=True)
class _Sheet:
    """Everything placed, in inches.

    Attributes:
        centre: of nodes and of the points that long arrows pass; box: width of each, a point's is its column's.
        loops: loop edges, the shortest first; floor: height that each loop's curve reaches down to.
    """

    layout: GraphLayout
    centre: Mapping[str, Point]
    box: Mapping[str, float]
    loops: tuple[EdgeSpec, ...]
    floor: tuple[float, ...]
    width: float
    height: float


def _measure(plan: TeamPlan) -> _Sheet:
    layout = place(plan.spec)
    box = {node: _text_width(*_titles(plan, node)) + 0.34 for node in _nodes(plan)}
    columns = range(max(layout.column.values()) + 1)
    widths = [max(box.get(node, 0.0) for node, at in layout.column.items() if at == column) for column in columns]
    gaps = _gaps(plan.spec, layout, len(columns))
    lefts = [_MARGIN_IN + sum(widths[:column]) + sum(gaps[:column]) for column in columns]
    loops = tuple(sorted((edge for edge in drawn_edges(plan.spec) if edge.loop), key=lambda edge: _span(layout, edge)))
    floor = [_floor(layout, edge, lane) for lane, edge in enumerate(loops)]
    lowest = min(min(layout.row.values()) * _ROW_IN - _BOX_IN / 2, *(y - 0.1 for y in floor), 0)
    highest = max(layout.row.values()) * _ROW_IN + _BOX_IN / 2
    return _Sheet(
        layout=layout,
        centre={
            node: (lefts[at] + widths[at] / 2, layout.row[node] * _ROW_IN - lowest + _MARGIN_IN)
            for node, at in layout.column.items()
        },
        box=box | {node: widths[at] for node, at in layout.column.items() if node not in box},
        loops=loops,
        floor=tuple(y - lowest + _MARGIN_IN for y in floor),
        width=lefts[-1] + widths[-1] + _MARGIN_IN,
        height=highest - lowest + 2 * _MARGIN_IN,
    )


def _floor(layout: GraphLayout, edge: EdgeSpec, lane: int) -> float:
    """How far down a loop's curve reaches: below everything that stands between its ends, shorter loops included."""
    first, last = sorted((layout.column[edge.source], layout.column[edge.target]))
    under = min(layout.row[node] for node, column in layout.column.items() if first <= column <= last)
    return under * _ROW_IN - _BOX_IN / 2 - 0.45 * (lane + 1)


def _gaps(spec: TeamSpec, layout: GraphLayout, columns: int) -> list[float]:
    """Space right of each column: enough for the labels of the arrows that begin there."""
    gaps = [_GAP_IN] * columns
    for (source, _), label in _labels(spec).items():
        column = layout.column[source]
        gaps[column] = max(gaps[column], _text_width(label) * 0.85 + 0.55)
    return gaps


def _span(layout: GraphLayout, edge: EdgeSpec) -> int:
    return abs(layout.column[edge.source] - layout.column[edge.target])


def _labels(spec: TeamSpec) -> dict[tuple[str, str], str]:
    """One label per forward arrow; several routes to one target share it."""
    labels: dict[tuple[str, str], str] = {}
    for edge in drawn_edges(spec):
        if edge.loop is None:
            ends = (edge.source, edge.target)
            labels[ends] = " / ".join(part for part in (labels.get(ends, ""), edge_label(edge)) if part)
    return labels


def _draw_forward(axes: Axes, sheet: _Sheet, ends: tuple[str, str], label: str) -> None:
    path = sheet.layout.paths[ends]
    vertices: list[Point] = []
    for node, following in pairwise(path):
        (x, y), (next_x, next_y) = sheet.centre[node], sheet.centre[following]
        right, left = x + sheet.box[node] / 2, next_x - sheet.box[following] / 2
        if vertices:
            vertices += [vertices[-1], (right, y)]
        middle = (right + left) / 2
        vertices += [(right, y), (middle, y), (middle, next_y), (left, next_y)]
    _arrow(axes, vertices, _INK, "solid")
    if label:
        (x, y), (next_x, next_y) = vertices[0], vertices[3]
        _label(axes, ((x + next_x) / 2, (y + next_y) / 2), label, _INK)


def _draw_loop(axes: Axes, sheet: _Sheet, edge: EdgeSpec, lane: int) -> None:
    floor = sheet.floor[lane]
    (x, y), (to_x, to_y) = sheet.centre[edge.source], sheet.centre[edge.target]
    shift = sheet.box[edge.source] / 4
    x, to_x = x + (shift if x == to_x else 0), to_x - (shift if x == to_x else 0)
    y, to_y = y - _BOX_IN / 2, to_y - _BOX_IN / 2 - 0.02
    reach, middle = 0.5 * abs(x - to_x), (x + to_x) / 2
    side = reach if x >= to_x else -reach
    vertices = [(x, y), (x, floor), (middle + side / 2, floor), (middle, floor)]
    vertices += [(middle - side / 2, floor), (to_x, floor), (to_x, to_y)]
    _arrow(axes, vertices, _LOOP_INK, "dashed")
    _label(axes, (middle, floor), edge_label(edge), _LOOP_INK)


def _arrow(axes: Axes, vertices: list[Point], ink: str, style: str) -> None:
    path = Path(vertices, [Path.MOVETO] + [Path.CURVE4] * (len(vertices) - 1))
    axes.add_patch(
        FancyArrowPatch(
            path=path, arrowstyle="-|>,head_length=6,head_width=3", color=ink, linestyle=style, linewidth=1.3, zorder=1
        )
    )


def _label(axes: Axes, at: Point, text: str, ink: str) -> None:
    paper = {"boxstyle": "round,pad=0.15", "facecolor": _PAPER, "edgecolor": "none"}
    axes.text(*at, text, color=ink, fontsize=8.5, ha="center", va="center", bbox=paper, zorder=2)


def _draw_node(axes: Axes, sheet: _Sheet, plan: TeamPlan, node: str, colour_of_role: str | None) -> None:
    (x, y), width = sheet.centre[node], sheet.box[node]
    is_end = node not in plan.roles
    fill = _INK if is_end else _FILLS.get(plan.roles[node].emits, _PAPER)
    height = 0.34 if is_end else _BOX_IN
    corner = f"round,pad=0,rounding_size={height / 2 if is_end else 0.09}"
    outline = (2.2 if node in plan.spec.outputs else 1.1) + (0.7 if colour_of_role else 0.0)
    axes.add_patch(
        FancyBboxPatch(
            (x - width / 2, y - height / 2),
            width,
            height,
            corner,
            facecolor=fill,
            edgecolor=colour_of_role or _INK,
            linewidth=outline,
            zorder=3,
        )
    )
    title, *below = _titles(plan, node)
    colour = _PAPER if is_end else "#1b2436"
    axes.text(x, y + (0.08 if below else 0), title, color=colour, fontsize=10, ha="center", va="center", zorder=4)
    for text in below:
        axes.text(x, y - 0.12, text, color="#5b6780", fontsize=8, ha="center", va="center", zorder=4)


def _titles(plan: TeamPlan, node: str) -> tuple[str, ...]:
    """What stands in a box: the agent, and below it what it emits, with its role where that has another name."""
    wait = join_label(plan.spec, node)
    if node not in plan.roles:
        return (f"{node}, {wait}" if wait else node,)
    role = plan.roles[node]
    below = role.emits if role.name == local_name(node) else f"{role.name}: {role.emits}"
    return node, f"{below}, {wait}" if wait else below


def _nodes(plan: TeamPlan) -> tuple[str, ...]:
    return (START, *plan.agents, *gates(plan.spec), DONE)


def _text_width(*lines: str) -> float:
    return max(len(line) for line in lines) * _CHARACTER_IN


def _quoted(text: str) -> str:
    return text.replace('"', "#quot;")
