"""`shop`: the customer sees a clue and what is on offer, the seller the prices; neither can answer alone."""

from collections.abc import Mapping
from functools import partial
from random import Random
from typing import Annotated

import msgspec
from pydantic import Field

from mas.core.environment import Task
from mas.core.options import Options
from mas.scenarios.registry import ScenarioEntry
from mas.scenarios.world import FolderScenario, QuestionWorld, give_right_answer

CLUES: Mapping[str, str] = {
    "dog": "It barks.",
    "cat": "It meows.",
    "cow": "It gives milk.",
    "bee": "It makes honey.",
    "hen": "It lays eggs.",
    "fish": "It swims in the sea.",
    "horse": "People ride it.",
    "sheep": "It gives wool.",
    "clock": "It tells the time.",
    "knife": "It cuts bread.",
    "lamp": "It gives light.",
    "key": "It opens a door.",
    "pen": "It writes with ink.",
    "bed": "People sleep in it.",
    "book": "People read it.",
    "car": "It drives on the road.",
}
"""What is on offer, and what is said of it."""
OFFERED = 4


class ShopState(msgspec.Struct, frozen=True):
    """`names[i]` costs `prices[i]`, different digits; the customer wants `names[wanted]`.

    `answer` is empty after a pass and after what is no price.
    """

    names: tuple[str, ...]
    prices: tuple[str, ...]
    wanted: int
    answer: str | None = None


def make(random: Random, offered: int = OFFERED) -> ShopState:
    """Different things at different prices from 1 to 9."""
    names, prices = random.sample(sorted(CLUES), offered), random.sample("123456789", offered)
    return ShopState(tuple(names), tuple(prices), random.randrange(offered))


class ShopEnvironment(QuestionWorld[ShopState]):
    """One team turn: the team's action is a price. Guessing among the prices is right one time in `offered`."""

    def __init__(self, offered: int = OFFERED) -> None:
        self._offered = offered
        super().__init__("shop", ("customer", "seller", "solo"))

    def initial(self, task: Task) -> ShopState:
        return make(Random(task.seed), self._offered)

    def content_of(self, state: ShopState) -> str:
        """What is on offer at which price, whatever the order, and what is wanted."""
        goods = sorted(zip(state.names, state.prices, strict=True))
        return f"{state.names[state.wanted]} of {goods}"

    def fields(self, state: ShopState, view: str) -> Mapping[str, str]:
        wish = {"clue": CLUES[state.names[state.wanted]], "names": ", ".join(state.names)}
        goods = zip(state.names, state.prices, strict=True)
        prices = {"prices": ", ".join(f"{name} {price}" for name, price in goods)}
        return {"customer": wish, "seller": prices, "solo": {"clue": wish["clue"]} | prices}[view]

    def legal(self, seat: str) -> tuple[str, ...] | None:
        return self.state.prices

    def is_solved(self, state: ShopState) -> bool:
        return state.answer == state.prices[state.wanted]

    def right_answer(self) -> str:
        return self.state.prices[self.state.wanted]

    def render(self) -> str:
        state = self.state
        goods = ", ".join(f"{name} {price}" for name, price in zip(state.names, state.prices, strict=True))
        return f"{CLUES[state.names[state.wanted]]} On offer: {goods}. Answer: {state.answer or '-'}"


class ShopOptions(Options):
    """`offered`: things on offer."""

    offered: Annotated[int, Field(ge=2, le=9)] = OFFERED


def build(options: ShopOptions) -> FolderScenario:
    """The scenario with these options."""
    return FolderScenario(
        __file__,
        options,
        partial(ShopEnvironment, options.offered),
        unkeyed=(),
        expert=give_right_answer,
    )


ENTRY = ScenarioEntry(
    ShopOptions,
    build,
    "communication",
    {"small": {}, "medium": {"offered": 6}, "large": {"offered": 9}},
    is_demonstrated=False,
)
