"""The game of two seats, and opponents of habit that play the second one."""

from collections.abc import Callable, Mapping
from random import Random
from statistics import fmean
from typing import ClassVar, Literal

import msgspec
import numpy as np

from mas.core.environment import Environment, EnvironmentSpec, Step, Task
from mas.scenarios.matrix_games.games import GAMES, MatrixGame
from mas.scenarios.regret import Array, hindsight
from mas.scenarios.world import RecordWorld

ROW, COLUMN = "row", "column"
SHOWN = 3
"""Rounds that a player remembers."""
TOTAL = (8, 11)
"""The fewest and the most rounds of a game."""
NONE = "-"
Fold = Callable[[list[float]], float]
Kind = Literal["pattern", "copycat", "counter"]
KINDS: tuple[Kind, ...] = ("pattern", "copycat", "counter")


class Habit(msgspec.Struct, frozen=True):
    """How an opponent plays: `pattern` over and over; `copycat`: what the other did last; `counter`: the best reply to
    what the other did last. The two begin with the first letter of `pattern`."""

    kind: Kind
    pattern: str

    def next(self, game: MatrixGame, rounds: tuple[tuple[str, str], ...]) -> str:
        """Its action after these rounds of (other's, own) actions; a round without an action of the other's is a round
        in which nothing was seen."""
        seen = rounds[-1][0] if rounds else NONE
        if self.kind == "pattern":
            return self.pattern[len(rounds) % len(self.pattern)]
        if seen == NONE:
            return self.pattern[0]
        return seen if self.kind == "copycat" else game.best_reply(seen)


class MatrixState(msgspec.Struct, frozen=True):
    """All rounds so far as (row's, column's) action, `-` where one of them made no legal move."""

    habit: Habit
    total: int
    rounds: tuple[tuple[str, str], ...] = ()


def make(random: Random, game: MatrixGame) -> MatrixState:
    """An opponent, and how many rounds there are."""
    pattern = "".join(random.choice(game.actions) for _ in range(SHOWN))
    return MatrixState(Habit(random.choice(KINDS), pattern), random.randint(*TOTAL))


class MatrixEnvironment(RecordWorld[MatrixState]):
    """Both seats choose at the same time, round after round.

    Who makes no legal move is paid as if it had made the one that is worst for it against what the other does; if
    neither does, it is the pair that is worst for row. So nothing can be gained by it, and a zero-sum game stays one.
    """

    state_type: ClassVar[type[msgspec.Struct]] = MatrixState

    def __init__(self, name: str) -> None:
        super().__init__(
            EnvironmentSpec(
                name=name,
                seats=(ROW, COLUMN),
                views=(ROW, COLUMN),
                max_turns=TOTAL[1],
                terms=("payoff",),
                dynamics="simultaneous",
            )
        )
        self.rules = GAMES[name]

    def initial(self, task: Task) -> MatrixState:
        return make(Random(task.seed), self.rules)

    def fields(self, state: MatrixState, view: str) -> Mapping[str, str]:
        shown = ((NONE, NONE),) * SHOWN + state.rounds
        mine = "".join(row for row, _ in shown[-SHOWN:])
        theirs = "".join(column for _, column in shown[-SHOWN:])
        rules = {"rules": self.rules.told(is_row=view == ROW)}
        return rules | ({"mine": mine, "theirs": theirs} if view == ROW else {"mine": theirs, "theirs": mine})

    def legal(self, seat: str) -> tuple[str, ...] | None:
        return tuple(self.rules.actions)

    def moving(self, state: MatrixState) -> tuple[str, ...]:
        return () if len(state.rounds) == state.total else self.spec.seats

    def advance(self, state: MatrixState, actions: Mapping[str, str]) -> tuple[MatrixState, Step]:
        played = {seat: text if text and text in self.rules.actions else NONE for seat, text in actions.items()}
        row, column = played[ROW], played[COLUMN]
        after = msgspec.structs.replace(state, rounds=(*state.rounds, (row, column)))
        pays = self._pays(row, column)
        rewards = {seat: {"payoff": pay / state.total} for seat, pay in zip((ROW, COLUMN), pays, strict=True)}
        illegal = tuple(seat for seat in self.spec.seats if played[seat] == NONE and actions[seat] != "")
        return after, Step(rewards=rewards, illegal=illegal)

    def is_solved(self, state: MatrixState) -> bool:
        """Whether row earned at least as much as lies midway between the best play against this opponent and play by
        chance."""
        if len(state.rounds) < state.total:
            return False
        best, chance = best_value(self.rules, state), chance_value(self.rules, state)
        return self.earned(state) >= (best + chance) / 2 - 1e-9

    def earned(self, state: MatrixState) -> float:
        """Row's mean payoff of the rounds so far, over all rounds that there are."""
        return sum(self._pays(row, column)[0] for row, column in state.rounds) / state.total

    def measures(self) -> Mapping[str, float]:
        """`regret_row`, `regret_column`: external regret per round, what the best single action would have been paid
        more against what the other one did. Below 0 where changing was better."""
        rounds = self.state.rounds
        if not rounds:
            return {}
        paid = zip(*(self._pays(row, column) for row, column in rounds), strict=True)
        return {
            f"regret_{seat}": (hindsight(self.worth(seat)) - sum(got)) / len(rounds)
            for seat, got in zip((ROW, COLUMN), paid, strict=True)
        }

    def worth(self, seat: str) -> Array:
        """What each action of the seat would have paid it in each round so far, [t, n]."""
        rounds, letters = self.state.rounds, self.rules.actions
        if seat == ROW:
            found = [[self._pays(own, theirs)[0] for own in letters] for _, theirs in rounds]
        else:
            found = [[self._pays(theirs, own)[1] for own in letters] for theirs, _ in rounds]
        return np.array(found, dtype=np.float64).reshape(len(rounds), len(letters))

    def render(self) -> str:
        state = self.state
        played = " ".join(f"{row}{column}" for row, column in state.rounds) or "nothing yet"
        return f"{self.spec.name}, {len(state.rounds)} of {state.total} rounds (row, column): {played}"

    def _pays(self, row: str, column: str) -> tuple[float, float]:
        rules, both = self.rules, [(mine, theirs) for mine in self.rules.actions for theirs in self.rules.actions]
        possible = [
            (rules.pays(mine, theirs), rules.costs(mine, theirs))
            for mine, theirs in both
            if row in (NONE, mine) and column in (NONE, theirs)
        ]
        return min(possible) if row == NONE else min(possible, key=lambda pays: pays[1])


def by_habit(environment: Environment, seat: str, random: Random) -> str:
    """The policy of the task's opponent, who plays column."""
    assert isinstance(environment, MatrixEnvironment)
    state = environment.state
    return state.habit.next(environment.rules, state.rounds)


def best_moves(rules: MatrixGame, state: MatrixState) -> str:
    """Row's actions now that lead to most over the rounds that are left, against the habit as it is."""
    values = _values(rules, state, max)
    return "".join(mine for mine, value in values.items() if value > max(values.values()) - 1e-9)


def best_value(rules: MatrixGame, state: MatrixState) -> float:
    """Row's mean payoff of the best play from the first round on."""
    return max(_from_the_start(rules, state, max)) / state.total


def chance_value(rules: MatrixGame, state: MatrixState) -> float:
    """Row's expected mean payoff where each of its actions is as likely, from the first round on."""
    return fmean(_from_the_start(rules, state, fmean)) / state.total


def _from_the_start(rules: MatrixGame, state: MatrixState, fold: Fold) -> tuple[float, ...]:
    return tuple(_values(rules, msgspec.structs.replace(state, rounds=()), fold).values())


def _values(rules: MatrixGame, state: MatrixState, fold: Fold) -> dict[str, float]:
    """Sum of row's payoffs from each action on; `fold` makes one number of those of a later round's actions.

    What an opponent does next depends on nothing but the number of rounds and row's last action, so the rounds are gone
    through once, from the end.
    """
    later = dict.fromkeys(rules.actions, 0.0)
    for at in range(state.total - 1, len(state.rounds), -1):
        later = {
            before: fold([rules.pays(now, _reply(rules, state.habit, at, before)) + later[now] for now in later])
            for before in rules.actions
        }
    theirs = state.habit.next(rules, state.rounds)
    return {mine: rules.pays(mine, theirs) + later[mine] for mine in rules.actions}


def _reply(rules: MatrixGame, habit: Habit, at: int, before: str) -> str:
    return habit.next(rules, ((before, NONE),) * at)
