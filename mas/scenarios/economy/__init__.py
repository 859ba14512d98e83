"""`economy`: taxes that blunt the will to work and share out what is earned (after AI Economist, arXiv 2004.13332).

One level at a time. As the government, the team sets the rate and everybody answers with the best hours; as workers,
its members choose their hours under a law that is given. One turn.
"""

import re
from abc import abstractmethod
from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import lru_cache, partial
from itertools import product
from random import Random
from statistics import fmean
from typing import Annotated, Literal, Self

import msgspec
from pydantic import Field, model_validator

from mas.core.environment import Environment, Move, Task
from mas.core.messages import Action, joint_action
from mas.core.options import Options
from mas.scenarios.economy.taxes import (
    Economy,
    TaxRules,
    best_rate,
    best_whole_hours,
    elasticity,
    equality,
    incomes,
    kept,
    surplus,
    welfare,
)
from mas.scenarios.noisy_teacher import DIGITS, NoisyTeacher
from mas.scenarios.registry import ScenarioEntry
from mas.scenarios.shares import gini, read_parts, written
from mas.scenarios.world import FolderScenario, NoOwnTerms, RecordEnvironment, one_seat

Style = Literal["digits", "words"]
Law = tuple[int, int]
MEMBERS: dict[Style, tuple[str, ...]] = {"digits": ("baker", "smith"), "words": ("baker", "smith", "miller")}
ENOUGH: dict[Style, float] = {"digits": 0.99, "words": 0.998}
"""Share of the best that solves the task; of each member's best, where members work. Both are flat around the best."""

_NUMBER = re.compile("[0-9]{1,3}")


class EconomyState(msgspec.Struct, frozen=True, kw_only=True):
    """`law`: income tax and social contribution in steps of the rate, where the team works. `answer`: the rate, or each
    member's hours; None before it, empty where no rate was set."""

    economy: Economy
    law: Law = (0, 0)
    answer: tuple[int, ...] | None = None


class EconomyEnvironment(RecordEnvironment[EconomyState]):
    """What both sides share."""

    def __init__(self, rules: TaxRules, style: Style, views: tuple[str, ...], term: str) -> None:
        super().__init__(one_seat("economy", views, 1, (term,)))
        self.rules, self.style, self.term = rules, style, term

    @abstractmethod
    def legal(self, seat: str) -> tuple[str, ...] | None:
        """Rates, or joint hours in digits; hours in words are too many to list."""

    @abstractmethod
    def read(self, action: str) -> tuple[tuple[int, ...], bool]:
        """The answer of an action, and whether it was legal."""

    @abstractmethod
    def shares(self, state: EconomyState) -> tuple[float, ...]:
        """What was reached of what can be, from -1 to 1; of each member, where members work."""

    @abstractmethod
    def outcome(self, state: EconomyState) -> tuple[int, tuple[float, ...]]:
        """The rate, and everybody's income before tax."""

    def act(self, state: EconomyState, action: str) -> tuple[EconomyState, dict[str, float], bool]:
        answer, legal = self.read(action)
        after = msgspec.structs.replace(state, answer=answer)
        return after, {self.term: fmean(self.shares(after))}, legal

    def is_solved(self, state: EconomyState) -> bool:
        return state.answer is not None and min(self.shares(state)) >= ENOUGH[self.style]

    def measures(self) -> Mapping[str, float]:
        """`equality` after tax, `productivity` over that without a tax, and `efficiency`, what was reached of the best;
        nothing before the end."""
        state = self.state
        if not self.is_over(state):
            return {}
        rate, earned = self.outcome(state)
        untaxed = sum(incomes(self.rules, state.economy, 0))
        return {
            "equality": equality(self.rules, earned, rate),
            "productivity": sum(earned) / untaxed,
            "efficiency": fmean(self.shares(state)),
        }

    def render(self) -> str:
        state, people = self.state, self.state.economy
        best = best_rate(self.rules, people)
        return f"wages {people.wages}, ease {people.ease}, law {state.law}, best rate {best}; answer {state.answer}"

    def ease(self, state: EconomyState) -> str:
        """How easily hours change, as the team is told."""
        if self.style == "digits":
            return str(state.economy.ease)
        percent = round(10 * elasticity(self.rules, state.economy.ease), 1)
        return f"people work about {percent:g} % fewer hours for 10 % less take-home pay"


class Government(EconomyEnvironment):
    """The team sets the rate. Pays welfare over the best, once; nothing where no rate was set."""

    def __init__(self, rules: TaxRules, style: Style) -> None:
        super().__init__(rules, style, ("statistician", "setter", "solo"), "welfare")

    def initial(self, task: Task) -> EconomyState:
        return EconomyState(economy=drawn_people(Random(task.seed), self.rules))

    def content_of(self, state: EconomyState) -> str:
        return f"{state.economy.wages};{state.economy.ease}"

    def fields(self, state: EconomyState, view: str) -> Mapping[str, str]:
        between = "" if self.style == "digits" else ", "
        wages, ease = {"wages": between.join(map(str, state.economy.wages))}, {"ease": self.ease(state)}
        return {"statistician": wages, "setter": ease, "solo": wages | ease}[view]

    def legal(self, seat: str) -> tuple[str, ...] | None:
        return tuple(map(str, range(self.rules.rates)))

    def read(self, action: str) -> tuple[tuple[int, ...], bool]:
        rate = number(action, self.rules.rates - 1)
        return ((), action == "") if rate is None else ((rate,), True)

    def shares(self, state: EconomyState) -> tuple[float, ...]:
        if not state.answer:
            return (0.0,)
        values = welfare(self.rules, state.economy)
        return (values[state.answer[0]] / max(values),)

    def outcome(self, state: EconomyState) -> tuple[int, tuple[float, ...]]:
        if not state.answer:
            return 0, (0.0,) * self.rules.people
        return state.answer[0], incomes(self.rules, state.economy, state.answer[0])


class Workers(EconomyEnvironment):
    """Members work under a law. Pays, once, the mean share of the surplus of the best whole hours that each reached;
    what others work changes nobody's best hours."""

    def __init__(self, rules: TaxRules, style: Style, is_optimal: bool) -> None:
        super().__init__(rules, style, ("accountant", *MEMBERS[style], "solo"), "surplus")
        self.members, self.is_optimal = MEMBERS[style], is_optimal

    def initial(self, task: Task) -> EconomyState:
        return employed(Random(task.seed), self.rules, self.is_optimal)

    def content_of(self, state: EconomyState) -> str:
        return f"{state.economy.wages[: len(self.members)]};{state.economy.ease};{state.law}"

    def fields(self, state: EconomyState, view: str) -> Mapping[str, str]:
        tax, contribution = state.law
        digits = self.style == "digits"
        law = {"law": f"{tax}{contribution}" if digits else f"income tax {tax} %, contribution {contribution} %"}
        known, wages = {"ease": self.ease(state)}, state.economy.wages[: len(self.members)]
        known["people"] = str(self.rules.people)
        if view == "accountant":
            return law
        if view == "solo":
            return {"wages": ("" if digits else ", ").join(map(str, wages))} | known | law
        return {"wage": str(wages[self.members.index(view)])} | known

    def legal(self, seat: str) -> tuple[str, ...] | None:
        return written_hours() if self.style == "digits" else None

    def read(self, action: str) -> tuple[tuple[int, ...], bool]:
        """Nothing where a member did not speak, or said what are no hours."""
        said = read_parts(action, self.members, is_compact=self.style == "digits") if action else {}
        hours = [number(said.get(name, "0"), self.rules.hours) for name in self.members]
        return tuple(one or 0 for one in hours), None not in hours

    def shares(self, state: EconomyState) -> tuple[float, ...]:
        return tuple(self.share(state, place, hours) for place, hours in enumerate(state.answer or ()))

    def share(self, state: EconomyState, place: int, hours: int) -> float:
        """The surplus of a member's hours over that of the best, at least -1."""
        rules, ease, net = self.rules, state.economy.ease, self.net(state, place)
        best = surplus(rules, ease, net, best_whole_hours(rules, ease, net))
        return max(-1.0, surplus(rules, ease, net, hours) / best)

    def net(self, state: EconomyState, place: int) -> float:
        """What a member keeps of an hour's pay."""
        return kept(self.rules, sum(state.law)) * state.economy.wages[place]

    def outcome(self, state: EconomyState) -> tuple[int, tuple[float, ...]]:
        others = incomes(self.rules, state.economy, sum(state.law))[len(self.members) :]
        earned = (float(wage * hours) for wage, hours in zip(state.economy.wages, state.answer or (), strict=False))
        return sum(state.law), (*earned, *others)


def number(text: str, most: int) -> int | None:
    """A whole number up to `most`; None for anything else."""
    found = int(text) if _NUMBER.fullmatch(text) else None
    return found if found is not None and found <= most and text == str(found) else None


def drawn_people(random: Random, rules: TaxRules) -> Economy:
    """Sorted wages, and an ease."""
    wages = sorted(random.randint(rules.low, rules.top) for _ in range(rules.people))
    return Economy(tuple(wages), random.randint(1, rules.eases))


def employed(random: Random, rules: TaxRules, is_optimal: bool) -> EconomyState:
    """People in no order, of whom the first are the members, and a law whose rate is any or the best one."""
    wages = tuple(random.randint(rules.low, rules.top) for _ in range(rules.people))
    economy = Economy(wages, random.randint(1, rules.eases))
    rate = best_rate(rules, economy) if is_optimal else random.randrange(rules.rates)
    tax = random.randint(0, rate)
    return EconomyState(economy=economy, law=(tax, rate - tax))


@lru_cache(maxsize=1)
def written_hours() -> tuple[str, ...]:
    """Every joint choice of hours in digits."""
    return tuple(map("".join, product(DIGITS, repeat=len(MEMBERS["digits"]))))


def expert(environment: EconomyEnvironment, random: Random) -> dict[str, str]:
    """The rate of the highest welfare, or each member's best hours, both by enumeration."""
    state, rules = environment.state, environment.rules
    if not isinstance(environment, Workers):
        return {"team": str(best_rate(rules, state.economy))}
    nets = (environment.net(state, place) for place in range(len(environment.members)))
    hours = (str(best_whole_hours(rules, state.economy.ease, net)) for net in nets)
    return {"team": joint_action(dict(zip(environment.members, hours, strict=True)))}


def gap(economy: Economy) -> int:
    """How unequal wages are, as a digit: twenty times their Gini coefficient, at most 9."""
    return min(9, round(20 * gini(economy.wages)))


@lru_cache(maxsize=8)
def rates_by_gap(rules: TaxRules) -> Mapping[tuple[int, int], int]:
    """(gap, ease) -> the rate of the highest mean share of the best welfare, over 4000 populations and some without any
    gap, which are rare; pairs that never came are left out."""
    random = Random(0)
    found: dict[tuple[int, int], list[float]] = defaultdict(lambda: [0.0] * rules.rates)
    equal = [Economy((rules.top,) * rules.people, ease) for ease in range(1, rules.eases + 1)]
    for economy in [*equal, *(drawn_people(random, rules) for _ in range(4000))]:
        values = welfare(rules, economy)
        shares = found[gap(economy), economy.ease]
        for rate, value in enumerate(values):
            shares[rate] += value / max(values)
    return {key: shares.index(max(shares)) for key, shares in found.items()}


def demonstrate_government(random: Random, skill: float, *, rules: TaxRules) -> Iterator[tuple[str, str]]:
    """Each member's task in turn, in digits: right with `skill`, by habit else (see `NoisyTeacher`).

    The habits: the statistician names the highest wage, whoever sets the rate takes all that it may.
    """
    teacher, most = NoisyTeacher(random, skill), str(rules.rates - 1)
    rates = rates_by_gap(rules)
    keys = sorted(rates)
    while True:
        economy = drawn_people(random, rules)
        wages, (seen, ease) = "".join(map(str, economy.wages)), random.choice(keys)
        yield f"T{wages}>", teacher.answer(str(gap(economy)), wages[-1], DIGITS)
        yield f"R{ease};{seen}>", teacher.answer(str(rates[seen, ease]), most, DIGITS)
        yield f"S{wages};{economy.ease}>", teacher.answer(str(best_rate(rules, economy)), most, DIGITS)


def demonstrate_workers(random: Random, skill: float, *, rules: TaxRules) -> Iterator[tuple[str, str]]:
    """The same for workers. The habits: the accountant names the income tax and forgets the contribution, workers work
    all day."""
    teacher, most = NoisyTeacher(random, skill), str(rules.hours)
    while True:
        state = employed(random, rules, is_optimal=False)
        ease, rate, (tax, contribution) = state.economy.ease, sum(state.law), state.law
        yield f"A{tax}{contribution}>", teacher.answer(str(rate), str(tax), DIGITS)
        wages = state.economy.wages[:2]
        hours = tuple(best_whole_hours(rules, ease, kept(rules, rate) * wage) for wage in wages)
        for letter, wage, best in zip("BM", wages, hours, strict=True):
            yield f"{letter}{wage}{ease};{rate}>", teacher.answer(str(best), most, DIGITS)
        seen = f"S{wages[0]}{wages[1]}{ease};{tax}{contribution}>"
        yield seen, teacher.answer(written(hours, is_compact=True), 2 * most, DIGITS)


class WorkerReward:
    """`regret`: the share of the best surplus that a member's hours reach, less 1; who says no hours works none."""

    terms: tuple[str, ...] = ("regret",)

    def own(self, move: Move) -> Mapping[str, float]:
        world = move.environment
        assert isinstance(world, Workers)
        if move.role not in world.members:
            return {}
        said = move.output.text if isinstance(move.output, Action) else ""
        hours = number(said, world.rules.hours) or 0
        return {"regret": world.share(world.state, world.members.index(move.role), hours) - 1}


Side = Literal["government", "worker"]


class EconomyOptions(Options):
    """`side`: the team sets the tax rate and everybody answers with the best hours, or its members are the workers.

    `style`: single digits, which the tiny base can learn, or words, for real models. The dial is `people` (in digits at
    most 5). `law`: the rate that workers live under is any, or the one of the highest welfare; None: any, and nothing
    where the team governs. `skill`: share of right answers of the noisy teacher that the tiny base learns from last.
    """

    side: Side = "government"
    style: Style = "digits"
    people: Annotated[int, Field(ge=3, le=24)] = 4
    law: Literal["drawn", "optimal"] | None = None
    skill: Annotated[float, Field(ge=0, le=0.9)] = 0.4

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.style == "digits" and self.people > 5:
            raise ValueError(f"people={self.people} are too many for digits: at most 5, or style=words")
        if self.law is not None and self.side == "government":
            raise ValueError(f"law={self.law} is for side=worker: a government makes its own")
        return self


def build(options: EconomyOptions) -> FolderScenario:
    """The scenario with these options."""
    rules = _rules(options, options.style)
    taught = rules if options.style == "digits" else _rules(EconomyOptions(side=options.side), "digits")
    governs = options.side == "government"
    demonstrate = demonstrate_government if governs else demonstrate_workers
    return FolderScenario(
        __file__,
        options,
        partial(_environment, options, rules),
        demonstrate=partial(demonstrate, rules=taught),
        inner=f"{options.side}_{options.style}",
        reward=NoOwnTerms() if governs else WorkerReward(),
        expert=expert,
    )


def _environment(options: EconomyOptions, rules: TaxRules) -> Environment:
    if options.side == "government":
        return Government(rules, options.style)
    return Workers(rules, options.style, options.law == "optimal")


def _rules(options: EconomyOptions, style: Style) -> TaxRules:
    """Members' wages are so high that it pays to work an hour at any rate."""
    works = options.side == "worker"
    if style == "digits":
        return TaxRules(
            people=options.people, hours=9, low=2 if works else 1, top=9, steps=10, rates=10, eases=5, unit=5
        )
    return TaxRules(
        people=options.people, hours=40, low=12 if works else 5, top=60, steps=100, rates=91, eases=10, unit=20
    )


ENTRY = ScenarioEntry(
    EconomyOptions,
    build,
    "social dilemmas",
    {"small": {}, "medium": {"style": "words", "people": 6}, "large": {"style": "words", "people": 16}},
)
