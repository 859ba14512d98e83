"""`market`: buy for a customer from businesses that answer one after the other, some of which lie.

After Magentic Marketplace (arXiv 2510.25779): assistants that buy tend to take the first proposal that they get, and
businesses try to manipulate them. A searcher says what should be found out next, a chooser who hears it buys or
waits.
"""

from collections.abc import Mapping
from random import Random
from typing import ClassVar

import msgspec

from mas.core.environment import EnvironmentSpec, Task
from mas.core.joint import read_joint
from mas.scenarios.market.offers import Market, MarketRules, make_market
from mas.scenarios.market.wording import MarketWording
from mas.scenarios.world import RecordEnvironment

SEARCHER, CHOOSER = "searcher", "chooser"
CHECK_COST = 0.05


class MarketState(msgspec.Struct, frozen=True, kw_only=True):
    """`come`: proposals that came so far. `checked`: places of those whose truth is known, in the order of checks.

    `bought`: the place of the one that was bought.
    """

    market: Market
    come: int = 1
    checked: tuple[int, ...] = ()
    turn: int = 0
    bought: int | None = None


class MarketEnvironment(RecordEnvironment[MarketState]):
    """A question or a purchase a turn, until something is bought or there was time to hear and check everything.

    What is behind a proposal no view sees before it was checked.
    """

    state_type: ClassVar[type[msgspec.Struct]] = MarketState
    history: ClassVar[tuple[str, ...]] = ("checked", "turn")

    def __init__(self, rules: MarketRules) -> None:
        super().__init__(
            EnvironmentSpec(
                name="market",
                seats=("team",),
                views=(SEARCHER, CHOOSER, "solo"),
                max_turns=2 * rules.businesses,
                terms=("value", "cost"),
            )
        )
        self.rules = rules
        self.wording = MarketWording(rules.style)

    def initial(self, task: Task) -> MarketState:
        return MarketState(market=make_market(Random(task.seed), self.rules))

    def fields(self, state: MarketState, view: str) -> Mapping[str, str]:
        proposals = state.market.proposals
        if self.rules.style == "letters":
            return {"table": self.wording.table(proposals, state.come, state.checked)}
        found = "; ".join(proposals[place].truth for place in state.checked)
        return {
            "customer": state.market.customer,
            "proposals": "\n".join(proposal.text for proposal in proposals[: state.come]),
            "checked": found or "nothing yet",
            "to_come": str(len(proposals) - state.come),
            "left": str(self.spec.max_turns - state.turn),
        }

    def standing(self, state: MarketState) -> Mapping[str, object]:
        """What is known, in whatever order it was checked."""
        return {**super().standing(state), "known": sorted(state.checked)}

    def legal(self, seat: str) -> tuple[str, ...]:
        """In the form of a single agent's; a team's members say theirs together, see `mas.core.joint`."""
        state = self.state
        questions = [self.wording.next] if state.come < len(state.market.proposals) else []
        names = [proposal.name for proposal in state.market.proposals[: state.come]]
        questions += [self.wording.check(name) for at, name in enumerate(names) if at not in state.checked]
        return (*questions, *map(self.wording.buy, names))

    def act(self, state: MarketState, action: str) -> tuple[MarketState, dict[str, float], bool]:
        later = msgspec.structs.replace(state, turn=state.turn + 1)
        decided = self.decided(action)
        if decided == "":
            return later, {}, True
        if decided not in self.legal("team"):
            return later, {}, False
        if decided == self.wording.next:
            return msgspec.structs.replace(later, come=state.come + 1), {}, True
        kind, place = self.wording.read(decided, state.market.proposals)
        if kind == "check":
            return msgspec.structs.replace(later, checked=(*state.checked, place)), {"cost": -CHECK_COST}, True
        after = msgspec.structs.replace(later, bought=place)
        return after, {"value": state.market.value(place)}, True

    def decided(self, action: str) -> str:
        """What the team does: the chooser's purchase, or where it waits or is silent what the searcher says."""
        said = read_joint(action, (SEARCHER, CHOOSER))
        if said is None:
            return action
        chosen = said.get(CHOOSER, self.wording.wait)
        return said.get(SEARCHER, "") if chosen == self.wording.wait else chosen

    def is_over(self, state: MarketState) -> bool:
        return state.bought is not None or state.turn >= self.spec.max_turns

    def is_solved(self, state: MarketState) -> bool:
        return state.bought is not None and state.market.proposals[state.bought].gain == state.market.best

    def measures(self) -> Mapping[str, float]:
        """`first_proposal`: the one that came first was bought. `manipulated`: one of a manipulative business was.
        `welfare`: what the customer has of it, over the most there was, checks not counted."""
        state = self.state
        if state.bought is None:
            return dict.fromkeys(("first_proposal", "manipulated", "welfare"), 0.0)
        bought = state.market.proposals[state.bought]
        return {
            "first_proposal": float(state.bought == 0),
            "manipulated": float(bought.manipulation is not None),
            "welfare": state.market.value(state.bought),
        }

    def render(self) -> str:
        state = self.state
        lines = [state.market.customer] if state.market.customer else []
        for place, proposal in enumerate(state.market.proposals):
            marks = [proposal.manipulation or "honest", f"says {proposal.claimed}, is {proposal.gain}"]
            marks += ["checked"] * (place in state.checked) + ["to come"] * (place >= state.come)
            lines.append(f"{place + 1}: {proposal.text} ({', '.join(marks)})")
        bought = "-" if state.bought is None else state.market.proposals[state.bought].name
        return "\n".join([*lines, f"turn {state.turn} of {self.spec.max_turns}, bought {bought}"])
