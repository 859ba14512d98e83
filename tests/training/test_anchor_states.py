"""Turns that began where the task stood equally are compared, whenever and by whatever way they came there."""

from collections import defaultdict
from itertools import combinations

import pytest
from parts import runtime_of, sample, turns_of

from mas.algorithms.parts.advantages.pipeline import turn_advantages
from mas.algorithms.parts.advantages.steps import Anchor
from mas.algorithms.parts.rewards.terms import RewardOptions
from mas.algorithms.parts.sampling.options import SamplerOptions
from mas.config.load import load_config
from mas.config.options import ScenarioOptions
from mas.core.environment import Environment, anchor_of
from mas.core.records import Turn
from mas.core.role import RoleSpec
from mas.core.scenario import Scenario
from mas.core.seeds import derive_seed
from mas.core.team import TeamSpec
from mas.scenarios import build_scenario
from mas.testing.scripted import Answer, ScriptedEngine

PATH = {"size": 3, "walls": 0, "max_turns": 8}
ANCHORED = ("plan_path", "sokoban", "sudoku", "retrieval", "tool_use", "math_team", "market")
CELLS = TeamSpec(
    name="walker",
    roles={
        "executor": RoleSpec(type="executor", view="solo", template="E{cell}>", choices=tuple("UDLR"), max_tokens=1)
    },
    edges=("start -> executor", "executor -> done"),
    output="executor",
)

LED = TeamSpec(
    name="led",
    roles={
        "planner": RoleSpec(type="planner", view="planner", template="P{goal}>", choices=("1", "2"), max_tokens=1),
        "executor": CELLS.roles["executor"].model_copy(update={"template": "E{cell}{from.planner}>"}),
    },
    edges=("start -> planner", "planner -> executor", "executor -> done"),
    output="executor",
)
"""The walker hears 1 or 2 from a planner before each step."""


def scenario_of(name: str) -> Scenario:
    return build_scenario(ScenarioOptions(name=name))


def walks(prompt: str, adapter: str | None, seed: int) -> str:
    return "UDLR"[derive_seed(prompt, seed) % 4]


def after(scenario: Scenario, actions: tuple[str, ...], task: int = 0) -> Environment:
    environment = scenario.environment()
    environment.reset(scenario.task("train", task))
    for action in actions:
        environment.step({environment.to_move()[0]: action})
    return environment


def legal(scenario: Scenario) -> tuple[str, ...]:
    environment = after(scenario, ())
    found = environment.legal("team")
    assert found
    return found


@pytest.mark.parametrize("name", ANCHORED)
def test_an_anchor_is_the_same_a_turn_later_and_the_state_is_not(name: str) -> None:
    scenario = scenario_of(name)
    for action in legal(scenario):
        now, later = after(scenario, (action,)), after(scenario, ("", action))
        if now.to_move() and later.to_move():
            assert now.state_key() != later.state_key()
            assert anchor_of(now) == anchor_of(later)


@pytest.mark.parametrize("name", ANCHORED)
def test_what_a_move_changes_is_in_the_anchor(name: str) -> None:
    scenario = scenario_of(name)
    start = anchor_of(after(scenario, ()))
    moved = {anchor_of(after(scenario, (action,))) for action in legal(scenario)}
    assert moved - {start}, "some action leads on"
    assert anchor_of(after(scenario, (), task=1)) != start


@pytest.mark.parametrize("name", ["tool_use", "math_team"])
def test_an_anchor_does_not_tell_the_order_in_which_something_was_learned(name: str) -> None:
    scenario, compared = scenario_of(name), 0
    calls = [action for action in legal(scenario) if after(scenario, (action,)).to_move()][:30]
    for first, second in combinations(calls, 2):
        one, other = after(scenario, (first, second)), after(scenario, (second, first))
        if reached(one) == reached(other):  # what was paid for is a part of where the task stands
            assert one.state_key() != other.state_key()
            assert anchor_of(one) == anchor_of(other) != anchor_of(after(scenario, (first,)))
            compared += 1
    assert compared


def reached(environment: Environment) -> int:
    state = environment.state
    return int(getattr(state, "done", 0) or getattr(state, "reached", 0))


def test_a_world_without_history_is_its_own_anchor() -> None:
    environment = after(scenario_of("two_player"), ())
    assert anchor_of(environment) == environment.state_key()


async def walked(team: TeamSpec = CELLS, says: Answer = walks) -> list[Turn]:
    scenario = build_scenario(ScenarioOptions(name="plan_path", options=PATH))
    async with runtime_of(team, ScriptedEngine(says)) as runtime:
        return turns_of(await sample(runtime, scenario, range(4), SamplerOptions(mode="parallel", candidates=8)))


async def test_turns_of_episodes_that_meet_in_one_cell_have_one_state() -> None:
    turns = await walked()
    cells: dict[tuple[str, str], set[str]] = defaultdict(set)
    times: dict[str, set[int]] = defaultdict(set)
    for turn in turns:
        cells[turn.task, "".join(map(chr, turn.prompt_ids))].add(Anchor.of(turn).state)
        times[Anchor.of(turn).state].add(turn.turn)
    assert all(len(states) == 1 for states in cells.values()), "a cell of a task is one state, whatever came before"
    assert len({state for states in cells.values() for state in states}) == len(cells)
    assert sum(len(met) > 1 for met in times.values()) > len(times) / 2, "most cells are met at several times"


async def test_turns_in_one_cell_that_heard_different_messages_have_different_states() -> None:
    def says(prompt: str, adapter: str | None, seed: int) -> str:
        return "12"[seed % 2] if prompt[0] == "P" else walks(prompt, adapter, seed)

    heard: dict[tuple[str, str], dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for turn in await walked(LED, says):
        prompt = "".join(chr(token - 1) for token in turn.prompt_ids)
        if turn.role == "executor":
            heard[turn.task, prompt[:-2]][prompt[-2]].add(Anchor.of(turn).state)
    both = [messages for messages in heard.values() if len(messages) == 2]
    assert len(both) >= 4, "the first cell of each task, at least"
    for messages in both:
        assert [len(states) for states in messages.values()] == [1, 1]
        assert messages["1"] != messages["2"]


async def test_gigpo_gives_almost_every_turn_of_a_walk_companions_to_be_compared_with() -> None:
    turns = await walked()
    config = load_config(["algorithm=gigpo", "scenario=plan_path"])
    options = config.algorithm.advantage
    assert options.step is not None
    assert options.step.key == "state"
    met: dict[tuple[str, str], set[str]] = defaultdict(set)
    for turn in turns:
        met[turn.group, Anchor.of(turn).state].add(turn.trajectory)
    later = [turn for turn in turns if turn.turn > 0]
    assert sum(len(met[turn.group, Anchor.of(turn).state]) > 1 for turn in later) > 0.9 * len(later)
    with_steps = turn_advantages(turns, config.algorithm.reward, options)
    plain = turn_advantages(turns, RewardOptions(), options.model_copy(update={"step": None}))
    differing = sum(abs(one - other) > 1e-9 for one, other in zip(with_steps, plain, strict=True))
    assert differing > 0.9 * len(turns)


@pytest.mark.parametrize("name", ["gigpo", "srgpo"])
def test_the_kl_of_step_algorithms_pulls_back_however_far_a_token_has_gone(name: str) -> None:
    import torch

    from mas.algorithms.parts.losses.policy import kl

    loss = load_config([f"algorithm={name}", "scenario=plan_path"]).algorithm.loss
    logprobs = torch.tensor([-4.0], requires_grad=True)
    kl(logprobs, torch.tensor([-1.0]), loss.kl_estimator).sum().backward()
    assert logprobs.grad is not None
    assert logprobs.grad.item() == pytest.approx(-3.0), "x = log pi - log ref, the gradient of x^2 / 2"
