"""`commons`: several boats on one lake, whose fish regrow if enough are left (after GovSim, arXiv 2404.16698).

Harvesters see the fish and go out at once; an adviser knows what the seasons will bring and who else fishes there, and
speaks to all of them before they do.

The fish of `commons`: how a stock regrows, what neighbours take, and the best play, by dynamic programming. In a season
the team's boats go out first, then the neighbours'. The R fish that are left spawn: R + min(R, g) are there next
season, at most as many as the lake holds; below `floor` they die out.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache, partial
from itertools import product
from random import Random
from typing import Annotated, Literal, Self

import msgspec
from pydantic import Field, model_validator

from mas.core.environment import Move, Task
from mas.core.messages import Action, joint_action
from mas.core.options import Options
from mas.scenarios.noisy_teacher import DIGITS, NoisyTeacher
from mas.scenarios.registry import ScenarioEntry
from mas.scenarios.shares import gini, read_parts, written
from mas.scenarios.world import FolderScenario, RecordEnvironment, one_seat

Neighbour = Literal["none", "cooperator", "greedy", "conditional"]
NEIGHBOURS: tuple[Neighbour, ...] = ("none", "cooperator", "greedy", "conditional")


class LakeRules(msgspec.Struct, frozen=True, kw_only=True):
    """What all tasks share.

    Attributes:
        harvesters: the team's boats, in the order in which scarce fish are shared out. limit: what one can take.
        capacity: what the lake holds. floor: fewer fish than that die out. rounds: seasons.
        kinds: neighbours that a task draws from. crowd: how many of them there are.
    """

    harvesters: tuple[str, ...]
    capacity: int
    floor: int
    limit: int
    rounds: int
    kinds: tuple[Neighbour, ...] = NEIGHBOURS
    crowd: int = 1

    @property
    def most(self) -> int:
        """What the team can take in a season."""
        return self.limit * len(self.harvesters)


class Lake(msgspec.Struct, frozen=True):
    """A task: the first stock, `growth` (at most so many fish are born after each season but the last), and who else
    fishes there."""

    stock: int
    growth: tuple[int, ...]
    kind: Neighbour


class CatchPlan(msgspec.Struct, frozen=True):
    """`values[t][s]`: the most that the team can still take with s fish at the start of season t; after the last
    season 0. `best[t][s]`: the totals that reach it, in rising order."""

    values: tuple[tuple[int, ...], ...]
    best: tuple[tuple[tuple[int, ...], ...], ...]


def make(random: Random, rules: LakeRules) -> Lake:
    """A lake at least half full, and growth between 1 and half of what it holds."""
    stock = random.randint((rules.capacity + 1) // 2, rules.capacity)
    growth = tuple(random.randint(1, rules.capacity // 2) for _ in range(rules.rounds - 1))
    return Lake(stock, growth, random.choice(rules.kinds))


def neighbours_take(rules: LakeRules, kind: Neighbour, rest: int, growth: int, taken: int) -> int:
    """What all neighbours take of the rest that the team left, having taken so many.

    A cooperator takes a quarter of its limit, and only of what exceeds the growth, so that as many as can be born are
    born; a greedy one takes half of its limit; a conditional one as many as a member of the team took on average,
    rounded up.
    """
    if kind == "none":
        return 0
    if kind == "cooperator":
        rest, each = max(0, rest - growth), max(1, rules.limit // 4)
    elif kind == "greedy":
        each = max(1, rules.limit // 2)
    else:
        each = -(-taken // len(rules.harvesters))
    return min(rest, rules.crowd * each)


def regrown(rules: LakeRules, left: int, growth: int) -> int:
    """Next season's stock."""
    return 0 if left < rules.floor else min(rules.capacity, left + min(left, growth))


def after(rules: LakeRules, lake: Lake, season: int, stock: int, taken: int) -> int:
    """The stock at the start of the next season, the team having taken so many fish in this one. Nothing is born
    after the last."""
    growth = lake.growth[season] if season < len(lake.growth) else 0
    rest = stock - taken
    return regrown(rules, rest - neighbours_take(rules, lake.kind, rest, growth, taken), growth)


def landed(demands: Sequence[int], stock: int) -> tuple[int, ...]:
    """What each boat gets: what it asked for, or where that is too much a fish in turn while there are any."""
    got = [0] * len(demands)
    while stock and got != list(demands):
        for place, demand in enumerate(demands):
            if stock and got[place] < demand:
                got[place] += 1
                stock -= 1
    return tuple(got)


def plan(rules: LakeRules, lake: Lake) -> CatchPlan:
    """Every stock at every season, from the last season back; the first stock does not matter."""
    return _plan(rules, msgspec.structs.replace(lake, stock=0))


@lru_cache(maxsize=4096)
def _plan(rules: LakeRules, lake: Lake) -> CatchPlan:
    values: list[tuple[int, ...]] = [(0,) * (rules.capacity + 1)]
    best: list[tuple[tuple[int, ...], ...]] = []
    for season in reversed(range(rules.rounds)):
        worth = [
            [total + values[0][after(rules, lake, season, stock, total)] for total in range(min(stock, rules.most) + 1)]
            for stock in range(rules.capacity + 1)
        ]
        values.insert(0, tuple(max(row) for row in worth))
        best.insert(0, tuple(tuple(t for t, value in enumerate(row) if value == max(row)) for row in worth))
    return CatchPlan(tuple(values), tuple(best))


def even(total: int, boats: int) -> tuple[int, ...]:
    """A total split as evenly as can be, the first boats taking what is over."""
    return tuple(total // boats + (place < total % boats) for place in range(boats))


Style = Literal["digits", "words"]
HARVESTERS: dict[Style, tuple[str, ...]] = {"digits": ("east", "west"), "words": ("east", "west", "north")}
ENOUGH = 0.9
"""Share of the best harvest that solves the task."""

LETTERS: dict[Neighbour, str] = {"none": "n", "cooperator": "c", "greedy": "g", "conditional": "m"}
"""Neighbours in digits; the conditional one mirrors the team."""

_NUMBER = re.compile("[0-9]{1,3}")


class CommonsState(msgspec.Struct, frozen=True, kw_only=True):
    """`caught` is what each boat has so far; `survived` counts seasons that began with fish in the lake."""

    lake: Lake
    stock: int
    caught: tuple[int, ...]
    season: int = 0
    survived: int = 1


class CommonsEnvironment(RecordEnvironment[CommonsState]):
    """A season a step. Pays what was caught, and the change of what can still be caught, both as shares of the best
    harvest of the task: together minus what was thrown away."""

    def __init__(self, rules: LakeRules, style: Style) -> None:
        views = ("adviser", *rules.harvesters, "solo")
        super().__init__(one_seat("commons", views, rules.rounds, ("harvest", "prospect")))
        self.rules, self.style = rules, style

    @property
    def plan(self) -> CatchPlan:
        """The best play of this task."""
        return plan(self.rules, self.state.lake)

    def initial(self, task: Task) -> CommonsState:
        lake = make(Random(task.seed), self.rules)
        return CommonsState(lake=lake, stock=lake.stock, caught=(0,) * len(self.rules.harvesters))

    def content_of(self, state: CommonsState) -> str:
        return f"{state.lake.stock};{state.lake.growth};{state.lake.kind}"

    def fields(self, state: CommonsState, view: str) -> Mapping[str, str]:
        ahead = {"growth": self._growth(state), "neighbours": self._neighbours(state)}
        stock = {"stock": self._stock(state)}
        return ahead if view == "adviser" else stock | ahead if view == "solo" else stock

    def legal(self, seat: str) -> tuple[str, ...] | None:
        return written_actions(self.style, len(self.rules.harvesters), self.rules.limit)

    def act(self, state: CommonsState, action: str) -> tuple[CommonsState, dict[str, float], bool]:
        """A boat whose member did not speak, or said what is no catch, stays at home; the season goes by anyway."""
        demands = self._demands(action)
        got = landed([demand or 0 for demand in demands], state.stock)
        stock = after(self.rules, state.lake, state.season, state.stock, sum(got))
        season = state.season + 1
        values = plan(self.rules, state.lake).values
        best = values[0][state.lake.stock]
        then = msgspec.structs.replace(
            state,
            stock=stock,
            caught=tuple(map(sum, zip(state.caught, got, strict=True))),
            season=season,
            survived=state.survived + (stock > 0 and season < self.rules.rounds),
        )
        prospect = values[season][stock] - values[state.season][state.stock]
        return then, {"harvest": sum(got) / best, "prospect": prospect / best}, None not in demands

    def is_over(self, state: CommonsState) -> bool:
        return state.season >= self.rules.rounds or not state.stock

    def is_solved(self, state: CommonsState) -> bool:
        return self.is_over(state) and self._efficiency(state) >= ENOUGH

    def measures(self) -> Mapping[str, float]:
        """Share of seasons that began with fish, harvest over the best one, 1 - Gini of the catches (after GovSim)."""
        return {
            "survival": self.state.survived / self.rules.rounds,
            "efficiency": self._efficiency(self.state),
            "equality": 1 - gini(self.state.caught),
        }

    def render(self) -> str:
        state, lake = self.state, self.state.lake
        boats = ", ".join(f"{name} {got}" for name, got in zip(self.rules.harvesters, state.caught, strict=True))
        best = self.plan.values[0][lake.stock]
        return f"season {state.season}, {state.stock} fish, growth {lake.growth}, {lake.kind}; {boats}; best {best}"

    def _efficiency(self, state: CommonsState) -> float:
        return sum(state.caught) / plan(self.rules, state.lake).values[0][state.lake.stock]

    def _demands(self, action: str) -> tuple[int | None, ...]:
        """What each boat asks for: nothing where its member did not speak, None where that is no catch."""
        names = self.rules.harvesters
        if action == "":
            return (0,) * len(names)
        said = read_parts(action, names, is_compact=self.style == "digits")
        return tuple(self._demand(said.get(name, "0")) for name in names)

    def _demand(self, text: str) -> int | None:
        number = int(text) if _NUMBER.fullmatch(text) else None
        return number if number is not None and number <= self.rules.limit else None

    def _stock(self, state: CommonsState) -> str:
        if self.style == "digits":
            return str(state.stock)
        rules = self.rules
        return (
            f"{state.stock} fish of at most {rules.capacity}; if fewer than {rules.floor} are left, they die out; "
            f"your boat takes {rules.limit} at most"
        )

    def _growth(self, state: CommonsState) -> str:
        ahead = [str(number) for number in state.lake.growth[state.season :]]
        if self.style == "digits":
            return "".join(ahead)
        return f"at most {', then '.join(ahead)}" if ahead else "nothing, this is the last season"

    def _neighbours(self, state: CommonsState) -> str:
        kind, rules = state.lake.kind, self.rules
        if self.style == "digits":
            return LETTERS[kind]
        return {
            "none": "nobody else fishes here",
            "cooperator": f"{rules.crowd} boats that take {max(1, rules.limit // 4)} each, of what exceeds this growth",
            "greedy": f"{rules.crowd} boats that take {max(1, rules.limit // 2)} each as long as there are any",
            "conditional": f"{rules.crowd} boats that take as many each as one of ours does on average",
        }[kind]


@lru_cache(maxsize=64)
def written_actions(style: Style, boats: int, limit: int) -> tuple[str, ...]:
    """Every joint catch in its compact form: digits in a row, or numbers with a space between."""
    catches = product(range(limit + 1), repeat=boats)
    return tuple(written(demands, is_compact=style == "digits") for demands in catches)


def expert(environment: CommonsEnvironment, random: Random) -> dict[str, str]:
    """A total that reaches the most that can still be caught, split evenly."""
    state = environment.state
    total = random.choice(environment.plan.best[state.season][state.stock])
    boats = environment.rules.harvesters
    return {"team": joint_action(dict(zip(boats, map(str, even(total, len(boats))), strict=True)))}


def best_total(rules: LakeRules, growth: tuple[int, ...], kind: Neighbour, stock: int) -> int:
    """The largest of the best totals, `growth` being that of the seasons to come."""
    season = rules.rounds - 1 - len(growth)
    return plan(rules, _lake(rules, growth, kind)).best[season][stock][-1]


@lru_cache(maxsize=4096)
def best_keep(rules: LakeRules, growth: tuple[int, ...], kind: Neighbour) -> int:
    """How many fish to leave in the water, for somebody who does not see the stock: the number that loses least on
    average over all first stocks."""
    season, lake = rules.rounds - 1 - len(growth), _lake(rules, growth, kind)
    values = plan(rules, lake).values
    stocks = range((rules.capacity + 1) // 2, rules.capacity + 1)

    def worth(keep: int) -> int:
        totals = {stock: min(rules.most, max(0, stock - keep)) for stock in stocks}
        return sum(total + values[season + 1][after(rules, lake, season, s, total)] for s, total in totals.items())

    return max(range(rules.capacity + 1), key=lambda keep: (worth(keep), -keep))


def catches(rules: LakeRules, stock: int, keep: int) -> tuple[int, ...]:
    """What each boat takes so that so many fish are left."""
    return even(min(rules.most, max(0, stock - keep)), len(rules.harvesters))


def _lake(rules: LakeRules, growth: tuple[int, ...], kind: Neighbour) -> Lake:
    past = (1,) * (rules.rounds - 1 - len(growth))
    return Lake(0, past + growth, kind)


def demonstrations(random: Random, skill: float, *, rules: LakeRules) -> Iterator[tuple[str, str]]:
    """Each member's task in turn, in digits: right with `skill`, by habit else (see `NoisyTeacher`).

    The habits are those of a tragedy of the commons: leave nothing, take as much as the boat holds.
    """
    teacher = NoisyTeacher(random, skill)
    most = str(rules.limit)
    while True:
        ahead = random.randrange(rules.rounds)
        growth = tuple(random.randint(1, rules.capacity // 2) for _ in range(ahead))
        kind, stock = random.choice(rules.kinds), random.randint(0, rules.capacity)
        seen = "".join(map(str, growth)) + LETTERS[kind]
        yield f"A{seen}>", teacher.answer(str(best_keep(rules, growth, kind)), "0", DIGITS)
        keep = random.randint(0, rules.capacity)
        for letter, catch in zip("EW", catches(rules, stock, keep), strict=True):
            yield f"{letter}{stock};{keep}>", teacher.answer(str(catch), most, DIGITS[: rules.limit + 1])
        total = best_total(rules, growth, kind, stock)
        right = written(even(total, len(rules.harvesters)), is_compact=True)
        yield f"S{stock};{seen}>", teacher.answer(right, most * len(rules.harvesters), DIGITS[: rules.limit + 1])


class CommonsReward:
    """`excess`: -max(0, demand - part) / limit, the part being the largest best total of the season over the boats,
    rounded up. 0 for what is no number, which lands nothing."""

    terms: tuple[str, ...] = ("excess",)

    def own(self, move: Move) -> Mapping[str, float]:
        assert isinstance(move.environment, CommonsEnvironment)
        rules, state = move.environment.rules, move.environment.state
        if move.role not in rules.harvesters:
            return {}
        said = move.output.text if isinstance(move.output, Action) else ""
        demand = int(said) if said.isascii() and said.isdigit() and len(said) <= 3 else 0
        part = -(-move.environment.plan.best[state.season][state.stock][-1] // len(rules.harvesters))
        return {"excess": -max(0, min(demand, rules.limit) - part) / rules.limit}


class CommonsOptions(Options):
    """`style`: two boats and single digits, which the tiny base can learn, or three boats and words, for real models.

    The dial is `capacity`, the fish that the lake holds (in digits 8 or 9). `rounds`: seasons. `neighbours`: who else
    fishes there, one of four kinds in each task (`any`) or always the same; `crowd`: how many of them (in digits 1).
    `skill`: share of right answers of the noisy teacher that the tiny base learns from last.
    """

    style: Style = "digits"
    capacity: Annotated[int, Field(ge=8, le=99)] = 9
    rounds: Annotated[int, Field(ge=2, le=12)] = 4
    neighbours: Literal["any", "none", "cooperator", "greedy", "conditional"] = "any"
    crowd: Annotated[int, Field(ge=1, le=5)] = 1
    skill: Annotated[float, Field(ge=0, le=0.9)] = 0.4

    @model_validator(mode="after")
    def _digits(self) -> Self:
        if self.style == "digits" and self.capacity > 9:
            raise ValueError(f"capacity={self.capacity} is no digit: at most 9, or style=words")
        if self.style == "digits" and self.crowd > 1:
            raise ValueError(f"crowd={self.crowd} cannot be said in digits: 1, or style=words")
        return self


def build(options: CommonsOptions) -> FolderScenario:
    """The scenario with these options."""
    rules = _rules(options, options.style)
    return FolderScenario(
        __file__,
        options,
        partial(CommonsEnvironment, rules, options.style),
        demonstrate=partial(demonstrations, rules=_rules(options, "digits")),
        inner=options.style,
        reward=CommonsReward(),
        expert=expert,
    )


def _rules(options: CommonsOptions, style: Style) -> LakeRules:
    """A boat takes its part of a full lake, so that the team can empty it in one season."""
    harvesters = HARVESTERS[style]
    capacity = min(options.capacity, 9) if style == "digits" else options.capacity
    return LakeRules(
        harvesters=harvesters,
        capacity=capacity,
        floor=max(2, capacity // 10),
        limit=capacity // len(harvesters),
        rounds=options.rounds,
        kinds=NEIGHBOURS if options.neighbours == "any" else (options.neighbours,),
        crowd=options.crowd,
    )


ENTRY = ScenarioEntry(
    CommonsOptions,
    build,
    "social dilemmas",
    {
        "small": {},
        "medium": {"style": "words", "capacity": 30, "rounds": 6},
        "large": {"style": "words", "capacity": 60, "rounds": 10},
    },
)
