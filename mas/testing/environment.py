"""The contract of every environment, as a test class: subclass `EnvironmentContract`, say how to make one, run pytest.

class TestMyGame(EnvironmentContract):
    def make_environment(self) -> Environment:
        return MyGame()

    def task(self, number: int) -> Task:
        return Task(id=f"train-{number}", seed=number)
"""

from collections.abc import Mapping
from random import Random

import pytest

from mas.core.environment import Answered, Environment, Named, Step, Task, anchor_of
from mas.core.errors import EnvironmentFault

TASKS = 6


def choose(environment: Environment, random: Random) -> dict[str, str]:
    """Random actions of the seats that must move: mostly legal ones, at times a pass or nonsense."""
    actions = {}
    for seat in environment.to_move():
        legal = environment.legal(seat) or ("",)
        actions[seat] = random.choice([*legal, *legal, *legal, "", "no such action"])
    return actions


def everything(environment: Environment) -> tuple[object, ...]:
    """All that can be asked of a state."""
    seats = environment.to_move()
    seen = {view: dict(environment.observe(view).fields) for view in environment.spec.views}
    legal = {seat: environment.legal(seat) for seat in seats}
    keys = environment.state_key(), anchor_of(environment)
    return seats, seen, legal, environment.success(), keys, environment.render()


class EnvironmentContract:
    """What every implementation of `Environment` must do."""

    privacy: Mapping[str, frozenset[str]] = {}
    """View -> all fields that it may ever show; views that are left out are not checked."""
    idle_fails = True
    """Whether somebody who never acts fails every task."""
    tasks_differ = True
    """Whether tasks begin differently; those of a game without chance all begin alike."""

    def make_environment(self) -> Environment:
        """A fresh environment."""
        raise NotImplementedError

    def task(self, number: int) -> Task:
        """The number-th of many different tasks."""
        raise NotImplementedError

    def play(self, environment: Environment, random: Random) -> list[Step]:
        """Random play to the end."""
        steps = []
        while environment.to_move():
            steps.append(environment.step(choose(environment, random)))
        return steps

    def started(self, number: int, steps: int = 0) -> Environment:
        """A task after some random steps, or where it ended before."""
        environment, random = self.make_environment(), Random(number)
        environment.reset(self.task(number))
        for _ in range(steps):
            if environment.to_move():
                environment.step(choose(environment, random))
        return environment

    def test_it_has_the_shape_of_an_environment(self) -> None:
        environment = self.make_environment()
        assert isinstance(environment, Environment)
        spec = environment.spec
        for names in (spec.seats, spec.views, spec.terms):
            assert names
            assert len(set(names)) == len(names)
        assert spec.max_turns >= 1

    def test_equal_seeds_give_equal_play_while_another_episode_is_interleaved(self) -> None:
        for number in range(TASKS):
            alone, mixed, other = self.started(number), self.started(number), self.started(number + 1)
            random, same, others = Random(1), Random(1), Random(2)
            while alone.to_move():
                assert everything(alone) == everything(mixed)
                assert alone.step(choose(alone, random)) == mixed.step(choose(mixed, same))
                if other.to_move():
                    other.step(choose(other, others))
            assert everything(alone) == everything(mixed)

    def test_reset_leaves_nothing_of_the_episode_before(self) -> None:
        for number in range(TASKS):
            used = self.started(number + 1, steps=3)
            used.reset(self.task(number))
            assert everything(used) == everything(self.started(number))

    def test_tasks_differ(self) -> None:
        starts = {self.started(number).state_key() for number in range(40)}
        if self.tasks_differ:
            assert len(starts) > 20, f"40 tasks begin in {len(starts)} states; more than 20 expected"
        else:
            assert len(starts) == 1, f"40 tasks begin in {len(starts)} states; one expected"

    def test_observing_changes_nothing(self) -> None:
        for number in range(TASKS):
            watched, unwatched = self.started(number), self.started(number)
            random, same = Random(3), Random(3)
            while unwatched.to_move():
                first, key, whole = everything(watched), watched.state_key(), watched.snapshot()
                assert everything(watched) == first
                assert (watched.state_key(), watched.snapshot()) == (key, whole)
                assert watched.step(choose(watched, random)) == unwatched.step(choose(unwatched, same))

    @pytest.mark.parametrize("steps", [0, 2, 5])
    def test_a_clone_has_the_same_future_and_leaves_the_original_untouched(self, steps: int) -> None:
        for number in range(TASKS):
            original = self.started(number, steps)
            before = everything(original)
            clone, second = original.clone(), original.clone()
            played = self.play(clone, Random(4))
            assert everything(original) == before
            assert everything(second) == before
            assert self.play(original, Random(4)) == played
            assert everything(original) == everything(clone)
            assert everything(second) == before

    @pytest.mark.parametrize("steps", [0, 2, 5])
    def test_a_snapshot_restores_the_whole_state(self, steps: int) -> None:
        for number in range(TASKS):
            original = self.started(number, steps)
            state, before = original.snapshot(), everything(original)
            played = self.play(original, Random(5))
            fresh, used = self.make_environment(), self.started(number + 1, steps=1)
            for environment in (fresh, used, original):
                environment.restore(state)
                assert everything(environment) == before
                assert environment.snapshot() == state
                assert self.play(environment, Random(5)) == played

    def test_state_keys_are_equal_exactly_for_equal_states(self) -> None:
        states: dict[str, bytes] = {}
        for number in range(TASKS):
            environment, random = self.started(number), Random(6)
            while True:
                key, state = environment.state_key(), environment.snapshot()
                assert states.setdefault(key, state) == state
                if not environment.to_move():
                    break
                environment.step(choose(environment, random))
        assert len(set(states.values())) == len(states) > (TASKS if self.tasks_differ else 1)

    def test_only_the_seats_that_must_move_may_act(self) -> None:
        environment = self.started(0)
        seats = environment.to_move()
        before = everything(environment)
        for actions in ({}, dict.fromkeys([*seats, "stranger"], ""), {"stranger": ""}):
            with pytest.raises(EnvironmentFault):
                environment.step(actions)
            assert everything(environment) == before

    def test_nobody_acts_after_the_end(self) -> None:
        environment = self.started(0)
        self.play(environment, Random(7))
        for actions in ({}, dict.fromkeys(environment.spec.seats, "")):
            with pytest.raises(EnvironmentFault):
                environment.step(actions)

    def test_an_unknown_view_a_missing_reset_and_a_bad_snapshot_are_faults(self) -> None:
        with pytest.raises(EnvironmentFault):
            self.started(0).observe("no such view")
        environment = self.make_environment()
        with pytest.raises(EnvironmentFault):
            environment.to_move()
        with pytest.raises(EnvironmentFault):
            environment.restore(b"no snapshot")

    def test_a_view_shows_only_its_own_fields(self) -> None:
        assert set(self.privacy) <= set(self.make_environment().spec.views)
        for number in range(TASKS):
            environment, random = self.started(number), Random(8)
            while True:
                for view, allowed in self.privacy.items():
                    assert set(environment.observe(view).fields) <= allowed
                if not environment.to_move():
                    break
                environment.step(choose(environment, random))

    def test_rewards_are_finite_declared_terms_of_the_seats_that_moved_and_perhaps_of_others(self) -> None:
        spec = self.make_environment().spec
        terms = set(spec.terms)
        for number in range(TASKS):
            environment, random = self.started(number), Random(9)
            while seats := environment.to_move():
                step = environment.step(choose(environment, random))
                assert set(seats) <= set(step.rewards) <= set(spec.seats)
                assert set(step.illegal) <= set(seats)
                for paid in step.rewards.values():
                    assert set(paid) <= terms
                    assert all(abs(value) < 1e6 for value in paid.values())

    def test_a_pass_is_legal_and_nonsense_is_not(self) -> None:
        environment = self.started(0)
        seats = environment.to_move()
        assert environment.clone().step(dict.fromkeys(seats, "")).illegal == ()
        if all(environment.legal(seat) is not None for seat in seats):
            assert environment.clone().step(dict.fromkeys(seats, "no such action")).illegal == seats

    def test_listed_actions_are_legal(self) -> None:
        for number in range(TASKS):
            environment, random = self.started(number), Random(10)
            while seats := environment.to_move():
                for seat in seats:
                    for action in environment.legal(seat) or ():
                        actions = {**choose(environment, random), seat: action}
                        assert seat not in environment.clone().step(actions).illegal
                environment.step(choose(environment, random))

    def test_an_episode_ends_within_its_turns(self) -> None:
        for number in range(TASKS):
            environment = self.started(number)
            assert 1 <= len(self.play(environment, Random(11))) <= environment.spec.max_turns

    def test_what_it_says_of_the_answer_holds_during_the_whole_episode(self) -> None:
        for number in range(TASKS):
            environment, random, said = self.started(number), Random(12), []
            while seats := environment.to_move():
                if isinstance(environment, Answered):
                    said.append(environment.right_answer())
                    solved = environment.clone()
                    solved.step(dict.fromkeys(seats, said[-1]))
                    assert solved.success()
                if isinstance(environment, Named):
                    said.append(" ".join(environment.entities()))
                    assert all(environment.entities())
                environment.step(choose(environment, random))
            kinds = isinstance(environment, Answered) + isinstance(environment, Named)
            assert len(set(said)) <= kinds
            assert all(said)

    def test_somebody_idle_fails(self) -> None:
        for number in range(TASKS if self.idle_fails else 0):
            environment = self.started(number)
            while seats := environment.to_move():
                assert not environment.success()
                environment.step(dict.fromkeys(seats, ""))
            assert not environment.success()
