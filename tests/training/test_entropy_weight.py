"""AEPO's tokens, which count by their entropy, and ASPO's bonus for early tools, through the pipeline."""

from collections.abc import Mapping, Sequence
from itertools import cycle
from typing import Any

import pytest
from conftest import BaseFor
from oracles import ORACLES, near
from parts import SKILLED, make_turn, runtime_of, sample, turns_of
from rows import learner_of

from mas.algorithms.parts.advantages.pipeline import AdvantageOptions, Known, turn_advantages
from mas.algorithms.parts.options import AlgorithmOptions
from mas.algorithms.parts.rewards.terms import RewardOptions
from mas.algorithms.parts.sampling.options import SamplerOptions
from mas.algorithms.parts.sampling.selection import ToolUse
from mas.config.load import load_config
from mas.config.options import ScenarioOptions
from mas.core.environment import Tooled
from mas.core.errors import ConfigError
from mas.core.records import Turn, facts_of
from mas.runs.resolve import resolve
from mas.scenarios import build_scenario
from mas.testing.scripted import ScriptedEngine
from mas.training.batch import TrainRow
from mas.training.check_setup import check_trainable
from mas.training.learner import Learner, Logprobs
from mas.training.updates.policy_gradient import PolicyGradient

ASPO = ORACLES["30_aspo"]
WEIGHTED = AlgorithmOptions.model_validate({"advantage": {"entropy_weight": 0.2, "baseline": "none", "scale": "none"}})


class Entropies(Learner):
    """Tells the entropies that it is given, token by token, instead of those of a model."""

    def __init__(self, found: Sequence[float]) -> None:
        self.found = found

    def entropies(self, rows: Sequence[TrainRow]) -> Logprobs:
        left = iter(self.found)
        return {id(row.turn): [next(left) for _ in row.turn.completion_ids] for row in rows}


def rows_of(learner: Learner, turns: Sequence[Turn], adapters: Mapping[str, str]) -> list[TrainRow]:
    return PolicyGradient(learner, WEIGHTED).rows(turns, adapters)[1]


def test_tokens_count_by_their_entropy() -> None:
    # Two turns of reward 1 with one and two tokens: z of 0.5, 1 and 1.5 is -1, 0, 1.
    paid = {"team.won": 1.0}
    turns = [
        make_turn(role="planner", id="a", trajectory="a", rewards=paid),
        make_turn(role="planner", id="b", trajectory="b", rewards=paid, completion_ids=(8, 9)),
    ]
    rows = rows_of(Entropies([0.5, 1.0, 1.5]), turns, {"planner": "planner"})
    assert [value for row in rows for value in row.advantages] == near(ORACLES["20_aepo"]["entropy_adv"])
    assert [row.advantage for row in rows] == [1.0, 1.0]


def test_entropies_are_compared_within_an_adapter() -> None:
    turns = [
        make_turn(role=role, id=role, trajectory=role, rewards={"team.won": 1.0}, completion_ids=(8, 9))
        for role in ("planner", "executor")
    ]
    apart = rows_of(Entropies([0.0, 1.0, 5.0, 7.0]), turns, {"planner": "one", "executor": "two"})
    # z of two values is -+ 0.707107.
    assert [list(row.advantages) for row in apart] == near([near([0.858579, 1.141421])] * 2)


def test_entropies_are_those_of_the_policy_and_each_token_has_its_own_gradient(base_for: BaseFor) -> None:
    learner = learner_of(base_for("relay", SKILLED))
    turns = [
        make_turn(role="planner", id=str(k), trajectory=str(k), rewards={"team.won": 1.0}, completion_ids=(8, 9 + k))
        for k in range(2)
    ]
    rows = rows_of(learner, turns, {"planner": "planner"})
    flat = [(h, a) for row in rows for h, a in zip(learner.entropies(rows)[id(row.turn)], row.advantages, strict=True)]
    values = [advantage for _, advantage in sorted(flat)]
    assert values == sorted(values)
    assert values[0] < 1 < values[-1]
    assert sum(values) / len(values) == pytest.approx(1)


CALLED = facts_of(ToolUse(calls=1))


def early(places: Sequence[int], lengths: Sequence[int], advantage: float) -> list[Turn]:
    """Episodes that call a tool after so many tokens, one that is lost, one without a tool, and one of another task."""
    turns = []
    for k, (place, length) in enumerate(zip(places, lengths, strict=True)):
        own: dict[str, Any] = {
            "group": "q", "trajectory": f"e{k}", "episode": f"e{k}", "rewards": {"team.won": advantage},
        }  # fmt: skip
        turns.append(make_turn(id=f"{k}a", completion_ids=(8,) * place, **own))
        turns.append(make_turn(id=f"{k}b", completion_ids=(8,) * (length - place), turn=1, facts=CALLED, **own))
    other: dict[str, Any] = {"group": "q", "rewards": {"team.won": 1.0}, "completion_ids": (8,) * 50}
    return [
        *turns,
        make_turn(id="lost", trajectory="lost", episode="lost", facts=CALLED, **other),
        make_turn(id="bare", trajectory="bare", episode="bare", **other),
    ]


@pytest.mark.parametrize(
    ("places", "advantage", "wanted"),
    [((100, 300), 1.0, "inside_bound"), ((100, 1700), 1.0, "clipped"), ((100, 300), 0.0, "all_correct_group")],
)
def test_won_episodes_that_use_a_tool_early_count_more(places: tuple[int, int], advantage: float, wanted: str) -> None:
    # In the clipped case a mean length of 1300 stands for one of 900: the bound of 0.7 holds with both.
    turns = early(places, (800, max(1000, places[1] + 100)), advantage)
    options = AdvantageOptions.model_validate({"baseline": "none", "scale": "none", "early": {}})
    known = Known(won={"e0", "e1", "bare"})
    found = turn_advantages(turns, RewardOptions(), options, known)
    # Both turns of an episode have its advantage; who lost, and who used no tool, keep theirs.
    assert found == near([value for value in ASPO[wanted] for _ in range(2)] + [1.0, 1.0])
    assert turn_advantages(turns, RewardOptions(), options)[:4] == near([advantage] * 4)


async def test_records_tell_which_turns_call_tools() -> None:
    scenario = build_scenario(ScenarioOptions(name="tool_use"))
    world = scenario.environment()
    world.reset(scenario.task("train", 0))
    assert isinstance(world, Tooled)
    calls = {"+34": True, "tap": True, "7": False, "+a4": False, "t9p": False, "": False}
    assert {text: world.is_call(text) for text in calls} == calls
    said = cycle(["+a4", "+34", "tap", "+11"])

    def script(prompt: str, adapter: str | None, seed: int) -> str:
        return {"P": "+", "A": "7"}.get(prompt[0]) or next(said)

    options = SamplerOptions(mode="parallel", candidates=2)
    async with runtime_of(scenario.teams["team"], ScriptedEngine(script)) as runtime:
        turns = turns_of(await sample(runtime, scenario, [0], options))
    by_text = {turn.text: ToolUse.of(turn).calls for turn in turns if turn.agent == "caller"}
    assert by_text == {"+a4": 0, "+34": 1, "tap": 1, "+11": 1}
    assert {ToolUse.of(turn).calls for turn in turns if turn.agent != "caller"} == {0}


def test_early_tools_are_refused_where_nothing_tells_of_tools() -> None:
    config = load_config(["scenario=plan_path", "algorithm=aspo"])
    with pytest.raises(ConfigError, match=r"advantage\.early reads which turns call tools, .* 'plan_path' does not"):
        check_trainable(resolve(config))
    config = load_config(["scenario=tool_use", "algorithm=aspo"])
    check_trainable(resolve(config))
