"""The command `mas` as a user meets it: what it prints, its exit codes, and one clear line for every mistake."""

import shutil
import subprocess
import sys
from collections.abc import Callable
from importlib import resources
from pathlib import Path
from typing import Any

import pytest
import yaml
from started import COMMAND

from mas.config.load import load_config
from mas.core.errors import Halted, MasError, ModelError
from mas.scenarios import SCENARIOS, build_scenario

Mas = Callable[..., Any]

SHORT = (
    "train.steps=2", "train.tasks_per_step=2", "train.eval_tasks=4", "train.eval_every=1", "train.sample_every=1",
    "train.checkpoint_every=1", "algorithm.sampler.candidates=2",
)  # fmt: skip


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory, small_overrides: tuple[str, ...], base_for: Any) -> Path:
    """A run of relay that `mas train` made in a process of its own."""
    base_for("relay")
    run = tmp_path_factory.mktemp("runs") / "relay"
    words = ["train", "scenario=relay", *SHORT, *small_overrides, f"run_dir={run}"]
    done = subprocess.run([*COMMAND, *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "reward" in done.stdout
    assert "is finished: 2 steps done" in " ".join(done.stdout.split())
    assert done.stderr == ""
    return run


def test_help_names_every_command_and_loads_no_tensor_library() -> None:
    code = (
        "import sys; from mas.cli import app\ntry: app(['--help'])\nexcept SystemExit: print('LOADED', *sys.modules)\n"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    text, _, modules = out.partition("LOADED")
    for command in ("train", "eval", "run", "graph", "base", "report", "config", "bench", "broker"):
        assert f" {command} " in text
    assert not {"torch", "transformers", "peft"} & set(modules.split())


@pytest.mark.parametrize("words", [("config", "scenario=relay"), ("train", "train.stps=3"), ("graph", "relay")])
def test_checking_configurations_and_drawing_teams_loads_no_tensor_library(
    words: tuple[str, ...], tmp_path: Path
) -> None:
    code = "import sys; from mas.cli import main\ntry: main()\nexcept SystemExit: pass\nprint('LOADED', *sys.modules)\n"
    done = subprocess.run(
        [sys.executable, "-c", code, *words], capture_output=True, text=True, cwd=tmp_path, check=True
    )
    assert not {"torch", "transformers", "peft"} & set(done.stdout.partition("LOADED")[2].split())


MISTAKES = [
    (
        ("run",),
        "say what is played: mas run RUN_DIR, or mas run scenario=NAME, where NAME is one such as relay, two_hop",
    ),
    (("run", "scenario.options.size=5"), "say what is played"),
    (("run", "--sampled", "train.seed=1"), "say what is played"),
    (("agent", "planner"), "mas agent AGENT scenario=NAME"),
    (
        ("train", "scenario=open_spiel:kuhn_poker"),
        "mas train scenario=bridge scenario.options.id=open_spiel:kuhn_poker",
    ),
    (
        ("train", "scenario.name=open_spiel:kuhn_poker"),
        "an environment of another library, and not a scenario by itself",
    ),
    (("train", "scenario=pln_path"), "Did you mean 'plan_path'?"),
    (("train", "train.stps=3"), "no key 'train.stps' (value 3). Did you mean 'steps'?"),
    (("train", "train.steps=many"), "train.steps='many' is not possible"),
    (("train", "scenario.options.sze=5"), "Did you mean 'size' or 'style'?"),
    (("train", "scenario.name=nowhere"), "no scenario 'nowhere'"),
    (("train", "algorithm.team=sollo"), "Did you mean 'solo'?"),
    (("train", "run_dir=/proc/run", "scenario=relay"), "cannot be written"),
    (("train", "model.path=./no_model", "scenario=relay"), "'./no_model' does not exist"),
    (("run", "model.path=./no_model", "scenario=relay"), "'./no_model' does not exist"),
    (("base", "scenario=rely"), "Did you mean 'relay' or 'safe_reply'?"),
    (("train", "scenario=debate", "scenario.options.style=words"), "name a model that reads words with model.path="),
    (("train", "scenario=debate", "scenario.options.facts=8"), "debate': scenario.options: facts=8"),
    (("eval", "runs/none"), "holds no run"),
    (("report", "runs/none"), "holds no run"),
    (("run", "runs/none"), "holds no run"),
    (("graph", "rely"), "Did you mean 'relay' or 'safe_reply'?"),
    (("graph", "two_hop/twce"), "Did you mean 'twice' or 'team'?"),
    (("graph", "none.yaml"), "cannot be read"),
    (("graph", "relay", "--out", "/proc/drawings"), "cannot be written"),
]


@pytest.mark.parametrize(("words", "text"), MISTAKES, ids=[" ".join(words) for words, _ in MISTAKES])
def test_a_mistake_is_one_line_on_standard_error_and_exit_code_2(
    words: tuple[str, ...], text: str, mas: Mas, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    ran = mas(*words)
    assert ran.code == 2
    assert ran.err.startswith("error: ")
    assert text in ran.err
    assert ran.err.count("\n") == 1


def test_an_unknown_command_or_option_is_a_usage_error(mas: Mas) -> None:
    assert mas("trian").code == 2
    assert mas("graph", "relay", "--ot", "x").code == 2
    assert mas("run", "--task=-1").code == 2


def test_config_prints_the_whole_configuration(mas: Mas) -> None:
    ran = mas("config", "scenario=relay", "train.steps=7")
    printed = yaml.safe_load(ran.out)
    assert (ran.code, printed["train"]["steps"], printed["scenario"]["name"]) == (0, 7, "relay")


def test_the_same_train_command_on_a_finished_run_says_so_and_exits_0(
    finished: Path, mas: Mas, small_overrides: tuple[str, ...]
) -> None:
    ran = mas("train", "scenario=relay", *SHORT, *small_overrides, f"run_dir={finished}")
    assert ran.code == 0
    assert "was finished already: 2 steps done" in ran.out


def test_train_on_a_run_of_another_configuration_names_the_differing_keys(
    finished: Path, mas: Mas, small_overrides: tuple[str, ...]
) -> None:
    ran = mas("train", "scenario=relay", *SHORT, *small_overrides, f"run_dir={finished}", "learner.lr=0.5")
    assert ran.code == 2
    assert "learner.lr: 0.005 there, 0.5 now" in ran.err


def test_a_team_that_was_stopped_exits_130(mas: Mas, monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped(*words: object, **options: object) -> None:
        raise Halted("turn 3 of episode 'e' does not begin")

    monkeypatch.setattr("mas.training.saved.open_run", stopped)
    ran = mas("run", "scenario=relay")
    assert ran.code == 130
    assert ran.err == "stopped: turn 3 of episode 'e' does not begin\n"


def test_an_interrupted_training_says_how_to_go_on_and_exits_130(mas: Mas, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("mas.runs.train.train_in_directory", interrupted)
    ran = mas("train", "scenario=relay", "run_dir=runs/a_b")
    assert ran.code == 130
    assert "mas train scenario=relay run_dir=runs/a_b" in ran.err


@pytest.fixture
def unloaded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever loads the base fails with another error."""
    monkeypatch.setattr("mas.training.base.open_base", lambda *_, **__: pytest.fail("the base is loaded"))


def test_eval_shows_the_trained_team_next_to_the_untrained_one(finished: Path, mas: Mas) -> None:
    ran = mas("eval", str(finished), "--tasks", "3", "--swap", "planner,executor")
    assert ran.code == 0, ran.err
    assert "relay: 3 held-out tasks, greedy" in ran.out
    for row in ("untrained", "trained", "planner and executor swapped"):
        assert row in ran.out


def test_eval_can_sample_and_takes_overrides(finished: Path, mas: Mas) -> None:
    ran = mas("eval", str(finished), "train.eval_tasks=2", "--sampled")
    assert "relay: 2 held-out tasks, sampled" in ran.out


@pytest.mark.parametrize(
    ("swap", "text"),
    [
        ("planner", "are not two roles"),
        ("planner,exectuor", "Did you mean 'executor'?"),
        ("planner,planner", "nothing to"),
    ],
)
def test_an_impossible_swap_is_refused_early(finished: Path, mas: Mas, unloaded: None, swap: str, text: str) -> None:
    ran = mas("eval", str(finished), "--tasks", "1", "--swap", swap)
    assert ran.code == 2
    assert text in ran.err


def test_eval_takes_a_role_from_another_run(finished: Path, mas: Mas) -> None:
    ran = mas("eval", str(finished), "--tasks", "3", "--take", f"planner={finished}")
    assert ran.code == 0, ran.err
    shown = {row.split("│")[1].strip(): row.split("│")[2:] for row in ran.out.splitlines() if row.startswith("│")}
    assert shown["planner of the other run"] == shown["trained"]
    assert "planner untrained" in shown


def table(out: str) -> dict[str, list[str]]:
    """First cell -> the other cells of every row."""
    rows = (row.split("│")[1:-1] for row in out.splitlines() if row.startswith("│"))
    return {cells[0].strip(): [cell.strip() for cell in cells[1:]] for cells in rows}


def test_eval_plays_another_scenario_with_the_runs_own_base(finished: Path, mas: Mas) -> None:
    """two_hop has a planner and an executor, too. No base is made for it: the run's reads what is told there."""
    ran = mas("eval", str(finished), "--on", "two_hop", "--tasks", "3")
    assert ran.code == 0, ran.err
    assert "two_hop: 3 held-out tasks, greedy" in ran.out
    assert list(table(ran.out)) == ["untrained", "trained"]
    assert "tiny base" not in ran.out
    other = mas("eval", str(finished), "--on", "relay", "--tasks", "3")
    assert table(other.out) == table(mas("eval", str(finished), "--tasks", "3").out)


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("--on", "rely"), "Did you mean 'relay' or 'safe_reply'?"),
        (("--on", "two_hop", "scenario.name=relay"), "--on two_hop names the scenario"),
        (("--on", "two_hop", "scenario.options.sze=5"), "scenario.options.sze"),
        (("--on", "debate"), "there is no 'debater', 'judge'. Choose a team of these roles"),
        (("--on", "two_hop", "algorithm.team=twice"), "there is no"),
    ],
)
def test_a_scenario_that_the_run_cannot_play_is_an_error(
    finished: Path, mas: Mas, unloaded: None, words: tuple[str, ...], text: str
) -> None:
    ran = mas("eval", str(finished), "--tasks", "1", *words)
    assert ran.code == 2
    assert text in ran.err


def test_eval_plays_baselines_at_the_teams_calls(finished: Path, mas: Mas) -> None:
    """relay's team makes two calls for a task and its leader one: best of 2."""
    rows = table(mas("eval", str(finished), "--tasks", "4", "--baselines").out)
    assert list(rows) == [
        *("untrained", "trained", "leader alone", "best of 2, verified", "best of 2, voted", "random", "scripted")
    ]
    calls = {name: float(cells[4]) for name, cells in rows.items()}
    assert (calls["trained"], calls["leader alone"]) == (2, 1)
    assert calls["best of 2, verified"] == calls["best of 2, voted"] == 2
    assert calls["random"] == calls["scripted"] == 0
    assert rows["scripted"][0] == "1.000"


def test_eval_plays_the_leader_that_the_team_names_and_says_why_it_cannot(
    finished: Path, mas: Mas, tmp_path: Path
) -> None:
    """The executor is frozen: nobody trained it, so that it has no adapter. The other arms are played all the same."""
    relay = yaml.safe_load(resources.files("mas.scenarios.relay").joinpath("team.yaml").read_text(encoding="utf-8"))
    relay["roles"]["executor"]["trainable"] = False
    file = tmp_path / "frozen.yaml"
    words = ("eval", str(finished), f"algorithm.team={file}", "--tasks", "2", "--baselines")
    file.write_text(yaml.safe_dump(relay))
    ran = mas(*words)
    assert ran.code == 0, ran.err
    assert "leader alone, best of N: not possible, role 'executor', which leads team 'relay', is not trained" in ran.out
    assert list(table(ran.out)) == ["untrained", "trained", "random", "scripted"]
    file.write_text(yaml.safe_dump(relay | {"leader": "planner"}))
    assert "leader alone" in table(mas(*words).out)


@pytest.mark.parametrize(
    ("take", "text"),
    [
        ("planner", "write ROLE=RUN_DIR"),
        ("planer=RUN", "Did you mean 'planner'?"),
        ("planner=runs/nowhere", "nowhere"),
    ],
)
def test_an_impossible_take_is_refused_early(finished: Path, mas: Mas, unloaded: None, take: str, text: str) -> None:
    ran = mas("eval", str(finished), "--tasks", "1", "--take", take.replace("RUN", str(finished)))
    assert ran.code == 2
    assert text in ran.err


def test_a_role_of_a_run_whose_files_lie_elsewhere_is_taken_only_with_trust(
    finished: Path, mas: Mas, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    shutil.copytree(finished, other)
    (adapter,) = other.glob("checkpoints/step-000002/adapters/planner")
    shutil.rmtree(adapter)
    adapter.symlink_to(finished / adapter.relative_to(other))
    words = ("eval", str(finished), "--tasks", "1", "--take", f"planner={other}")
    refused = mas(*words)
    assert refused.code == 2
    assert "You have not allowed this" in refused.err
    assert str(finished) in refused.err
    assert "untrained" not in refused.out
    assert mas(*words, "--trust").code == 0


def test_run_prints_the_world_and_what_every_member_reads_and_says(finished: Path, mas: Mas) -> None:
    for words in ((str(finished),), (str(finished), "--sampled", "--task", "3")):
        ran = mas("run", *words)
        assert ran.code == 0, ran.err
        for text in ("relay eval-", "planner", "executor", "reads", "says", "after turn 0", "solved"):
            assert text in ran.out


def test_run_without_a_run_directory_plays_an_untrained_team(mas: Mas, small_overrides: tuple[str, ...]) -> None:
    ran = mas("run", "scenario=relay", "algorithm=single_grpo", *small_overrides)
    assert ran.code == 0, ran.err
    assert "solo" in ran.out
    assert ran.out.startswith("playing held-out task 0 of relay with an untrained team; loading tiny\n")


def test_what_is_loaded_is_said_before_it_is(finished: Path, mas: Mas, monkeypatch: pytest.MonkeyPatch) -> None:
    def load(*_: object, **__: object) -> None:
        raise ModelError("not loaded")

    for place in ("mas.training.base.open_base", "mas.training.saved.open_base", "mas.endpoint.command.open_base"):
        monkeypatch.setattr(place, load)
    for words, what in (
        (("eval", "--tasks", "2"), f"evaluating {finished} on 2 held-out tasks of relay"),
        (("run", "--task", "3"), f"playing held-out task 3 of relay with the team of {finished}"),
        (("serve", "--port", "0"), f"serving {finished}"),
    ):
        ran = mas(words[0], str(finished), *words[1:])
        assert (ran.code, ran.out) == (2, f"{what}; loading tiny\n")
        assert "not loaded" in ran.err


def test_tasks_that_are_not_there_are_refused_before_anything_is_loaded(mas: Mas, tmp_path: Path) -> None:
    config = load_config(["scenario=questions"])
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(config.model_dump(mode="json")))
    size = build_scenario(config.scenario).size("eval")
    for words in (("eval", str(tmp_path), "--tasks", str(size + 1)), ("run", str(tmp_path), "--task", str(size))):
        ran = mas(*words)
        assert (ran.code, ran.out) == (2, ""), "nothing is said to be loaded"
        assert f"holds out {size}" in ran.err or f"there is no number {size}" in ran.err


def test_limits_that_vllm_cannot_sample_with_are_refused_before_anything_is_loaded(
    mas: Mas, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def loaded(*_: object, **__: object) -> None:
        raise ModelError("it is loaded")

    for module in ("mas.training.saved", "mas.training.base"):
        monkeypatch.setattr(f"{module}.open_base", loaded)
    team = yaml.safe_load(resources.files("mas.scenarios.relay").joinpath("team.yaml").read_text(encoding="utf-8"))
    team["roles"]["executor"]["top_p"] = 0.8
    (tmp_path / "team.yaml").write_text(yaml.safe_dump(team))
    words = ("scenario=relay", f"algorithm.team={tmp_path / 'team.yaml'}", "engine=vllm")
    stored = load_config([*words]).model_dump(mode="json")
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(stored))
    (tmp_path / "checkpoints").mkdir()
    for command in (("run", *words), ("eval", str(tmp_path))):
        ran = mas(*command, "--sampled")
        assert (ran.code, ran.out) == (2, ""), "nothing is said to be loaded"
        assert "role 'executor': engine=vllm says which tokens were possible only with a top_k from 1 to 100" in ran.err
        assert "top_k from 1" not in mas(*command).err, "greedy answers need no limits"


def test_what_is_loaded_is_named_without_control_characters(mas: Mas) -> None:
    ran = mas("run", "scenario=two_hop", "model.path='./no\x1bmodel'")
    assert ran.code == 2
    assert ran.out == "playing held-out task 0 of two_hop with an untrained team; loading ./no\\x1bmodel\n"


def test_report_writes_one_page_with_curves_conversations_graph_and_command(finished: Path, mas: Mas) -> None:
    ran = mas("report", str(finished))
    assert ran.code == 0, ran.err
    page = (finished / "report.html").read_text()
    for text in (
        "Reward of each role",
        "Success on held-out tasks",
        "before training (step 0)",
        "mas train scenario=relay",
    ):
        assert text in page
    assert "data:image/svg+xml" in page
    assert "flowchart LR" in page


def test_a_corrupt_checkpoint_stops_eval_with_the_file_and_what_to_do(finished: Path, mas: Mas, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    subprocess.run(["cp", "-r", str(finished), str(copy)], check=True)
    state = copy / "checkpoints" / "step-000002" / "state.json"
    state.write_bytes(state.read_bytes().replace(b"2", b"3", 1))
    ran = mas("eval", str(copy))
    assert ran.code == 2
    assert "state.json is not what was written; `mas train` with the run's options and --from" in ran.err


def test_graph_prints_mermaid_and_writes_a_drawing(mas: Mas, tmp_path: Path) -> None:
    ran = mas("graph", "two_hop/twice", "--out", str(tmp_path / "drawings"))
    assert ran.code == 0, ran.err
    assert ran.out.startswith("flowchart LR")
    assert "<svg" in (tmp_path / "drawings" / "two_hop_twice.svg").read_text()


TEAM = """
name: checked
roles:
  executor: {type: executor, template: "E{state}>"}
  verifier: {type: verifier, template: "V{from.executor}>"}
edges: [start -> executor, executor -> verifier, %s]
output: executor
"""


@pytest.mark.parametrize(
    ("edges", "text"),
    [
        ("verifier -> done when acept, verifier -> executor when reject loop 2", "accept"),
        ("verifier -> done when accept, verifier -> executor when reject", "loop"),
    ],
    ids=["typo in a route", "unbounded loop"],
)
def test_a_team_that_is_not_well_formed_is_explained(mas: Mas, tmp_path: Path, edges: str, text: str) -> None:
    path = tmp_path / "team.yaml"
    path.write_text(TEAM % edges)
    ran = mas("graph", str(path), "--out", str(tmp_path))
    assert ran.code == 2
    assert text in ran.err
    assert "Traceback" not in ran.err
    assert not list(tmp_path.glob("*.svg"))


def test_base_makes_the_base_of_the_chosen_scenario_once(mas: Mas, small_overrides: tuple[str, ...]) -> None:
    first = mas("base", "scenario=two_hop", *small_overrides)
    again = mas("base", "scenario=two_hop", *small_overrides)
    assert first.code == again.code == 0
    name, path, _ = first.out.strip().split("\t")
    assert name == "two_hop"
    assert (Path(path) / "config.json").is_file()
    assert again.out.split("\t")[1] == path


@pytest.mark.nightly
def test_base_without_a_scenario_makes_all_that_have_demonstrations(mas: Mas, small_overrides: tuple[str, ...]) -> None:
    ran = mas("base", *small_overrides)
    assert [line.split("\t")[0] for line in ran.out.splitlines()] == [
        name for name, entry in SCENARIOS.items() if entry.is_demonstrated
    ]


def test_only_errors_made_on_purpose_are_turned_into_a_line(mas: Mas, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("mas.runs.overrides.load_config", broken)
    with pytest.raises(ZeroDivisionError):
        mas("config")
    assert not issubclass(ZeroDivisionError, MasError)


WALKERS = """
name: walkers
roles:
  walker: {type: executor, view: executor, template: "E{%s}>", choices: [U, D, L, R], max_tokens: 1}
edges: [start -> walker, walker -> done]
output: walker
"""


def test_a_team_file_with_a_typo_leaves_nothing_behind_and_a_runs_own_copy_is_the_same_team(
    mas: Mas, tmp_path: Path, small_overrides: tuple[str, ...]
) -> None:
    team, run = tmp_path / "mine.yaml", tmp_path / "run"
    short = ("train.steps=1", "train.tasks_per_step=1", "train.eval_tasks=1", "scenario.options.max_turns=2")
    command = ("train", "scenario=plan_path", f"run_dir={run}", *short, *small_overrides)
    team.write_text(WALKERS % "cel")
    ran = mas(*command, f"algorithm.team={team}")
    assert ran.code == 2
    assert "Did you mean 'cell'" in ran.err
    assert not run.exists()
    team.write_text(WALKERS % "cell")
    assert mas(*command, f"algorithm.team={team}").code == 0
    again = mas(*command, f"algorithm.team={run / 'team.yaml'}")
    assert (again.code, again.err) == (0, "")
    team.write_text(WALKERS % "last")
    other = mas(*command, f"algorithm.team={team}")
    assert other.code == 2
    assert "which is not the team now" in other.err


def test_a_directory_of_runs_names_the_runs_in_it(tmp_path: Path, mas: Mas) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.yaml").write_text("{}")
    ended = mas("eval", str(tmp_path))
    assert ended.code == 2
    assert f"holds no run (no config.yaml). There are runs in it: {tmp_path / 'one'}, {tmp_path / 'two'}" in ended.err


def test_scenarios_are_listed_without_the_packages_of_some(monkeypatch: pytest.MonkeyPatch, mas: Mas) -> None:
    monkeypatch.setitem(sys.modules, "pyspiel", None)
    listed = mas("scenarios")
    assert listed.code == 0
    assert "plan_path" in listed.out
    assert "two_player: this needs the extra 'open-spiel'" in listed.out
    assert mas("scenarios", "two_player").code == 2
