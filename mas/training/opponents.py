"""Who plays against the learner in each training game, and how it goes: drawn by seed, kept in checkpoints.

Whom there is to draw, and how they play, is `Pool`'s affair: training knows names, moves and payoffs alone.
"""

import json
from collections.abc import AsyncIterator, Container, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from random import Random
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from mas.algorithms.parts.opponents import SELF, OpponentRecord, OpponentsOptions
from mas.algorithms.parts.options import AlgorithmOptions
from mas.core.errors import CheckpointError, ConfigError
from mas.core.naming import agent_of, did_you_mean
from mas.core.records import Episode
from mas.core.seeds import derive_seed
from mas.core.team import TeamSpec
from mas.graph.wiring import seat_of
from mas.training.sampling.sampler import Opponent, OpponentSeats
from mas.training.setup import Setup
from mas.training.tasks.plan import Matchup

if TYPE_CHECKING:
    from mas.serving.model import BaseModel
    from mas.serving.store import ServingEngine

FILE = "opponents.json"
"""The file of a checkpoint that says who the opponents are and how games against them went."""


class Pool(Protocol):
    """Opponents that can be drawn and asked; `mas.league.opponents` makes one."""

    @property
    def players(self) -> Mapping[str, str]:
        """Name -> source, oldest first, which do not change while a run lasts."""

    def restore(self, players: Mapping[str, str]) -> None:
        """Have these players, as a run began with them."""

    def draw(self, points: Mapping[str, float], random: Random) -> str:
        """Who is next: a name, or `self`.

        Args:
            points: name -> points per game that the learner gets against it, 0 to 1; those never met are left out.
        """

    def open(self, engine: "ServingEngine", base: "BaseModel") -> AbstractAsyncContextManager[Mapping[str, Opponent]]:
        """Opponents by name, whose adapters are published to the engine of those who train."""


class Opponents:
    """Draws an opponent and the learner's seat for each task of a step.

    A draw depends on the seed, the step, the task, and how games went before the step.
    """

    def __init__(self, options: OpponentsOptions, pool: Pool, team: TeamSpec, seed: int) -> None:
        self.pool = pool
        self._options, self._seed = options, seed
        self._roles_of = roles_of_seats(team)
        self._seat_of = seat_of(team)
        self._wanted = options.seats or tuple(self._roles_of)
        self._records: dict[str, OpponentRecord] = {}
        self._opened: Mapping[str, Opponent] = {}

    @asynccontextmanager
    async def playing(self, engine: "ServingEngine", base: "BaseModel") -> AsyncIterator[None]:
        """While it is open opponents can be met."""
        async with self.pool.open(engine, base) as opened:
            self._opened = opened
            yield

    def draw(
        self, step: int, faced: dict[str, Matchup], tasks: Sequence[str], games: int, trained: Container[str]
    ) -> None:
        """Note who plays against the learner, and where, in each task of a round of draws; a task that comes again in
        the step has the opponent and the seat that it had, as all its episodes are compared with each other.

        Args:
            faced: of the step's tasks so far, by id. tasks: ids.
            games: how many tasks a step has: seats take turns over all tasks of all steps, in an order that is drawn.
            trained: roles that learn in the step.
        """
        for task in tasks:
            if task not in faced:
                faced[task] = self._matchup(step, task, step * games + len(faced), trained)

    def _matchup(self, step: int, task: str, place: int, trained: Container[str]) -> Matchup:
        known = {name: one.points / one.weight for name, one in self._records.items() if one.weight}
        opponent = self.pool.draw(known, Random(derive_seed("opponent", self._seed, step, task)))
        seats = [seat for seat in self._wanted if any(role in trained for role in self._roles_of[seat])]
        if opponent == SELF:
            return Matchup(SELF, tuple(seats))
        # which of them is first is drawn anew for each turn of all, so that it is not tied to the place of a task
        Random(derive_seed("seats", self._seed, place // len(seats))).shuffle(seats)
        return Matchup(opponent, (seats[place % len(seats)],))

    def opponent_seats(self, matchup: Matchup) -> OpponentSeats | None:
        """Who plays the other seats; None: the team itself."""
        if matchup.opponent == SELF:
            return None
        theirs = tuple(seat for seat in self._roles_of if seat not in matchup.seats)
        return OpponentSeats(matchup.opponent, theirs, self._opened[matchup.opponent])

    def with_matchup(self, matchup: Matchup, episodes: Sequence[Episode]) -> list[Episode]:
        """The episodes of a task with who played, without turns of seats in which nobody learns."""
        seat = "" if matchup.opponent == SELF else matchup.seats[0]
        return [
            msgspec.structs.replace(
                one,
                opponent=matchup.opponent,
                seat=seat,
                turns=tuple(turn for turn in one.turns if self._seat_of[agent_of(turn.agent)] in matchup.seats),
            )
            for one in episodes
        ]

    def tell(self, episodes: Sequence[Episode]) -> None:
        """How all games of a step went."""
        for episode in episodes:
            if episode.status == "done":
                payoffs = payoffs_of(episode.rewards, tuple(self._roles_of))
                record = self._records.setdefault(episode.opponent, OpponentRecord())
                payoff = payoffs[episode.seat] if episode.seat else 0.0
                record.add(points_of(payoffs, episode.seat) if episode.seat else 0.5, payoff, self._options.decay)

    def metrics(self) -> dict[str, Any]:
        """Opponent -> games so far, and running means of what the learner got against it; of `self` games alone."""
        found: dict[str, Any] = {}
        for name in [*self.pool.players, SELF]:
            if (one := self._records.get(name)) is not None:
                means = {"payoff": one.payoff / one.weight, "points": one.points / one.weight}
                found[name] = {"games": one.games} | ({} if name == SELF else means)
        return found

    def state(self) -> bytes:
        """For `restore`."""
        games = {name: msgspec.to_builtins(one) for name, one in self._records.items()}
        return json.dumps({"players": dict(self.pool.players), "games": games}, indent=1).encode()

    def restore(self, state: bytes) -> None:
        """Go on with the opponents and the means that a run had.

        Raises:
            CheckpointError: it is no such state.
        """
        try:
            found = json.loads(state)
            self._records = msgspec.convert(found["games"], dict[str, OpponentRecord])
            self.pool.restore(found["players"])
        except (ValueError, KeyError, TypeError, msgspec.ValidationError) as error:
            raise CheckpointError(f"{FILE} of the checkpoint cannot be read: {error}") from error


def kept_players(state: bytes) -> dict[str, str]:
    """Name -> source, of the `state` of opponents.

    Raises:
        CheckpointError: it is no such state.
    """
    try:
        return msgspec.convert(json.loads(state)["players"], dict[str, str])
    except (ValueError, KeyError, TypeError) as error:
        raise CheckpointError(f"{FILE} of the checkpoint cannot be read: {error}") from error


def open_opponents(setup: Setup, pool: Pool | None, *, is_distributed: bool) -> Opponents | None:
    """What `algorithm.opponents` says; None: the team plays against itself.

    Args:
        pool: who makes them. is_distributed: the team's agents are processes of their own.

    Raises:
        ConfigError: nobody makes them, or the agents are elsewhere.
    """
    options = setup.algorithm.opponents
    if options is None:
        return None
    if is_distributed:
        raise ConfigError(
            "algorithm.opponents use the engine of those who train, and with --bus every agent has its own: "
            "train without --bus, or without opponents"
        )
    if pool is None:
        raise ConfigError(
            "algorithm.opponents names opponents, and nobody opens them here: train with `mas train`, or give "
            "`opponents` (mas.league.opponents.open_pool)"
        )
    return Opponents(options, pool, setup.team, setup.train.seed)


def roles_of_seats(team: TeamSpec) -> dict[str, tuple[str, ...]]:
    """Seat -> the roles that play it."""
    found: dict[str, list[str]] = {seat: [] for seat in team.seats}
    members = team.members()
    for agent, seat in seat_of(team).items():
        if seat in found and agent in members:
            found[seat].append(members[agent])
    return {seat: tuple(roles) for seat, roles in found.items()}


def payoffs_of(rewards: Mapping[str, float], seats: Sequence[str]) -> dict[str, float]:
    """Seat -> the sum of what it was paid, of `Episode.rewards`."""
    return {seat: sum((value for name, value in rewards.items() if name.startswith(f"{seat}.")), 0.0) for seat in seats}


def points_of(payoffs: Mapping[str, float], seat: str) -> float:
    """1 for more than all others have, 0 for less than somebody, shared by those who have the most."""
    best = max(payoffs.values())
    return 1 / list(payoffs.values()).count(best) if payoffs[seat] == best else 0.0


def opponent_refusals(setup: Setup) -> Iterator[str]:
    """Opponents of a team that plays one seat, and games that nobody learns from."""
    options, scenario, team = setup.algorithm.opponents, setup.scenario, setup.team
    if options is None:
        return
    if len(team.seats) < 2:
        yield (
            f"algorithm.opponents play the other seats of a game, and team {team.name!r} of scenario "
            f"{scenario.name!r} has one seat: choose a game such as scenario=two_player"
        )
    if setup.train.tasks.arms:
        yield "algorithm.opponents play one game, and train.tasks.arms has several: leave one of them out"
    for seat in options.seats:
        if seat not in team.seats:
            yield f"algorithm.opponents.seats has {seat!r}. {did_you_mean(seat, team.seats)}"
    roles = roles_of_seats(team)
    known = {role for seat in options.seats or team.seats for role in roles[seat]}
    for named, trained in _trained(setup.algorithm, team).items():
        if not known & trained:
            yield (
                f"algorithm.{named} trains {sorted(trained)}, none of whom plays a seat of algorithm.opponents.seats="
                f"{list(options.seats or team.seats)}: nothing would be learned"
            )


def _trained(algorithm: AlgorithmOptions, team: TeamSpec) -> dict[str, set[str]]:
    """Key of the options -> the roles that learn by it."""
    if algorithm.stages:
        return {f"stages[{number}]": set(stage.roles) for number, stage in enumerate(algorithm.stages)}
    return {"roles": set(algorithm.roles) or {name for name, role in team.roles.items() if role.trainable}}
