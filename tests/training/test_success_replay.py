"""Earlier successes in groups without one: what is put where, with which log-probabilities, and what is left alone."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
from conftest import BaseFor
from parts import SKILLED, make_turn
from test_rollout import Steps

from mas.algorithms.parts.advantages.pipeline import turn_advantages
from mas.algorithms.parts.options import AlgorithmOptions
from mas.algorithms.parts.sampling.selection import SuccessReplay
from mas.config.load import load_config
from mas.config.options import Config
from mas.core.errors import CheckpointError, ConfigError
from mas.core.records import Episode, Turn
from mas.runs.resolve import resolve_training
from mas.scenarios import build_scenario
from mas.training.checkpoint import list_checkpoints, verify_checkpoint
from mas.training.trainer import Trainer, TrainingOutcome

FIXED = {"source": "epochs", "count": 2}


def episode(task: str, name: str, success: bool, logprob: float = -1.0) -> Episode:
    """Two turns, one after the other."""
    own = f"{task}#{name}"
    shared = {"task": task, "episode": own, "group": f"{task}/a", "trajectory": own, "agent": "a", "role": "a"}
    first = make_turn(id=f"{own}/0", logprobs=(logprob,), **shared)
    turns = (first, make_turn(id=f"{own}/1", parent=first.id, logprobs=(logprob / 2,), **shared))
    return Episode(
        id=own, task=task, success=success, turns=turns, lines=(), rewards={}, prompt_tokens=5, completion_tokens=1,
        calls=2,
    )  # fmt: skip


def failures(task: str, count: int = 3) -> list[Episode]:
    return [episode(task, f"f{number}", False) for number in range(count)]


def replayed(group: Sequence[Episode]) -> list[Episode]:
    return [one for one in group if any(turn.is_replayed for turn in one.turns)]


def test_a_group_in_which_all_fail_gets_one_success_with_the_probabilities_of_its_time() -> None:
    replay = SuccessReplay(size=4, seed=0)
    won = [episode("t", "f", False), episode("t", "w", True, logprob=-0.25)]
    assert replay.repaired(won, 0) is won
    group = failures("t")
    mended = replay.repaired(group, 1)
    (one,) = replayed(mended)
    assert [turn.logprobs for turn in one.turns] == [(-0.25,), (-0.125,)]
    assert all(turn.is_replayed for turn in one.turns)
    # It stands where the failure stood, which stays a failure that cost what it cost.
    place = mended.index(one)
    assert (one.id, one.success, one.tokens) == (group[place].id, False, 6)
    assert [turn.id for turn in one.turns] == [turn.id for turn in group[place].turns]
    assert [turn.parent for turn in one.turns] == [None, one.turns[0].id]
    assert {(turn.episode, turn.trajectory, str(turn.group)) for turn in one.turns} == {(one.id, one.id, "t/a")}
    assert [now for now in mended if now is not one] == [was for was in group if was.id != one.id]
    assert replay.metrics() == {"tasks": 1.0, "stored": 1.0, "injected": 1.0}
    assert replay.metrics()["injected"] == 0.0


def test_groups_with_a_success_and_tasks_that_were_never_won_are_left_alone() -> None:
    replay = SuccessReplay(size=4, seed=0)
    replay.repaired([episode("t", "w", True)], 0)
    for group in (failures("other"), [*failures("t"), episode("t", "v", True)]):
        assert replay.repaired(group, 1) is group
    broken = [msgspec.structs.replace(one, status="failed", turns=()) for one in failures("t")]
    assert replay.repaired(broken, 1) is broken


def test_only_the_newest_successes_are_kept_and_a_replayed_one_is_none() -> None:
    replay = SuccessReplay(size=2, seed=0)
    for number in range(5):
        replay.repaired([episode("t", f"w{number}", True, logprob=-float(number))], number)
    found = {replayed(replay.repaired(failures("t"), step))[0].turns[0].logprobs for step in range(50)}
    assert found == {(-3.0,), (-4.0,)}
    assert replay.metrics()["stored"] == 2.0


def test_what_is_restored_replays_what_it_would_have_replayed() -> None:
    replay, again = SuccessReplay(size=3, seed=7), SuccessReplay(size=3, seed=7)
    for number in range(3):
        replay.repaired([episode("t", f"w{number}", True, logprob=-1 / (number + 3))], number)
    again.restore(replay.state())
    drawn = [replay.repaired(failures("t"), step) for step in range(20)]
    assert [again.repaired(failures("t"), step) for step in range(20)] == drawn
    assert len({tuple(one.turns[0].is_replayed for one in group) for group in drawn}) == 3


def config_of(steps: int, **train: Any) -> Config:
    return Config.model_validate(
        {
            "scenario": {"name": "relay"},
            "model": SKILLED.model_dump(),
            "algorithm": {
                "sampler": {"mode": "parallel", "candidates": 2, "replay": {}},
                "loss": {"importance_cap": None},
            },
            "learner": {"lr": 0.01},
            "train": {"steps": steps, "tasks_per_step": 2, "eval_tasks": 2, "eval_every": 0, "tasks": FIXED} | train,
        }
    )


async def train(config: Config, base_for: BaseFor, checkpoints: Path | None = None) -> tuple[TrainingOutcome, Steps]:
    steps = Steps()
    scenario = build_scenario(config.scenario)
    trainer = Trainer(resolve_training(config, scenario), base_for("relay", SKILLED), checkpoints=checkpoints)
    trainer.resume()
    return await trainer.run(steps), steps


def said(turns: Sequence[Turn]) -> tuple[object, ...]:
    return tuple((turn.agent, turn.prompt_ids, turn.completion_ids, turn.logprobs, turn.adapter) for turn in turns)


async def test_training_learns_from_successes_of_earlier_steps_where_a_task_was_lost(base_for: BaseFor) -> None:
    config = config_of(12)
    _, steps = await train(config, base_for)
    won: dict[str, set[object]] = {}
    injected, off = 0, {False: [0.0], True: [0.0]}
    for number, episodes in enumerate(steps.episodes):
        for task in dict.fromkeys(one.task for one in episodes):
            group = [one for one in episodes if one.task == task]
            now = replayed(group)
            assert len(now) == int(not any(one.success for one in group) and task in won)
            for one in now:
                assert said(one.turns) in won[task]
                assert all(turn.adapter is not None and turn.adapter.version < number for turn in one.turns)
                turns = [turn for other in group for turn in other.turns]
                found = turn_advantages(turns, config.algorithm.reward, config.algorithm.advantage)
                assert all((value > 0) == turn.is_replayed for turn, value in zip(turns, found, strict=True))
            won.setdefault(task, set()).update(said(one.turns) for one in group if one.success)
            if not won[task]:
                del won[task]
            injected += len(now)
        told = steps.metrics[number]
        assert told["replay"]["injected"] == len(replayed(episodes))
        for values in told["adapters"].values():
            assert values["behaviour_gap"] <= 1e-4
            assert values["ratio"] == pytest.approx(values["importance"])
            off[bool(replayed(episodes))].append(abs(values["ratio"] - 1))
    assert injected >= 3
    # The old log-probabilities are in the ratio: they are not those of the policy now.
    assert max(off[False]) < 1e-4
    assert max(off[True]) > 1e-3


async def test_the_successes_in_store_outlive_a_resume(base_for: BaseFor, tmp_path: Path) -> None:
    whole, seen = await train(config_of(8), base_for)
    await train(config_of(4, checkpoint_every=1), base_for, tmp_path)
    resumed, later = await train(config_of(8, checkpoint_every=1), base_for, tmp_path)
    assert any(replayed(episodes) for episodes in later.episodes)
    assert later.episodes == seen.episodes[4:]
    for name, adapter in whole.adapters.items():
        pairs = zip(adapter.parameters(), resumed.adapters[name].parameters(), strict=True)
        assert all(torch.equal(one, other) for one, other in pairs)


async def test_the_store_is_written_with_checkpoints_and_at_no_other_step(
    base_for: BaseFor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written, state = list[bytes](), SuccessReplay.state
    monkeypatch.setattr(SuccessReplay, "state", lambda self: written.append(state(self)) or written[-1])
    await train(config_of(6, checkpoint_every=3, keep_checkpoints=5), base_for, tmp_path)
    saved = [path / "replay.json" for path in list_checkpoints(tmp_path)]
    assert [path.read_bytes() for path in saved] == written
    assert len(written) == 2
    assert all("logprobs" not in (path.parent / "state.json").read_text() for path in saved)
    last = next(path for path in reversed(saved) if len(path.read_bytes()) > 2)
    last.write_bytes(b"{}")
    with pytest.raises(CheckpointError, match=r"replay.json is not what was written"):
        verify_checkpoint(last.parent)
    with pytest.raises(CheckpointError, match="no successes to replay"):
        SuccessReplay(size=1, seed=0).restore(b'{"t": 1}')


def test_the_preset_has_the_ratio_to_the_policy_of_the_time() -> None:
    algorithm = load_config(["algorithm=arpo", "scenario=plan_path"]).algorithm
    assert algorithm.sampler.replay is not None
    assert algorithm.loss.importance_cap is None


@pytest.mark.parametrize(
    ("algorithm", "match"),
    [
        ({"sampler": {"mode": "tree", "replay": {}}}, "which sampler.mode=parallel plays"),
        (
            {"advantage": {"baseline": "none", "scale": "none"}},
            "replay does not go together with advantage.baseline=none",
        ),
        ({"swap": {"roles": ["planner", "executor"]}}, "replay does not go together with swap"),
    ],
)
def test_a_replay_without_groups_of_episodes_is_refused(algorithm: dict[str, Any], match: str) -> None:
    with pytest.raises(ValueError, match=match):
        AlgorithmOptions.model_validate({"sampler": {"mode": "parallel", "replay": {}}} | algorithm)


def test_a_replay_is_refused_where_no_task_comes_again() -> None:
    config = load_config(["algorithm=arpo", "scenario=plan_path"])
    with pytest.raises(ConfigError, match="never plays a task of 'plan_path' twice"):
        resolve_training(config)
    again = load_config(["algorithm=arpo", "scenario=plan_path", "train.tasks.source=epochs", "train.tasks.count=8"])
    resolve_training(again)
