"""`questions` with a user's reward function, and its teams for models that chat."""

import inspect
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import Ran
from pages import blocks

from mas.bus.memory import MemoryBus
from mas.config.stored_run import load_run_config
from mas.core.errors import ConfigError, RewardError, TrustError
from mas.core.messages import Payload
from mas.graph.load import find_team, load_team
from mas.graph.plan import compile_team
from mas.observe.metrics import read_metrics
from mas.roles import build_roles
from mas.runtime.play import DecisionPoint
from mas.runtime.team import TeamRuntime
from mas.scenarios.questions import QuestionEnvironment, QuestionOptions, build
from mas.scenarios.questions.records import is_right, number_regex
from mas.testing.scripted import ScriptedEngine

ROWS = [{"question": f"What is {number} + {number}?", "answer": 2 * number, "longest": 3} for number in range(40)]
SCORE = """
def score(said, row):
    return 1.5 if said == str(row["answer"]) else 0.25 * (len(said) <= row["longest"])
"""


class Restricted(ScriptedEngine):
    """Takes roles with a constraint; the script keeps to it."""

    restricts = True


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current directory, with `sums.jsonl` and `mine.py`."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sums.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    (tmp_path / "mine.py").write_text(SCORE)
    return tmp_path


def world(**options: Any) -> QuestionEnvironment:
    scenario = build(QuestionOptions(path="sums.jsonl", **options))
    environment = scenario.environment()
    environment.reset(scenario.task("train", 0))
    assert isinstance(environment, QuestionEnvironment)
    return environment


@pytest.mark.parametrize(("said", "paid"), [("right", 1.5), ("99", 0.25), ("9999", 0.0), (" ", 0.0)])
def test_the_function_reads_answer_and_row_and_pays_the_team(folder: Path, said: str, paid: float) -> None:
    environment = world(reward="mine.py:score")
    said = environment.state.question.answer if said == "right" else said
    step = environment.step({"team": said})
    assert step.rewards == {"team": {"right": paid}}
    assert environment.success() is (paid == 1.5)


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ("return float('nan')", r"mine\.py:score paid right=nan: a reward must be a finite number"),
        ("return 'good'", r"mine\.py:score returned 'good' of type str: return a number"),
        ("return None", r"returned None of type NoneType"),
        ("return 10 ** 400", r"returned a value of type int that is no finite number: int too large"),
        ("raise SystemExit(3)", r"raised SystemExit: 3"),
        ("return 1 / 0", r"raised ZeroDivisionError: division by zero for the answer '5' to 'What is .*'"),
    ],
)
def test_what_is_no_reward_is_one_sentence(folder: Path, body: str, text: str) -> None:
    (folder / "mine.py").write_text(f"def score(said, row):\n    {body}\n")
    with pytest.raises(RewardError, match=text):
        world(reward="mine.py:score").step({"team": "5"})


@pytest.mark.parametrize(
    ("reward", "content", "text"),
    [
        ("mine.py", SCORE, "write path/file.py:function or package.module:function"),
        ("other.py:score", SCORE, r"there is no file other\.py; a relative path starts at"),
        ("mine.py:scor", SCORE, r"mine\.py has no function 'scor'\. Did you mean 'score'"),
        (
            "mine.py:score",
            "def score(said): return 1",
            r"cannot be called .*def score\(said, row\)",
        ),
        ("mine.py:score", "import sys\nsys.exit(3)", r"mine\.py cannot be imported: SystemExit: 3"),
        ("mine.py:score", "import nowhere", r"mine\.py cannot be imported: ModuleNotFoundError"),
        ("no.such:score", SCORE, r"the module 'no\.such' cannot be imported: .*path/file\.py:function"),
    ],
)
def test_a_function_that_cannot_be_used_is_refused_at_once(folder: Path, reward: str, content: str, text: str) -> None:
    (folder / "mine.py").write_text(content)
    with pytest.raises(ConfigError, match=text):
        world(reward=reward)


def test_rows_need_no_answer_with_a_function_and_scorers_have_no_effect(folder: Path) -> None:
    (folder / "sums.jsonl").write_text("".join(json.dumps({"question": f"Say {n}."}) + "\n" for n in range(40)))
    with pytest.raises(ConfigError, match="has no field 'answer'"):
        world()
    scenario = build(QuestionOptions(path="sums.jsonl", reward="builtins:max"))
    assert scenario.teams["solver_verifier"].roles["solver"].max_tokens == 64
    with pytest.raises(ConfigError, match="no question has an answer from which the tiny base could be taught"):
        next(scenario.demonstrations(0, expert=True))
    with pytest.raises(ValueError, match=r"scorer=number has no effect with reward=mine\.py:score"):
        QuestionOptions(path="sums.jsonl", scorer="number", reward="mine.py:score")


def test_another_function_makes_other_tasks(folder: Path) -> None:
    def fingerprint() -> str:
        return build(QuestionOptions(path="sums.jsonl", reward="mine.py:score")).fingerprint()

    first = fingerprint()
    assert first == fingerprint()
    (folder / "mine.py").write_text(SCORE.replace("1.5", "1.0"))
    assert first != fingerprint()


def test_a_team_trains_on_a_function_which_is_trusted_later_and_by_nobody_else(
    folder: Path, mas: Callable[..., Ran], small_overrides: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    some = "def some(said, row):\n    return 'no number' if row['answer'] % 4 else 0.5\n"
    (folder / "mine.py").write_text(f"{SCORE}\n{some}\ndef bad(said, row):\n    return 'no number'\n")
    words = ["scenario=questions", "scenario.options.path=sums.jsonl", "train.steps=1", "train.tasks_per_step=4"]
    words += ["train.eval_first=false", "train.eval_tasks=2", "algorithm.sampler.candidates=2", *small_overrides]
    good = mas("train", *words, "scenario.options.reward=mine.py:score", "run_dir=good")
    assert good.code == 0, good.err
    (line,) = [one for one in read_metrics(folder / "good" / "metrics.jsonl") if "episodes" in one]
    assert line["episodes"]["failed"] == 0
    bad = mas("train", *words, "scenario.options.reward=mine.py:bad", "run_dir=bad")
    cause = "returned 'no number' of type str: return a number"
    assert bad.code == 1
    assert "none of the 4 tasks of step 1 could be played" in bad.err
    assert cause in bad.err
    partly = mas("train", *words, "scenario.options.reward=mine.py:some", "run_dir=partly")
    assert partly.code == 0, partly.err
    (line,) = [one for one in read_metrics(folder / "partly" / "metrics.jsonl") if "episodes" in one]
    assert line["episodes"]["failed"] > 0
    assert cause in (folder / "partly" / "samples.jsonl").read_text()
    assert load_run_config("good").scenario.options["reward"] == "mine.py:score"
    monkeypatch.setenv("XDG_CONFIG_HOME", str(folder / "somebody"))
    with pytest.raises(
        TrustError, match=rf"import {re.escape(str(folder))}/mine\.py:score   \(scenario\.options\.reward"
    ):
        load_run_config("good")


def test_the_tiny_base_is_refused_for_teams_that_ask_in_words(folder: Path, mas: Callable[..., Ran]) -> None:
    refused = mas("train", "scenario=questions", "algorithm.team=planner_solver", "run_dir=run")
    assert refused.code == 2
    assert "asks its planner in words, which the tiny base was not taught" in refused.err
    assert "model=smollm2" in refused.err


@pytest.mark.parametrize(
    ("answers", "fits", "others"),
    [
        (["3", "12"], ["7", "99"], ["123", "-1", "1.5", "x"]),
        (["-3", "so #### 1,250.5"], ["-9999", "7.5"], ["7.55", "12345"]),
    ],
)
def test_numbers_are_held_to_the_form_of_the_answers(answers: list[str], fits: list[str], others: list[str]) -> None:
    regex = number_regex(answers)
    assert all(re.fullmatch(regex, text) for text in fits)
    assert not any(re.fullmatch(regex, text) for text in others)


def test_solvers_that_chat_are_held_to_an_answer_unless_they_may_say_more(folder: Path) -> None:
    brief = build(QuestionOptions(path="sums.jsonl", scorer="number")).teams
    for role in (brief["planner_solver"].roles["solver"], brief["solver_verifier"].roles["reviser"]):
        assert role.constraint is not None
        assert role.constraint.regex == "[0-9]{1,2}"
        assert role.prefill
        assert role.max_tokens == 5  # a space, two digits, the end: 2 + 1 + 2
    free = build(QuestionOptions(path="sums.jsonl", scorer="number", max_tokens=80)).teams["planner_solver"]
    assert (free.roles["solver"].constraint, free.roles["solver"].prefill) == (None, "")
    rows = [{"question": f"q{n}", "answer": "x", "choices": ["x", "y"]} for n in range(40)]
    (folder / "sums.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    for most in (None, 1):
        options = QuestionOptions(path="sums.jsonl", scorer="choice", max_tokens=most)
        choice = build(options).teams["planner_solver"].roles["solver"]
        assert choice.constraint is not None
        assert choice.constraint.one_of == ("A", "B")


def test_a_copied_team_is_held_to_an_answer_by_the_lines_that_it_has(folder: Path) -> None:
    scenario = build(QuestionOptions(path="sums.jsonl", scorer="number"))
    shipped = Path(str(inspect.getsourcefile(build))).with_name("planner_solver.yaml").read_text()
    (folder / "mine.yaml").write_text(shipped)
    assert find_team(scenario, "mine.yaml").roles["solver"].constraint is None
    lines = '    constraint: {regex: "[0-9]{1,2}"}\n    max_tokens: 5\n'
    (folder / "mine.yaml").write_text(f"{shipped}{lines}")
    assert find_team(scenario, "mine.yaml") == scenario.teams["planner_solver"]


@pytest.mark.parametrize("value", ["np.bool_(True)", "np.float32(1)", "True", "1"])
def test_numbers_of_every_kind_are_rewards(folder: Path, value: str) -> None:
    (folder / "mine.py").write_text(f"import numpy as np\ndef score(said, row): return {value}\n")
    assert world(reward="mine.py:score").step({"team": "5"}).rewards == {"team": {"right": 1.0}}


def test_a_file_may_have_dataclasses_and_leaves_nothing_behind_when_it_fails(folder: Path) -> None:
    head = (
        "from __future__ import annotations\nfrom dataclasses import dataclass\n@dataclass\nclass A:\n    x: int = 1\n"
    )
    (folder / "mine.py").write_text(f"{head}def score(said, row): return A().x\n")
    assert world(reward="mine.py:score").step({"team": "5"}).rewards == {"team": {"right": 1.0}}
    before = [name for name in sys.modules if name.startswith("mas_user_")]
    (folder / "worse.py").write_text(f"{head}1 / 0\n")
    with pytest.raises(ConfigError, match="ZeroDivisionError"):
        world(reward="worse.py:score")
    assert [name for name in sys.modules if name.startswith("mas_user_")] == before


def test_equal_questions_with_different_rows_are_refused_with_a_function(folder: Path) -> None:
    rows = [{"question": f"Say {n}.", "answer": None, "longest": 3} for n in range(40)]
    (folder / "sums.jsonl").write_text("".join(json.dumps(row) + "\n" for row in [*rows, rows[4]]))
    world(reward="mine.py:score")
    (folder / "sums.jsonl").write_text("".join(json.dumps(row) + "\n" for row in [*rows, rows[4] | {"longest": 4}]))
    with pytest.raises(ConfigError, match=r"line 41: this question is at sums\.jsonl, line 5, too, with other fields"):
        world(reward="mine.py:score")


@pytest.mark.parametrize(("answer", "kept"), [(None, ""), (["a"], ""), (True, ""), ("", ""), (" x ", "x"), (3, "3")])
def test_an_answer_beside_a_function_is_taken_where_it_is_text_or_a_number(
    folder: Path, answer: object, kept: str
) -> None:
    rows = [{"question": f"Say {n}.", "answer": answer, "longest": 3} for n in range(40)]
    (folder / "sums.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert world(reward="mine.py:score").state.question.answer == kept


def test_a_full_stop_behind_a_space_is_disregarded() -> None:
    assert is_right("Paris .", "Paris", (), "exact")


async def test_a_reward_reads_what_the_members_that_joint_names_have_said(folder: Path) -> None:
    (text,) = [block.text for block in blocks("docs/tasks.md", "python") if "json.loads(said)" in block.text]
    rows = [{"question": f"Say {n}.", "answer": str(n)} for n in range(40)]
    (folder / "sums.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "joint.py").write_text(text)
    (folder / "team.yaml").write_text(
        "name: pair\nroles:\n  planner: {type: planner}\n  judge: {type: executor, view: solver}\n"
        "edges: [start -> planner, planner -> judge, judge -> done]\noutput: judge\njoint: [judge, planner]\n"
    )
    scenario = build(QuestionOptions(path="sums.jsonl", reward="joint.py:score"))
    environment, team, paid = scenario.environment(), load_team(folder / "team.yaml"), list[float]()
    environment.reset(scenario.task("train", 0))
    assert isinstance(environment, QuestionEnvironment)
    answer = str(environment.state.question.answer)
    says = ScriptedEngine(lambda prompt, adapter, seed: f"It is {answer}" if adapter == "planner" else answer)
    async with TeamRuntime(compile_team(team, build_roles(team)), says, MemoryBus(), adapters={}) as runtime:

        async def decide(point: DecisionPoint) -> Payload:
            (candidate,) = await runtime.ask(point, (1,), episode="one")
            return candidate.payload

        await runtime.play(
            "one", environment, decide, lambda turn, flow, step: paid.append(step.rewards["team"]["right"])
        )
    assert paid == [0.8]  # 1 for the judge's answer, less 0.2: the planner has given it away


@pytest.mark.parametrize(
    ("team", "says", "action", "asked"),
    [
        ("solver_verifier", {"The answer is": "4", "Say yes": "yes"}, "4", 2),
        ("solver_verifier", {"answer 4 is wrong": "6", "Say yes": "no", "The answer is": "4"}, "6", 3),
        ("planner_solver", {"that 2 twice": "4", "Which fact": "2 twice"}, "4", 2),
        ("solver", {"The answer is": "4"}, "4", 1),
    ],
)
async def test_who_is_asked_what_and_whose_answer_counts(
    folder: Path, team: str, says: dict[str, str], action: str, asked: int
) -> None:
    scenario = build(QuestionOptions(path="sums.jsonl", scorer="number"))
    environment = scenario.environment()
    environment.reset(scenario.task("train", 0))
    plan = compile_team(scenario.teams[team], build_roles(scenario.teams[team]))
    prompts = list[str]()

    def answer(prompt: str, adapter: str | None, seed: int) -> str:
        prompts.append(prompt)
        return next((text for part, text in says.items() if part in prompt), "?")

    async with TeamRuntime(plan, Restricted(answer), MemoryBus(), adapters={}, chats=True) as runtime:

        async def decide(point: DecisionPoint) -> Payload:
            (candidate,) = await runtime.ask(point, (1,), episode="one")
            return candidate.payload

        await runtime.play("one", environment, decide, lambda turn, flow, step: None)
    assert isinstance(environment, QuestionEnvironment)
    assert environment.state.said == action, prompts
    assert len(prompts) == asked
    assert all(environment.state.question.text in prompt for prompt in prompts)
