"""`mas new` in a fresh directory: what it writes passes its own test, can be trained, and is never written over."""

import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mas.commands.new import write_new
from mas.core.errors import RunDirectoryError

Mas = Callable[..., Any]
KINDS = ("scenario", "role", "algorithm", "team")
FILES = {
    "scenario": ["mine.py", "test_mine.py"],
    "role": ["mine.py", "mine.yaml", "test_mine.py"],
    "algorithm": ["mine.py", "test_mine.py"],
    "team": ["mine.yaml", "test_mine.py"],
}


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def commands_of(out: str) -> list[list[str]]:
    """The commands that it names, in words."""
    return [shlex.split(line) for line in out.partition("next:\n")[2].splitlines()]


def test_without_pytest_the_next_commands_install_it(mas: Mas, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mas.commands.new.find_spec", lambda name: None)
    monkeypatch.chdir(tmp_path)
    commands = commands_of(mas("new", "team", "mine").out)
    assert commands[0] == ["pip", "install", "mas[test]"], "mas check needs it, too"
    assert [words[0] for words in commands[1:]] == ["mas", "mas", "pytest"]


@pytest.mark.parametrize("kind", KINDS)
def test_the_files_are_few_and_the_next_commands_are_named(
    kind: str, mas: Mas, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    ran = mas("new", kind, "mine")
    assert ran.code == 0, ran.err
    assert names_in(tmp_path) == FILES[kind]
    assert [words[:2] for words in commands_of(ran.out)] == [["mas", "check"], ["mas", "train"], ["pytest"]]
    assert all("NAME" not in (tmp_path / name).read_text() for name in FILES[kind])
    assert all("CLASS" not in (tmp_path / name).read_text() for name in FILES[kind])


@pytest.mark.nightly(of=16)
@pytest.mark.slow
def test_all_four_stand_side_by_side_and_their_tests_pass_at_once(mas: Mas, tmp_path: Path) -> None:
    for kind in KINDS:
        assert mas("new", kind, f"my_{kind}", "--dir", str(tmp_path / "project")).code == 0
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:asyncio"]
    done = subprocess.run(words, cwd=tmp_path / "project", capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert " passed" in done.stdout


@pytest.mark.nightly(of=16)
@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_the_commands_that_it_names_work(
    kind: str, mas: Mas, small_overrides: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    check, train, _ = (words[1:] for words in commands_of(mas("new", kind, "mine").out))
    short = ["train.steps=1", "train.tasks_per_step=2", "train.eval_tasks=2", "algorithm.sampler.candidates=2"]
    ran = mas(*train, *short, *small_overrides)
    assert ran.code == 0, ran.err
    assert (tmp_path / "runs" / "mine" / "adapters").is_dir()
    ran = mas(*check)
    assert ran.code == 0, ran.out
    assert " 0 failed" in ran.out


@pytest.mark.nightly(shard=False)
@pytest.mark.timeout(900)
def test_the_tiny_base_learns_the_task_of_a_new_scenario_with_the_printed_command(
    mas: Mas, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    _, train, _ = (words[1:] for words in commands_of(mas("new", "scenario", "mine").out))
    ran = mas(*train, "train.target=null", "model.threads=1")
    assert ran.code == 0, ran.err
    greedy = [float(text) for text in re.findall(r"success on held-out tasks (\S+) greedy", " ".join(ran.out.split()))]
    # 1.00, 0.89 and 0.93 of three seeds, the base 0.41: the larger is the planner's digit in 55 of 100
    assert greedy[0] < 0.5
    assert greedy[-1] > 0.6


def test_a_file_that_is_there_is_never_written_over(mas: Mas, tmp_path: Path) -> None:
    (tmp_path / "test_mine.py").write_text("mine")
    ran = mas("new", "scenario", "mine", "--dir", str(tmp_path))
    assert ran.code == 2
    assert "test_mine.py is there already, and nothing was written" in ran.err
    assert names_in(tmp_path) == ["test_mine.py"]
    assert (tmp_path / "test_mine.py").read_text() == "mine"


def test_a_link_to_nowhere_is_not_followed(mas: Mas, tmp_path: Path) -> None:
    (tmp_path / "mine.py").symlink_to(tmp_path / "elsewhere.py")
    assert mas("new", "algorithm", "mine", "--dir", str(tmp_path)).code == 2
    assert names_in(tmp_path) == ["mine.py"]


def test_nothing_is_left_where_a_file_cannot_be_written(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "deep"
    files = {folder / "one.py": "1", folder / "no" / "two.py": "2"}  # its folder is missing
    with pytest.raises(RunDirectoryError, match="cannot be written, and nothing was"):
        write_new(folder, files)
    assert names_in(tmp_path) == []


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("../mine", "write small letters"),
        ("Mine", "write small letters"),
        ("1st", "write small letters"),
        ("class", "no word of Python"),
        ("a" * 41, "at most 40"),
        ("", "write small letters"),
        ("mine\n", "write small letters"),
        ("random", "such as my_random"),
        ("yaml", "a module of this name is there already"),
        ("test_it", "such as my_it"),
    ],
)
def test_a_name_that_no_module_can_have_is_refused(name: str, text: str, mas: Mas, tmp_path: Path) -> None:
    ran = mas("new", "scenario", name, "--dir", str(tmp_path))
    assert ran.code == 2
    assert text in ran.err
    assert names_in(tmp_path) == []


def test_a_kind_that_there_is_not_is_refused(mas: Mas, tmp_path: Path) -> None:
    ran = mas("new", "game", "mine", "--dir", str(tmp_path))
    assert ran.code == 2
    assert "scenario" in ran.err
    assert names_in(tmp_path) == []


def test_commands_for_another_directory_begin_there(mas: Mas, tmp_path: Path) -> None:
    folder = tmp_path / "a project"
    out = mas("new", "team", "mine", "--dir", str(folder)).out
    assert commands_of(out)[0] == ["cd", str(folder)]
    assert names_in(folder) == FILES["team"]
