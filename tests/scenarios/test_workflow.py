"""`workflow`: a typed plan in the episode's state, carried out step by step, and revised where a step fails."""

from collections.abc import Iterable, Mapping
from functools import cache
from random import Random

import msgspec
import pytest
from parts import runtime_of, sample, turns_of

from mas.algorithms.parts.advantages.pipeline import turn_advantages
from mas.algorithms.parts.rewards.terms import total_reward
from mas.algorithms.parts.sampling.options import SamplerOptions
from mas.config.load import load_config
from mas.config.options import ScenarioOptions
from mas.core.environment import Environment, Move, Reward, Task
from mas.core.messages import Action, Failure, Payload, Plan, joint_action
from mas.core.records import Episode
from mas.core.role import RoleSpec
from mas.scenarios import build_scenario
from mas.scenarios.tool_use.tasks import LOOK_UP, Puzzle, ToolRules
from mas.scenarios.workflow.environment import (
    MIRROR,
    StepPlanner,
    WorkEnvironment,
    WorkflowJob,
    WorkReward,
    WorkState,
    demonstrations,
    read_compact,
    shortened,
)
from mas.scenarios.world import FolderScenario
from mas.testing.environment import EnvironmentContract
from mas.testing.reward import RewardContract
from mas.testing.scripted import ScriptedEngine
from mas.training.rollout import SAMPLERS

TABLE = (1, 2, 3, 4, 5, 6)
"""Price and weight of a, b and c."""
ADDS = Puzzle(None, 1, 0, TABLE, (("+", 4),))
"""The price of b and 4: 3 + 4 = 7."""
PARALLEL = SamplerOptions.model_validate({"mode": "parallel", "candidates": 2})


@cache
def scenario() -> FolderScenario:
    built = build_scenario(ScenarioOptions(name="workflow"))
    assert isinstance(built, FolderScenario)
    return built


def world(down: str, puzzle: Puzzle = ADDS) -> WorkEnvironment:
    environment = WorkEnvironment(ToolRules())
    environment._state = WorkState(WorkflowJob(puzzle, down))
    return environment


def done(environment: WorkEnvironment, **said: str) -> dict[str, float]:
    return dict(environment.step({"team": joint_action(said)}).rewards["team"])


def seen(environment: WorkEnvironment, view: str) -> dict[str, str]:
    return dict(environment.observe(view).fields)


class TestWorkflow(EnvironmentContract):
    privacy: Mapping[str, frozenset[str]] = {
        "executor": frozenset({"plan", "last"}),
        "planner": frozenset({"question", "memory"}),
        "flow_planner": frozenset({"question", "memory"}),
        "verifier": frozenset({"question", "memory"}),
    }

    def make_environment(self) -> Environment:
        return scenario().environment()

    def task(self, number: int) -> Task:
        return scenario().task("train", number)


class TestWorkReward(RewardContract):
    def make_reward(self) -> Reward:
        return WorkReward()

    def moves(self) -> Iterable[Move]:
        plans: tuple[Payload, ...] = (Plan(text="tbp+_4="), Failure(text="?", cause="nonsense"))
        outputs: tuple[Payload, ...] = (Action(text="tbp"), Action(text="mbp"), Failure(text="?", cause="nonsense"))
        for plan in plans:
            for output in outputs:
                yield Move(
                    agent="executor", role="executor", environment=world(MIRROR), output=output,
                    before={"planner": plan}, after={"executor": output},
                )  # fmt: skip


# The plan in the episode's state


def test_the_plan_is_kept_over_turns_and_the_planner_is_silent_while_it_works() -> None:
    environment = world(MIRROR)
    assert not environment.observe("planner").is_silent
    done(environment, planner="tbp+_4=", executor="tbp")
    assert environment.observe("planner").is_silent
    assert seen(environment, "executor") == {"plan": "+_4=", "last": "3"}
    assert done(environment, executor="+34") == {"right": 1.0}
    assert environment.success()


def test_a_step_that_is_blocked_is_shown_voids_the_plan_and_wakes_the_planner() -> None:
    environment = world(LOOK_UP)
    done(environment, planner="tbp+_4=", executor="tbp")
    assert not environment.observe("planner").is_silent
    assert seen(environment, "planner") == {"question": "bp+4", "memory": "t!"}
    assert seen(environment, "executor") == {"plan": "", "last": ""}
    done(environment, planner="mbp+_4=", executor="mbp")
    assert environment.measures() == {"revisions": 1.0}
    done(environment, executor="+34")
    assert environment.success()


def test_a_call_that_is_not_the_plans_step_is_not_carried_out() -> None:
    environment = world(MIRROR)
    done(environment, planner="tbp+_4=", executor="taw")
    assert (seen(environment, "planner")["memory"], environment.state.last) == ("t!", None)


def test_in_the_midst_of_a_plan_the_rest_is_planned_again() -> None:
    environment = world(MIRROR)
    done(environment, planner="tbp+_4=", executor="tbp")
    done(environment, executor="+44")
    assert seen(environment, "planner")["memory"] == "t3+!"
    assert done(environment, planner="+_4=", executor="+34") == {"right": 1.0}


@pytest.mark.parametrize(
    ("text", "cause"),
    [("tb", "a call of 'look_up' has 3 characters, not 2"), ("7bp", "'7' stands for no tool")],
)
def test_a_plan_whose_steps_lack_a_tool_or_a_parameter_is_none(text: str, cause: str) -> None:
    payload = StepPlanner("planner", RoleSpec()).parse(text)
    assert isinstance(payload, Failure)
    assert cause in payload.cause


def test_an_executor_is_paid_for_doing_what_the_plan_says() -> None:
    environment = world(MIRROR)
    plan = {"planner": Plan(text="tbp+_4=")}

    def paid(text: str, before: Mapping[str, Payload]) -> float:
        move = Move(
            agent="executor",
            role="executor",
            environment=environment,
            output=Action(text=text),
            before=before,
            after={},
        )
        return WorkReward().own(move)["follow"]

    assert (paid("tbp", plan), paid("mbp", plan)) == (0.0, -1.0)
    done(environment, planner="tbp+_4=", executor="tbp")
    assert (paid("+34", {}), paid("+44", {})) == (0.0, -1.0)


def test_plans_are_read_as_they_are_written() -> None:
    assert shortened(read_compact("mbp-_4*_2=")) == "mbp-_4*_2="


def test_demonstrations_are_of_states_that_the_environment_shows() -> None:
    stream = demonstrations(Random(0), 1.0, rules=ToolRules())
    planned = {}
    for prompt, answer in (next(stream) for _ in range(3000)):
        if prompt[0] == "P":
            memory = prompt.rstrip(">").partition(";")[2]
            planned.setdefault(memory[-2:] if memory.endswith("!") else memory, set()).add(answer[0])
    assert planned[""] == {"t", "m"}
    assert planned["t!"] == {"m"}
    assert planned["m!"] == {"t"}


# Through the runtime and the sampler


def answer(prompt: str, adapter: str | None, seed: int) -> str:
    """A team that works: it begins at the first source, and goes to the other one once that has failed."""
    kind, text = prompt[0], prompt[1:].rstrip(">")
    if kind in "EX":
        plan, _, last = text.partition(";")
        return plan[:3].replace("_", last)
    question, _, memory = text.partition(";")
    source = "m" if "t!" in memory else "t"
    missing = ([] if any(c.isdigit() for c in memory) else [source + question[:2]]) + (
        [question[2] + "_" + question[3]] if len(question) > 2 and question[2] not in memory else []
    )
    if kind == "P":
        return "".join(missing) + "="
    if kind == "V":
        return "n" if missing else "y"
    return memory[-1] if kind == "G" else missing[0]


async def played(team: str, tasks: Iterable[int]) -> list[Episode]:
    engine = ScriptedEngine(answer, adapters=("planner", "executor"))
    async with runtime_of(scenario().teams[team], engine) as runtime:
        return await sample(runtime, scenario(), list(tasks), PARALLEL)


def down_of(index: int) -> str:
    environment = scenario().environment()
    assert isinstance(environment, WorkEnvironment)
    environment.reset(scenario().task("train", index))
    return environment.state.job.down


async def test_a_blocked_step_changes_the_next_plan_and_a_plan_that_works_is_never_asked_for_again() -> None:
    revised = 0
    for index in range(12):
        for episode in await played("team", [index]):
            plans = [(line.turn, line.prompt, line.text) for line in episode.lines if line.agent == "planner"]
            assert episode.success
            if down_of(index) == MIRROR:
                assert len(plans) == 1
                continue
            (_, _, first), (turn, prompt, second) = plans
            assert (turn, prompt.endswith(";t!>")) == (1, True)
            assert second == "m" + first[1:]
            revised += 1
    assert revised


async def test_agentflow_planner_sees_every_result_so_far_and_its_turns_share_one_advantage() -> None:
    options = load_config(["scenario=workflow", "algorithm=flow_grpo"]).algorithm
    several = 0
    for index in range(8):
        episodes = await played("flow", [index])
        for episode in episodes:
            plans = [line for line in episode.lines if line.agent == "planner"]
            memory = ""
            for line in plans:
                assert line.prompt.partition(";")[2] == f"{memory}>"
                call = next(one.text for one in episode.lines if (one.turn, one.agent) == (line.turn, "executor"))
                after = next(one for one in episode.lines if (one.turn, one.agent) == (line.turn + 1, "verifier"))
                memory = after.prompt.partition(";")[2].rstrip(">")
                assert memory[-2] == call[0]
            assert [line.agent for line in episode.lines][-2:] == ["verifier", "generator"]
            several += len(plans) > 1
        turns = [turn for turn in turns_of(episodes) if turn.role == "planner"]
        number_of = {episode.id: float(number) for number, episode in enumerate(episodes)}
        paid = [msgspec.structs.replace(turn, rewards={"team.right": number_of[turn.episode]}) for turn in turns]
        advantages = turn_advantages(paid, options.reward, options.advantage)
        by_episode: dict[str, set[float]] = {}
        for turn, advantage in zip(paid, advantages, strict=True):
            by_episode.setdefault(turn.episode, set()).add(advantage)
        assert all(len(values) == 1 for values in by_episode.values())
        assert len({value for values in by_episode.values() for value in values}) == 2
    assert several


async def test_flow_grpo_by_name_pays_its_planner_the_outcome_and_nothing_else() -> None:
    def careless(prompt: str, adapter: str | None, seed: int) -> str:
        """The planner and the executor sometimes say what cannot be read or carried out; then the answer is wrong."""
        return "???" if prompt[0] in "QX" and seed % 3 == 0 else answer(prompt, adapter, seed)

    options, paid = load_config(["scenario=workflow", "algorithm=flow_grpo"]).algorithm, set[tuple[float, bool]]()
    engine = ScriptedEngine(careless, adapters=("planner",))
    async with runtime_of(scenario().teams[options.team], engine) as runtime:
        sampler = SAMPLERS[options.sampler.mode](runtime, scenario().reward, options.sampler, options.reward)
        for index in range(3):
            for episode in await sampler.sample(scenario().task("train", index), scenario().environment(), index):
                planner = [turn for turn in episode.turns if turn.role == "planner"]
                paid |= {(total_reward(turn.rewards, options.reward), episode.success) for turn in planner}
    assert paid == {(1.0, True), (0.0, False)}
