"""What the page on Python says is what happens, also in a notebook's cell."""

import asyncio
from pathlib import Path

import pytest
from conftest import BaseFor
from pages import blocks, read

import mas
from mas.core.errors import ConfigError


def test_the_example_runs_where_an_event_loop_runs(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    small_overrides: tuple[str, ...],
    base_for: BaseFor,
) -> None:
    base_for("relay")
    monkeypatch.chdir(tmp_path)
    (example,) = blocks("docs/python.md", "python")
    few = ("train.tasks_per_step=2", "train.eval_tasks=2", "algorithm.sampler.candidates=2", *small_overrides)
    small = example.text.replace("train.steps=20", '", "'.join(("train.steps=1", *few)))
    for long, short in (("tasks=50", "tasks=3"), ("train.steps=30", "train.steps=2")):
        assert long in small
        small = small.replace(long, short)

    async def cell() -> None:
        exec(compile(small, "docs/python.md", "exec"), {"__name__": "example"})  # noqa: S102 - our own page

    asyncio.run(cell())
    printed = capsys.readouterr().out
    assert "untrained: success" in printed
    assert "\ntrained: success" in printed
    assert printed.endswith("\n2\n")
    played = mas.evaluate("runs/relay", ["train.seed=1"], tasks=2, is_sampled=True)
    assert {name: len(result.episodes) for name, result in played.items()} == {"untrained": 2, "trained": 2}
    with pytest.raises(ConfigError, match=r"'learner\.lr=1' has no effect on `mas eval`"):
        mas.evaluate("runs/relay", ["learner.lr=1"])


def test_every_function_is_on_the_page() -> None:
    rows = [line for line in read("docs/python.md").splitlines() if line.startswith("| `")]
    assert {row.split("`")[1].partition("(")[0] for row in rows} == set(mas.__all__) - {"__version__"}
