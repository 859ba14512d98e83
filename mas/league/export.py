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

from mas.core.environment import Environment
from mas.core.errors import RunDirectoryError
from mas.league.match import PlayedGame, replay
from mas.league.payoff import Payoff
from mas.league.standings import Standings
from mas.league.tables import difference_cells, notes
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
    """The page: ladder, payoffs as a heat map, replays to step through; no script, nothing loaded from elsewhere."""
    template = resources.files("mas.league").joinpath("tournament.html").read_text(encoding="utf-8")
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True)
    shown = _shown(games, replays)
    return environment.from_string(template).render(
        name=name,
        terms=terms,
        games=len(games),
        rows=table.standings,
        files=FILES,
        notes=notes(table),
        confidence=table.confidence,
        order=table.order,
        players=[row.name for row in table.standings],
        cells=_cells(table),
        differences=[
            (title, [(one.first, one.second, *difference_cells(one)) for one in comparisons])
            for title, comparisons in (
                ("In their own games", table.comparisons),
                ("Against all others", table.against_others),
            )
            if comparisons
        ],
        replays=[(played, _steps(game, played)) for played in shown],
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


def _steps(game: Environment, played: PlayedGame) -> list[tuple[str, str]]:
    """What was said at each step, and how it stood then; the first one is the beginning."""
    boards = replay(game, played)
    said = [""] * len(boards)
    for move in played.moves:
        text = f"{move.player}: {move.text or 'passes'}{'' if move.is_legal else ' (not a legal move)'}"
        said[move.step + 1] = f"{said[move.step + 1]}\n{text}".strip()
    return list(zip(said, boards, strict=True))


def _cells(table: Standings) -> list[list[tuple[str, int, str]]]:
    """The payoff matrix in the ladder's order: text, strength of the colour from -100 to 100, what is told of it."""
    payoff = table.payoff
    order = [payoff.players.index(row.name) for row in table.standings]
    largest = max(1e-12, float(abs(payoff.mean).max()))
    return [
        [
            (
                f"{payoff.mean[i, j]:+.2f}" if payoff.games[i, j] else "",
                round(100 * float(payoff.mean[i, j]) / largest) if payoff.games[i, j] else 0,
                f"{payoff.players[i]} against {payoff.players[j]}: {int(payoff.games[i, j])} games, "
                f"standard deviation {float(payoff.variance[i, j]) ** 0.5:.2f}",
            )
            for j in order
        ]
        for i in order
    ]
