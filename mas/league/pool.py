"""The pool of a league: snapshots that came through a gate, with their lineage, kept for good.

A member that was trained is kept as a small directory of its own: configuration, team and adapters, so that the run it
came from may go on and forget its checkpoints. A snapshot costs its adapters and nothing else.
"""

import shutil
from dataclasses import dataclass
from pathlib import Path

import msgspec

from mas.config.servers import RunSource
from mas.core.concurrency import run_blocking
from mas.core.errors import ConfigError
from mas.core.naming import derive_seed, digest
from mas.league.games import open_world
from mas.league.gate import GateVerdict, Measure, ancestors, best_of, judge
from mas.league.playing import played
from mas.league.records import LeagueMember, PlayedGame
from mas.league.sources import pinned
from mas.league.store import LeagueStore
from mas.league.tournament import Terms
from mas.observe.atomic import write_directory_atomic

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


def enter(
    store: LeagueStore, keep: Path, candidate: LeagueMember, game: str, gate: GateTerms, at_once: int
) -> GateVerdict:
    """Let a candidate play, and into the league if it passes. Killed, the same call goes on.

    Args:
        keep: the directory of all members' adapters.
        candidate: its source is kept as a copy, if it is a run's.
        game: an id; empty: that of the league, else that which the run was trained on.

    Raises:
        ConfigError: what `Store.enter` refuses, no such opponent, or a game that is not the league's.
        RunDirectoryError: no such run or step. Otherwise as `open_players`.
    """
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
        seed=gate.seed,
        challenger=candidate.name,
    )
    name, games = f"{GATE}{candidate.name}{mark}", list[PlayedGame]()
    world = open_world(game)
    if opponents:
        games = run_blocking(played(name, terms, store, world, at_once))
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
    # Other deals than those of a gate with the same seed.
    terms = Terms(game=game, players=players, games=games, seed=derive_seed(FORGETTING, seed), challenger=newest)
    tournament = f"{FORGETTING}{newest}, {games} games, seed {seed}"
    return member, run_blocking(played(tournament, terms, store, open_world(game), at_once))


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
    from mas.league.runs import game_of

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
