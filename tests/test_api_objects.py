"""Teams, tasks and runs as values: `mas.Team`, `mas.questions`, `mas.train(team, task)` and what a run can do."""

import asyncio
import importlib
import json
import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import yaml

import mas
from mas.api.team import team_file
from mas.core.errors import ConfigError, GraphError, RunDirectoryError, TrustError
from mas.core.role import RoleSpec
from mas.core.team import TeamSpec
from mas.graph.load import load_team
from mas.protocols import fan_out, plan_execute, plan_execute_verify, solo, vote
from mas.runs.resolve import resolve
from mas.scenarios.questions.reward_function import load_function
from mas.training.setup import trainable_adapters

ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(mas.__file__).parents[1])}
SHORT = {"train.tasks_per_step": 2, "train.eval_tasks": 2, "algorithm.sampler.candidates": 2, "train.eval_every": 1}


def score(said: str, row: dict[str, Any]) -> float:
    """A reward function that stands in a file."""
    return float(row["answer"] in said)


@pytest.fixture
def small(small_overrides: tuple[str, ...], base_for: Any) -> dict[str, Any]:
    """Options of a training of seconds."""
    base_for("relay")
    pairs = (word.partition("=") for word in small_overrides)
    return SHORT | {key: json.loads(value) for key, _, value in pairs}


@pytest.fixture
def run(tmp_path: Path, small: dict[str, Any]) -> mas.Run:
    return mas.train("team", "relay", steps=2, seed=3, run_dir=tmp_path / "run", options=small, quiet=True)


def test_a_team_and_a_task_are_trained_and_the_run_says_what_happened(run: mas.Run) -> None:
    config = run.config()
    assert (config.scenario.name, config.train.steps, config.train.seed) == ("relay", 2, 3)
    assert config.algorithm.sampler.candidates == 2
    assert run.outcome is not None
    assert (run.steps, run.outcome.reason) == (2, "2 steps done")
    assert [line["step"] for line in run.metrics() if "tokens" in line] == [1, 2]
    assert repr(run) == f"Run({str(run.path)!r}, 2 steps)"
    assert len(repr(run.outcome)) < 400, "no weights and no metrics"
    for copied in (pickle.loads(pickle.dumps(run)), deepcopy(run), mas.Run(str(run.path))):
        assert copied == run
        assert copied.steps == 2


def test_a_task_that_is_not_there_is_refused_before_the_base_is_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = mas.load_config(["scenario=questions"])
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(config.model_dump(mode="json")))
    size = resolve(config).scenario.size("eval")
    monkeypatch.setattr("mas.training.base.open_base", lambda *_, **__: pytest.fail("the base is loaded"))
    with pytest.raises(ConfigError, match=f"there is no number {size}"):
        mas.Run(tmp_path).play(task=size)
    with pytest.raises(ConfigError, match="holds out"):
        mas.Run(tmp_path).evaluate(tasks=size + 1)
    with pytest.raises(ConfigError, match="has no effect on `mas run`"):
        mas.Run(tmp_path).play(overrides=["train.steps=3"])


def test_a_run_goes_on_with_more_steps(run: mas.Run) -> None:
    again = mas.train(run.config(["train.steps=3"]), quiet=True)
    assert (again, again.steps, run.steps) == (run, 3, 3)


def test_a_run_plays_evaluates_answers_draws_reports_and_exports(run: mas.Run, tmp_path: Path) -> None:
    played = run.play(task=1)
    assert [line.agent for line in played.episode.lines][:2] == ["planner", "executor"]
    assert all(f"{line.agent}  " in str(played) for line in played.episode.lines)
    assert played._repr_html_().startswith("<pre>")
    assert played.episode == run.play(task=1).episode, "greedy play is the same each time"
    results = run.evaluate(tasks=2)
    assert set(results) == {"untrained", "trained"}
    assert "relay: 2 held-out tasks, greedy" in str(results)
    assert results._repr_html_().startswith("<pre>")
    assert all(name in results._repr_html_() for name in ("untrained", f"{results['trained'].success:.3f}"))
    fields = {name: value for view in _shown(run).values() for name, value in view.items()}
    assert isinstance(run.ask(json.dumps(fields)), str)
    svg = run.curves()._repr_html_()
    assert svg.startswith("<svg ")
    assert run._repr_html_().endswith(f", 2 steps)</pre>{svg}")
    saved = run.curves().save(tmp_path / "curves.svg").read_text()
    assert saved.startswith("<?xml")
    assert saved.endswith(svg)
    assert "<html" in run.report().read_text()
    trained = set(trainable_adapters(mas.Team.load(run.path / "team.yaml").spec, "per_role").values())
    exported = run.export(tmp_path / "out")
    assert exported.keys() == trained
    assert all((path / "adapter_config.json").is_file() for path in exported.values())
    with pytest.raises(ConfigError, match="is there already and not empty"):
        run.export(tmp_path / "out")


def test_the_whole_interface_in_ten_lines(tmp_path: Path, small_overrides: tuple[str, ...]) -> None:
    options = SHORT | {key: json.loads(value) for key, _, value in (word.partition("=") for word in small_overrides)}
    rows = [{"question": f"{n}+1?", "answer": str(n + 1)} for n in range(30)]
    (tmp_path / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    role = RoleSpec(type="executor", view="solo", template="S{question}>", max_tokens=3)
    mas.Team(solo(role)).save(tmp_path / "team.yaml")

    team = mas.Team.load(tmp_path / "team.yaml")
    task = mas.questions(tmp_path / "train.jsonl", reward=score)
    run = mas.train(team, task, algorithm="at_grpo", steps=1, run_dir=tmp_path / "run", options=options, quiet=True)
    assert run.evaluate(tasks=2)["trained"].success <= 1
    assert run.play(task=1).episode.lines
    assert isinstance(run.ask({"question": "1+1?"}), str)
    assert run.curves().svg
    assert set(run.export(tmp_path / "out")) == {"solo"}
    player = mas.train("team", "two_player", steps=1, run_dir=tmp_path / "kuhn", options=options, quiet=True)
    cup = mas.League(game="kuhn", path=tmp_path / "league.db").play([player, "random", "solver"], games=2)
    assert all(name in str(cup) for name in ("kuhn", "random", "solver", "two_player:kuhn_poker, 6 games"))


def _shown(run: mas.Run) -> dict[str, dict[str, str]]:
    scenario = resolve(run.config()).scenario
    environment = scenario.environment()
    environment.reset(scenario.task("eval", 0))
    return {view: dict(environment.observe(view).fields) for view in environment.spec.views}


def test_it_works_in_a_notebooks_cell(run: mas.Run) -> None:
    async def cell() -> tuple[bool, int]:
        return run.play().success, len(run.evaluate(tasks=1))

    assert asyncio.run(cell())[1] == 2


def test_no_run_is_said_at_once(tmp_path: Path) -> None:
    with pytest.raises(RunDirectoryError, match="holds no run"):
        mas.Run(tmp_path)


def test_a_team_is_loaded_saved_drawn_and_checked(tmp_path: Path) -> None:
    team = mas.Team(plan_execute())
    assert mas.Team.load(team.save(tmp_path / "team.yaml")) == team
    assert team._repr_html_().startswith("<svg ")
    assert repr(team) == "Team('plan_execute': planner, executor)"
    (tmp_path / "bad.yaml").write_text("name: bad\nroles: {}\nedges: []\noutput: nobody\n")
    with pytest.raises(GraphError, match="nobody"):
        mas.Team.load(tmp_path / "bad.yaml")


@pytest.mark.parametrize("made", [lambda team: team, lambda team: team.spec], ids=["team", "spec"])
def test_a_team_without_a_file_is_trained_and_kept_by_the_run(
    made: Callable[[mas.Team], Any], tmp_path: Path, small: dict[str, Any], run: mas.Run
) -> None:
    team = mas.Team.load(run.path / "team.yaml")
    renamed = mas.Team(team.spec.model_copy(update={"name": "mine"}))
    other = mas.train(made(renamed), "relay", steps=1, run_dir=tmp_path / "other", options=small, quiet=True)
    assert mas.Team.load(other.path / "team.yaml") == renamed


def test_questions_name_a_file_and_what_judges_answers(tmp_path: Path) -> None:
    assert mas.questions("a.jsonl", scorer="number").options == {"path": "a.jsonl", "scorer": "number"}
    assert mas.questions("a.jsonl", reward="r.py:score").options["reward"] == "r.py:score"
    assert mas.questions("a.jsonl", reward=score).options["reward"] == f"{__file__}:score"
    with pytest.raises(ConfigError, match="is not a function at the top of a file"):
        mas.questions("a.jsonl", reward=lambda said, row: 1.0)


SCRIPT = """
import json
from pathlib import Path
import mas
from mas.runs.resolve import resolve

print("started", flush=True)
def score(said, row):
    return 1.0
Path("rows.jsonl").write_text("".join(json.dumps({"question": f"{n}?"}) + chr(10) for n in range(12)))
task = mas.questions("rows.jsonl", reward=score)
config = mas.load_config([
    "scenario=questions", "scenario.options.path=rows.jsonl", f"scenario.options.reward={task.options['reward']!r}",
    "algorithm.team=solver_verifier",
])
resolve(config)
"""


def test_a_script_trains_with_its_own_reward_function_and_is_not_run_again(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    words = [sys.executable, "script.py"]
    ran = subprocess.run(words, cwd=tmp_path, env=ENVIRONMENT, capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "started\n", "")


def test_a_script_that_another_process_imports_for_its_function_is_refused_before_it_trains(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT.replace("rows.jsonl", str(tmp_path / "rows.jsonl")))
    with pytest.raises(ConfigError, match=r"put what it does under `if __name__ == '__main__':`"):
        load_function(f"{tmp_path}/script.py:score")


def test_a_reward_function_is_named_by_the_module_that_holds_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "wrapping_x.py").write_text(
        "import functools\ndef plain(f):\n    return functools.wraps(f)(lambda said, row: f(said, row))\n"
    )
    (tmp_path / "wrapped_x.py").write_text(
        "from wrapping_x import plain\n@plain\ndef score(said, row): return 1.0\n"
        "former = score\ndef score2(said, row): return 1.0\nother = score2\ndef score2(said, row): return 0.0\n"
    )
    wrapped = importlib.import_module("wrapped_x")
    assert mas.questions("a", reward=wrapped.score).options["reward"] == f"{tmp_path}/wrapped_x.py:score"
    with pytest.raises(ConfigError, match="'score2' is not a function at the top of a file"):
        mas.questions("a", reward=wrapped.other)  # the name is another function's now


def test_questions_are_a_task(tmp_path: Path) -> None:
    rows = [{"question": f"{n} + 1?", "answer": n + 1} for n in range(12)]
    (tmp_path / "my rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    task = mas.questions(tmp_path / "my rows.jsonl", scorer="number")
    with pytest.raises(ConfigError, match=r"team 'solver_verifier' of 'questions' asks its .* in words"):
        mas.train("solver_verifier", task, run_dir=tmp_path / "run", options={"train.eval_tasks": 1}, quiet=True)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("given", "named", "text"),
    [
        (("team",), {}, r"say what is trained: mas.train\(team, task\)"),
        (("team", "relya"), {}, "relay"),
        (("team", "relay"), {"algorithm": "at_grp"}, "at_grpo"),
        (("nobody", "relay"), {}, "has no team 'nobody'"),
        (("team", "relay"), {"options": {"train.stepps": 3}}, "no key 'train.stepps'"),
        (("team", "relay"), {"options": ["train.steps=3"]}, r"options=\['train.steps=3'\]: write a mapping"),
        (("team", "relay steps=3"), {}, "scenario=relay steps=3: no such scenario"),
        (("team", 3.5), {}, "is neither a scenario's name nor mas.questions"),
        (("team", object), {}, "object has no reset, observe, step"),
        ((3, "relay"), {}, "team=3 is neither the name of a team, a file, a mas.Team nor a TeamSpec"),
        ((mas.load_config(["scenario=relay"]),), {"steps": 3}, "steps: a Config says that already"),
    ],
)
def test_wrong_words_are_one_clear_error(given: Any, named: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        mas.train(*given, **named)


def test_a_run_refuses_what_it_cannot_do(run: mas.Run) -> None:
    wrong: dict[str, Callable[[], object]] = {
        "held-out tasks are counted from 0": lambda: run.play(-1),
        "0 tasks: at least one is played": lambda: run.evaluate(0),
        "'learner.lr=1' has no effect on `mas run`": lambda: run.play(overrides=["learner.lr=1"]),
        "'learner.lr=2' has no effect on `mas run`": lambda: run.ask("?", overrides=["learner.lr=2"]),
        "write a list of texts, \\['train.seed=1'\\]": lambda: run.evaluate(overrides="train.seed=1"),
        "write a list of texts, \\['train.seed=2'\\]": lambda: run.config("train.seed=2"),
        "write a list of texts, \\['train.seed=3'\\]": lambda: mas.load_config("train.seed=3"),
        "a run goes on with": lambda: mas.train(run),
        "Team.load\\(path\\) reads a file": lambda: mas.Team("team.yaml"),
    }
    for text, act in wrong.items():
        with pytest.raises(ConfigError, match=text):
            act()


def test_a_run_answers_to_fields_as_a_mapping(run: mas.Run) -> None:
    fields = {name: value for view in _shown(run).values() for name, value in view.items()}
    assert run.ask(fields) == run.ask(json.dumps(fields))


@pytest.mark.parametrize("metrics", ["", '{"step": 1\n{"a"'], ids=["nothing measured", "damaged"])
def test_what_a_notebook_shows_of_a_run_is_never_a_traceback(metrics: str, run: mas.Run) -> None:
    (run.path / "metrics.jsonl").write_text(metrics)
    shown = run._repr_html_()
    assert shown.startswith(f"<pre>Run(&#x27;{run.path}&#x27;")
    assert "metrics" in shown
    assert repr(run).startswith("Run(")


def test_a_team_of_any_name_is_trained_from_the_file_that_was_just_written(
    mas_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    team = plan_execute(name="../a team/of mine")
    path = team_file(team)
    assert path.parent == mas_cache / "teams"
    path.write_text("name: another\n")
    assert load_team(team_file(team)) == team
    monkeypatch.setenv("MAS_CACHE", str(tmp_path / "file" / "cache"))
    (tmp_path / "file").write_text("")
    with pytest.raises(RunDirectoryError, match="cannot be written"):
        team_file(team)


SPY = """from pathlib import Path
from mas.roles.kinds import Executor

Path(__file__).with_suffix(".ran").write_text("")


class Spy(Executor):
    pass
"""
THEIRS = "name: theirs\nroles: {solo: {type: 'spy_role:Spy'}}\nedges: [start -> solo, solo -> done]\noutput: solo\n"


def test_no_code_that_a_file_names_runs_before_the_user_allows_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: mas.Run
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "spy_role.py").write_text(SPY)
    (tmp_path / "theirs.yaml").write_text(THEIRS)
    stored = (run.path / "config.yaml").read_text()
    (run.path / "config.yaml").write_text(stored.replace("team: team", "team: team.yaml"))
    (run.path / "team.yaml").write_text(THEIRS)
    acts: list[Callable[[], object]] = [
        lambda: mas.Team.load(tmp_path / "theirs.yaml"),
        *(run.play, run.evaluate, run.report, run.config, lambda: run.ask("?")),
        lambda: mas.train(mas.load_run_config(run.path)),
        lambda: mas.League("two_player:kuhn_poker", tmp_path / "cup.db").play([run, "random"]),
    ]
    for act in acts:
        with pytest.raises(TrustError, match=r"import spy_role:Spy.*\n.*in Python: with mas\.trusting\(\):"):
            act()
    (run.path / "checkpoints" / "link").symlink_to(tmp_path)
    with pytest.raises(TrustError, match="link"):
        run.export(tmp_path / "out")
    assert not (tmp_path / "spy_role.ran").exists()
    with mas.trusting():
        assert mas.Team.load(tmp_path / "theirs.yaml").spec.name == "theirs"
    assert (tmp_path / "spy_role.ran").exists()


def test_ready_made_teams_are_where_they_are_looked_for() -> None:
    code = "import mas, sys; print(mas.protocols.plan_execute_verify(revisions=2).name, 'torch' in sys.modules)"
    ran = subprocess.run([sys.executable, "-c", code], env=ENVIRONMENT, capture_output=True, text=True, check=True)
    assert ran.stdout == "plan_execute_verify False\n"


@pytest.mark.parametrize("make", [solo, plan_execute, plan_execute_verify, vote, lambda: fan_out({"a": RoleSpec()})])
def test_every_team_is_the_same_after_it_was_saved(make: Callable[[], TeamSpec], tmp_path: Path) -> None:
    team = mas.Team(make())
    assert mas.Team.load(team.save(tmp_path / "team.yaml")) == team


def test_a_league_plays_sources_and_keeps_the_games(tmp_path: Path) -> None:
    league = mas.League("two_player:kuhn_poker", tmp_path / "cup.db")
    cup = league.play(["random", "cfr"], games=6, seed=2)
    assert {standing.name for standing in cup.table.standings} == {"random", "cfr"}
    assert "tournament: two_player:kuhn_poker, 6 games" in str(cup)
    assert cup._repr_html_().startswith("<pre>")
    assert str(league.play({"random": "random", "cfr": "cfr"}, games=6, seed=2)) == str(cup), "nothing is left"
    with pytest.raises(ConfigError, match="'run:runs/a@2': in a row, players have different names"):
        league.play(["random", "run:runs/a@2"])
    with pytest.raises(ConfigError, match="'random' is one player: write a list"):
        league.play("random")
    with pytest.raises(ConfigError, match=r"player 3: a player is a mas\.Run or a text"):
        league.play([3, "random"])
    with pytest.raises(ConfigError, match="'random': in a row"):
        league.play(["random", "random"])


def test_a_run_that_plays_another_game_is_refused_by_a_league(run: mas.Run, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"run .*run plays relay, not two_player:kuhn_poker"):
        mas.League("two_player:kuhn_poker", tmp_path / "cup.db").play([run, "random"], games=2)
    assert not (tmp_path / "cup.db").exists()
