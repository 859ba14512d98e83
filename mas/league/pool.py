"""The pool of a league: the gate before it, and the snapshots that came through, with their lineage, kept for good.

The gate says how sure one may be that a candidate is good enough. A member that was trained is kept as a small
directory of its own: configuration, team and adapters, so that the run it came from may go on and forget its
checkpoints. A snapshot costs its adapters and nothing else.
"""

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Literal

import msgspec

from mas.config.servers import RunSource
from mas.core.concurrency import run_blocking
from mas.core.errors import ConfigError
from mas.core.naming import did_you_mean
from mas.core.seeds import derive_seed, digest
from mas.league.games import open_world
from mas.league.match import LeagueMember, PlayedGame
from mas.league.players import pinned, play_games
from mas.league.standings import deals_of
from mas.league.store import LeagueStore
from mas.league.tournament import Terms
from mas.observe.files import write_directory_atomic
from mas.observe.significance import Interval, mean_interval, wilson

Measure = Literal["points", "payoff"]
EVEN: Mapping[Measure, float] = {"points": 0.5, "payoff": 0.0}
"""What equally good players have in a zero-sum game."""
GATE, FORGETTING = "gate: ", "forgetting: "
"""What names of tournaments begin with that nobody asked for by name."""
BEST, ALL = "best", "all"


@dataclass(frozen=True, slots=True, kw_only=True)
class GateTerms:
    """What a candidate must do.

    Attributes:
        against: `best` member, `all` members, or one by its name.
        games: against each of them, an even number.
        threshold: as in `judge`.
    """

    against: str = BEST
    games: int = 100
    measure: Measure = "points"
    threshold: float | None = None
    confidence: float = 0.95
    seed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class GateVerdict:
    """What a gate measured.

    Attributes:
        measure: `points` per game (Wilson's interval), or `payoff` per game (Student's).
        mean, interval: of all games; the interval is over deals.
        against: opponent -> points per game.
        threshold: what the interval must lie above.
        is_best: whether the candidate is surely better than the best member was.
    """

    measure: Measure
    games: int
    mean: float
    interval: Interval
    against: Mapping[str, float]
    threshold: float
    is_best: bool

    @property
    def passes(self) -> bool:
        """Whether it is let in: nobody was there to play against, or the whole interval lies above the threshold."""
        return not self.games or self.interval.low > self.threshold

    def notes(self) -> dict[str, float]:
        if not self.games:
            return {"best": 1.0}
        found = {"games": float(self.games), self.measure: self.mean, "low": self.interval.low}
        found |= {"high": self.interval.high, "threshold": self.threshold, "best": float(self.is_best)}
        return found | {_against(name): points for name, points in self.against.items()}


def judge(
    candidate: str,
    games: Sequence[PlayedGame],
    *,
    best: str | None,
    measure: Measure = "points",
    threshold: float | None = None,
    confidence: float = 0.95,
) -> GateVerdict:
    """What a candidate's games say: the lower bound of what it gets per game must exceed the threshold.

    The test is on the confidence bound, not on the mean, so that a few lucky games admit nobody. One observation is a
    deal: the games of one deal, one from each seat, are not independent.

    Args:
        games: of the candidate, one opponent each; none: it is the first of all.
        best: the best member; None: there is none, and the candidate is.
        measure: points say who wins more often, payoffs who wins more: in poker these differ.
        threshold: None: what equals have, 0.5 points or a payoff of 0.

    Raises:
        ConfigError: a confidence outside of 0 to 1.
    """
    threshold = EVEN[measure] if threshold is None else threshold
    everybody = _values(candidate, games, measure)
    by_opponent: dict[str, list[PlayedGame]] = {}
    for game in games:
        (opponent,) = (name for name in game.players if name != candidate)
        by_opponent.setdefault(opponent, []).append(game)
    leading = _values(candidate, by_opponent.get(best or "", []), measure)
    is_best = best is None or (len(leading) > 1 and _interval(leading, measure, confidence).low > EVEN[measure])
    return GateVerdict(
        measure=measure,
        games=len(games),
        mean=fmean(everybody or [0.0]),
        interval=_interval(everybody, measure, confidence) if everybody else Interval(0.0, 0.0),
        against={name: fmean(_values(candidate, own, "points")) for name, own in by_opponent.items()},
        threshold=threshold,
        is_best=is_best,
    )


def best_of(members: Sequence[LeagueMember]) -> str | None:
    """The last member that was surely better than the best one before it; the first one, if nobody was. None: there
    are no members."""
    return next((one.name for one in reversed(members) if one.notes.get("best")), members[0].name if members else None)


def ancestors(members: Sequence[LeagueMember], name: str) -> list[LeagueMember]:
    """All members that one descends from, its parent first.

    Raises:
        ConfigError: no such member.
    """
    known = {one.name: one for one in members}
    if name not in known:
        raise ConfigError(f"no member {name!r} in this league. {did_you_mean(name, known)}")
    found, parent = list[LeagueMember](), known[name].parent
    while parent is not None:
        found.append(known[parent])
        parent = known[parent].parent
    return found


def points_at_gate(member: LeagueMember, opponent: str) -> float | None:
    """Points per game that a member had against another one when it came; None: they did not play."""
    return member.notes.get(_against(opponent))


def _against(opponent: str) -> str:
    return f"against {opponent}"


def _values(player: str, games: Sequence[PlayedGame], measure: Measure) -> list[float]:
    """Of each deal the mean of what a player got."""
    return [(deal.points if measure == "points" else deal.returns)[player] for deal in deals_of(games)]


def _interval(values: Sequence[float], measure: Measure, confidence: float) -> Interval:
    if measure == "points":
        return wilson(sum(values), len(values), confidence)
    return mean_interval(values, confidence)


def enter(
    store: LeagueStore, keep: Path, candidate: LeagueMember, game: str, gate: GateTerms, at_once: int
) -> GateVerdict:
    """Let a candidate play, and into the league if it passes. Killed, the same call goes on.

    Args:
        keep: the directory of all members' adapters.
        candidate: its source is kept as a copy, if it is a run's.
        game: an id; empty: that of the league, else that which the run was trained on.

    Raises:
        ConfigError: what `Store.enter` refuses, no such opponent, a game that is not the league's, or a name that no
            directory can have.
        RunDirectoryError: no such run or step. Otherwise as `open_players`.
    """
    if candidate.name in (".", ".."):
        raise ConfigError(f"--name {candidate.name}: no directory can be called so, and a member has one; say another")
    store.check_new(candidate)
    members = store.members()
    game, opponents = _game(store, candidate, game), _opponents(members, gate.against)
    (source,) = pinned({"": candidate.source}).values()
    run, mark = RunSource.parse(source), ""
    if run is not None:
        mark = f" {_copied(run, keep / candidate.name)}"
        source = member_source(keep, candidate)
        candidate = msgspec.structs.replace(candidate, source=source, step=run.step or 0)
    terms = Terms(
        game=game,
        players={candidate.name: source, **{one.name: one.source for one in opponents}},
        games=gate.games,
        # Other deals than those of a tournament with the same seed: what let it in is no evidence a second time.
        seed=derive_seed(GATE, gate.seed),
        challenger=candidate.name,
    )
    name, games = f"{GATE}{candidate.name}{mark}", list[PlayedGame]()
    world = open_world(game)
    if opponents:
        games = run_blocking(play_games(name, terms, store, world, at_once))
    else:
        store.begin(name, terms.as_dict())
    verdict = judge(
        candidate.name,
        games,
        best=best_of(members),
        measure=gate.measure,
        threshold=gate.threshold,
        confidence=gate.confidence,
    )
    if verdict.passes:
        store.enter(msgspec.structs.replace(candidate, source=source, notes=verdict.notes()))
    elif run is not None:
        shutil.rmtree(keep / candidate.name)
    return verdict


def member_source(keep: Path, member: LeagueMember) -> str:
    """The source of a member: of a run, its copy."""
    run = RunSource.parse(member.source)
    return member.source if run is None else str(RunSource(keep / member.name, is_greedy=run.is_greedy))


def play_ancestors(
    store: LeagueStore, name: str, *, games: int, seed: int, at_once: int
) -> tuple[LeagueMember, list[PlayedGame]]:
    """Let a member play all its ancestors; it, and the games.

    Args:
        name: of the member; empty: the newest.

    Raises:
        ConfigError: no such member, or one without ancestors.
    """
    members = store.members()
    if not members:
        raise ConfigError("this league has no members: mas league enter lets them in")
    newest = name or members[-1].name
    line = ancestors(members, newest)
    member = next(one for one in members if one.name == newest)
    if not line:
        raise ConfigError(f"member {newest!r} descends from nobody: there is nothing that it could have forgotten")
    game = pool_game(store)
    players = {one.name: one.source for one in (member, *line)}
    # Other deals than those of a gate or a tournament with the same seed.
    terms = Terms(game=game, players=players, games=games, seed=derive_seed(FORGETTING, seed), challenger=newest)
    tournament = f"{FORGETTING}{newest}, {games} games, seed {seed}"
    return member, run_blocking(play_games(tournament, terms, store, open_world(game), at_once))


def pool_game(store: LeagueStore) -> str:
    """What the members play; empty: there have been no candidates yet."""
    played_by = {terms["game"] for name, terms in store.tournaments().items() if name.startswith(GATE)}
    return str(min(played_by, default=""))


def _game(store: LeagueStore, candidate: LeagueMember, game: str) -> str:
    known, run = pool_game(store), RunSource.parse(candidate.source)
    if known and game not in ("", known):
        raise ConfigError(f"--game {game}: the members of this league play {known}; take another --league")
    if known or game:
        return known or game
    if run is None:
        raise ConfigError(f"--game is needed: {candidate.source} plays any")
    from mas.league.trained_players import game_of

    return game_of(run.path)


def _opponents(members: list[LeagueMember], against: str) -> list[LeagueMember]:
    if against == ALL or not members:
        return members
    wanted = best_of(members) if against == BEST else against
    ancestors(members, str(wanted))  # refuses a name that is nobody's
    return [one for one in members if one.name == wanted]


def _copied(run: RunSource, target: Path) -> str:
    """Keep what a player needs of a run; a fingerprint of it."""
    from mas.training.saved import adapter_directories

    paths = {
        f"adapters/{one.name}/{file.name}": file
        for one in adapter_directories(run.path, run.step)
        for file in one.iterdir()
    }
    paths |= {name: run.path / name for name in ("config.yaml", "team.yaml") if (run.path / name).is_file()}
    files = {name: path.read_bytes() for name, path in sorted(paths.items())}
    target.parent.mkdir(parents=True, exist_ok=True)
    write_directory_atomic(target, files)
    return digest(*(f"{name} {content.hex()}" for name, content in files.items() if name.startswith("adapters/")))
