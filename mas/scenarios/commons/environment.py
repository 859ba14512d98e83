"""`commons`: several boats on one lake, whose fish regrow if enough are left (after GovSim, arXiv 2404.16698).

Harvesters see the fish and go out at once; an adviser knows what the seasons will bring and who else fishes there, and
speaks to all of them before they do.
"""

import re
from collections.abc import Mapping
from functools import lru_cache
from itertools import product
from random import Random
from typing import ClassVar, Literal

import msgspec

from mas.core.environment import EnvironmentSpec, Task
from mas.scenarios.commons.lake import CatchPlan, Lake, LakeRules, Neighbour, after, landed, make, plan
from mas.scenarios.shares import gini, read_parts, written
from mas.scenarios.world import RecordEnvironment

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

    state_type: ClassVar[type[msgspec.Struct]] = CommonsState

    def __init__(self, rules: LakeRules, style: Style) -> None:
        super().__init__(
            EnvironmentSpec(
                name="commons",
                seats=("team",),
                views=("adviser", *rules.harvesters, "solo"),
                max_turns=rules.rounds,
                terms=("harvest", "prospect"),
            )
        )
        self.rules, self.style = rules, style

    @property
    def plan(self) -> CatchPlan:
        """The best play of this task."""
        return plan(self.rules, self.state.lake)

    def initial(self, task: Task) -> CommonsState:
        lake = make(Random(task.seed), self.rules)
        return CommonsState(lake=lake, stock=lake.stock, caught=(0,) * len(self.rules.harvesters))

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
