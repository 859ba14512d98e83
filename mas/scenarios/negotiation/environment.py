"""`negotiation`: share things out with somebody who wants others, before the time is over.

After the negotiations of Lewis et al., arXiv 1706.05125, and Kwon et al., arXiv 2106.07728: values are private, each
side sees what is asked and offered, no deal is worth nothing. The other side is scripted, see
`mas.scenarios.negotiation.deals`.
"""

from collections.abc import Callable, Iterator, Mapping
from random import Random
from typing import ClassVar

import msgspec

from mas.core.environment import EnvironmentSpec, Task
from mas.scenarios.negotiation import deals
from mas.scenarios.negotiation.deals import (
    ACCEPT,
    TOTAL,
    DealProblem,
    Package,
    Style,
    code,
    decode,
    efficiency,
    ladder,
    nash_share,
    packages,
    phrase,
    prices,
    read_offer,
    spell,
)
from mas.scenarios.noisy_teacher import NoisyTeacher
from mas.scenarios.world import RecordEnvironment

ENOUGH = 0.8
"""The task is solved with this share of the most that can be had."""


class TalkState(msgspec.Struct, frozen=True, kw_only=True):
    """`asks`: what the team asked for. `offers`: what the other side offered, its opening first; the last one stands.

    `turn` counts the team's turns, passes among them. `deal`: what the team got, once both agreed.
    """

    problem: DealProblem
    script: deals.Script
    offers: tuple[Package, ...]
    asks: tuple[Package, ...] = ()
    turn: int = 0
    deal: Package | None = None

    @property
    def given(self) -> int:
        """The most that the team has offered the other side, in its own eyes."""
        return max((self.problem.for_other(package) for package in self.asks), default=0)


class TalkEnvironment(RecordEnvironment[TalkState]):
    """An offer or an acceptance a turn, until both agree or the team's turns are over.

    What the other side's things are worth to it, and which script it follows, no view sees.
    """

    state_type: ClassVar[type[msgspec.Struct]] = TalkState

    def __init__(self, make: Callable[[Random], TalkState], style: Style, turns: int) -> None:
        views = ("analyst", "speaker", "solo")
        super().__init__(
            EnvironmentSpec(name="negotiation", seats=("team",), views=views, max_turns=turns, terms=("utility",))
        )
        self.make = make
        self.style: Style = style

    def initial(self, task: Task) -> TalkState:
        return self.make(Random(task.seed))

    def fields(self, state: TalkState, view: str) -> Mapping[str, str]:
        left = {"left": str(self.spec.max_turns - state.turn)}
        show = self._show
        offer = {"offer": show(state.offers[-1])}
        between = "" if self.style == "letters" else "; "
        analyst = {
            "values": "".join(map(str, state.problem.mine)) if self.style == "letters" else prices(state.problem.mine),
            "asks": between.join(map(show, state.asks)),
            "offers": between.join(map(show, state.offers)),
        }
        shared = {"things": phrase(state.problem.counts)}
        if self.style == "letters":
            shared = {"ladder": "".join(map(code, ladder(state.problem)))}
        seen = {"analyst": analyst, "speaker": offer, "solo": offer | analyst}
        return seen[view] | shared | left

    def legal(self, seat: str) -> tuple[str, ...]:
        """In words in one spelling; others of the same offer are read as well."""
        return (*(spell(self.style, package) for package in packages(self.state.problem.counts)), ACCEPT[self.style])

    def act(self, state: TalkState, action: str) -> tuple[TalkState, dict[str, float], bool]:
        later = msgspec.structs.replace(state, turn=state.turn + 1)
        if action == ACCEPT[self.style]:
            return self._agreed(later, state.offers[-1])
        package = self.read(action)
        if package is None:
            return later, {}, action == ""
        asked = msgspec.structs.replace(later, asks=(*state.asks, package))
        least = deals.aspiration(state.script, later.turn, self.spec.max_turns, asked.given)
        if state.problem.for_other(package) >= least:
            return self._agreed(asked, package)
        if later.turn == self.spec.max_turns:
            return asked, {}, True
        return msgspec.structs.replace(asked, offers=(*state.offers, deals.offer(state.problem, least))), {}, True

    def read(self, action: str) -> Package | None:
        """The package that an action asks for, None where it asks for none."""
        counts = self.state.problem.counts
        return decode(action, len(counts)) if self.style == "letters" else read_offer(action, counts)

    def is_over(self, state: TalkState) -> bool:
        return state.deal is not None or state.turn >= self.spec.max_turns

    def is_solved(self, state: TalkState) -> bool:
        if state.deal is None:
            return False
        return state.problem.for_team(state.deal) >= ENOUGH * deals.most(
            state.problem, state.script, self.spec.max_turns
        )

    def measures(self) -> Mapping[str, float]:
        """How good the deal is for both: `pareto_efficiency` and `nash_product` as `efficiency` and `nash_share` say,
        0 without a deal; `agreement`: whether there is one."""
        problem, deal = self.state.problem, self.state.deal
        return {
            "agreement": float(deal is not None),
            "pareto_efficiency": 0.0 if deal is None else efficiency(problem, deal),
            "nash_product": 0.0 if deal is None else nash_share(problem, deal),
        }

    def render(self) -> str:
        state = self.state
        deal = "-" if state.deal is None else phrase(state.deal)
        return "\n".join(
            [
                f"{phrase(state.problem.counts)}; turn {state.turn} of {self.spec.max_turns}; {state.script}",
                f"worth to the team: {prices(state.problem.mine)}; to the other: {prices(state.problem.theirs)}",
                "the team asked for: " + "; ".join(map(phrase, state.asks)),
                "it was offered: " + "; ".join(map(phrase, state.offers)),
                f"the team gets: {deal}",
            ]
        )

    def _show(self, package: Package) -> str:
        return code(package) if self.style == "letters" else phrase(package)

    def _agreed(self, state: TalkState, package: Package) -> tuple[TalkState, dict[str, float], bool]:
        after = msgspec.structs.replace(state, deal=package)
        return after, {"utility": state.problem.for_team(package) / TOTAL}, True


def best_ask(environment: TalkEnvironment) -> Package | None:
    """The package of the best course from here, None to accept what stands."""
    state = environment.state
    turns, standing = environment.spec.max_turns, state.offers[-1]
    return deals.best_reply(state.problem, state.script, state.turn, turns, state.given, standing)[1]


def expert(environment: TalkEnvironment, random: Random) -> dict[str, str]:
    """The best course, found by search with the other side's values and script in sight."""
    package = best_ask(environment)
    return {"team": ACCEPT[environment.style] if package is None else spell(environment.style, package)}


def demonstrations(random: Random, skill: float, *, make: Callable[[], TalkEnvironment]) -> Iterator[tuple[str, str]]:
    """Each member's task in turn, in letters: right with `skill`, by habit else (see `NoisyTeacher`).

    Talks go on for some turns with packages that would not be agreed to. The habits: the analyst names what it was
    offered, whoever speaks accepts.
    """
    environment = make()
    teacher, accept = NoisyTeacher(random, skill), ACCEPT["letters"]
    while True:
        _talk(random, environment)
        analyst, best = environment.observe("analyst").fields, best_ask(environment)
        standing = environment.observe("speaker").fields["offer"]
        aim = standing if best is None else code(best)
        seen = f"{analyst['values']};{analyst['ladder']};{analyst['asks']};{analyst['offers']};{analyst['left']}>"
        yield f"A{seen}", teacher.answer(aim, standing, "01234567")
        yield f"N{seen}", teacher.answer(accept if best is None else aim, accept, f"01234567{accept}")
        said = random.choice((aim, random.choice(analyst["ladder"])))
        right = said_by_speaker(analyst["ladder"], standing, said)
        yield f"S{analyst['ladder']};{standing};{said}>", teacher.answer(right, accept, f"01234567{accept}")


def said_by_speaker(rungs: str, standing: str, aim: str) -> str:
    """Accepts what stands if it is as far up the ladder as the analyst's aim, else asks for the aim."""
    return ACCEPT["letters"] if rungs.index(standing) <= rungs.index(aim) else aim


def _talk(random: Random, environment: TalkEnvironment) -> None:
    """Some turns of a new negotiation, short of an agreement; the team asks for what is in the upper half for it."""
    environment.reset(Task(id="demonstration", seed=random.getrandbits(32)))
    rungs = ladder(environment.state.problem)
    for _ in range(random.randrange(environment.spec.max_turns)):
        before = environment.snapshot()
        environment.step({"team": code(random.choice(rungs[: len(rungs) // 2]))})
        if not environment.to_move():
            environment.restore(before)
            return
