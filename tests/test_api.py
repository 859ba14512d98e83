"""`import mas` as a script and a notebook use it, and the command's first words."""

import ast
import asyncio
import inspect
import io
import pickle
import subprocess
import sys
import threading
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

import mas
from mas import evaluate, load_config, train
from mas.api.console import Printout
from mas.api.evaluate import Evaluations
from mas.api.league import Tournament
from mas.api.run import Curves, PlayedEpisode
from mas.core.concurrency import run_blocking
from mas.core.errors import ConfigError
from mas.core.records import Episode
from mas.training.evaluate import Evaluation


def test_what_it_offers_is_there_and_nothing_else() -> None:
    names = {"League", "Run", "Team", "__version__", "evaluate", "load_config", "load_run_config"}
    names |= {"evaluate_async", "inspect_task", "protocols", "questions", "train", "train_async", "trusting"}
    assert set(mas.__all__) == names
    for name in mas.__all__:
        assert getattr(mas, name) is not None
    with pytest.raises(AttributeError, match="it has League, Run, Team, __version__, evaluate"):
        _ = mas.tran


def test_values_are_equal_after_a_copy_and_are_shown_in_a_line() -> None:
    episode = Episode(
        id="e",
        task="eval-0",
        success=True,
        turns=(),
        lines=(),
        rewards={},
        prompt_tokens=0,
        completion_tokens=0,
        calls=1,
    )
    played = Evaluation(success=0.5, turns=2.0, passes=0.0, failures=0.0, unplayed=0, tokens=9, episodes=(episode,) * 2)
    shown = {
        "Team('plan_execute': planner, executor)": mas.Team(mas.protocols.plan_execute()),
        "League(game='kuhn', path='league.db')": mas.League("kuhn"),
        "Evaluations({'trained': Evaluation(success=0.500, tasks=2, turns=2.0)}, 'relay')": Evaluations(
            {"trained": played}, "relay"
        ),
        "PlayedEpisode('eval-0', success=True)": PlayedEpisode(episode, Printout("text", "html")),
        "Curves()": Curves("<svg></svg>"),
    }
    for text, value in shown.items():
        assert repr(value) == text
        assert pickle.loads(pickle.dumps(value)) == value == deepcopy(value)
        assert type(deepcopy(value)) is type(value)


def test_type_checkers_know_every_public_name_and_no_other() -> None:
    tree = ast.parse(Path(str(mas.__file__)).read_text(encoding="utf-8"))
    blocks = {ast.unparse(node.test): node for node in tree.body if isinstance(node, ast.If)}
    imported = [node for node in blocks["TYPE_CHECKING"].body if isinstance(node, ast.ImportFrom)]
    assert {name.asname for node in imported for name in node.names} == {*mas.__all__} - {"__version__"}
    hidden = [node.name for node in blocks["not TYPE_CHECKING"].body if isinstance(node, ast.FunctionDef)]
    assert hidden == ["__getattr__"], "else any name would be an object to them"


def test_every_public_name_method_and_value_is_documented() -> None:
    objects = {name: getattr(mas, name) for name in set(mas.__all__) - {"__version__"}}
    objects |= {f"protocols.{name}": getattr(mas.protocols, name) for name in mas.protocols.__all__}
    values = [mas.Run, mas.Team, mas.League, PlayedEpisode, Curves, Tournament, Evaluations]
    for kind in values:
        public = {name: value for name, value in vars(kind).items() if not name.startswith("_")}
        fields = set(getattr(kind, "__dataclass_fields__", ()))
        objects |= {f"{kind.__name__}.{name}": value for name, value in public.items() if name not in fields}
    lacking = [name for name, value in objects.items() if not inspect.getdoc(value)]
    assert lacking == []
    raising = ["train", "evaluate", "questions", "Team", "Run", "Run.play", "Run.ask", "Run.export", "Run.report"]
    raising += ["inspect_task"]
    raising += ["Run.curves", "Run.metrics", "Team.load", "Team.save", "League.play", "load_config", "load_run_config"]
    raising += [f"protocols.{name}" for name in mas.protocols.__all__ if name not in ("solo", "plan_execute")]
    assert [name for name in raising if "Raises:" not in str(inspect.getdoc(objects[name]))] == []
    assert len(objects) > 35


def test_a_coroutine_runs_inside_a_running_loop_with_its_result_or_its_error() -> None:
    async def work(fails: bool) -> str:
        await asyncio.sleep(0)
        if fails:
            raise ValueError("no")
        return threading.current_thread().name

    async def cell() -> str:
        with pytest.raises(ValueError, match="no"):
            run_blocking(work(True))
        return run_blocking(work(False))

    assert asyncio.run(cell()).startswith("mas")
    assert run_blocking(work(False)) == threading.current_thread().name


def test_training_works_in_a_notebooks_cell(tmp_path: Path, small_overrides: tuple[str, ...], base_for: Any) -> None:
    base_for("relay")
    short = ("train.steps=1", "train.tasks_per_step=2", "train.eval_tasks=2", "algorithm.sampler.candidates=2")
    config = mas.load_config(["scenario=relay", *short, *small_overrides, f"run_dir={tmp_path / 'run'}"])

    async def cell() -> int:
        return mas.train(config).steps

    assert asyncio.run(cell()) == 1


def test_training_refuses_at_once_what_the_tiny_base_cannot_read(
    tmp_path: Path, mas: Callable[..., Any], capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["scenario=two_player", "scenario.options.style=words", f"run_dir={tmp_path / 'run'}"]
    with pytest.raises(ConfigError, match="reads and writes") as refused:
        train(load_config(words))
    assert not (tmp_path / "run").exists()
    assert capsys.readouterr().out == ""
    assert f"error: {refused.value}" in mas("train", *words).err


def test_printing_can_be_turned_off_or_goes_to_a_console(
    tmp_path: Path, small_overrides: tuple[str, ...], base_for: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    base_for("relay")
    short = ("train.tasks_per_step=2", "train.eval_tasks=2", "algorithm.sampler.candidates=2")
    words = ["scenario=relay", *short, *small_overrides, f"run_dir={tmp_path / 'run'}"]
    capfd.readouterr()
    train(load_config([*words, "train.steps=1"]), quiet=True)
    evaluate(tmp_path / "run", tasks=1, quiet=True)
    printed, out = io.StringIO(), Console(file=io.StringIO())
    train(load_config([*words, "train.steps=2"]), console=Console(file=printed, width=300))
    evaluate(tmp_path / "run", tasks=1, console=out)
    assert capfd.readouterr().out == ""
    assert f"training relay, team team, at_grpo, up to 2 steps, in {tmp_path / 'run'}" in printed.getvalue()
    assert "is finished" in printed.getvalue()
    assert "evaluating" in out.file.getvalue()


def test_python_m_mas_prints_the_version() -> None:
    done = subprocess.run([sys.executable, "-m", "mas", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout == f"mas {mas.__version__}\n"


def test_train_without_a_scenario_starts_nothing_and_lists_them(
    mas: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    ran = mas("train", "train.steps=1")
    assert (ran.code, "say what is trained" in ran.err, "plan_path" in ran.err) == (2, True, True)
    assert not list(tmp_path.iterdir())


def test_help_lists_every_command_in_a_group_and_in_the_order_of_use(mas: Callable[..., Any]) -> None:
    out = mas("--help").out
    places = [out.index(f" {text} ") for text in ("Look", "scenarios", "graph", "Train and measure", "train", "eval")]
    assert places == sorted(places)
    assert "─ Commands ─" not in out, "every command has a group"
