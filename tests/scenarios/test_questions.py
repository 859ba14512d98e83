"""`questions`: rows of files as tasks, what is right, and what is wrong with a file."""

import itertools
import json
import time
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from random import Random
from typing import Any

import pytest

from mas.config.options import ScenarioOptions
from mas.core.environment import Environment, Move, Reward, Task
from mas.core.errors import ConfigError, EnvironmentFault
from mas.core.messages import Action, Failure, Payload, Verdict
from mas.core.scenario import Finite, SplitByContent
from mas.observe.metrics import read_metrics
from mas.scenarios import build_scenario
from mas.scenarios.questions import QuestionOptions, QuestionScenario, build, demonstrations
from mas.scenarios.questions.records import QuestionRecord, Scorer, is_answer, is_right
from mas.scenarios.world import give_right_answer
from mas.testing.environment import EnvironmentContract
from mas.testing.reward import RewardContract

SUMS = [{"question": f"What is {number} + {number}?", "answer": 2 * number, "note": "ignored"} for number in range(40)]


def write(path: Path, rows: Iterable[Mapping[str, Any]]) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def made(path: str, **options: Any) -> QuestionScenario:
    return build(QuestionOptions(path=path, **options))


@lru_cache(maxsize=1)
def made_up() -> QuestionScenario:
    return build(QuestionOptions())


class TestMadeUpQuestions(EnvironmentContract):
    privacy: Mapping[str, frozenset[str]] = dict.fromkeys(("solver", "verifier", "solo"), frozenset({"question"}))

    def make_environment(self) -> Environment:
        return made_up().environment()

    def task(self, number: int) -> Task:
        return made_up().task("train", number * 37)


class TestQuestionsWithChoices(EnvironmentContract):
    @pytest.fixture(autouse=True)
    def _file(self, tmp_path: Path) -> None:
        rows = [{"question": f"q{n}", "answer": n % 3, "choices": ["x", "y", f"z{n}"]} for n in range(200)]
        self.scenario = made(write(tmp_path / "mine.jsonl", rows), scorer="choice")

    def make_environment(self) -> Environment:
        return self.scenario.environment()

    def task(self, number: int) -> Task:
        return self.scenario.task("train", number)


class TestQuestionReward(RewardContract):
    def make_reward(self) -> Reward:
        return made_up().reward

    def moves(self) -> Iterable[Move]:
        environment = made_up().environment()
        environment.reset(Task(id="train-0", seed=5))
        failure = Failure(text="?", cause="nonsense")
        outputs: dict[str, list[Payload]] = {
            "solver": [Action(text="5"), failure],
            "verifier": [Verdict(text="y", accept=True), Verdict(text="n", accept=False), failure],
            "solo": [Action(text="1")],
        }
        for role, said in outputs.items():
            for output, proposed in itertools.product(said, ({}, {"solver": Action(text="5")}, {"solver": failure})):
                yield Move(agent=role, role=role, environment=environment, output=output, before=proposed, after={})


@pytest.mark.parametrize(
    ("said", "accept", "paid"), [("9", True, 1), ("9", False, -1), ("2", True, -1), ("2", False, 1)]
)
def test_a_verifier_is_paid_for_being_right(said: str, accept: bool, paid: int) -> None:
    environment = made_up().environment()
    environment.restore(b'{"question": {"text": "2917", "answer": "9"}}')
    verdict, before = Verdict(text="?", accept=accept), {"solver": Action(text=said)}
    move = Move(agent="verifier", role="verifier", environment=environment, output=verdict, before=before, after={})
    assert made_up().reward.own(move) == {"verdict": paid}


@pytest.mark.parametrize(
    ("scorer", "said", "answer", "right"),
    [
        ("exact", " new  York ", "New York", True),
        ("exact", "New York City", "New York", False),
        ("exact", "", "", False),
        ("contains", "It is NEW YORK, I think", "New York", True),
        ("contains", "It is York", "New York", False),
        ("number", "so 3 + 4 = 7", "reasoning #### 7", True),
        ("number", "1,250.0", "1250", True),
        ("number", "-7", "7", False),
        ("number", "seven", "7", False),
        ("number", "1,2", "2", True),
        ("number", "10-3", "3", True),
        ("number", "x = -.5", "-0.5", True),
        ("choice", "b", "y", True),
        ("choice", "(B)", "y", True),
        ("choice", "Y", "y", True),
        ("choice", "C", "y", False),
        ("choice", "D", "y", False),
    ],
)
def test_what_is_right(scorer: Scorer, said: str, answer: str, right: bool) -> None:
    assert is_right(said, answer, ("x", "y", "z") if scorer == "choice" else (), scorer) == right


def test_a_letter_is_that_of_a_choice_though_another_one_has_it_for_its_words(tmp_path: Path) -> None:
    # Solvers are shown `A) B` and `B) A`, and those of letters can say nothing but a letter.
    assert is_right("B", "A", ("B", "A"), "choice")
    assert not is_right("A", "A", ("B", "A"), "choice")
    blood = ["B", "A", "AB", "O"]
    rows = [{"question": f"q{number}", "answer": number % 4, "choices": blood} for number in range(40)]
    scenario = made(write(tmp_path / "blood.jsonl", rows), scorer="choice")
    for index in range(scenario.size("train")):
        environment = scenario.environment()
        environment.reset(scenario.task("train", index))
        environment.step(give_right_answer(environment, Random(0)))
        assert environment.success()
    with pytest.raises(ConfigError, match="'A', the words of one choice and the letter of another, 'B'"):
        made(write(tmp_path / "which.jsonl", [{"question": "q", "answer": "A", "choices": blood}]), scorer="choice")


def test_the_same_question_with_its_choices_in_another_order_is_in_one_split(tmp_path: Path) -> None:
    rows = [
        {"question": f"q{number}", "answer": "x", "choices": list(choices)}
        for number in range(40)
        for choices in itertools.permutations("xyz")
    ]
    scenario = made(write(tmp_path / "orders.jsonl", rows), scorer="choice")
    texts = {split: {one.text for one in scenario.questions[split]} for split in ("train", "eval")}
    assert not texts["train"] & texts["eval"]
    rows = [row | {"split": "train" if number % 2 else "eval"} for number, row in enumerate(rows)]
    with pytest.raises(ConfigError, match="what is evaluated must not be trained on"):
        made(write(tmp_path / "both.jsonl", rows), scorer="choice", split="split")


HOSTILE = [
    "",
    " ",
    "\x00\x1b[2J",
    "9" * 100_000,
    "-",
    "1e999999",
    '{"answer": ',
    "٣",
    "A" * 100_000,
    "\n\n",
    ",,,",
    ".",
]


@pytest.mark.parametrize("scorer", ["exact", "number", "contains", "choice"])
def test_nonsense_is_wrong_and_never_an_exception(scorer: Scorer) -> None:
    random, choices = Random(0), ("x", "y") if scorer == "choice" else ()
    noise = [
        "".join(random.choice("0123456789.,-()ABab \x07é") for _ in range(random.randrange(9))) for _ in range(3000)
    ]
    for said in (*HOSTILE, *noise):
        is_answer(said, choices, scorer)
        is_right(said, "y", choices, scorer)
    for said in HOSTILE:
        assert not is_right(said, "y" if choices else "12345", choices, scorer)


@pytest.mark.parametrize("action", ["", "x" * 100_000, "\x00", "no number here"])
def test_an_answer_without_a_number_is_illegal_where_numbers_are_wanted(tmp_path: Path, action: str) -> None:
    scenario = made(write(tmp_path / "sums.jsonl", SUMS), scorer="number")
    environment = scenario.environment()
    environment.reset(scenario.task("eval", 0))
    step = environment.step({"team": action})
    assert step.illegal == (("team",) if action else ())
    assert step.rewards["team"] == {"right": 0.0}
    assert not environment.success()


def test_random_play_of_many_steps_raises_nothing() -> None:
    scenario, random, began = made_up(), Random(3), time.process_time()
    environment, solved = scenario.environment(), 0
    for number in range(10_000):
        environment.reset(scenario.task("train", number % scenario.size("train")))
        environment.step({"team": random.choice([*"0123456789", "", "12", "é"])})
        solved += environment.success()
    assert 0 < solved < 3000
    assert time.process_time() - began < 3


def test_the_expert_is_always_right(tmp_path: Path) -> None:
    for scenario in (made_up(), made(write(tmp_path / "sums.jsonl", SUMS), scorer="number")):
        environment = scenario.environment()
        for index in range(min(50, scenario.size("eval"))):
            environment.reset(scenario.task("eval", index))
            environment.step(give_right_answer(environment, Random(0)))
            assert environment.success()


def test_the_splits_of_a_file_have_no_question_in_common_and_depend_on_content_alone(tmp_path: Path) -> None:
    forward, backward = write(tmp_path / "a.jsonl", SUMS), write(tmp_path / "b.jsonl", reversed(SUMS))
    first, second = (made(path, eval_share=0.3) for path in (forward, backward))
    contents = [
        {split: {one.content for one in found} for split, found in s.questions.items()} for s in (first, second)
    ]
    assert contents[0] == contents[1]
    assert contents[0]["train"].isdisjoint(contents[0]["eval"])
    assert first.size("train") + first.size("eval") == 40
    # Four standard deviations of a share of 40: 4 sqrt(0.3 x 0.7 / 40) = 0.29.
    assert 0.01 < first.size("eval") / 40 < 0.59
    assert isinstance(first, Finite)
    assert isinstance(first, SplitByContent)
    assert all(first.holds_out(content) for content in contents[0]["eval"])
    assert not any(first.holds_out(content) for content in contents[0]["train"])


def test_a_question_that_differs_in_case_and_spaces_alone_is_in_the_split_of_its_twin(tmp_path: Path) -> None:
    rows = [{"question": f"{text} {n}", "answer": n} for n in range(30) for text in ("Is it", "is  IT")]
    scenario = made(write(tmp_path / "twins.jsonl", rows))
    assert scenario.size("eval") % 2 == 0


def test_a_field_says_the_split(tmp_path: Path) -> None:
    rows = [{"q": f"{n}", "a": "yes", "part": "test" if n < 3 else "train"} for n in range(10)]
    scenario = made(write(tmp_path / "parts.jsonl", rows), question="q", answer="a", split="part")
    assert [one.text for one in scenario.questions["eval"]] == ["0", "1", "2"]
    assert scenario.size("train") == 7


def test_a_task_that_is_not_there_is_refused(tmp_path: Path) -> None:
    scenario = made(write(tmp_path / "sums.jsonl", SUMS))
    with pytest.raises(ConfigError, match=r"there is no number 40"):
        scenario.task("train", 40)
    with pytest.raises(EnvironmentFault, match="there is no 99"):
        scenario.environment().reset(Task(id="x", seed=99))


def test_solvers_have_room_for_the_longest_answer_and_the_letters_of_choices(tmp_path: Path) -> None:
    long = made(write(tmp_path / "long.jsonl", [{"question": f"q{n}", "answer": "four"} for n in range(30)]))
    assert {name: long.teams[name].roles[role].max_tokens for name, role in (("team", "solver"), ("solo", "solo"))} == {
        "team": 5,
        "solo": 5,
    }
    rows = [{"question": f"q{n}", "answer": "B", "choices": ["x", "y", "z"][: 2 + n % 2]} for n in range(30)]
    choice = made(write(tmp_path / "choice.jsonl", rows), scorer="choice")
    assert choice.teams["solo"].roles["solo"].choices == ("A", "B", "C")
    assert choice.teams["team"].roles["verifier"].choices == ("y", "n")
    assert choice.teams["team"].roles["solver"].max_tokens == 1


def test_the_tiny_base_is_taught_from_questions_for_training_alone(tmp_path: Path) -> None:
    scenario = made(write(tmp_path / "sums.jsonl", SUMS))
    shown = {one.shown for one in scenario.questions["train"]}
    for prompt, answer in itertools.islice(scenario.demonstrations(0, expert=True), 200):
        assert prompt.endswith(">")
        assert any(question in prompt for question in shown)
        assert answer in ("y", "n") or answer.endswith("<eos>")
    with pytest.raises(ConfigError, match=r"too long for the tiny base: set model\.path"):
        next(demonstrations(Random(0), 1.0, [QuestionRecord("?" * 161, "x")], 1))


GOOD = '{"question": "1 + 1?", "answer": "2"}'


@pytest.mark.parametrize(
    ("lines", "options", "text"),
    [
        ([GOOD, '{"question": '], {}, r"mine\.jsonl, line 2 is no JSON"),
        ([GOOD, "", "[1]"], {}, r"mine\.jsonl, line 3 is no object with fields, but \[1\]"),
        ([GOOD, '{"qestion": "x", "answer": "2"}'], {}, r"line 2 has no field 'question'\. Did you mean 'qestion'"),
        ([GOOD], {"answer": "anser"}, r"line 1 has no field 'anser'\. Did you mean 'answer'"),
        (['{"question": "", "answer": "2"}'], {}, r"line 1: field 'question' is ''; a question is a text"),
        (['{"question": 5, "answer": "2"}'], {}, r"line 1: field 'question' is 5; a question is a text"),
        (['{"question": "x", "answer": null}'], {}, r"line 1: field 'answer' is None; a number or a text was expected"),
        (['{"question": "x", "answer": ["2"]}'], {}, r"line 1: field 'answer' is \['2'\]; a number or a text"),
        (['{"question": "x", "answer": true}'], {}, r"line 1: field 'answer' is True; a number or a text"),
        (['{"question": "x", "answer": "two"}'], {"scorer": "number"}, r"is 'two'; a number was expected"),
        ([GOOD], {"scorer": "choice"}, r"line 1 has no field 'choices'"),
        (
            ['{"question": "x", "answer": "a", "choices": ["a"]}'],
            {"scorer": "choice"},
            r"field 'choices' is \['a'\]; a list of 2 to 26 texts",
        ),
        (
            ['{"question": "x", "answer": "a", "choices": ["a", "A "]}'],
            {"scorer": "choice"},
            "which has a choice twice",
        ),
        (
            ['{"question": "x", "answer": "E", "choices": ["x", "y"]}'],
            {"scorer": "choice"},
            r"is 'E'; one of the choices \['x', 'y'\], its letter or its number",
        ),
        (
            ['{"question": "x", "answer": 2, "choices": ["x", "y"]}'],
            {"scorer": "choice"},
            r"is 2; a choice, its letter, or a number below 2",
        ),
        (['{"question": "x", "answer": "2", "part": "dev"}'], {"split": "part"}, r"field 'part' is 'dev'\. .*'eval'"),
        (
            ['{"question": "x", "answer": "2", "part": "train"}', '{"question": "X ", "answer": "2", "part": "test"}'],
            {"split": "part"},
            r"line 2: this question is in split 'eval', and in 'train' at .*line 1",
        ),
        (['{"question": "x", "answer": "2", "part": "train"}'], {"split": "part"}, "no question is in split 'eval'"),
        ([GOOD, GOOD], {}, r"no question is in split '(eval|train)'; change eval_share, or add more"),
        (["", ""], {}, r"mine\.jsonl has no rows"),
    ],
)
def test_what_is_wrong_with_a_file_is_said_with_its_line(
    tmp_path: Path, lines: list[str], options: dict[str, Any], text: str
) -> None:
    path = tmp_path / "mine.jsonl"
    path.write_text("\n".join(lines))
    with pytest.raises(ConfigError, match=text):
        made(str(path), **options)


def test_bytes_that_are_no_text_are_refused_with_their_line(tmp_path: Path) -> None:
    path = tmp_path / "mine.jsonl"
    path.write_bytes(GOOD.encode() + b'\n{"question": "\xff", "answer": "x"}')
    with pytest.raises(ConfigError, match="line 2 is no JSON"):
        made(str(path))


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"path": "nowhere.jsonl"}, "nowhere.jsonl: there is no such file"),
        ({"path": "table.csv"}, r"table\.csv: rows are read from files \.jsonl"),
        ({"path": "hf://name"}, "write hf://OWNER/NAME"),
        ({"scorer": "number"}, "scorer: has no effect without a path"),
        ({"path": "x.jsonl", "choices": "options"}, "has no effect with scorer=exact"),
        ({"path": "x.jsonl", "scorer": "choice", "max_tokens": 4}, "an answer is one letter"),
        (
            {"path": "x.jsonl", "scorer": "regex"},
            "scorer='regex' is not possible. Possible: 'choice', 'contains', 'exact', 'number'",
        ),
    ],
)
def test_options_that_do_not_fit_are_refused(options: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        build_scenario(ScenarioOptions(name="questions", options=options))


def test_parquet_has_the_same_questions(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    from pyarrow import Table
    from pyarrow.parquet import write_table

    path = tmp_path / "sums.parquet"
    write_table(Table.from_pylist(SUMS), path)
    assert made(str(path)).questions == made(write(tmp_path / "sums.jsonl", SUMS)).questions
    path.write_bytes(b"no parquet")
    with pytest.raises(ConfigError, match=r"sums\.parquet cannot be read as Parquet"):
        made(str(path))


def test_a_data_set_on_the_disk_has_its_own_splits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    datasets = pytest.importorskip("datasets")
    train, test = datasets.Dataset.from_list(SUMS[:30]), datasets.Dataset.from_list(SUMS[30:])
    both = datasets.DatasetDict({"train": train, "test": test})
    both.save_to_disk(str(tmp_path / "both"))
    scenario = made(str(tmp_path / "both"))
    assert [one.text for one in scenario.questions["eval"]] == [row["question"] for row in SUMS[30:]]
    train.save_to_disk(str(tmp_path / "one"))
    assert made(str(tmp_path / "one")).size("train") + made(str(tmp_path / "one")).size("eval") == 30
    with pytest.raises(ConfigError, match=r"row 1 of split 'train' has no field 'q'"):
        made(str(tmp_path / "both"), question="q")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ConfigError, match=r"empty is no directory that datasets\.save_to_disk wrote"):
        made(str(tmp_path / "empty"))
    asked: list[tuple[str, ...]] = []
    monkeypatch.setattr(datasets, "load_dataset", lambda *names: asked.append(names) or both)
    assert made("hf://owner/name/main").questions == scenario.questions
    assert asked == [("owner/name", "main")]


@pytest.mark.parametrize("path", ["mine.parquet", "folder"])
def test_what_is_not_installed_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str) -> None:
    for module in ("pyarrow", "pyarrow.parquet", "datasets"):
        monkeypatch.setitem(__import__("sys").modules, module, None)
    (tmp_path / "mine.parquet").write_bytes(b"")
    (tmp_path / "folder").mkdir()
    with pytest.raises(ConfigError, match=r"pip install 'mas\[data\]'"):
        made(str(tmp_path / path))


def test_a_team_trains_on_a_file_and_the_evaluation_cannot_ask_for_more_than_there_is(
    mas: Callable[..., Any], small_overrides: tuple[str, ...], tmp_path: Path
) -> None:
    path = write(tmp_path / "sums.jsonl", SUMS)
    words = ["scenario=questions", f"scenario.options.path={path}", "scenario.options.scorer=number"]
    words += ["train.steps=2", "train.tasks_per_step=16", "algorithm.sampler.candidates=2", *small_overrides]
    refused = mas("train", *words, f"run_dir={tmp_path / 'run'}")
    assert refused.code == 2
    assert "train.eval_tasks is 100, but scenario 'questions' has" in refused.err
    assert not (tmp_path / "run").exists()
    ran = mas("train", *words, "train.eval_tasks=2", f"run_dir={tmp_path / 'run'}")
    assert ran.code == 0, ran.err
    epochs = [line["tasks"]["epoch"] for line in read_metrics(tmp_path / "run" / "metrics.jsonl") if "tasks" in line]
    size = made(path, scorer="number").size("train")
    assert epochs == [16 * step / size for step in (1, 2)]
