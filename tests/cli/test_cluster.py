"""`mas cluster`: a plan and a simulation, each as what it is, and one clear line for every mistake."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import BaseFor

from mas.config.load import load_config
from mas.observe.files import write_text_atomic
from mas.observe.run_directory import RunDirectory

Mas = Callable[..., Any]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run of three recorded steps of four groups, with an evaluation and a warm start between them."""
    path = tmp_path / "run"
    config = load_config(["scenario=relay", "train.tasks_per_step=4", f"run_dir='{path}'"])
    with RunDirectory.open(path, config.model_dump(mode="json"), resume=False):
        pass
    seconds = {"sample": 4.0, "environment": 2.0, "learn": 3.0, "publish": 1.0}
    lines: list[dict[str, Any]] = [
        {"step": 0, "seconds": seconds},
        {"step": 0, "seconds": {"evaluate": {"greedy": 50.0}}},
        *({"step": step, "seconds": seconds} for step in (1, 2, 3)),
        {"step": 3, "seconds": {"evaluate": {"greedy": 50.0}}},
    ]
    write_text_atomic(path / "metrics.jsonl", "".join(json.dumps(line) + "\n" for line in lines))
    return path


def rows(out: str) -> list[list[str]]:
    """Cells of every row of a table."""
    return [[cell.strip() for cell in line.split("│")[1:-1]] for line in out.splitlines() if line.startswith("│")]


def test_a_simulation_says_that_it_is_one_and_what_it_assumed(mas: Mas, run: Path, tmp_path: Path) -> None:
    file = tmp_path / "found.json"
    ran = mas("cluster", "simulate", str(run), "--staleness", "0,1", "--workers", "1,4", "--json", str(file))
    assert ran.code == 0, ran.err
    assert "Simulation: no row was measured" in ran.out
    assert "3 recorded steps, 24.00 s one after another: sampling 12.00 s (environment 6.00 s)" in ran.out
    assert "Groups: 4 a step, assumed to be equally long, as they are not recorded one by one." in ran.out
    # k = 0 with one worker is the recorded time. With four workers a step has 2 s of engine work left of sampling's 4:
    # 3 x (2 + 3 + 1) s. With k = 1 only the first sampling is waited for: 4 + 3 x (3 + 1) s, and 16 with 4 workers,
    # where batch 0 has the engine first and is complete after 2 s: 2 + 3 x 4 s.
    assert [row[:6] for row in rows(ran.out)] == [
        ["0", "1", "1", "24.00 s", "450", "1.00x"],
        ["0", "4", "1", "18.00 s", "600", "1.33x"],
        ["1", "1", "1", "16.00 s", "675", "1.50x"],
        ["1", "4", "1", "14.00 s", "771", "1.71x"],
    ]
    stored = json.loads(file.read_text())
    assert stored["is_simulation"]
    assert stored["groups_are"].startswith("assumed")
    assert [row["makespan_s"] for row in stored["rows"]] == pytest.approx([24, 18, 16, 14])
    assert stored["rows"][2]["shape"] == {"staleness": 1, "workers": 1, "replicas": 1}


def test_lengths_of_groups_and_the_time_of_publishing_can_be_given(mas: Mas, run: Path) -> None:
    words = ("--staleness", "0", "--workers", "8", "--replicas", "9", "--groups", "1,1,2", "--publish-s", "0")
    ran = mas("cluster", "simulate", str(run), *words)
    assert "Groups: 3 a step, as --groups says." in ran.out
    # The longest group has half of 4 s, and publishing takes nothing: 3 x (2 + 3) s.
    assert rows(ran.out)[0][:4] == ["0", "8", "9", "15.00 s"]


def test_a_plan_says_what_each_process_needs_and_how_many_slots(
    mas: Mas, small_overrides: tuple[str, ...], base_for: BaseFor, tmp_path: Path
) -> None:
    base_for("relay")
    words = ("cluster", "plan", "scenario=relay", *small_overrides, "model.device=cpu", "train.staleness=1")
    file = tmp_path / "plan.json"
    ran = mas(*words, "cluster.workers=4", "cluster.learners=2", "--memory", "1", "--json", str(file))
    assert ran.code == 0, ran.out + ran.err
    assert [row[:2] for row in rows(ran.out)] == [
        ["driver with learner", "1"],
        ["learner rank", "1"],
        ["rollout worker", "4"],
    ]
    assert "adapter slots of an engine: 7 = 2 adapters x (staleness 1 + 2) + 1 for the bare base; 4 versions" in ran.out
    assert "fits: each process alone into 1.0 GiB (memory of each process)" in ran.out
    assert "which do not fit into one such memory" in ran.out
    stored = json.loads(file.read_text())
    assert (stored["fits"], stored["slots"]["slots"], stored["vllm"], stored["memory"]) == (True, 7, None, 2**30)
    assert stored["together"] == sum(one["count"] * one["needed"] for one in stored["processes"])

    small = mas(*words, "cluster.engines=2", "--memory", "0.1")
    assert small.code == 1
    assert small.out.count("does not fit: a process of ") == 2
    assert "learner.micro_batch_tokens needs less" in " ".join(small.out.split())

    vllm = mas(*words[:-1], "train.staleness=4", "engine.name=vllm", "--memory", "1")
    assert "max_loras of at least 13, max_cpu_loras no less" in vllm.out
    assert "engine.adapters: 12 is enough" in vllm.out
    few = mas(*words[:-1], "train.staleness=4", "engine.name=vllm", "engine.adapters=8", "--memory", "1")
    assert "leave it out, or set engine.adapters=12" in few.out
    enough = mas(*words, "engine.name=vllm", "--memory", "1")
    assert "engine.adapters: 8 is enough" in enough.out
    server = mas(*words, "engine.name=vllm_server", "--memory", "1")
    assert "vllm serve --max-loras 7 --max-cpu-loras 7 or more" in server.out
    unknown = mas(*words, "model.device=cuda")
    assert unknown.code == 0
    assert "device memory of each process: " in unknown.out


def test_cluster_alone_shows_its_commands(mas: Mas) -> None:
    assert "simulate" in mas("cluster").out


MISTAKES = [
    (("simulate", "RUN", "--staleness", "1,x"), "--staleness '1,x': whole numbers from 0"),
    (("simulate", "RUN", "--workers", "0"), "--workers '0': whole numbers from 1"),
    (("simulate", "RUN", "--replicas", ""), "--replicas '': whole numbers from 1"),
    (("simulate", "RUN", "--groups", "1,-1"), "--groups '1,-1': numbers above 0"),
    (("simulate", "RUN", "--groups", "long"), "--groups 'long': numbers above 0"),
    (("simulate", "RUN", "--json", "none/found.json"), "none is no directory"),
    (("simulate", "none"), "holds no run"),
    (("plan", "scenario=rely"), "Did you mean 'relay'"),
    (("plan", "scenario=relay", "trace.every=5"), "has no effect on `mas cluster plan`"),
    (("plan", "scenario=relay", "engine.name=openai", "--memory", "1"), "engine=openai"),
    (("plan", "scenario=relay", "--memory", "0"), "--memory 0.0: a number of GiB above 0"),
    (("plan", "scenario=relay", "--json", "none/plan.json"), "none is no directory"),
]


@pytest.mark.parametrize(("words", "text"), MISTAKES, ids=[" ".join(words) for words, _ in MISTAKES])
def test_a_mistake_is_one_line(
    words: tuple[str, ...], text: str, mas: Mas, run: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    ran = mas("cluster", *(str(run) if word == "RUN" else word for word in words))
    assert ran.code == 2
    assert ran.err.startswith("error: ")
    assert text in ran.err
    assert ran.err.count("\n") == 1


@pytest.mark.parametrize(
    ("lines", "text"),
    [
        ([], "has no step to simulate with"),
        (
            [{"step": 1, "seconds": {"sample": 1.0}, "in_flight": {}}],
            "Name a run with train.staleness=0 and cluster.workers=0",
        ),
        ([{"step": 1, "seconds": {"sample": 1.0, "environment": 0.0}}], "has no seconds to simulate with: 'learn'"),
        ([{"step": 1, "seconds": dict.fromkeys(("sample", "environment", "learn", "publish"), 0.0)}], "has no step"),
        (
            [{"step": 1, "seconds": {"sample": "nan", "environment": 0.0, "learn": 1.0, "publish": 0.0}}],
            "has no seconds to simulate with",
        ),
    ],
)
def test_a_run_without_recorded_seconds_is_refused(lines: list[Any], text: str, mas: Mas, run: Path) -> None:
    write_text_atomic(run / "metrics.jsonl", "".join(json.dumps(line) + "\n" for line in lines))
    ran = mas("cluster", "simulate", str(run))
    assert ran.code == 2
    assert text in ran.err
    assert ran.err.count("\n") == 1


def test_training_on_a_server_says_how_many_versions_it_must_hold_before_it_is_asked(
    mas: Mas, small_overrides: tuple[str, ...], tmp_path: Path
) -> None:
    """Two adapters, k = 1: 2 x 3 versions and the bare base."""
    server = ("engine=vllm_server", "engine.remote.url=http://127.0.0.1:1/v1", "engine.remote.retries=0")
    run = tmp_path / "run"
    ran = mas("train", "scenario=relay", *small_overrides, *server, "train.staleness=1", f"run_dir={run}")
    assert ran.code == 1  # the command is right, and its server does not answer
    assert "the server needs vllm serve --max-loras 7 --max-cpu-loras 7 or more" in ran.out
    assert "http://127.0.0.1:1/v1" in ran.err
    assert not run.exists()
