"""What `make house` counts, on small trees whose numbers are known."""

import ast
import importlib
import textwrap
from collections.abc import Callable, Sequence, Sized
from pathlib import Path

import pytest
from house import (
    GOALS,
    ROOT,
    Source,
    circles,
    class_names,
    climbs,
    lines_of,
    long_files,
    long_functions,
    lower_packages,
    options_of,
    sources,
    table,
)
from pydantic import BaseModel
from walk import Walk, training_step

from mas.algorithms.parts.options import AlgorithmOptions


def source(name: str, text: str) -> Source:
    text = textwrap.dedent(text).lstrip()
    return Source(name, text, ast.parse(text))


def test_lines_of_code_have_no_blank_lines_comments_or_docstrings() -> None:
    text = '''
        """About
        it."""

        A = """two
        lines"""  # a comment


        # another
        def f() -> int:
            """What it does."""
            return 1
    '''
    # 11 lines; of code: two of A, def, return
    assert lines_of([source("bus/a.py", text), source("top.py", "A = 1")]) == {
        "bus": {"files": 1, "lines": 11, "code": 4},
        "(top)": {"files": 1, "lines": 1, "code": 1},
    }


CLIMBING = """
    from mas.config.options import AlgorithmOptions, Config
    class Held:
        config: Config
        def read(self, algorithm: AlgorithmOptions, config: Config | None = None) -> Config: ...
    def inner(*, given: "list[int]", configs: list[Config]): ...
"""


def test_a_climb_is_a_parameter_or_a_field_annotated_with_the_whole_configuration() -> None:
    assert climbs([source("a.py", CLIMBING)]) == ["a.py:3", "a.py:5", "a.py:4"]
    assert climbs([source("a.py", CLIMBING.replace("mas.config.options", "uvicorn"))]) == []


def test_lower_packages_are_those_of_the_layers_from_training_down() -> None:
    lower = lower_packages(ROOT / "pyproject.toml")
    assert {"training", "scenarios", "runtime", "core"} <= lower
    assert not {"cli", "study", "config"} & lower


def test_names_of_classes_count_when_two_modules_have_them() -> None:
    texts = {"a.py": "class Case: ...\nclass A: ...\n", "b/a.py": "class B: ...\nclass Case: ...\n"}
    texts["c.py"] = "def f():\n    class A: ...\n"
    assert class_names([source(*file) for file in texts.items()]) == {"Case": ["a.py", "b/a.py"]}


def test_functions_are_long_from_61_lines_on_and_files_from_301() -> None:
    body = "    x = 1\n" * 59
    files = [source("a.py", f"@cached\ndef short():\n{body}"), source("b.py", f"async def long():\n{body}    return\n")]
    assert long_functions(files) == {"b.py:1 long": 61}
    assert long_files([source("a.py", "x = 1\n" * 300), source("b.py", "x = 1\n" * 301)]) == {"b.py": 301}


def write(folder: Path, name: str, files: dict[str, str]) -> None:
    for path, text in files.items():
        target = folder / name / path
        target.parent.mkdir(parents=True, exist_ok=True)
        (target.parent / "__init__.py").touch()
        target.write_text(text)


def test_circles_are_of_modules_and_of_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    later = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from round_trips.two import b\n"
    files = {
        "one/a.py": "def f():\n    from round_trips.one import b\n",
        "one/b.py": "from round_trips.one import a, c\n",
        "one/c.py": "from round_trips.two import a\n",
        "two/a.py": later,
        "two/b.py": "from round_trips.two import a\nfrom round_trips.one import d\n",
        "one/d.py": "",
    }
    write(tmp_path, "round_trips", files)
    (tmp_path / "round_trips" / "__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    of_modules = [["round_trips.one.a", "round_trips.one.b"]]
    assert circles("round_trips") == of_modules
    assert circles("round_trips", type_checking=True) == [*of_modules, ["round_trips.two.a", "round_trips.two.b"]]
    assert circles("round_trips", folders=True) == [["round_trips.one", "round_trips.two"]]


class Leaf(BaseModel):
    rate: float = 1.0
    names: Sequence[str] = ()


class Branch(Leaf):
    leaf: Leaf | None = None
    many: tuple[Leaf, ...] = ()


def test_options_are_the_leaves_of_models_with_the_module_of_their_class() -> None:
    keys = ["rate", "names", "leaf.rate", "leaf.names", "many.rate", "many.names"]
    assert options_of(Branch, "x") == dict.fromkeys((f"x.{key}" for key in keys), __name__)


def _call(function: Callable[[], int]) -> int:
    """A frame that is not of the folder."""
    return function()


def test_a_walk_counts_functions_of_its_folder_and_the_longest_stack(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "def leaf(n): return n\ndef root(): return sum([leaf(n) for n in (1, 2)]) + alone()\nalone = lambda: 3\n"
    (tmp_path / "walk_of_two.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    module = importlib.import_module("walk_of_two")
    with Walk(tmp_path) as walk:
        module.leaf(0)
        walk.is_on = True
        _call(module.root)
        walk.is_on = False
    assert {name for _, _, name in walk.functions} == {"leaf", "root", "<lambda>"}
    assert walk.files == {"walk_of_two.py"}
    assert walk.deepest == ["walk_of_two.py:root", "walk_of_two.py:leaf"]


def test_a_training_step_goes_from_sampling_to_the_learner() -> None:
    walk = training_step()
    assert {"training/learner.py", "runtime/team.py", "bus/memory.py", "serving/store.py"} <= walk.files
    assert not {"training/check_team_options.py", "training/evaluate.py", "config/load.py"} & walk.files
    assert len(walk.deepest) > 5
    # docs/architecture.md names both; they may fall, not rise
    assert len(walk.files) <= 56
    assert len(walk.deepest) <= 16


def test_every_goal_is_of_something_that_is_counted() -> None:
    nothing = {"files": [], "functions": 0, "deepest": []}
    lists = ("climbs", "circles", "circles_with_type_checking", "circles_of_folders")
    maps = ("packages", "options", "class_names", "long_functions", "long_files")
    found = {"step": nothing} | {name: [] for name in lists} | {name: {} for name in maps}
    assert set(GOALS) <= {name for name, _ in table(found)}


def test_nothing_below_runs_is_given_the_whole_configuration() -> None:
    lower = lower_packages(ROOT / "pyproject.toml")
    assert climbs([file for file in sources(ROOT / "mas") if file.package in lower]) == []


@pytest.mark.parametrize(
    "counted",
    [
        lambda: circles("mas", type_checking=True),
        lambda: class_names(sources(ROOT / "mas")),
        lambda: long_functions(sources(ROOT / "mas")),
        lambda: [key for key, home in options_of(AlgorithmOptions, "algorithm").items() if "mas.config" in home],
    ],
    ids=["circles of imports", "class names", "functions of more than 60 lines", "options of algorithms in mas.config"],
)
def test_a_goal_that_was_reached_stays_reached(counted: Callable[[], Sized]) -> None:
    assert not counted()
