"""One game: its fixture, who is asked and what was said, and what is kept of it, enough for every table and to tell it
move by move.

`play` asks the seats that must move, at once if they move at once.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from random import Random
from typing import Protocol

import msgspec

from mas.core.concurrency import together
from mas.core.environment import Environment, Observation, Task, check_finite
from mas.core.errors import EnvironmentFault
from mas.core.seeds import derive_seed


@dataclass(frozen=True, slots=True)
class Fixture:
    """One game to play: a player for each seat, in the game's order of seats, and the seed of its chance.

    Attributes:
        round: from 0.
        number: of the game among those of the same players, from 0.
    """

    players: tuple[str, ...]
    seed: int
    round: int
    number: int

    @property
    def id(self) -> str:
        """The same for the same game of the same tournament, and for no other."""
        return f"{self.round}/{self.number}/{'/'.join(self.players)}"


class PlayedMove(msgspec.Struct, frozen=True):
    """What one seat said at one step; `is_legal`: whether it moved the game."""

    step: int
    seat: str
    player: str
    text: str
    is_legal: bool = True


class PlayedGame(msgspec.Struct, frozen=True, kw_only=True):
    """One game that was played to its end.

    Attributes:
        id: of its fixture, unique in its tournament.
        round, number, seed: of its fixture.
        players: by seat; `returns`: what each of them got, in the same order.
        moves: all of them in order; those of one step were made at once.
    """

    id: str
    round: int
    number: int
    seed: int
    players: tuple[str, ...]
    returns: tuple[float, ...]
    moves: tuple[PlayedMove, ...]

    @property
    def points(self) -> tuple[float, ...]:
        """By seat: 1 for having more than all others, 0 for less than somebody, shared by those who have the most."""
        best = max(self.returns)
        return tuple(1 / self.returns.count(best) if got == best else 0.0 for got in self.returns)

    @property
    def illegal(self) -> dict[str, int]:
        """Player -> moves that were not legal, of those who made any."""
        found: dict[str, int] = {}
        for move in self.moves:
            if not move.is_legal:
                found[move.player] = found.get(move.player, 0) + 1
        return found


class LeagueMember(msgspec.Struct, frozen=True, kw_only=True):
    """A player that a league knows.

    Attributes:
        name: unique in its league.
        source: how it is opened again, as `random` or `run:runs/kuhn@20`.
        parent: the member it was trained from, None for the first.
        step: training steps behind it.
        notes: what the gate measured that let it in, and the like.
    """

    name: str
    source: str
    parent: str | None = None
    step: int = 0
    notes: dict[str, float] = {}


@dataclass(frozen=True, slots=True)
class Chance:
    """What a player is asked.

    Attributes:
        seat: whose move it is.
        observation: what that seat sees, and all that a fair player reads.
        legal: its legal actions; None where they cannot be listed.
        random: new for each move, the same for the same game, step, seat and player; the same deal's other games, with
            the players in other seats, have another one.
        copy: makes a copy of the game, for players that search in it.
    """

    seat: str
    observation: Observation
    legal: tuple[str, ...] | None
    random: Random
    copy: Callable[[], Environment]


class Player(Protocol):
    """Somebody who plays any seat of one game; asked for many games at once."""

    async def move(self, asked: Chance) -> str:
        """The action as text; an empty one passes."""


async def play(game: Environment, fixture: Fixture, players: Mapping[str, Player]) -> PlayedGame:
    """Play a fixture to its end.

    Args:
        game: not shared with anybody else; it is reset.
        players: by name.

    Raises:
        EnvironmentFault: the game has not as many seats as the fixture has players, or does not end.
        RewardError: it paid what is no finite number, or too large.
    """
    spec = game.spec
    if len(fixture.players) != len(spec.seats):
        raise EnvironmentFault(f"{spec.name} has {len(spec.seats)} seats, the fixture {len(fixture.players)} players")
    seated = dict(zip(spec.seats, fixture.players, strict=True))
    game.reset(Task(id=fixture.id, seed=fixture.seed))
    returns, moves, step = dict.fromkeys(spec.seats, 0.0), list[PlayedMove](), 0
    while moving := game.to_move():
        if step >= spec.max_turns:
            raise EnvironmentFault(f"{spec.name}: no end after {step} steps, its specification has {spec.max_turns}")
        said = await together(
            [
                players[seated[seat]].move(chance_of(game, seat, derive_seed(fixture.seed, step, seat, seated[seat])))
                for seat in moving
            ],
            "move",
        )
        paid = game.step(dict(zip(moving, said, strict=True)))
        for seat, terms in paid.rewards.items():
            check_finite(terms, f"{spec.name}, game {fixture.id!r},")
            returns[seat] += sum(terms.values())
        moves += [
            PlayedMove(step, seat, seated[seat], text, bool(text) and seat not in paid.illegal)
            for seat, text in zip(moving, said, strict=True)
        ]
        step += 1
    return PlayedGame(
        id=fixture.id,
        round=fixture.round,
        number=fixture.number,
        seed=fixture.seed,
        players=fixture.players,
        returns=tuple(returns.values()),
        moves=tuple(moves),
    )


class LocalGames:
    """Plays fixtures in this process, in games that are used again."""

    def __init__(self, open_game: Callable[[], Environment], players: Mapping[str, Player]) -> None:
        self._open, self._players = open_game, players
        self._free: list[Environment] = []

    async def play(self, fixture: Fixture) -> PlayedGame:
        game = self._free.pop() if self._free else self._open()
        played = await play(game, fixture, self._players)
        self._free.append(game)
        return played


def replay(game: Environment, played: PlayedGame) -> list[str]:
    """A game told again: how it stood before the first move and after each step, as text for people.

    Raises:
        EnvironmentFault: another game than the one that was played, or another version of it: the end differs.
    """
    game.reset(Task(id=played.id, seed=played.seed))
    told, returns = [game.render()], dict.fromkeys(game.spec.seats, 0.0)
    for step in range(1 + max((move.step for move in played.moves), default=-1)):
        said = {move.seat: move.text for move in played.moves if move.step == step}
        for seat, terms in game.step(said).rewards.items():
            returns[seat] += sum(terms.values())
        told.append(game.render())
    if game.to_move() or tuple(returns.values()) != played.returns:
        raise EnvironmentFault(
            f"{game.spec.name}: played again, game {played.id!r} ends with {tuple(returns.values())} instead of "
            f"{played.returns}: the game has changed since"
        )
    return told


def chance_of(game: Environment, seat: str, seed: int) -> Chance:
    """What a seat of a game is asked, with random numbers of this seed."""
    return Chance(seat, game.observe(seat), game.legal(seat), Random(seed), game.clone)
