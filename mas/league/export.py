"""A tournament as files: its games as JSON lines, its tables as CSV, and one self-contained page."""

import csv
import io
from collections import Counter
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import jinja2
import msgspec
from markupsafe import Markup

from mas.core.environment import Environment
from mas.core.errors import RunDirectoryError
from mas.league.match import PlayedGame
from mas.league.page_parts import TEMPLATES, difference_tables, game_steps, payoffs, win_rates
from mas.league.payoff import Payoff
from mas.league.standings import Standings
from mas.league.tables import notes
from mas.observe.files import text_cell, write_bytes_atomic, write_text_atomic

COLUMNS = (
    *("player", "mu", "sigma", "ordinal", "games", "wins", "draws", "losses", "points", "low", "high"),
    *("payoff", "payoff_low", "payoff_high", "nash", "alpha_rank", "illegal"),
)
"""Of `ladder.csv`."""


FILES = ("ladder.csv", "payoff.csv", "games.jsonl")
"""What lies beside the page."""


def export_tournament(
    name: str,
    terms: Mapping[str, Any],
    table: Standings,
    games: Sequence[PlayedGame],
    game: Environment,
    out: Path,
    replays: int,
) -> list[Path]:
    """Write `games.jsonl`, `ladder.csv`, `payoff.csv` and `index.html` into a directory.

    Args:
        game: to play the games of the page again.
        replays: games of each pairing, the first ones.

    Returns:
        The files.

    Raises:
        RunDirectoryError: it cannot be written. EnvironmentFault: a game that cannot be told again; nothing is written.
    """
    page = tournament_page(name, terms, table, games, game, replays)
    lines = msgspec.json.Encoder().encode_lines(games)
    try:
        out.mkdir(parents=True, exist_ok=True)
        write_bytes_atomic(out / "games.jsonl", lines)
        write_text_atomic(out / "ladder.csv", ladder_csv(table))
        write_text_atomic(out / "payoff.csv", payoff_csv(table.payoff))
        write_text_atomic(out / "index.html", page)
    except OSError as error:
        raise RunDirectoryError(f"{out} cannot be written: {error.strerror}. Choose another --out.") from error
    return [out / file for file in ("games.jsonl", "ladder.csv", "payoff.csv", "index.html")]


def ladder_csv(table: Standings) -> str:
    """The ladder, a row for each player."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for row in table.standings:
        rating = (row.rating.mu, row.rating.sigma, row.rating.ordinal)
        counts = (row.games, row.wins, row.draws, row.losses, row.points)
        rest = (
            row.interval.low,
            row.interval.high,
            row.payoff,
            row.paid.low,
            row.paid.high,
            row.nash,
            row.alpha_rank,
            row.illegal,
        )
        writer.writerow((text_cell(row.name), *rating, *counts, *rest))
    return text.getvalue()


def payoff_csv(payoff: Payoff) -> str:
    """A row for each ordered pair that met."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(("player", "opponent", "games", "mean", "variance"))
    for i, name in enumerate(payoff.players):
        for j, other in enumerate(payoff.players):
            if payoff.games[i, j]:
                cells = (int(payoff.games[i, j]), float(payoff.mean[i, j]), float(payoff.variance[i, j]))
                writer.writerow((text_cell(name), text_cell(other), *cells))
    return text.getvalue()


def tournament_page(
    name: str, terms: Mapping[str, Any], table: Standings, games: Sequence[PlayedGame], game: Environment, replays: int
) -> str:
    """The page: ladder, heat maps of win rates and payoffs, replays; no script, nothing from elsewhere."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES), autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True
    )
    palette = resources.files("mas.observe").joinpath("palette.css").read_text(encoding="utf-8")
    return environment.get_template("tournament.html").render(
        name=name,
        terms=terms,
        games=len(games),
        table=table,
        files=FILES,
        notes=notes(table),
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
