"""Checks that every game behind a bridge must stand, and policies to play it with."""

from collections.abc import Callable, Mapping
from random import Random

import pytest

from mas.core.environment import Environment, Step, Task
from mas.scenarios.game import GameEnvironment
from mas.testing.environment import EnvironmentContract, choose, everything

Policy = Callable[[Environment, str, Random], str]

HOSTILE = (
    "x" * 100_000,
    "9" * 5_000,
    "-1",
    "#999999999",
    "٣",
    "\x00\x1b[2J\ufeff",
    '{"action": 0}',
    "__import__('os').system('true')",
    "{seen}",
)
"""Texts that are legal in no game."""


def task(seed: int) -> Task:
    return Task(id=f"train-{seed}", seed=seed)


def legal(environment: Environment, seat: str, random: Random) -> str:
    return random.choice(environment.legal(seat) or ("",))


def idle(environment: Environment, seat: str, random: Random) -> str:
    return ""


def babble(environment: Environment, seat: str, random: Random) -> str:
    return random.choice(HOSTILE)


def careless(environment: Environment, seat: str, random: Random) -> str:
    """Three times of ten nothing or nonsense, so that about one decision in forty is forfeited."""
    return legal(environment, seat, random) if random.random() < 0.7 else random.choice(("", *HOSTILE))


def play(environment: Environment, policies: Mapping[str, Policy], random: Random) -> list[Step]:
    """To the end; seats without a policy of their own play at random."""
    steps = []
    while seats := environment.to_move():
        steps.append(environment.step({seat: policies.get(seat, legal)(environment, seat, random) for seat in seats}))
    return steps


def totals(environment: Environment, steps: list[Step]) -> dict[str, float]:
    """What every seat was paid in all."""
    return {seat: sum(step.rewards[seat]["payoff"] for step in steps) for seat in environment.spec.seats}


def check_payoffs(environment: GameEnvironment, paid: Mapping[str, float]) -> None:
    """What the rules say about everybody's payoff at the end."""
    rules = environment.rules
    if rules.payoff == "fixed":
        assert sum(paid.values()) == pytest.approx(rules.total, abs=1e-6)
    if rules.payoff == "shared":
        assert len({round(value, 6) for value in paid.values()}) == 1
    assert min(paid.values()) >= rules.floor - 1e-6


def check_copies(environment: GameEnvironment, random: Random) -> None:
    """A clone and a restored snapshot have the same future, and the original stays as it is."""
    before, seed = everything(environment), random.random()
    restored = GameEnvironment(environment.game)
    restored.restore(environment.snapshot())
    copies = [environment.clone(), restored]
    assert all(everything(copy) == before for copy in copies)
    for _ in range(4):
        if copies[0].to_move():
            first, second = (copy.step(choose(copy, Random(seed))) for copy in copies)
            assert first == second
            assert everything(copies[0]) == everything(copies[1])
    assert everything(environment) == before


def check_game(environment: GameEnvironment, *, seeds: int, decisions: int) -> int:
    """Play at random with misses, with copies on the way, and check all that can be checked; returns the steps."""
    steps = 0
    for seed in range(seeds):
        environment.reset(task(seed))
        random, played = Random(seed), []
        while environment.to_move() and len(played) < decisions:
            assert all(environment.observe(seat).fields["seen"].strip() for seat in environment.spec.seats)
            assert all(environment.legal(seat) for seat in environment.to_move())
            if len(played) in (0, 3, 20):
                check_copies(environment, random)
            misses = len(played) % 7 == 6
            seats = environment.to_move()
            actions = choose(environment, random) if misses else {s: legal(environment, s, random) for s in seats}
            played.append(environment.step(actions))
        if not environment.to_move():
            check_payoffs(environment, totals(environment, played))
        steps += len(played)
    return steps


def fuzz(environment: GameEnvironment, steps: int) -> int:
    """Play random games with misses until so many steps are done; returns how many forfeited."""
    random, done, seed, forfeits = Random(0), 0, 0, 0
    while done < steps:
        environment.reset(task(seed))
        paid = dict.fromkeys(environment.spec.seats, 0.0)
        while environment.to_move():
            step = environment.step({seat: careless(environment, seat, random) for seat in environment.to_move()})
            for seat, terms in step.rewards.items():
                paid[seat] += terms["payoff"]
            done += 1
        check_payoffs(environment, paid)
        forfeits += bool(environment.forfeited())
        seed += 1
    return forfeits


class GameContract(EnvironmentContract):
    """The contract for a game behind a bridge, with what holds for games alone."""

    idle_fails = False  # who is idle may not be the first seat, which `success` is about

    @pytest.fixture(autouse=True)
    def _has_chance(self) -> None:
        self.tasks_differ = self.make_environment().rules.has_chance

    def make_environment(self) -> GameEnvironment:
        raise NotImplementedError

    def task(self, number: int) -> Task:
        return task(number)

    @pytest.mark.parametrize("policy", [idle, babble])
    def test_who_does_not_move_loses_and_payoffs_still_add_up(self, policy: Policy) -> None:
        for seat in self.make_environment().spec.seats:
            environment, asked = self.make_environment(), []

            def noted(world: Environment, mover: str, random: Random, asked: list[str] = asked) -> str:
                asked.append(policy(world, mover, random))
                return asked[-1]

            environment.reset(task(1))
            steps = play(environment, {seat: noted}, Random(1))
            paid = totals(environment, steps)
            check_payoffs(environment, paid)
            # A game may end before a seat is asked at all.
            assert len(asked) == (environment.tries if asked else 0)
            assert environment.forfeited() == ((seat,) if asked else ())
            assert sum(seat in step.illegal for step in steps) == (len(asked) if policy is babble else 0)
            assert paid[seat] == environment.rules.floor or not asked

    def test_hostile_actions_are_refused_and_move_nothing(self) -> None:
        environment = self.make_environment()
        environment.reset(task(2))
        for said in HOSTILE:
            twin = environment.clone()
            seats = twin.to_move()
            step = twin.step(dict.fromkeys(seats, said))
            assert step.illegal == seats
            assert all(paid == {"payoff": 0.0} for paid in step.rewards.values())
            assert twin.render() == environment.render()
            assert [twin.observe(seat).fields["seen"] for seat in seats] == [
                environment.observe(seat).fields["seen"] for seat in seats
            ]
