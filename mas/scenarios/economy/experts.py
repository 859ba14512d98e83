"""The best play, and scripted members of the teams, who teach the tiny base."""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import lru_cache
from random import Random

from mas.core.joint import joint_action
from mas.scenarios.economy.environment import EconomyEnvironment, Workers, drawn_people, employed
from mas.scenarios.economy.taxes import Economy, TaxRules, best_rate, best_whole_hours, kept, welfare
from mas.scenarios.noisy_teacher import NoisyTeacher
from mas.scenarios.shares import gini, written

DIGITS = "0123456789"


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
