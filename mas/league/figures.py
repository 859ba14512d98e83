"""The tables of a tournament as figures, SVG and PNG on white in the colours of the pages."""

import textwrap
from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

from mas.league.match import PlayedGame
from mas.league.page_parts import PairCell, payoffs, win_rates
from mas.league.standings import Standings
from mas.observe.charts import DOCUMENT_STYLE, drawing_style, saved_figure
from mas.observe.palette import LIGHT

_WIDEST = 24
"""Characters of a name in one line."""
_SHADE = 0.11
"""Of the colour of a cell per level, as in tournament.css."""
_UP, _DOWN = to_rgb("#17734a"), to_rgb("#b3261e")
"""`--good` and `--bad` of palette.css in light mode."""


def figure_files(table: Standings, games: Sequence[PlayedGame]) -> dict[str, bytes]:
    """Name -> content: `ladder`, `win_rates` and `payoffs`, each as SVG and as PNG."""
    names = [textwrap.fill(row.name, _WIDEST) for row in table.standings]
    drawn = {
        "ladder": _ladder(table, names),
        "win_rates": _heat("Points per game of the row against the column", win_rates(table, games), names),
        "payoffs": _heat("Payoff per game of the row against the column", payoffs(table), names),
    }
    with drawing_style(DOCUMENT_STYLE):
        return {
            f"{name}.{kind}": saved_figure(figure, kind) for name, figure in drawn.items() for kind in ("svg", "png")
        }


def _ladder(table: Standings, names: Sequence[str]) -> Figure:
    """Points and payoffs of a game with their intervals, the ladder's first on top."""
    rows = [row for row in table.standings if row.games]
    sides = (
        ("points per game", [(row.points / row.games, row.interval) for row in rows]),
        ("payoff per game", [(row.payoff, row.paid) for row in rows]),
    )
    with drawing_style(DOCUMENT_STYLE):
        figure = Figure(figsize=(8.0, 1.2 + 0.35 * len(rows)), layout="constrained", facecolor="white")
        panels = figure.subplots(1, 2, sharey=True, squeeze=False)[0]
        for axes, (label, values) in zip(panels, sides, strict=True):
            axes.set_xlabel(f"{label}, {100 * table.confidence:g} % interval")
            for place, (mean, interval) in enumerate(values):
                axes.plot([interval.low, interval.high], [place, place], color=LIGHT[0], linewidth=2)
                axes.plot([mean], [place], marker="o", color=LIGHT[0], markersize=4)
        panels[0].set_yticks(
            range(len(rows)), [name for name, row in zip(names, table.standings, strict=True) if row.games]
        )
        panels[0].invert_yaxis()
    return figure


def _heat(title: str, cells: Sequence[Sequence[PairCell | None]], names: Sequence[str]) -> Figure:
    with drawing_style(DOCUMENT_STYLE):
        size = 1.6 + 0.7 * len(names)
        figure = Figure(figsize=(size + 1.2, size), layout="constrained", facecolor="white")
        axes = figure.add_subplot()
        axes.set_title(title, loc="left")
        axes.imshow([[_colour(cell) for cell in row] for row in cells])
        for at, row in enumerate(cells):
            for across, cell in enumerate(row):
                if cell is not None:
                    axes.text(across, at, cell.text, ha="center", va="center")
        _label(axes, names)
    return figure


def _colour(cell: PairCell | None) -> tuple[float, ...]:
    share = 0.0 if cell is None else _SHADE * abs(cell.level)
    return tuple(1 - share + share * part for part in (_UP if cell is None or cell.level > 0 else _DOWN))


def _label(axes: Axes, names: Sequence[str]) -> None:
    axes.set_xticks(range(len(names)), names, rotation=45, ha="right", rotation_mode="anchor")
    axes.set_yticks(range(len(names)), names)
    axes.tick_params(length=0)
    for side in axes.spines.values():
        side.set_visible(False)
