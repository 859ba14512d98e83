"""The notebooks in `examples/` run from the first cell to the last, with trainings of seconds."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from conftest import BaseFor
from notebooks import NOTEBOOKS, ROOT, cells, run_notebook
from pages import read


@pytest.fixture
def options(small_overrides: tuple[str, ...]) -> dict[str, Any]:
    """Options of a training of seconds."""
    words = ("train.tasks_per_step=2", "train.eval_tasks=2", "algorithm.sampler.candidates=2", *small_overrides)
    return {key: json.loads(value) for key, _, value in (word.partition("=") for word in words)}


async def test_the_notebook_that_trains_a_team_shows_it(
    options: dict[str, Any], base_for: BaseFor, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    base_for("relay")
    parameters = {"STEPS": 2, "TASKS": 2, "OPTIONS": options, "RUN_DIR": str(tmp_path / "run")}
    shown = await run_notebook(ROOT / "examples" / "train_a_team.ipynb", parameters)
    assert "The run in" in capsys.readouterr().out, "progress is printed"
    assert "<svg" in shown["run"]
    assert "relay: 2 held-out tasks" in shown["run.evaluate(tasks=TASKS)"]
    assert "planner" in shown["run.play(task=3)"]
    assert re.fullmatch(r"'.*'", shown['run.ask({"goal": "C", "table": "4795"})'])
    graphs = [html for source, html in shown.items() if source.startswith("mas.Team")]
    assert ["executor" in html and html.startswith("<svg ") for html in graphs] == [True, True]
    assert shown[next(source for source in shown if "run.export" in source)] == "['executor', 'planner']"


async def test_the_notebook_that_plays_a_game_awaits_it(
    options: dict[str, Any], base_for: BaseFor, tmp_path: Path
) -> None:
    base_for("two_player")
    parameters = {"STEPS": 1, "GAMES": 2, "OPTIONS": options, "LEAGUE": str(tmp_path / "league.db")}
    shown = await run_notebook(ROOT / "examples" / "play_a_game.ipynb", parameters | {"RUN_DIR": str(tmp_path / "run")})
    *_, numbers, curve, game, table = shown.values()
    assert numbers.startswith("[(1, ")
    assert "<svg" in curve
    assert game.startswith("<pre>")
    assert all(name in table for name in ("trained", "random", "solution"))


def test_every_notebook_is_tested_named_on_the_page_and_stored_without_outputs() -> None:
    assert len(NOTEBOOKS) == 2
    here, page = Path(__file__).read_text(), read("docs/python.md")
    for path in NOTEBOOKS:
        assert f'"{path.name}"' in here
        assert f"(../examples/{path.name})" in page
        stored = json.loads(path.read_text())
        assert (stored["nbformat"], stored["metadata"]["kernelspec"]["name"]) == (4, "python3")
        code = [cell for cell in cells(path) if cell["cell_type"] == "code"]
        assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in code)
        assert "parameters" in code[0]["metadata"]["tags"]
        assert len({cell["id"] for cell in cells(path)}) == len(cells(path))
