"""Tables, members and games as people read them in a terminal."""

import shlex
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.table import Table as Grid
from rich.text import Text

from mas.core.environment import Environment
from mas.league.match import LeagueMember, PlayedGame, replay
from mas.league.pool import GateVerdict, ancestors, best_of, judge, points_at_gate
from mas.league.psro_terms import GrowthStep
from mas.league.response import Response
from mas.league.standings import Order, PlayerDifference, Standing, Standings
from mas.observe.report_records import Chart, Series
from mas.observe.significance import Interval


def command_again(name: str, terms: Mapping[str, Any]) -> str:
    """What plays a tournament again, in a league of its own; else why no command does.

    Sources of players are as they were given: paths of runs are those of the folder in which it was played.
    """
    if terms.get("challenger"):
        return "# no tournament of its own: mas league enter or mas league forgetting played it for a member"
    sources = {player: str(source) for player, source in terms["players"].items()}
    if unclear := [source for source in sources.values() if "=" in source]:
        return f"# no command plays it again: the source of a player has the sign =: {unclear[0]}"
    options = ("games", "rounds", "seed")
    words = [word for key in options if terms.get(key) is not None for word in (f"--{key}", str(terms[key]))]
    seats = [word for player, source in sources.items() for word in ("--player", f"{player}={source}")]
    place = ("--name", name, "--league", "again.db")
    return shlex.join(["mas", "league", "run", "--game", str(terms["game"]), *seats, *words, *place])


def ladder(table: Standings, title: str) -> Grid:
    """The ladder, best first: with ratings and an interval of the points, or in the order of payoffs with theirs."""
    sure, is_rated = f"{table.confidence:.0%} interval over deals", table.order == "rating"
    rated = f"points per game with Wilson's {sure}; rating: mu - 3 sigma"
    about = rated if is_rated else f"payoff per game with Student's {sure}"
    grid = Grid(title=title, caption=about, box=SIMPLE_HEAD, pad_edge=False)
    grid.add_column("")
    grid.add_column("player", overflow="fold", min_width=10)
    columns = ("rating", "w-d-l", "points", "payoff", "Nash", "alpha")
    for column in columns if is_rated else columns[1:]:
        grid.add_column(column, justify="right", no_wrap=True)
    for place, row in enumerate(table.standings, 1):
        grid.add_row(str(place), Text(row.name), *_cells(row, table.order))
    return grid


def _cells(row: Standing, order: Order) -> tuple[str, ...]:
    counts = f"{row.wins}-{row.draws}-{row.losses}"
    shares = tuple("-" if share is None else f"{share:.2f}" for share in (row.nash, row.alpha_rank))
    points, payoff = f"{row.points / row.games if row.games else 0.0:.2f}", f"{row.payoff:+.2f}"
    if order == "payoff":
        payoff += f" ({row.paid.low:+.2f} to {row.paid.high:+.2f})"
        return (counts, points, payoff, *shares) if row.games else (counts, "-", "-", *shares)
    points += f" ({row.interval.low:.2f}-{row.interval.high:.2f})"
    return (f"{row.rating.ordinal:.1f}", counts, points if row.games else "-", payoff, *shares)


def response_lines(found: Response, confidence: float) -> list[str]:
    """What an answer got, seat by seat, and what that says of the player."""

    def told(mean: float, interval: Interval) -> str:
        return f"{mean:+.3f} a game ({confidence:.0%}: {interval.low:+.3f} to {interval.high:+.3f})"

    lines = [f"the answer as {seat}: {told(*got)}" for seat, got in found.seats.items()]
    lines.append(f"over both seats, {found.games:,} games: {told(found.mean, found.interval)}")
    if found.is_zero_sum:
        low = max(found.interval.low, 0.0)
        lines.append(
            f"{found.source} can be exploited by {low:.3f} at least ({(1 + confidence) / 2:.1%} sure), so its NashConv "
            f"is {2 * low:.3f} at least; another answer may get more"
        )
    else:
        lines.append("the game is not zero-sum: what the answer gets bounds no exploitability")
    return lines


def differences(table: Standings, correction: str = "Holm") -> list[Grid]:
    """Who differs from whom: in their own games, and, of a round robin of three or more, against everybody else."""
    told = (
        ("head to head", "in their own games", "paired test of deals", table.comparisons),
        ("against the others", "against all others", "Welch", table.against_others),
    )
    found = []
    for title, where, test, comparisons in told:
        about = f"payoff a game {where}, {table.confidence:.0%} interval; g: Hedges; p: {test}, {correction}"
        grid = Grid(caption=about, box=SIMPLE_HEAD, pad_edge=False)
        grid.add_column(title, overflow="fold")
        for column in ("difference", "g", "p"):
            grid.add_column(column, justify="right", no_wrap=True)
        for one in comparisons:
            grid.add_row(Text(f"{one.first} - {one.second}"), *difference_cells(one))
        found += [grid] if comparisons else []
    return found


def difference_cells(one: PlayerDifference) -> tuple[str, str, str]:
    """Difference with its interval, effect, p."""
    found = one.difference
    span = f"{found.mean:+.2f} ({found.interval.low:+.2f} to {found.interval.high:+.2f})"
    return span, f"{found.g:+.2f}", f"{one.p:.2g}"


def notes(table: Standings) -> list[str]:
    """What has to be said beside a ladder: circles, and illegal moves."""
    found = []
    if table.misleads:
        found.append(
            f"{table.cyclic:.0%} of the payoffs are circles in which everybody loses to somebody, more than luck makes "
            f"(p = {table.cyclic_p:.2g}): read the columns Nash and alpha, not the order."
        )
    return found + [
        f"{row.name} made {row.illegal} illegal move{'s' * (row.illegal > 1)}."
        for row in table.standings
        if row.illegal
    ]


def verdict_line(name: str, verdict: GateVerdict) -> str:
    """Whether a candidate is let in, and why."""
    if not verdict.games:
        return f"{name} is the first member."
    said = f"{verdict.mean:.3f} {verdict.measure} a game ({verdict.interval.low:.3f} to {verdict.interval.high:.3f})"
    bound = f"the lower bound must exceed {verdict.threshold:g}"
    outcome = "is a member" + (", the best one" if verdict.is_best else "") if verdict.passes else "is not let in"
    return f"{name} {outcome}: {said} in {verdict.games:,} games against {', '.join(verdict.against)}; {bound}."


def lineage(members: Sequence[LeagueMember], game: str) -> Grid:
    """All members in the order in which they came, and from whom they descend."""
    title = f"{len(members)} members: {game}"
    grid = Grid(title=title, caption="*: the best one", box=SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    grid.add_column("")
    grid.add_column("member", overflow="fold", min_width=8)
    grid.add_column("parent", overflow="fold", min_width=6)
    for column in ("generation", "step"):
        grid.add_column(column, justify="right", no_wrap=True)
    grid.add_column("gate", min_width=15)  # breaks before its interval where the screen is narrow
    grid.add_column("games", justify="right", no_wrap=True)
    grid.add_column("source", overflow="fold", min_width=12)
    best = best_of(members)
    for one in members:
        generation = str(len(ancestors(members, one.name)))
        texts = (one.name, one.parent or "-", generation, str(one.step), *_gate(one), one.source)
        grid.add_row("*" if one.name == best else "", *(Text(text) for text in texts))
    return grid


def _gate(member: LeagueMember) -> tuple[str, str]:
    """What its gate measured, and in how many games."""
    notes = member.notes
    kind = "payoff" if "payoff" in notes else "points"
    if kind not in notes:
        return "-", "-"
    return f"{kind} {notes[kind]:.2f} ({notes['low']:.2f} to {notes['high']:.2f})", f"{notes['games']:.0f}"


def forgetting(
    member: LeagueMember, line: Sequence[LeagueMember], games: Sequence[PlayedGame], confidence: float = 0.95
) -> Grid:
    """How a member does against all that it descends from, beside how each one's child did when it came.

    Args:
        line: its ancestors, the parent first.
        games: of the member against each of them.
    """
    about = f"points per game with Wilson's {confidence:.0%} interval; lost: what the ancestor's child had more of"
    grid = Grid(title=f"{member.name} against its ancestors", caption=about, box=SIMPLE_HEAD, pad_edge=False)
    grid.add_column("ancestor", overflow="fold")
    for column in ("generations", "points", "payoff", "its child had", "lost"):
        grid.add_column(column, justify="right", no_wrap=True)
    for back, (one, child) in enumerate(zip(line, (member, *line), strict=False), 1):
        found = judge(
            member.name, [game for game in games if one.name in game.players], best=None, confidence=confidence
        )
        payoff = fmean(game.returns[game.players.index(member.name)] for game in games if one.name in game.players)
        before = points_at_gate(child, one.name)
        grid.add_row(
            Text(one.name),
            str(back),
            f"{found.mean:.2f} ({found.interval.low:.2f}-{found.interval.high:.2f})",
            f"{payoff:+.2f}",
            "-" if before is None else f"{before:.2f}",
            "-" if before is None else f"{before - found.mean:+.2f}",
        )
    return grid


def growth_line(told: GrowthStep) -> str:
    """An iteration of PSRO, and below it who is played how often."""
    sizes = " + ".join(str(len(names)) for names in told.players)
    said = [f"{sizes} players", f"value {told.value:+.3f}", f"inside {told.inside:.3f}"]
    said += [] if told.gained is None else [f"answers gain {told.gained:+.3f}"]
    said += [] if told.nash_conv is None else [f"NashConv {told.nash_conv:.3f}"]
    mixes = (", ".join(f"{share:.2f} {name}" for name, share in mix.items() if share >= 0.005) for mix in told.mixes)
    return f"iteration {told.number}: {', '.join(said)}\n  {' | '.join(mixes)}"


def growth_chart(game: str, found: Sequence[GrowthStep]) -> Chart:
    """How far the mixes of each iteration were from an equilibrium: exactly, where that is known, and by answers."""
    lines = {
        "NashConv of the mixes, exact": [(one.number, one.nash_conv) for one in found],
        "what the next answers gain": [(one.number, one.gained) for one in found],
    }
    series = []
    for name, points in lines.items():
        known = [(float(number), value) for number, value in points if value is not None]
        if known:
            xs, ys = zip(*known, strict=True)
            series.append(Series(name=name, xs=tuple(xs), ys=tuple(ys)))
    return Chart(title=f"PSRO: {game}", x_label="iteration", y_label="payoff, both seats", series=tuple(series))


def story(game: Environment, played: PlayedGame) -> str:
    """A game move by move: what was said, and how it stood then.

    Raises:
        EnvironmentFault: see `replay`.
    """
    boards, seats = replay(game, played), game.spec.seats
    lines = [f"{seat}: {name}" for seat, name in zip(seats, played.players, strict=True)] + ["", boards[0]]
    for step, board in enumerate(boards[1:]):
        said = [move for move in played.moves if move.step == step]
        lines += [
            "",
            *(
                f"{step + 1}. {move.player}: {move.text or 'passes'}{'' if move.is_legal else '   (not a legal move)'}"
                for move in said
            ),
            board,
        ]
    lines += ["", *(f"{name} got {got:+g}" for name, got in zip(played.players, played.returns, strict=True))]
    return "\n".join(lines)
