"""`mas export`: what a run's team says, for others to train on."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

Mas = Callable[..., Any]

SHORT = (
    "train.steps=1", "train.tasks_per_step=2", "train.eval_tasks=2", "train.eval_every=0",
    "algorithm.sampler.candidates=3",
)  # fmt: skip


def rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.fixture
def run(tmp_path: Path, mas: Mas, base_for: Any, small_overrides: tuple[str, ...]) -> Path:
    base_for("refine")
    words = ["train", "scenario=refine", "algorithm=malt", *SHORT, *small_overrides, f"run_dir={tmp_path / 'run'}"]
    assert mas(*words).code == 0
    return tmp_path / "run"


def test_positives_and_pairs_of_a_run_are_written_role_by_role(run: Path, mas: Mas, tmp_path: Path) -> None:
    out = tmp_path / "deep" / "out"
    ran = mas("export", str(run), "--out", str(out), "--tasks", "4")
    assert ran.code == 0, ran.err
    roles = ("generator", "verifier", "refiner")
    assert sorted(path.name for path in out.iterdir()) == sorted(
        f"{role}.{kind}.jsonl" for role in roles for kind in ("dpo", "sft")
    )
    for role in roles:
        imitated, compared = rows(out / f"{role}.sft.jsonl"), rows(out / f"{role}.dpo.jsonl")
        assert f"{role}\t{len(imitated)} to imitate\t{len(compared)} pairs" in ran.out
        for row in imitated:
            assert row["prompt"].startswith(role[0].upper())
            assert set(row) == {"task", "prompt", "prompt_ids", "completion", "completion_ids"}
        for row in compared:
            assert row["chosen"] != row["rejected"]
            assert row["chosen_ids"] != row["rejected_ids"]
            assert len(row["prompt_ids"]) == len(row["prompt"])
    assert rows(out / "refiner.dpo.jsonl")
    assert rows(out / "generator.dpo.jsonl") == []
    again = mas("export", str(run), "--out", str(out))
    assert again.code == 2
    assert "is there already and not empty" in again.err
    other = mas("export", str(run), "--out", str(tmp_path / "other"), "--tasks", "4")
    assert other.code == 0
    assert rows(tmp_path / "other" / "refiner.dpo.jsonl") == rows(out / "refiner.dpo.jsonl")


def test_another_algorithm_samples_and_labels_the_team_of_a_run(run: Path, mas: Mas, tmp_path: Path) -> None:
    words = ("algorithm.sampler.candidates=2", "algorithm.options.sft=1")
    ran = mas("export", str(run), "--out", str(tmp_path / "out"), "--tasks", "2", "--algorithm", "dpo", *words)
    assert ran.code == 0, ran.err
    assert sum(len(rows(path)) for path in (tmp_path / "out").iterdir()) > 0
    refused = mas("export", str(run), "--algorithm", "dpo", "algorithm.options.sft_only=[]")
    assert "sft_only" in refused.err


def test_what_has_no_preferences_is_refused(run: Path, mas: Mas, tmp_path: Path) -> None:
    refused = mas("export", str(run), "--algorithm", "at_grpo", "--out", str(tmp_path / "out"))
    assert refused.code == 2
    assert "has no preferences; name one that has: --algorithm dpo" in refused.err
    assert "adapters need no export: they are PEFT directories" in refused.err
    idle = mas("export", str(run), "learner.lr=0.1", "--out", str(tmp_path / "out"))
    assert "no effect on `mas export`" in idle.err
    assert not (tmp_path / "out").exists()


def test_tasks_that_training_drew_from_files_are_not_needed(run: Path, mas: Mas, tmp_path: Path) -> None:
    stored = yaml.safe_load((run / "config.yaml").read_text())
    gone = {"scenario": "questions", "options": {"path": str(run / "gone.jsonl"), "scorer": "number"}}
    stored["train"]["tasks"] = {"source": "mixture", "arms": {"one": gone, "other": gone}}
    (run / "config.yaml").write_text(json.dumps(stored))
    ran = mas("export", str(run), "--out", str(tmp_path / "out"), "--tasks", "2")
    assert ran.code == 0, ran.err
