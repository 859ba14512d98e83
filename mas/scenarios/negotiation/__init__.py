"""`negotiation`: share things out with somebody who wants others, before the time is over.

After the negotiations of Lewis et al., arXiv 1706.05125, and Kwon et al., arXiv 2106.07728: values are private, each
side sees what is asked and offered, no deal is worth nothing. The other side is scripted, see
`mas.scenarios.negotiation.deals`.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from random import Random
from typing import Annotated, ClassVar, Literal, Self

import msgspec
from pydantic import Field, model_validator

from mas.core.environment import Task
from mas.core.options import Options
from mas.scenarios.negotiation import deals
from mas.scenarios.negotiation.deals import (
    ACCEPT,
    NAMES,
    TOTAL,
    DealProblem,
    Package,
    code,
    decode,
    efficiency,
    ladder,
    make_problem,
    nash_share,
    packages,
    phrase,
    prices,
    read_offer,
    spell,
)
from mas.scenarios.noisy_teacher import NoisyTeacher
from mas.scenarios.registry import ScenarioEntry
from mas.scenarios.world import FolderScenario, RecordEnvironment, Style, one_seat

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

    answer_field: ClassVar[str] = "deal"

    def __init__(self, make: Callable[[Random], TalkState], style: Style, turns: int) -> None:
        views = ("analyst", "speaker", "solo")
        super().__init__(one_seat("negotiation", views, turns, ("utility",)))
        self.make = make
        self.style: Style = style

    def initial(self, task: Task) -> TalkState:
        return self.make(Random(task.seed))

    def content_of(self, state: TalkState) -> str:
        """What the team sees before it says anything."""
        return f"{state.problem.counts}{state.problem.mine}{state.offers[0]}"

    def fields(self, state: TalkState, view: str) -> Mapping[str, str]:
        left = {"left": str(self.spec.max_turns - state.turn)}
        show = code if self.style == "letters" else phrase
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


_LETTERS = 3
"""Kinds of things in letters: their packages are one character each."""


class TalkOptions(Options):
    """The dial is `kinds` of things, and `turns`, after which there is no deal.

    `style`: packages are single characters, which the tiny base can learn, or words, for real models. `opponent`: the
    script of the other side; `mixed`: any of the three, so that the team must find out. `skill`: share of right answers
    of the noisy teacher that the tiny base learns from last.
    """

    style: Style = "letters"
    kinds: Annotated[int, Field(ge=2, le=len(NAMES))] = _LETTERS
    turns: Annotated[int, Field(ge=1, le=20)] = 4
    opponent: Literal["conceder", "boulware", "tit_for_tat", "mixed"] = "mixed"
    skill: Annotated[float, Field(ge=0, le=0.9)] = 0.4

    @model_validator(mode="after")
    def _one_character(self) -> Self:
        if self.style == "letters" and self.kinds != _LETTERS:
            raise ValueError(f"style=letters has {_LETTERS} kinds of things; for kinds={self.kinds} take style=words")
        return self


def build(options: TalkOptions) -> FolderScenario:
    """The scenario with these options."""
    make = partial(_make, options=options)
    environment = partial(TalkEnvironment, make, options.style, options.turns)
    letters = TalkOptions(turns=options.turns, opponent=options.opponent)
    return FolderScenario(
        __file__,
        options,
        environment,
        demonstrate=partial(
            demonstrations, make=partial(TalkEnvironment, partial(_make, options=letters), "letters", options.turns)
        ),
        inner=options.style,
        expert=expert,
    )


def _make(random: Random, options: TalkOptions) -> TalkState:
    problem = make_problem(random, options.style, options.kinds)
    script = random.choice(deals.SCRIPTS) if options.opponent == "mixed" else options.opponent
    opening = deals.offer(problem, deals.aspiration(script, 0, options.turns, 0))
    return TalkState(problem=problem, script=script, offers=(opening,))


ENTRY = ScenarioEntry(
    TalkOptions,
    build,
    "negotiation",
    {"small": {}, "medium": {"style": "words"}, "large": {"style": "words", "kinds": 5, "turns": 6}},
)
