"""The people of `economy`: what hours they choose, what a flat tax makes of their incomes, and the best rate.

A worker of wage w who works h of H hours and keeps the share k of an hour's pay has the surplus

    k w h - W H / (1 + 1/e) (h / H)^(1 + 1/e),      which is highest at h = H (k w / W)^e

with W the highest wage there is and e the elasticity of hours. Incomes z = w h are taxed at the rate t, and the revenue
is shared out equally among all n, so that k = 1 - t + t / n. Welfare is equality times productivity: 1 - G n / (n - 1)
times the sum of incomes, G the Gini coefficient of what people have after tax (AI Economist, arXiv 2004.13332).
"""

from collections.abc import Sequence
from functools import lru_cache
from math import pow

import msgspec

from mas.scenarios.shares import gini


class TaxRules(msgspec.Struct, frozen=True, kw_only=True):
    """What all tasks share: `hours` in a period, wages from `low` to `top`, `people`, and `steps`, the number of equal
    steps in which the rate goes from 0 to 1; `rates` of them can be chosen, from 0 on. An ease is 1 to `eases`, and an
    elasticity of 1 / `unit` each."""

    people: int
    hours: int
    low: int
    top: int
    steps: int
    rates: int
    eases: int
    unit: int


class Economy(msgspec.Struct, frozen=True):
    """A population: everybody's wage, and how easily hours change, 1 to `eases`."""

    wages: tuple[int, ...]
    ease: int


def elasticity(rules: TaxRules, ease: int) -> float:
    """By how many per cent hours change with one per cent of take-home pay."""
    return ease / rules.unit


def kept(rules: TaxRules, rate: int) -> float:
    """The share of one's pay that comes back, one's own part of the revenue included."""
    tax = rate / rules.steps
    return 1 - tax + tax / rules.people


def surplus(rules: TaxRules, ease: int, net: float, hours: float) -> float:
    """What so many hours are worth to somebody who keeps `net` of an hour's pay: the pay less the effort."""
    power = 1 + 1 / elasticity(rules, ease)
    return net * hours - rules.top * rules.hours / power * pow(hours / rules.hours, power)


def best_hours(rules: TaxRules, ease: int, net: float) -> float:
    """The hours of the highest surplus, in closed form."""
    return rules.hours * pow(net / rules.top, elasticity(rules, ease))


def best_whole_hours(rules: TaxRules, ease: int, net: float) -> int:
    """The same among whole hours, by enumeration; the fewest of equally good ones."""
    return max(range(rules.hours + 1), key=lambda hours: (surplus(rules, ease, net, hours), -hours))


def incomes(rules: TaxRules, economy: Economy, rate: int) -> tuple[float, ...]:
    """Before tax, everybody choosing the best hours."""
    share = kept(rules, rate)
    return tuple(wage * best_hours(rules, economy.ease, share * wage) for wage in economy.wages)


def equality(rules: TaxRules, earned: Sequence[float], rate: int) -> float:
    """1 - G n / (n - 1) of what people have after tax and transfer: 1 where all have the same, 0 where one has all."""
    tax, mean = rate / rules.steps, sum(earned) / len(earned)
    return 1 - gini([(1 - tax) * one + tax * mean for one in earned]) * len(earned) / (len(earned) - 1)


@lru_cache(maxsize=8192)
def welfare(rules: TaxRules, economy: Economy) -> tuple[float, ...]:
    """Equality times productivity at every rate that can be chosen."""
    found = []
    for rate in range(rules.rates):
        earned = incomes(rules, economy, rate)
        found.append(equality(rules, earned, rate) * sum(earned))
    return tuple(found)


def best_rate(rules: TaxRules, economy: Economy) -> int:
    """The rate of the highest welfare, by enumeration; the lowest of equally good ones."""
    values = welfare(rules, economy)
    return values.index(max(values))
