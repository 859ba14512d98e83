"""`mas check`: one line per property, and the property that a broken part lacks is the one that fails."""

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from mas.commands.find_parts import Part, find_parts
from mas.testing.environment import EnvironmentContract
from mas.testing.suite import held

Mas = Callable[..., Any]

SCENARIO = """
from random import Random

CALLS = []


class Bits:
    def reset(self, random: Random) -> None:
        self.bits = "".join(random.choice("01") for _ in range(8))
{more}
    def observe(self, view: str) -> str:
        return {seen}

    def legal(self) -> list[str]:
        return ["even", "odd"]

    def answer(self) -> str:
        return self.legal()[self.bits.count("1") % 2]

    def step(self, action: str) -> float:
        return {paid}
"""


def scenario(more: str = "", seen: str = "self.bits", paid: str = "float(action == self.answer())") -> str:
    return SCENARIO.format(more=more, seen=seen, paid=paid)


def failed(out: str) -> list[str]:
    return [line.split("failed", 1)[1].strip() for line in out.splitlines() if line.startswith("  failed")]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_sound_scenario_has_every_property(mas: Mas, folder: Path) -> None:
    (folder / "bits.py").write_text(scenario())
    ran = mas("check", "bits.py")
    assert ran.code == 0, ran.out
    assert "bits.py:Bits  scenario" in ran.out
    assert "  ok     no task is in both splits" in ran.out
    assert "  ok     every team plays to the end and is paid finite rewards" in ran.out
    assert failed(ran.out) == []
    assert [path.name for path in folder.iterdir() if path.name != "__pycache__"] == ["bits.py"]


def test_a_view_that_changes_with_every_look_is_no_pure_view(mas: Mas, folder: Path) -> None:
    (folder / "bits.py").write_text(scenario(seen='(CALLS.append(1), f"{self.bits} {len(CALLS)}")[1]'))
    ran = mas("check", "bits.py")
    assert ran.code == 1
    assert failed(ran.out) == [
        "it can be made with these options: Bits shows two tasks of one seed: draw from the generator that reset() is "
        "given"
    ]


def test_a_reward_that_is_no_number_fails_where_it_is_paid(mas: Mas, folder: Path) -> None:
    (folder / "bits.py").write_text(scenario(paid='float("nan")'))
    ran = mas("check", "bits.py", "--quiet")
    assert ran.code == 1
    assert "bits.py:Bits: every team plays to the end and is paid finite rewards: " in ran.out
    assert "step returned nan" in ran.out
    assert "ok  " not in ran.out


def test_an_error_that_is_none_of_mas_is_placed_in_the_users_file() -> None:
    def parse() -> None:
        json.loads("{")

    why = held("it can be read", parse).why or ""
    assert why.startswith("JSONDecodeError: Expecting property name")
    assert why.endswith(f"(test_check.py, line {parse.__code__.co_firstlineno + 1}, in parse)")


def test_tasks_that_begin_alike_are_counted() -> None:
    class Alike(EnvironmentContract):
        def started(self, number: int) -> Any:
            return SimpleNamespace(state_key=lambda: "the same")

    assert held("tasks differ", Alike().test_tasks_differ).why == "40 tasks begin in 1 states; more than 20 expected"


def test_a_role_that_raises_fails_and_the_reason_is_named(mas: Mas, folder: Path) -> None:
    (folder / "loud.py").write_text(
        "from mas.roles import PromptedRole\n\n\n"
        "class Loud(PromptedRole):\n"
        "    def parse(self, text):\n"
        "        return super().parse(text) if text.isascii() else 1 / 0\n"
    )
    ran = mas("check", "loud.py:Loud")
    assert ran.code == 1
    assert any(
        line.startswith("parsing any text never raises") and "ZeroDivisionError" in line for line in failed(ran.out)
    )
    assert "  ok     prompts are text" in ran.out
    assert not (folder / ".hypothesis").exists()


def test_a_team_with_an_edge_to_nobody_is_one_failed_line(mas: Mas, folder: Path) -> None:
    assert mas("new", "team", "mine").code == 0
    text = (folder / "mine.yaml").read_text()
    (folder / "mine.yaml").write_text(text.replace("planner -> walker", "planner -> wakler"))
    ran = mas("check", "mine.yaml")
    assert ran.code == 1
    (line,) = failed(ran.out)
    assert "Did you mean 'walker'" in line


def test_what_a_team_names_is_imported_only_if_it_is_trusted(mas: Mas, folder: Path) -> None:
    (folder / "foreign.py").write_text("from pathlib import Path\nPath('ran').touch()\n")
    (folder / "team.yaml").write_text(
        "name: mine\nroles:\n  a: {type: 'foreign.py:Role'}\nedges: [start -> a, a -> done]\noutput: a\n"
    )
    ran = mas("check", "team.yaml")
    assert ran.code == 1
    assert "foreign.py" in ran.out
    assert not (folder / "ran").exists()
    mas("check", "team.yaml", "--trust")
    assert (folder / "ran").exists()


def test_a_team_is_played_in_the_scenario_that_is_named(mas: Mas, folder: Path) -> None:
    assert mas("new", "team", "mine").code == 0
    assert "plays" not in mas("check", "mine.yaml").out
    assert "  ok     it plays plan_path to the end" in mas("check", "mine.yaml", "scenario=plan_path").out
    ran = mas("check", "mine.yaml", "scenario=relay")
    assert ran.code == 1
    (line,) = failed(ran.out)
    assert line.startswith("it plays relay to the end")
    assert "{cell}" in line


@pytest.mark.slow
def test_a_name_that_mas_knows_comes_before_a_folder_of_that_name(folder: Path) -> None:
    (folder / "relay").mkdir()
    (folder / "relay" / "__init__.py").write_text(scenario())
    assert find_parts(["relay"]) == [Part("scenario", "relay")]
    assert find_parts(["./relay"]) == [Part("scenario", "relay/__init__.py:Bits")]


def test_an_algorithm_changes_its_adapters_and_no_other(mas: Mas, folder: Path) -> None:
    assert mas("new", "algorithm", "mine").code == 0
    ran = mas("check", "mine.py", "--json", "-")
    assert ran.code == 0, ran.out
    found = {one["name"]: one["status"] for one in json.loads(ran.out)}
    assert found == {
        "its parts are options that there are, and fit together": "ok",
        "an update in relay changes every adapter: executor, planner": "ok",
        "an update with algorithm.roles=[planner] changes the adapter planner and no other": "ok",
    }


@pytest.mark.slow
def test_an_algorithm_that_learns_nothing_fails(mas: Mas, folder: Path) -> None:
    assert mas("new", "algorithm", "mine").code == 0
    text = (folder / "mine.py").read_text()
    text = text.replace("return [max(", "return [0.0 * max(").replace('"entropy": 0.01', '"entropy": 0.0')
    (folder / "mine.py").write_text(text)
    ran = mas("check", "mine.py")
    assert ran.code == 1
    assert "changed: none; to be changed: executor, planner" in ran.out


def test_an_algorithm_with_an_option_that_there_is_not_is_not_trained(mas: Mas, folder: Path) -> None:
    assert mas("new", "algorithm", "mine").code == 0
    text = (folder / "mine.py").read_text().replace('"mode": "parallel"', '"mod": "parallel"')
    (folder / "mine.py").write_text(text)
    ran = mas("check", "mine.py")
    assert ran.code == 1
    assert [line.partition(":")[0] for line in failed(ran.out)] == [
        "its parts are options that there are, and fit together"
    ]


@pytest.mark.nightly
def test_without_a_part_this_directory_is_looked_through_and_other_files_are_not_run(mas: Mas, folder: Path) -> None:
    (folder / "bits.py").write_text(scenario())
    (folder / "other.py").write_text("raise SystemExit('run')\n")
    (folder / "test_bits.py").write_text("raise SystemExit('run')\nfrom mas.core.role import Role\n")
    (folder / "data.yaml").write_text("a: 1\n")
    ran = mas("check", "--json", "-")
    assert ran.code == 0, ran.err
    assert {one["part"] for one in json.loads(ran.out)} == {"bits.py:Bits"}


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ((".",), "no scenario, role, algorithm or team stands in this directory"),
        (("relai",), "Did you mean 'relay'"),
        (("missing.yaml",), "there is no file missing.yaml"),
        (("missing.py",), "there is no file missing.py"),
        (("empty.py",), "no scenario (a class with reset, observe, step)"),
        (("relay", "train.steps=3"), "has no effect on `mas check`"),
        (("relay", "--json", "no/such/file.json"), "is no directory"),
    ],
)
def test_wrong_input_is_one_error(words: tuple[str, ...], text: str, mas: Mas, folder: Path) -> None:
    if "empty.py" in words:
        (folder / "empty.py").write_text("A = 1\n")
    ran = mas("check", *words)
    assert ran.code == 2
    assert text in ran.err
