"""`mas bench serving` as a user meets it: exit codes, mistakes, the file that it writes."""

import json
import os
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import typer
from setuptools import find_packages
from typer.testing import CliRunner

from benchmarks.machine import describe
from benchmarks.result import Result, Target
from benchmarks.serving.options import GENERATE, OURS, OURS_BASE, PEFT, VLLM, VLLM_BASE, ServingBench
from mas.commands.bench import add_bench
from mas.core.errors import ConfigError

Mas = Callable[..., Any]
ROOT = Path(__file__).parents[2]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[ServingBench]:
    """What the benchmark was asked; it finds 1.0 where `--seed` is the goal."""
    seen: list[ServingBench] = []

    async def found(options: ServingBench, tell: Callable[[str], None]) -> Result:
        seen.append(options)
        tell("measuring")
        machine = describe(load_before=0.0, threads=options.threads, device="cpu")
        target = Target.at_least("speed", 1.0, float(options.seed))
        return Result(bench="serving", machine=machine, workload={}, rows=(), targets=(target,))

    monkeypatch.setattr("benchmarks.serving.run.bench_serving", found)
    return seen


def test_the_exit_code_says_whether_the_targets_are_met(asked: list[ServingBench], mas: Mas) -> None:
    assert mas("bench", "serving", "--seed", "1").code == 0
    missed = mas("bench", "serving", "--seed", "2")
    assert (missed.code, missed.err) == (1, "")
    assert "at least 2.000" in missed.out


def test_a_missed_target_still_writes_the_file(asked: list[ServingBench], mas: Mas, tmp_path: Path) -> None:
    assert mas("bench", "serving", "--seed", "2", "--json", str(tmp_path / "found.json")).code == 1
    assert json.loads((tmp_path / "found.json").read_text())["targets"][0]["met"] is False


def test_options_arrive(asked: list[ServingBench], mas: Mas) -> None:
    mas("bench", "serving")
    words = ("--size", "10M", "--repeats", "2", "--requests", "8", "--without", "vllm", "--without", "generate")
    mas("bench", "serving", *words, "--threads", "1", "--seed", "3")
    assert asked[0] == ServingBench(sizes=("1M", "10M", "smollm2"), repeats=5, requests=64, seed=0, threads=2)
    assert asked[1] == ServingBench(
        sizes=("10M",), repeats=2, requests=8, seed=3, without=frozenset({"vllm", "generate"}), threads=1
    )
    assert asked[0].rows == (GENERATE, PEFT, OURS_BASE, OURS, VLLM_BASE, VLLM)
    assert asked[1].rows == (PEFT, OURS_BASE, OURS)


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("--size", "11M"), "--size 11M: no such size. Did you mean '1M' or '10M'?"),
        (("--without", "vlm"), "--without vlm: nothing to leave out. Did you mean 'vllm'?"),
        (("--size", "smollm2", "--requests", "8"), "--requests 8: smollm2 has batches of its own; leave it out"),
        (("--size", "smollm2", "--without", "vllm"), "--without vllm: smollm2 is measured against generate alone"),
        (("--size", "smollm2", "--without", "peft"), "--without peft: smollm2 is measured against generate alone"),
        (("--json", "none/found.json"), "none/found.json cannot be written"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(
    words: tuple[str, ...], text: str, mas: Mas, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    ran = mas("bench", "serving", *words)
    assert ran.code == 2
    assert text in ran.err
    assert ran.err.count("\n") == 1


def test_without_peft_the_line_that_installs_it_is_named(
    asked: list[ServingBench], mas: Mas, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("benchmarks.serving.options.find_spec", lambda name: None)
    ran = mas("bench", "serving")
    assert ran.code == 2
    assert "pip install 'mas[bench]', or add --without peft" in ran.err
    assert mas("bench", "serving", "--without", "peft").code == 0


def test_a_pretrained_model_that_is_not_there_is_not_measured_and_says_why(
    mas: Mas, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("MAS_CACHE", str(tmp_path))
    ran = mas("bench", "serving", "--size", "smollm2", "--json", str(tmp_path / "found.json"))
    assert ran.code == 0
    found = json.loads((tmp_path / "found.json").read_text())
    sizes = [f"smollm2 {dtype}, {batch}" for dtype in ("float32", "bfloat16") for batch in ("static", "uneven")]
    assert [(row["size"], row["name"]) for row in found["rows"]] == [
        (size, name) for size in sizes for name in (GENERATE, OURS_BASE)
    ]
    why = "the model is not in the cache; `mas base smollm2` puts it there"
    assert {row["note"] for row in found["rows"]} == {f"not measured: {why}"}
    assert [(target["name"], target["value"], target["note"]) for target in found["targets"]] == [
        (f"{size}: {OURS_BASE} / {GENERATE}", None, why) for size in sizes
    ]
    assert [target["goal"] for target in found["targets"]] == [0.9, 1.5, 0.9, 1.5]


def test_impossible_numbers_are_usage_errors(mas: Mas) -> None:
    assert mas("bench", "serving", "--repeats", "0").code == 2
    assert mas("bench", "serving", "--threads", "0").code == 2
    assert mas("bench", "servin").code == 2


def test_without_the_repository_the_command_says_what_to_do(tmp_path: Path) -> None:
    app = typer.Typer()
    add_bench(app, tmp_path)
    app.command()(lambda: None)  # of two commands each is called by its name
    ran = CliRunner().invoke(app, ["bench", "serving", "--size", "1M"])
    assert isinstance(ran.exception, ConfigError)
    assert "no part of the installed package: clone the repository" in str(ran.exception)


def test_another_package_of_that_name_is_not_taken_for_ours(tmp_path: Path) -> None:
    (tmp_path / "benchmarks").mkdir()
    (tmp_path / "benchmarks" / "__init__.py").write_text("raise RuntimeError('of another project')")
    paths = os.pathsep.join([str(tmp_path), str(ROOT)])
    done = subprocess.run(
        [sys.executable, "-m", "mas", "bench", "--help"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": paths},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "probes" in done.stdout


def test_no_benchmark_is_in_the_package() -> None:
    chosen = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    packages = find_packages(str(ROOT), **chosen["packages"]["find"])
    assert "mas.core" in packages
    assert not [name for name in packages if "benchmarks" in name]
    assert "bench" not in " ".join(chosen["package-data"]["mas"])
