"""The contract of environments with tools, `mas.core.environment.ToolWorld`, as a test class beside the one of all
environments: subclass `ToolWorldContract`, say what a call is and what calls change, run pytest.

class TestMyLedger(ToolWorldContract):
    def make_environment(self) -> ToolWorld: ...
    def task(self, number: int) -> Task: ...
    def calls(self, world: ToolWorld) -> tuple[str, ...]: ...
    def tool_state(self, world: ToolWorld) -> object: ...
"""

from mas.core.environment import Caller, CountedCall, ToolWorld
from mas.testing.environment import TASKS, EnvironmentContract, everything

ANSWER = "that is not allowed here"
NONSENSE = ("", "no such action", "{", '{"name": ', '{"name": 3, "arguments": {}}', "[" * 5000, "\ud800", "<tool_call>")
AGENT = "caller"


class ToolWorldContract(EnvironmentContract):
    """What every implementation of `ToolWorld` must do beside what all environments must."""

    shows_answers = True
    """Whether a view shows what the caller of a denied call is answered; not where results are single characters."""

    def make_environment(self) -> ToolWorld:
        """A fresh environment."""
        raise NotImplementedError

    def calls(self, world: ToolWorld) -> tuple[str, ...]:
        """Right calls in a task that has just begun, two at least, one of which changes something."""
        raise NotImplementedError

    def tool_state(self, world: ToolWorld) -> object:
        """All that calls can change, comparable; not what was called and what came of it."""
        raise NotImplementedError

    def begun(self, number: int) -> ToolWorld:
        """A task that has just begun."""
        world = self.make_environment()
        world.reset(self.task(number))
        return world

    def after(self, world: ToolWorld, action: str, *denied: str | None) -> ToolWorld:
        """A clone in which the seat has acted; with `denied`, as a caller with rules."""
        twin = world.clone()
        (seat,) = twin.to_move()
        if denied:
            twin.step_as({seat: action}, {seat: Caller(AGENT, *denied)})
        else:
            twin.step({seat: action})
        return twin

    def test_it_has_the_shape_of_a_tool_world(self) -> None:
        world = self.make_environment()
        assert isinstance(world, ToolWorld)
        assert world.tool_names
        assert len(set(world.tool_names)) == len(world.tool_names)

    def test_it_tells_calls_from_all_else_and_asking_changes_nothing(self) -> None:
        for number in range(TASKS):
            world = self.begun(number)
            before = world.snapshot()
            for action in self.calls(world):
                call = world.call_of(action)
                assert call is not None, action
                assert call.name in world.tool_names
                assert (world.is_call(action), world.is_failed_call(action)) == (True, False), action
            for action in NONSENSE:
                world.call_of(action)
                world.is_failed_call(action)
                assert not world.is_call(action), action[:20]
            assert world.snapshot() == before
            assert world.counted_calls() == ()

    def test_a_call_changes_its_own_clone_and_the_committed_one_changes_the_original(self) -> None:
        is_changed = False
        for number in range(TASKS):
            world = self.begun(number)
            before, whole, actions = everything(world), self.tool_state(world), self.calls(world)
            clones = [self.after(world, action) for action in actions]
            states = [self.tool_state(clone) for clone in clones]
            is_changed = is_changed or any(state != whole for state in states)
            assert (everything(world), self.tool_state(world)) == (before, whole)
            for action, clone, state in zip(actions, clones, states, strict=True):
                committed = self.begun(number)
                (seat,) = committed.to_move()
                committed.step({seat: action})
                assert everything(committed) == everything(clone)
                assert self.tool_state(committed) == self.tool_state(clone) == state
        assert is_changed, "no call changes anything"

    def test_what_calls_have_changed_is_in_the_snapshot(self) -> None:
        for number in range(TASKS):
            world = self.begun(number)
            for action in self.calls(world):
                once, fresh = self.after(world, action), self.make_environment()
                fresh.restore(once.snapshot())
                assert everything(fresh) == everything(once)
                assert self.tool_state(fresh) == self.tool_state(once)

    def test_a_denied_call_is_not_made_and_its_caller_is_answered(self) -> None:
        for number in range(TASKS):
            world = self.begun(number)
            whole = self.tool_state(world)
            for action in self.calls(world):
                twin = world.clone()
                (seat,) = twin.to_move()
                step = twin.step_as({seat: action}, {seat: Caller(AGENT, ANSWER)})
                assert (dict(step.denied), step.illegal) == ({seat: ANSWER}, (seat,))
                assert self.tool_state(twin) == whole
                seen = [text for view in twin.spec.views for text in twin.observe(view).fields.values()]
                assert any(ANSWER in text for text in seen) or not self.shows_answers

    def test_an_allowed_call_of_a_caller_with_rules_is_an_ordinary_call(self) -> None:
        for number in range(TASKS):
            world = self.begun(number)
            for action in self.calls(world):
                plain, told = world.clone(), world.clone()
                (seat,) = plain.to_move()
                assert told.step_as({seat: action}, {seat: Caller(AGENT)}) == plain.step({seat: action})
                assert self.tool_state(told) == self.tool_state(plain)
                assert everything(told)[:4] == everything(plain)[:4]

    def test_counted_calls_are_a_part_of_the_state(self) -> None:
        for number in range(TASKS):
            world = self.begun(number)
            first, second = self.calls(world)[:2]
            twin = self.after(self.after(world, first, None), second, ANSWER)
            names = [call.name for call in map(world.call_of, (first, second)) if call is not None]
            counted = (CountedCall(AGENT, names[0]), CountedCall(AGENT, names[1], is_denied=True))
            assert twin.counted_calls() == counted
            plain = self.after(self.after(world, first), second)
            assert plain.counted_calls() == ()
            assert twin.state_key() != plain.state_key()
            for restored in (self.make_environment(), self.begun(number + 1), twin.clone()):
                restored.restore(twin.snapshot())
                assert restored.counted_calls() == counted
                assert everything(restored) == everything(twin)
