"""The best play, and scripted members of the team, who teach the tiny base."""

from collections.abc import Iterator
from functools import lru_cache
from random import Random

from mas.core.joint import joint_action
from mas.scenarios.commons.environment import LETTERS, CommonsEnvironment
from mas.scenarios.commons.lake import Lake, LakeRules, Neighbour, after, even, plan
from mas.scenarios.noisy_teacher import NoisyTeacher
from mas.scenarios.shares import written

DIGITS = "0123456789"


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
