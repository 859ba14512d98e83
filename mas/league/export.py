"""A tournament as files: its games as JSON lines, its tables as CSV, and one self-contained page."""

from collections import Counter
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import jinja2
import msgspec
from markupsafe import Markup

from mas.core.environment import Environment
from mas.core.printable import printable
from mas.league.match import PlayedGame
from mas.league.page_parts import TEMPLATES, difference_tables, game_steps, payoffs, win_rates
from mas.league.payoff import Payoff
from mas.league.standings import Standings
from mas.league.tables import command_again, notes
from mas.observe.files import write_bytes_atomic, writing

COLUMNS = (
    *("player", "mu", "sigma", "ordinal", "games", "wins", "draws", "losses", "points", "low", "high"),
    *("payoff", "payoff_low", "payoff_high", "nash", "alpha_rank", "illegal"),
)
"""Of `ladder.csv`."""


PAYOFF_COLUMNS = ("player", "opponent", "games", "mean", "variance")
"""Of `payoff.csv`."""


def export_tournament(
    name: str,
    terms: Mapping[str, Any],
    table: Standings,
    games: Sequence[PlayedGame],
    game: Environment,
    out: Path,
    replays: int,
) -> list[Path]:
    """Write `games.jsonl`, the ladder and the payoffs as CSV and, with pyarrow, as Parquet, figures, and `index.html`.

    Args:
        game: to play the games of the page again.
        replays: games of each pairing, the first ones.

    Returns:
        The files.

    Raises:
        RunDirectoryError: it cannot be written. EnvironmentFault: a game that cannot be told again; nothing is written.
    """
    from mas.league.figures import figure_files  # matplotlib, which no other part of a page needs

    files = {"games.jsonl": msgspec.json.Encoder().encode_lines(games), **_tables(table), **figure_files(table, games)}
    page = tournament_page(name, terms, table, games, game, replays, tuple(files))
    files["index.html"] = page.encode()
    with writing(out, ". Choose another --out."):
        out.mkdir(parents=True, exist_ok=True)
        for file, content in files.items():
            write_bytes_atomic(out / file, content)
    return [out / file for file in files]


def _tables(table: Standings) -> dict[str, bytes]:
    """Name -> content of the ladder's and the payoffs' files."""
    from mas.observe.figures import csv_table, has_parquet, parquet_table

    tables = {"ladder": (COLUMNS, _ladder_rows(table)), "payoff": (PAYOFF_COLUMNS, _payoff_rows(table.payoff))}
    files = {f"{name}.csv": csv_table(columns, rows) for name, (columns, rows) in tables.items()}
    if has_parquet():
        files |= {f"{name}.parquet": parquet_table(columns, rows) for name, (columns, rows) in tables.items()}
    return files


def _ladder_rows(table: Standings) -> list[tuple[Any, ...]]:
    """A row for each player."""
    return [
        (
            *(row.name, row.rating.mu, row.rating.sigma, row.rating.ordinal),
            *(row.games, row.wins, row.draws, row.losses, row.points, row.interval.low, row.interval.high),
            *(row.payoff, row.paid.low, row.paid.high, row.nash, row.alpha_rank, row.illegal),
        )
        for row in table.standings
    ]


def _payoff_rows(payoff: Payoff) -> list[tuple[Any, ...]]:
    """A row for each ordered pair that met."""
    return [
        (name, other, int(payoff.games[i, j]), float(payoff.mean[i, j]), float(payoff.variance[i, j]))
        for i, name in enumerate(payoff.players)
        for j, other in enumerate(payoff.players)
        if payoff.games[i, j]
    ]


def tournament_page(
    name: str,
    terms: Mapping[str, Any],
    table: Standings,
    games: Sequence[PlayedGame],
    game: Environment,
    replays: int,
    files: Sequence[str],
) -> str:
    """The page: ladder, heat maps of win rates and payoffs, replays; no script, nothing from elsewhere.

    Args:
        files: that lie beside it.
    """
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES), autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True
    )
    palette = resources.files("mas.observe").joinpath("palette.css").read_text(encoding="utf-8")
    return environment.get_template("tournament.html").render(
        name=name,
        terms={"rounds": 0, "games": "?", "seed": "?", **terms},
        games=len(games),
        table=table,
        files=files,
        notes=notes(table),
        command=printable(command_again(name, terms)),
        rates=win_rates(table, games),
        payoffs=payoffs(table),
        differences=difference_tables(table),
        replays=[(played, game_steps(game, played)) for played in _shown(games, replays)],
        styles=Markup(palette + (TEMPLATES / "tournament.css").read_text(encoding="utf-8")),
    )


def _shown(games: Sequence[PlayedGame], replays: int) -> list[PlayedGame]:
    """The first games of each pairing."""
    seen: Counter[frozenset[str]] = Counter()
    found = []
    for game in games:
        pair = frozenset(game.players)
        if seen[pair] < replays:
            found.append(game)
        seen[pair] += 1
    return found
