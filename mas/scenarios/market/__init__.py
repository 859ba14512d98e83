"""`market`: buy for a customer from businesses that answer one after the other, some of which lie.

After Magentic Marketplace (arXiv 2510.25779): assistants that buy tend to take the first proposal that they get, and
businesses try to manipulate them. A searcher says what should be found out next, a chooser who hears it buys or
waits.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from random import Random
from typing import ClassVar

import msgspec

from mas.core.environment import Task
from mas.core.messages import joint_action, read_joint
from mas.scenarios.market.offers import TONES, Market, MarketOptions, MarketWording, make_market
from mas.scenarios.noisy_teacher import NoisyTeacher
from mas.scenarios.registry import ScenarioEntry
from mas.scenarios.world import FolderScenario, RecordEnvironment, one_seat

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

    history: ClassVar[tuple[str, ...]] = ("checked", "turn")
    answer_field: ClassVar[str] = "bought"

    def __init__(self, rules: MarketOptions) -> None:
        super().__init__(one_seat("market", (SEARCHER, CHOOSER, "solo"), 2 * rules.businesses, ("value", "cost")))
        self.rules = rules
        self.wording = MarketWording(rules.style)

    def initial(self, task: Task) -> MarketState:
        return MarketState(market=make_market(Random(task.seed), self.rules))

    def content_of(self, state: MarketState) -> str:
        """What the team can see without a check."""
        return "|".join([state.market.customer, *(proposal.text for proposal in state.market.proposals)])

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
        """In the form of a single agent's; a team's members say theirs together, see `mas.core.messages`."""
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


_PLAIN = TONES["false_claim"]


def expert(environment: MarketEnvironment, random: Random) -> dict[str, str]:
    """Waits for the best proposal and buys it, unchecked: the most that there is, with the truth in sight."""
    state, wording = environment.state, environment.wording
    proposals = state.market.proposals
    best = max(range(len(proposals)), key=lambda place: proposals[place].gain)
    buys = best < state.come
    return {
        "team": joint_action(
            {SEARCHER: wording.next, CHOOSER: wording.buy(proposals[best].name) if buys else wording.wait}
        )
    }


def careful(environment: MarketEnvironment) -> str:
    """Hears everybody, then checks the highest claims until none that is left promises more than what is known.

    No proposal is worth more than it claims, so what is bought then is the best. This is the best that is sure.
    """
    state, wording = environment.state, environment.wording
    if state.come < len(state.market.proposals):
        return wording.next
    name = state.market.proposals[_promising(state)].name
    return wording.buy(name) if _promising(state) in state.checked else wording.check(name)


def demonstrations(random: Random, skill: float, *, make: Callable[[], MarketEnvironment]) -> Iterator[tuple[str, str]]:
    """Each member's task in turn, in letters: right with `skill`, by habit else (see `NoisyTeacher`).

    Right is what the careful one does; in half of the cases it has gone astray before. A chooser whose searcher asks
    what cannot be asked buys the best by what it knows and by plain words. The habits: the chooser buys the
    first proposal before it has heard another one, and once it has heard all the best by what it knows and by plain
    words; the searcher checks the first one, whatever the others promise.
    """
    environment = make()
    teacher, wording = NoisyTeacher(random, skill), environment.wording
    while True:
        _search(random, environment)
        table, proposals = environment.observe("solo").fields["table"], environment.state.market.proposals
        buys = [wording.buy(proposal.name) for proposal in proposals]
        questions = [wording.next, *(wording.check(proposal.name) for proposal in proposals)]
        right, habit = careful(environment), _hasty(environment)
        if right in questions:
            usual = wording.next if environment.state.come < len(proposals) else questions[1]
            yield f"S{table}>", teacher.answer(right, usual, "".join(questions))
        said = random.choice((right if right in questions else wording.next, random.choice(questions)))
        chosen = (
            right if right in buys else wording.wait if said in environment.legal("team") else _by_sight(environment)
        )
        hasty = habit if habit in buys else wording.wait
        yield f"C{table};{said}>", teacher.answer(chosen, hasty, "".join([wording.wait, *buys]))
        yield f"N{table}>", teacher.answer(right, habit, "".join([*questions, *buys]))


def _hasty(environment: MarketEnvironment) -> str:
    """Buys the first; if it has not, it hears all and buys by sight."""
    state = environment.state
    if 1 < state.come < len(state.market.proposals):
        return environment.wording.next
    return _by_sight(environment)


def _by_sight(environment: MarketEnvironment) -> str:
    """Buys the best by what is known and by plain words; where there are none, by any."""
    state, heard = environment.state, range(environment.state.come)
    proposals = state.market.proposals
    trusted = [place for place in heard if place in state.checked or proposals[place].text.endswith(_PLAIN)]
    return environment.wording.buy(proposals[max(trusted or heard, key=lambda place: _worth(state, place))].name)


def _worth(state: MarketState, place: int) -> int:
    """What a proposal is worth by what is known of it."""
    proposal = state.market.proposals[place]
    return proposal.gain if place in state.checked else proposal.claimed


def _promising(state: MarketState) -> int:
    """The proposal that is worth most by what is known of it; of equal ones one that was checked, then the first."""
    return max(range(state.come), key=lambda place: (_worth(state, place), place in state.checked))


def _search(random: Random, environment: MarketEnvironment) -> None:
    """Some turns of a new market, short of a purchase."""
    environment.reset(Task(id="demonstration", seed=random.getrandbits(32)))
    buys = {environment.wording.buy(proposal.name) for proposal in environment.state.market.proposals}
    is_careful = random.random() < 0.5
    for _ in range(random.randrange(environment.spec.max_turns)):
        questions = [action for action in environment.legal("team") if action not in buys]
        action = careful(environment) if is_careful else random.choice(questions or [""])
        if action in buys:
            return
        environment.step({"team": action})


def build(options: MarketOptions) -> FolderScenario:
    """The scenario with these options."""
    letters = options.model_copy(update={"style": "letters"})
    return FolderScenario(
        __file__,
        options,
        partial(MarketEnvironment, options),
        demonstrate=partial(demonstrations, make=partial(MarketEnvironment, letters)),
        inner=options.style,
        expert=expert,
    )


ENTRY = ScenarioEntry(
    MarketOptions,
    build,
    "negotiation",
    {
        "small": {},
        "medium": {"style": "words", "businesses": 4, "manipulators": 2},
        "large": {"style": "words", "businesses": 8, "manipulators": 4},
    },
)
