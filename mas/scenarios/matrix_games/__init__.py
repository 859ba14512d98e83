"""`matrix_games`: repeated matrix games of two seats, against opponents of habit, or that learn."""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from random import Random
from statistics import fmean
from typing import Annotated, Literal, NamedTuple

import msgspec
import numpy as np
from pydantic import Field

from mas.core.environment import Environment, EnvironmentSpec, Move, Step, Task
from mas.core.options import Options
from mas.scenarios.noisy_teacher import NoisyTeacher
from mas.scenarios.registry import ScenarioEntry
from mas.scenarios.regret import Array, hedge, hedge_step, hindsight, regret_matching
from mas.scenarios.world import FolderScenario, RecordWorld
from mas.scenarios.wrappers import Against, Policy


class MatrixGame(NamedTuple):
    """What both players are paid.

    Attributes:
        actions: one letter each; both players have the same. Letters stand for what the game's story calls them (`A`
            is rock, silence, the stag, ...), so that it is the payoffs that count, not a story that a model knows.
        row, column: payoffs of the two by own and other's action: `row[i][j]` when row plays i and column j, and
            `column[j][i]` for the same pair. All are from -1 to 1.
    """

    actions: str
    row: tuple[tuple[float, ...], ...]
    column: tuple[tuple[float, ...], ...]

    def best_reply(self, theirs: str) -> str:
        """What pays row most against an action of column; the first of equals."""
        return max(self.actions, key=lambda mine: self.pays(mine, theirs))

    def column_reply(self, mine: str) -> str:
        """What pays column most against an action of row; the first of equals."""
        return max(self.actions, key=lambda theirs: self.costs(mine, theirs))

    def description(self, is_row: bool) -> str:
        """The rules as one player is told them: what each pair of actions pays it."""
        pays = self.row if is_row else self.column
        pairs = [
            f"{mine} against {theirs} pays {pays[one][other]:g}"
            for one, mine in enumerate(self.actions)
            for other, theirs in enumerate(self.actions)
        ]
        return ", ".join(pairs)

    def pays(self, mine: str, theirs: str) -> float:
        """What row is paid for one round."""
        return self.row[self.actions.index(mine)][self.actions.index(theirs)]

    def costs(self, mine: str, theirs: str) -> float:
        """What column is paid for the same round."""
        return self.column[self.actions.index(theirs)][self.actions.index(mine)]


def _symmetric(actions: str, row: tuple[tuple[float, ...], ...]) -> MatrixGame:
    return MatrixGame(actions, row, row)


GAMES: Mapping[str, MatrixGame] = {
    "rock_paper_scissors": _symmetric("ABC", ((0, -1, 1), (1, 0, -1), (-1, 1, 0))),
    "matching_pennies": MatrixGame("AB", ((1, -1), (-1, 1)), ((-1, 1), (1, -1))),
    "prisoners_dilemma": _symmetric("AB", ((0.6, 0.0), (1.0, 0.2))),
    "stag_hunt": _symmetric("AB", ((1.0, 0.0), (0.6, 0.6))),
    "chicken": _symmetric("AB", ((0.6, 0.2), (1.0, 0.0))),
    "coordination": _symmetric("AB", ((1.0, 0.0), (0.0, 1.0))),
}


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
        return seen if self.kind == "copycat" else game.column_reply(seen)


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
        rules = {"rules": self.rules.description(is_row=view == ROW)}
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
        replies = {before: state.habit.next(rules, ((before, NONE),) * at) for before in rules.actions}
        later = {
            before: fold([rules.pays(now, replies[before]) + later[now] for now in later]) for before in rules.actions
        }
    theirs = state.habit.next(rules, state.rounds)
    return {mine: rules.pays(mine, theirs) + later[mine] for mine in rules.actions}


def next_mix(game: MatrixEnvironment, seat: str, kind: str) -> Array:
    """How likely a learner's actions are in this round, given the rounds so far. [n]

    Hedge's step is the one of its bound for all rounds of this game. Regret matching counts actions that were drawn.
    """
    worth, state = game.worth(seat), game.state
    if kind == "hedge":
        payoffs = [value for row in (game.rules.row if seat == ROW else game.rules.column) for value in row]
        return hedge(worth, hedge_step(state.total, len(game.rules.actions), max(payoffs) - min(payoffs)))
    own = [mine if seat == "row" else theirs for mine, theirs in state.rounds]
    # A round in which it made no legal move, as it never does, would not count.
    done = [at for at, action in enumerate(own) if action != NONE]
    return regret_matching(worth[done], [game.rules.actions.index(own[at]) for at in done])


def by_learning(environment: Environment, seat: str, random: Random, kind: str) -> str:
    """The policy of a learner: by multiplicative weights over what its actions would have paid (`hedge`), or each
    action as likely as it is regretted (`regret_matching`)."""
    assert isinstance(environment, MatrixEnvironment)
    return random.choices(environment.rules.actions, next_mix(environment, seat, kind).tolist())[0]


OPPONENTS: Mapping[str, Policy] = {
    "habit": by_habit,
    **{kind: partial(by_learning, kind=kind) for kind in ("hedge", "regret_matching")},
}


class ForesightReward:
    """`foresight`: 0.2 for the analyst who says what the opponent then plays. It needs no knowledge of habits: what was
    played is seen a moment later."""

    terms: tuple[str, ...] = ("foresight",)

    def own(self, move: Move) -> Mapping[str, float]:
        if move.role != "analyst":
            return {}
        return {"foresight": 0.2 if move.output.content == coming(move.environment) else 0.0}


def coming(environment: object) -> str:
    """What the opponent plays in this round."""
    assert isinstance(environment, Against)
    return environment.coming(COLUMN)


def expert(environment: Against, random: Random, *, opponent: str) -> dict[str, str]:
    """The best play against a habit that is known; in each round the best reply to a learner's mix."""
    game = _game(environment)
    if opponent == "habit":
        return {"team": random.choice(best_moves(game.rules, game.state))}
    pays = np.array(game.rules.row) @ next_mix(game, COLUMN, opponent)
    best = [mine for mine, paid in zip(game.rules.actions, pays, strict=True) if paid > pays.max() - 1e-9]
    return {"team": random.choice(best)}


def demonstrations(random: Random, skill: float, *, name: str) -> Iterator[tuple[str, str]]:
    """The analyst foresees with `skill`; its habit is to expect what was there last. The player replies best to what it
    is told with `skill`; its habit is to play the same. The solo agent does both at once."""
    teacher, rules = NoisyTeacher(random, skill), GAMES[name]
    game = MatrixEnvironment(name)
    while True:
        state = _after(random, make(random, rules), game)
        seen, letters = game.fields(state, "row"), rules.actions
        right = state.habit.next(rules, state.rounds)
        last = seen["theirs"][-1] if seen["theirs"][-1] in letters else letters[0]
        told = random.choice(letters)
        yield f"A{seen['mine']}{seen['theirs']}>", teacher.answer(right, last, letters)
        yield f"P{told}>", teacher.answer(rules.best_reply(told), told, letters)
        yield f"S{seen['mine']}{seen['theirs']}>", teacher.answer(rules.best_reply(right), last, letters)


def _after(random: Random, state: MatrixState, game: MatrixEnvironment) -> MatrixState:
    """Somewhere in a game that row plays at random."""
    for _ in range(random.randrange(state.total)):
        mine = random.choice(game.rules.actions)
        theirs = state.habit.next(game.rules, state.rounds)
        state = msgspec.structs.replace(state, rounds=(*state.rounds, (mine, theirs)))
    return state


def _game(environment: object) -> MatrixEnvironment:
    assert isinstance(environment, Against)
    assert isinstance(environment.game, MatrixEnvironment)
    return environment.game


VIEWS = ("analyst", "player", "solo")


class MatrixOptions(Options):
    """`game`: which one. `opponent`: of habit, or who learns during the game. `skill`: share of right answers of the
    noisy teacher that the tiny base learns from last, always against opponents of habit."""

    game: Literal[
        "rock_paper_scissors", "matching_pennies", "prisoners_dilemma", "stag_hunt", "chicken", "coordination"
    ] = "rock_paper_scissors"
    opponent: Literal["habit", "hedge", "regret_matching"] = "habit"
    skill: Annotated[float, Field(ge=0, le=0.9)] = 0.4


def build(options: MatrixOptions) -> FolderScenario:
    """The scenario with these options."""
    return FolderScenario(
        __file__,
        options,
        partial(_environment, options.game, options.opponent),
        partial(_content, name=options.game),
        partial(demonstrations, name=options.game),
        # Where the opponent has a habit, tasks are those from before there were others.
        unkeyed=("opponent",) if options.opponent == "habit" else (),
        reward=ForesightReward(),
        expert=partial(expert, opponent=options.opponent),
    )


def _environment(name: str, opponent: str) -> Environment:
    def solved(played: Against) -> bool:
        return played.game.success() if opponent == "habit" else played.measures()["regret_row"] <= 1e-9

    return Against(MatrixEnvironment(name), ROW, {COLUMN: OPPONENTS[opponent]}, VIEWS, solved)


def _content(random: Random, name: str) -> str:
    """What the opponent does after whatever row did, round by round: habits that never differ are one."""
    game = GAMES[name]
    state = make(random, game)
    rounds = [((before, NONE),) * at for at in range(state.total) for before in game.actions]
    return "".join(state.habit.next(game, played) for played in rounds)


ENTRY = ScenarioEntry(MatrixOptions, build, "games of payoffs")
