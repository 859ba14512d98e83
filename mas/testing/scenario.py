"""The contract of every scenario, as a test class: subclass `ScenarioContract`, say how to make one, run pytest.

class TestMyScenario(ScenarioContract):
    def make_scenario(self) -> Scenario:
        return build_scenario(ScenarioOptions(name="my_scenario.py:MyScenario"))

It has the contract of its environments, too. Needs pytest: `pip install 'mas[test]'`.
"""

from collections.abc import Mapping
from functools import cached_property
from math import isfinite
from random import Random

from mas.bus.memory import MemoryBus
from mas.core.concurrency import run_blocking
from mas.core.environment import Environment, Step, Task
from mas.core.messages import Payload
from mas.core.naming import local_name
from mas.core.role import View
from mas.core.scenario import Scenario, Split, SplitByContent
from mas.core.seeds import derive_seed
from mas.core.team import TeamSpec
from mas.graph import compile_team
from mas.roles import build_roles
from mas.roles.build import random_answer
from mas.runtime.flow import Flow
from mas.runtime.play import DecisionPoint
from mas.runtime.team import TeamRuntime
from mas.testing.environment import EnvironmentContract
from mas.testing.scripted import ScriptedEngine

_PLAYED = 5
"""Tasks that each team plays."""
_COMPARED: dict[Split, int] = {"train": 40, "eval": 20}
_UNRESTRICTED = {"constraint": None, "top_k": 0, "top_p": 1.0, "min_p": 0.0, "stop": ()}


async def play_scripted(scenario: Scenario, team: TeamSpec, split: Split, index: int) -> list[Step]:
    """Play a task to its end with a team whose roles answer at random in the right form, and return what came of each
    team turn. No model is loaded.

    Raises:
        MasError: an agent, the environment or the team's graph failed.
    """
    free = {name: role.model_copy(update=_UNRESTRICTED) for name, role in team.roles.items()}
    team = team.model_copy(update={"roles": free})  # a script is not restricted
    roles, environment, steps = build_roles(team), scenario.environment(), list[Step]()
    environment.reset(scenario.task(split, index))
    legal = sorted({text for seat in environment.to_move() for text in environment.legal(seat) or ()})

    def answer(prompt: str, role: str | None, seed: int) -> str:
        return random_answer(roles[role or ""], Random(derive_seed(role or "", seed)), legal) or "1"

    async def decide(point: DecisionPoint) -> Payload:
        seed = derive_seed(split, index, point.turn, point.agent, point.flow.visits(point.agent))
        (candidate,) = await runtime.ask(point, (seed,), episode=episode)
        return candidate.payload

    def on_turn(turn: int, flow: Flow, step: Step) -> None:
        steps.append(step)

    bus, episode = MemoryBus(), f"{split}-{index}"
    engine = ScriptedEngine(answer, tuple(roles), context=1_000_000)
    async with TeamRuntime(compile_team(team, roles), engine, bus, adapters={name: name for name in roles}) as runtime:
        await runtime.play(episode, environment, decide, on_turn, in_step=True)
    await bus.close()
    assert not environment.to_move(), "the play ended before the episode did"
    return steps


def is_played_by_models(team: TeamSpec) -> bool:
    """Whether an engine plays every role, and no person, tool or model from elsewhere."""
    return all(role.voice == "engine" and role.peer is None for role in team.roles.values())


class ScenarioContract(EnvironmentContract):
    """What every implementation of `Scenario` must do."""

    def make_scenario(self) -> Scenario:
        """The scenario, equal each time."""
        raise NotImplementedError("return the scenario under test from make_scenario")

    @cached_property
    def _shared(self) -> Scenario:
        """What all environments and tasks are of, as in a training: to make a scenario may take milliseconds."""
        return self.make_scenario()

    def make_environment(self) -> Environment:
        return self._shared.environment()

    def task(self, number: int) -> Task:
        return self._shared.task("train", number)

    def test_it_has_the_shape_of_a_scenario(self) -> None:
        scenario = self.make_scenario()
        assert isinstance(scenario, Scenario)
        assert scenario.name
        assert scenario.teams

    def test_equal_numbers_give_equal_tasks(self) -> None:
        first, second = self.make_scenario(), self.make_scenario()
        for split in _COMPARED:
            for index in range(6):
                assert first.task(split, index) == second.task(split, index)
                assert _begun(first, split, index) == _begun(second, split, index)

    def test_no_task_is_in_both_splits(self) -> None:
        scenario = self.make_scenario()
        pools = {
            split: {_content(scenario, split, index) for index in range(_count(scenario, split, count))}
            for split, count in _COMPARED.items()
        }
        assert pools["train"].isdisjoint(pools["eval"])

    def test_every_team_is_well_formed_and_sees_views_that_there_are(self) -> None:
        scenario = self.make_scenario()
        world = scenario.environment().spec
        for team in scenario.teams.values():
            plan = compile_team(team, build_roles(team))
            views = {role.spec.view or local_name(agent) for agent, role in plan.roles.items()}
            assert views <= set(world.views)
            assert set(team.plays) <= set(world.seats)

    def test_every_role_has_a_prompt_for_what_it_sees(self) -> None:
        scenario = self.make_scenario()
        for team in scenario.teams.values():
            roles = build_roles(team)
            for index in range(_PLAYED):
                environment = scenario.environment()
                environment.reset(scenario.task("train", index))
                for agent, name in team.members().items():
                    role = roles[name]
                    if role.spec.voice != "tools":
                        view = View(observation=environment.observe(role.spec.view or local_name(agent)))
                        assert role.prompt(view)
                        assert role.chat(view)[1]

    def test_every_team_plays_to_the_end_and_is_paid_finite_rewards(self) -> None:
        scenario = self.make_scenario()
        terms, turns = set(scenario.environment().spec.terms), scenario.environment().spec.max_turns
        for team in scenario.teams.values():
            if not is_played_by_models(team):
                continue
            for index in range(_PLAYED):
                steps = run_blocking(play_scripted(scenario, team, "train", index))
                assert 1 <= len(steps) <= turns
                for step in steps:
                    for paid in step.rewards.values():
                        assert set(paid) <= terms
                        assert all(isfinite(value) for value in paid.values())


def _begun(scenario: Scenario, split: Split, index: int) -> Mapping[str, Mapping[str, str]]:
    """What all views show at the start of a task."""
    environment = scenario.environment()
    environment.reset(scenario.task(split, index))
    return {view: dict(environment.observe(view).fields) for view in environment.spec.views}


def _content(scenario: Scenario, split: Split, index: int) -> str:
    """What tells a task from others."""
    task = scenario.task(split, index)
    if isinstance(scenario, SplitByContent):
        return scenario.content_of(task)
    environment = scenario.environment()
    environment.reset(task)
    return environment.state_key()


def _count(scenario: Scenario, split: Split, most: int) -> int:
    """How many tasks of a split are looked at."""
    size = getattr(scenario, "size", None)
    return most if size is None else min(most, int(size(split)))
