"""Late rewards over steps: groups wait for their terms, in checkpoints too, and are trained when these are there."""

import asyncio
import json
from collections import defaultdict
from collections.abc import AsyncGenerator, Mapping, Sequence
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest
import torch
from conftest import BaseFor
from parts import SKILLED
from pydantic import ValidationError
from test_late_terms import episode, judge_of, terms
from virtual_time import play
from watched import Seen

from mas.algorithms.parts.options import AlgorithmOptions
from mas.algorithms.parts.rewards.late import LateOptions
from mas.config.load import load_config
from mas.config.options import Config
from mas.core.errors import CheckpointError
from mas.core.records import Answer, Turn
from mas.runs.resolve import resolve_training
from mas.scenarios import build_scenario
from mas.serving.model import BaseModel
from mas.training.late_terms import LateTerms
from mas.training.trainer import Trainer

ONE_MORE = LateOptions(judge="j", terms={"polite": -0.5}, wait_s=10.0, steps=1)


def test_a_group_waits_whole_and_arrives_in_the_step_in_which_its_last_answer_does() -> None:
    judge = judge_of((1.0, "a/0", 3.0), (14.0, "a/1", 4.0), (13.0, "b/0", 1.0), (14.0, "b/1", 1.0))

    async def main() -> None:
        late = LateTerms(ONE_MORE, judge)
        async with late.listening():
            assert [one.turns for one in (await late.join([[episode("a")]], 0))[0]] == [()]
            assert late.arrived() == []
            assert late.metrics() == {
                "taken": 1, "defaulted": 0, "too_late": 0, "refused": 0, "waiting": 2, "learned_late": 0,
            }  # fmt: skip
            await late.join([[episode("b")]], 1)
            arrived = late.arrived()
            assert terms([arrived]) == {"a/0": {"own.polite": 7.0}, "a/1": {"own.polite": 7.0}}
            assert terms([arrived], "paid") == {"a/0": {"own.polite": 3.0}, "a/1": {"own.polite": 4.0}}
            assert all(turn.is_replayed for turn in arrived[0].turns)
            assert late.metrics()["learned_late"] == 2
            await late.join([[]], 2)
            assert [one.id for one in late.arrived()] == ["b"]
            await late.join([[]], 3)
            assert late.arrived() == []

    play(main())


def test_what_is_overdue_is_learned_from_with_its_default_and_counted() -> None:
    async def main() -> None:
        late = LateTerms(ONE_MORE, judge_of((1.0, "a/0", 3.0), (25.0, "a/1", 9.0), (30.0, "b/0", 1.0)))
        async with late.listening():
            await late.join([[episode("a")]], 0)
            await late.join([[episode("b")]], 1)
            assert terms([late.arrived()], "paid") == {"a/0": {"own.polite": 3.0}, "a/1": {"own.polite": -0.5}}
            assert late.metrics()["defaulted"] == 1
            await late.join([[]], 2)
            assert late.metrics()["too_late"] == 1

    play(main())


def test_with_two_steps_an_answer_that_comes_two_steps_late_is_learned_from() -> None:
    two_more = ONE_MORE.model_copy(update={"steps": 2})

    async def main() -> None:
        late = LateTerms(two_more, judge_of((1.0, "a/0", 3.0), (24.0, "a/1", 4.0)))
        async with late.listening():
            await late.join([[episode("a")]], 0)
            assert late.arrived() == []
            await late.join([[]], 1)
            assert late.arrived() == []
            await late.join([[]], 2)
            assert terms([late.arrived()], "paid") == {"a/0": {"own.polite": 3.0}, "a/1": {"own.polite": 4.0}}
            assert (late.metrics()["defaulted"], late.metrics()["learned_late"]) == (0, 2)

    play(main())


def test_a_checkpoint_of_something_else_is_refused() -> None:
    with pytest.raises(CheckpointError, match="no turns that wait"):
        LateTerms(ONE_MORE, judge_of()).restore(b"{}")


@pytest.mark.parametrize(
    ("algorithm", "reason"),
    [
        ({"update": "preference", "preference": {"value": "reward"}}, "update=preference: groups wait over steps"),
        ({"sampler": {"refill": 1}}, "sampler.refill=1: groups wait over steps"),
        ({"reward": {"shared": True}, "sampler": {"mode": "parallel"}}, "reward.shared: groups wait over steps"),
        ({"stages": [{"roles": ["planner"], "steps": 1}]}, "stages: groups wait over steps"),
    ],
)
def test_what_reads_whole_steps_or_episodes_is_refused(algorithm: dict[str, Any], reason: str) -> None:
    late = {"judge": "j", "terms": {"polite": 0.0}, "steps": 1}
    reward = {"late": late} | algorithm.get("reward", {})
    with pytest.raises(ValidationError, match=reason):
        AlgorithmOptions.model_validate(algorithm | {"reward": reward})


class Slow(Seen):
    """A judge who answers for half of the groups only when it is asked about those of the next step; and the watcher.

    `first`: turn -> the step in which it was first asked for; outlives a run that is killed.
    """

    def __init__(self, first: dict[str, int]) -> None:
        super().__init__()
        self.first, self.step = first, 0
        self.over: Mapping[int, asyncio.Event] = defaultdict(asyncio.Event)

    def on_resume(self, step: int) -> None:
        self.step = step

    def on_step(self, step: int, metrics: dict[str, Any], episodes: Sequence[Any]) -> None:
        super().on_step(step, metrics, episodes)
        self.step = step

    async def judge(self, turns: Sequence[Turn]) -> AsyncGenerator[Answer]:
        if any(turn.id not in self.first for turn in turns):
            self.over[self.step].set()
        for turn in turns:
            self.first.setdefault(turn.id, self.step)
        slow = [turn for turn in turns if crc32(str(turn.group).encode()) % 2]
        for turn in [turn for turn in turns if turn not in slow] + slow:
            if turn in slow:
                await self.over[self.first[turn.id] + 1].wait()
            yield Answer(turn.id, "judged", 1.0 + crc32(turn.text.encode()) % 2)


def config_of(steps: int, mode: str) -> Config:
    late = {"judge": "slow", "terms": {"judged": 0.0}, "wait_s": 0.5, "steps": 2}
    return Config.model_validate(
        {
            "scenario": {"name": "relay"},
            "model": SKILLED.model_dump(),
            "algorithm": {"sampler": {"mode": mode, "candidates": 4}, "reward": {"late": late}},
            "train": {"steps": steps, "tasks_per_step": 4, "eval_tasks": 1, "eval_every": 0, "checkpoint_every": 1},
        }
    )


async def trained(
    base: BaseModel, mode: str, steps: int, first: dict[str, int], checkpoints: Path
) -> tuple[dict[str, torch.Tensor], Slow, Trainer]:
    config, slow = config_of(steps, mode), Slow(first)
    scenario = build_scenario(config.scenario)
    trainer = Trainer(resolve_training(config, scenario), base, checkpoints=checkpoints, judges={"slow": slow.judge})
    slow.listen(trainer)
    trainer.resume()
    outcome = await trainer.run(slow)
    flat = {
        name: torch.cat([part.flatten() for part in weights.parameters()]) for name, weights in outcome.adapters.items()
    }
    return flat, slow, trainer


@pytest.mark.nightly(of=16)
@pytest.mark.parametrize("mode", ["tree", "parallel"])
async def test_a_run_that_is_killed_while_turns_wait_ends_with_the_same_weights(
    base_for: BaseFor, tmp_path: Path, mode: str
) -> None:
    base, killed = base_for("relay", SKILLED), dict[str, int]()
    for name in ("whole", "killed"):
        (tmp_path / name).mkdir()
    whole, straight, _ = await trained(base, mode, 3, {}, tmp_path / "whole")
    await trained(base, mode, 1, killed, tmp_path / "killed")
    waiting = json.loads(next((tmp_path / "killed").glob("*/late.json")).read_bytes())["late"]["missing"]
    assert any(waiting.values())  # These are asked for again.
    resumed, rest, trainer = await trained(base, mode, 3, killed, tmp_path / "killed")
    assert set(whole) == set(resumed)
    assert all(torch.equal(whole[name], resumed[name]) for name in whole)
    told = [metrics["late"] for metrics in straight.metrics]
    assert told[1:] == [metrics["late"] for metrics in rest.metrics]
    assert (told[0]["learned_late"], told[0]["defaulted"], told[1]["defaulted"]) == (0, 0, 0)
    assert told[0]["waiting"] == told[1]["learned_late"] > 0
    # What waited is among the rows that the step learned from, with the log-probabilities of its own time.
    late = [row.turn for row in straight.improved[1].rows if row.turn.is_replayed]
    assert len(late) == told[0]["waiting"]
    assert {turn.rewards["own.judged"] for turn in late} >= {1.0, 2.0}
    assert {turn.adapter.version for turn in late if turn.adapter} == {0}
    assert trainer.progress.step == 3


@pytest.mark.nightly(of=16)
async def test_the_reward_stack_runs_by_name_with_all_kinds_of_terms(base_for: BaseFor) -> None:
    words = ["algorithm=reward_stack", "scenario=plan_path", "train.steps=2", "train.tasks_per_step=2"]
    words += ["train.eval_every=0", "train.eval_tasks=1", "train.target=null", "algorithm.sampler.candidates=4"]
    config, seen = load_config(words).model_copy(update={"model": SKILLED}), Seen()
    trainer = Trainer(resolve_training(config), base_for("plan_path", SKILLED))
    seen.listen(trainer)
    await trainer.run(seen)
    turns = [row.turn for row in seen.improved[-1].rows]
    kinds = {"team.goal", "team.progress", "own.valid", "own.failure", "own.model", "own.cost_tokens", "own.verbose"}
    assert {name for turn in turns for name in turn.rewards} >= kinds
    assert all({"own.model", "own.cost_tokens", "own.verbose"} <= turn.rewards.keys() for turn in turns)
    weights = config.algorithm.reward.weights  # what every turn would be paid makes longer episodes better
    assert all(weights["verbose"] * turn.rewards["own.verbose"] <= 0 for turn in turns)
    late = seen.metrics[-1]["late"]
    assert late["taken"] == sum(role["turns"] for role in seen.metrics[-1]["roles"].values())
    assert (late["defaulted"], late["refused"]) == (0, 0)
