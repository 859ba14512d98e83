"""`train.record_every`: what is written of turns, that it changes nothing, and that it stays small."""

import io
import re
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
import pytest
from rich.console import Console

from mas.algorithms.parts.rewards.terms import RewardOptions
from mas.config.load import load_config
from mas.core.engine import AdapterRef
from mas.core.records import Episode, Group, Line, Turn
from mas.observe.turn_records import RecordedEpisode, drop_steps_after, step_file, step_files, write_step
from mas.runs.train import train_in_directory
from mas.scenarios import build_scenario
from mas.serving.model import BaseModel
from mas.training.turn_recorder import recorded_step

SHORT = (
    "scenario=relay", "train.steps=4", "train.tasks_per_step=2", "train.eval_tasks=2", "train.eval_every=4",
    "train.checkpoint_every=2", "algorithm.sampler.candidates=3",
)  # fmt: skip


@pytest.fixture
def train(small_overrides: tuple[str, ...], base_for: Callable[..., BaseModel]) -> Callable[..., None]:
    base_for("relay")

    def go(run: Path, *overrides: str, **options: int) -> None:
        config = load_config([*SHORT, *small_overrides, f"run_dir='{run}'", *overrides])
        console = Console(file=io.StringIO())
        train_in_directory(config, build_scenario(config.scenario), console=console, **options)

    return go


def turn(episode: str, number: int, candidate: int, reward: float, *, paid: float | None = None) -> Turn:
    """One of the candidates of a decision; the third candidate is the chosen one."""
    group = Group(kind="decision", task="t", agent="solver", episode=episode, turn=number)
    identity = f"{episode}/{number}/{candidate}"
    return Turn(
        id=identity, episode=episode, task="t", agent="solver", role="solver", turn=number, visit=0,
        candidate=candidate, parent=None, group=group, trajectory=identity, prompt_ids=(104, 105),
        completion_ids=(0xE2, 0x9C, 0x93), logprobs=(-0.123456, -0.5, -2.0), temperature=0.7,
        adapter=AdapterRef("solver", 4), seed=1, finish="stop", text="✓", rewards={"team.goal": reward},
        chosen=candidate == 2, paid={} if paid is None else {"own.form": paid},
    )  # fmt: skip


def episode(name: str, turns: Sequence[Turn]) -> Episode:
    lines = (Line(turn=0, agent="solver", prompt="hi", text="✓"), Line(turn=0, agent="opponent.x", prompt="", text="z"))
    return Episode(
        id=name, task="t", success=True, turns=tuple(turns), lines=lines, rewards={"goal": 1.0}, prompt_tokens=0,
        completion_tokens=0, calls=0,
    )  # fmt: skip


def bytewise(ids: Sequence[int]) -> str:
    """A tokenizer with one token per byte."""
    return bytes(ids).decode(errors="replace")


def recorded() -> list[RecordedEpisode]:
    turns = [turn("e", 0, 0, 1.0), turn("e", 0, 1, 3.0), turn("e", 0, 2, 2.0, paid=0.25)]
    flat = [turn("e", 1, number, 0.5) for number in range(2)]
    rewards = RewardOptions(alpha=2.0)
    return recorded_step(7, [episode("e", [*turns, *flat])], [-1.0, 1.0, 0.5, 0.0, 0.0], rewards, bytewise)


def test_candidates_of_one_prompt_are_one_decision_with_returns_rewards_and_advantages() -> None:
    (one,) = recorded()
    assert [len(decision.candidates) for decision in one.decisions] == [3, 2]
    first = one.decisions[0]
    assert (first.prompt, first.agent, first.turn) == ("hi", "solver", 0)
    assert [own.returned for own in first.candidates] == [2.0, 6.0, 4.0]  # alpha = 2 times what was paid
    assert [own.advantage for own in first.candidates] == [-1.0, 1.0, 0.5]
    assert [own.reward for own in first.candidates] == [None, None, 0.25]
    assert [own.chosen for own in first.candidates] == [False, False, True]
    assert {own.adapter for own in first.candidates} == {"solver@4"}
    assert first.candidates[0].logprobs == (-0.1235, -0.5, -2.0)


def test_a_group_whose_returns_are_all_equal_is_flat_and_counted() -> None:
    (one,) = recorded()
    assert [decision.group.is_flat for decision in one.decisions] == [False, True]
    assert [decision.group.size for decision in one.decisions] == [3, 2]
    assert (one.head.groups, one.head.flat, one.head.turns, one.head.decisions) == (2, 1, 5, 2)


def test_a_group_of_one_has_nothing_to_compare_and_is_not_flat() -> None:
    (one,) = recorded_step(1, [episode("e", [turn("e", 0, 0, 1.0)])], [0.0], RewardOptions(), None)
    assert (one.head.groups, one.head.flat, one.decisions[0].group.is_flat) == (0, 0, False)
    assert (one.decisions[0].prompt, one.decisions[0].candidates[0].tokens) == ("", ())


def test_the_texts_of_tokens_join_to_the_text_where_a_character_takes_several() -> None:
    (one,) = recorded()
    assert one.decisions[0].candidates[0].tokens == ("", "", "✓")


def test_what_opponents_said_is_kept_beside_the_turns() -> None:
    (one,) = recorded()
    assert [line.agent for line in one.lines] == ["opponent.x"]


def test_every_turn_needs_its_advantage() -> None:
    with pytest.raises(ValueError, match="shorter"):
        recorded_step(1, [episode("e", [turn("e", 0, 0, 1.0)])], [], RewardOptions(), None)


def test_a_file_has_the_head_of_an_episode_before_its_decisions_and_old_steps_go(tmp_path: Path) -> None:
    for step in (2, 4, 6):
        write_step(tmp_path, step, recorded(), keep=2)
    assert [step for step, _ in step_files(tmp_path)] == [4, 6]
    lines = step_file(tmp_path, 6).read_bytes().splitlines()
    assert [re.match(rb'{"(\w+)":', line)[1] for line in lines] == [b"episode", b"scenes", b"decision", b"decision"]  # type: ignore[index]
    (tmp_path / "turns" / ".step-000008.jsonl.0a1b2c3d.tmp").write_bytes(b"{")  # of a process that was killed
    drop_steps_after(tmp_path, 4)
    assert [path.name for path in (tmp_path / "turns").iterdir()] == ["step-000004.jsonl"]


def test_recording_changes_no_weights_and_keeps_the_newest_steps(train: Callable[..., None], tmp_path: Path) -> None:
    train(tmp_path / "plain")
    train(tmp_path / "recorded", "train.record_every=1", "train.record_keep=2")
    plain, other = ((tmp_path / name / "adapters") for name in ("plain", "recorded"))
    names = sorted(path.relative_to(plain) for path in plain.rglob("*.safetensors"))
    assert names
    for name in names:
        assert (plain / name).read_bytes() == (other / name).read_bytes()
    assert not (tmp_path / "plain" / "turns").exists()
    assert [step for step, _ in step_files(tmp_path / "recorded")] == [3, 4]
    record = msgspec.json.decode(step_file(tmp_path / "recorded", 4).read_bytes().splitlines()[1])
    assert [scene["turn"] for scene in record["scenes"]] == [-1, 0]  # a relay is one turn long
    metrics = (tmp_path / "recorded" / "metrics.jsonl").read_text()
    assert '"step":4' in metrics


def test_a_resumed_run_records_its_steps_anew_and_may_begin_to_record(
    train: Callable[..., None], tmp_path: Path
) -> None:
    run = tmp_path / "run"
    train(run)
    train(run, "train.steps=6", "train.record_every=2", from_step=2)
    assert [step for step, _ in step_files(run)] == [4, 6]
    before = step_file(run, 6).read_bytes()
    train(run, "train.steps=6", "train.record_every=2", from_step=4)
    assert [step for step, _ in step_files(run)] == [4, 6]
    assert step_file(run, 6).read_bytes() == before
