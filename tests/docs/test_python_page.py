"""What the page on Python says is what happens, also in a notebook's cell."""

import asyncio
import json
import re
from contextlib import redirect_stdout
from pathlib import Path

import pytest
from conftest import BaseFor
from pages import blocks, read

import mas
from mas.config.options import Config
from mas.core.errors import ConfigError
from mas.training.setup import Setup


@pytest.mark.nightly(of=16)
def test_the_examples_run_where_an_event_loop_runs(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    small_overrides: tuple[str, ...],
    base_for: BaseFor,
) -> None:
    base_for("relay")
    monkeypatch.chdir(tmp_path)
    first, second, awaited, third, _, own = (block.text for block in blocks("docs/python.md", "python"))
    few = ("train.tasks_per_step=2", "train.eval_tasks=2", "algorithm.sampler.candidates=2", *small_overrides)
    options = {key: json.loads(value) for key, _, value in (word.partition("=") for word in few)}
    short = {
        "steps=20": f"steps=1, options={options}",
        "tasks=50": "tasks=3",
        '"train.steps=20"': ", ".join(f'"{word}"' for word in ("train.steps=1", *few)),
        "train.steps=30": "train.steps=2",
    }
    monkeypatch.syspath_prepend(Path(__file__).parents[2])
    assert "steps=20" in awaited
    assert "steps=200" in own
    own = own.replace("steps=200", f"steps=1, options={options}")
    awaited = awaited.replace("steps=20", f"steps=1, options={options}")
    for text, changed in short.items():
        assert text in first + second
        first = first if text.startswith('"') else first.replace(text, changed)
        second = second.replace(text, changed) if text.startswith(('"', "train")) else second

    async def cell() -> None:
        for small in (first, second, third, own):
            exec(compile(small, "docs/python.md", "exec"), {"__name__": "example"})  # noqa: S102 - our own page

    asyncio.run(cell())
    exec(compile(awaited, "docs/python.md", "exec"), {"__name__": "example"})  # noqa: S102 - our own page
    printed = capsys.readouterr().out
    assert "relay: 3 held-out tasks, greedy" in printed
    assert re.search(r"^success \d\.\d\d -> \d\.\d\d$", printed, re.MULTILINE)
    assert "1 steps done\n" in printed
    assert re.search(r"other work is done meanwhile\n\d\n", printed)
    assert "\n2\n" in printed
    assert "tournament: two_player:kuhn_poker, 50 games" in printed
    assert "<svg" in Path("runs/relay/curves.svg").read_text()
    assert sorted(path.name for path in Path("runs/relay-adapters").iterdir()) == ["executor", "planner"]
    played = mas.evaluate("runs/relay", ["train.seed=1"], tasks=2, is_sampled=True)
    assert {name: len(result.episodes) for name, result in played.items()} == {"untrained": 2, "trained": 2}
    with pytest.raises(ConfigError, match=r"'learner\.lr=1' has no effect on `mas eval`"):
        mas.evaluate("runs/relay", ["learner.lr=1"])


def test_the_example_with_questions_makes_a_setup(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Stopped(Exception):
        """Before the model is loaded."""

    def stop(config: Config, setup: Setup, *_: object, **__: object) -> None:
        raise Stopped(setup.team.name, setup.scenario.name, config.train.steps, config.model.path)

    monkeypatch.chdir(tmp_path)
    lookups = (Path(__file__).parents[2] / "examples" / "lookups.py").read_text()
    with Path("lookups.jsonl").open("w") as file, redirect_stdout(file):
        exec(compile(lookups, "lookups.py", "exec"), {"__name__": "__main__"})  # noqa: S102 - our own example
    monkeypatch.setattr("mas.api.train.train_setup", stop)
    with pytest.raises(Stopped) as stopped:
        exec(compile(blocks("docs/python.md", "python")[4].text, "page", "exec"), {})  # noqa: S102 - our own page
    assert stopped.value.args == ("solver_verifier", "questions", 40, "smollm2")


def test_every_name_and_every_method_is_on_the_page() -> None:
    rows = [line for line in read("docs/python.md").splitlines() if line.startswith("| `")]
    names = {name.partition("(")[0].partition(".")[0] for row in rows for name in row.split("|")[1].split("`")[1::2]}
    methods = {name for name in vars(mas.Run) if not name.startswith("_")}
    assert names == (set(mas.__all__) - {"__version__"}) | methods
