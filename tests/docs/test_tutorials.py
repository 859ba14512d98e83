"""What a newcomer reads: the Python runs, tutorials lead from one to the next, messages are those of mas."""

import ast
import json
import re
from pathlib import Path
from typing import Any

import pytest
from pages import PAGES, ROOT, blocks, read

from mas.algorithms import Row

TUTORIALS = [page for page in PAGES if page.startswith("docs/tutorials/")]


def run_block(page: str, name: str | None, **names: Any) -> dict[str, Any]:
    """The names that a page's only Python block of that file makes; None: the block without a file."""
    (block,) = [block for block in blocks(page, "python") if block.file == name]
    exec(compile(block.text, name or page, "exec"), names)  # noqa: S102 - our own page
    return names


def test_the_python_of_the_quickstart_trains(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, small_overrides: tuple[str, ...]
) -> None:
    monkeypatch.chdir(tmp_path)
    (block,) = blocks("docs/quickstart.md", "python")
    few = ("train.tasks_per_step=2", "train.eval_tasks=2", "algorithm.sampler.candidates=2", *small_overrides)
    options = {key: json.loads(value) for key, _, value in (word.partition("=") for word in few)}
    assert "steps=20" in block.text
    small = block.text.replace("steps=20", f"steps=1, options={options}").replace("tasks=50", "tasks=2")
    exec(compile(small, "docs/quickstart.md", "exec"), {"__name__": "example"})  # noqa: S102 - our own page
    assert Path("runs/relay-python/report.html").is_file()


def test_the_reward_of_the_second_tutorial_pays_what_it_says(capsys: pytest.CaptureFixture[str]) -> None:
    page = "docs/tutorials/2_own_task.md"
    run_block(page, "smallest.py")
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert len(rows) == len({row["question"] for row in rows}) == 400
    score = run_block(page, "near.py")["score"]
    row = {"question": "7311", "answer": "1"}
    assert [score(said, row) for said in ("1", "7", "5")] == [1, 0.5, 0]


def test_the_algorithm_of_the_fourth_tutorial_ranks_in_groups() -> None:
    made = run_block("docs/tutorials/4_own_algorithm.md", "ranks.py", __name__="ranks")
    rewards = {"a": (0, 1, 1, 3), "b": (5, 5)}
    rows = [Row(reward=reward, group=group, turns=()) for group, paid in rewards.items() for reward in paid]
    # of group a: (0 - 3)/3, (1 - 1)/3 twice, (3 - 0)/3; of b: equal rewards
    assert made["algorithm"].advantages(rows, made["RankOptions"](spread=2)) == [-2, 0, 0, 2, 0, 0]


def test_the_python_of_the_fifth_tutorial_plays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("pyspiel")
    monkeypatch.chdir(tmp_path)
    run_block("docs/tutorials/5_league.md", None)
    assert "two_player:kuhn_poker, 50 games" in capsys.readouterr().out


def test_tutorials_lead_from_one_to_the_next_and_say_what_was_reached() -> None:
    assert len(TUTORIALS) == 6
    for number, page in enumerate(TUTORIALS, start=1):
        text = read(page)
        lines = text.splitlines()
        assert lines[0].startswith(f"# {number}. ")
        assert 40 <= len(lines) <= 90
        end = text.partition("\n## Reached\n")[2]
        assert "\nNext: " in end
        if number < 6:
            assert f"]({Path(TUTORIALS[number]).name})" in end


def texts_of_mas() -> str:
    """All texts of the sources, each with a mark for every value in it, and the Makefile's."""
    texts = [(ROOT / "Makefile").read_text()]
    for path in (ROOT / "mas").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.JoinedStr):
                parts = (part.value if isinstance(part, ast.Constant) else "\0" for part in node.values)
                texts.append("".join(str(part) for part in parts))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                texts.append(node.value)
    return "\n".join(texts)


def test_the_messages_of_the_page_on_troubles_are_those_of_mas() -> None:
    page = read("docs/troubleshooting.md").partition("\n## Training runs")[0]
    cells = [line.split("|")[1] for line in page.splitlines() if line.startswith("| `")]
    messages = [text for cell in cells for text in re.findall(r"`([^`]+)`", cell)]
    known = texts_of_mas()
    parts = {part.strip() for text in (*messages, *re.findall(r"`(adapter …[^`]+)`", page)) for part in text.split("…")}
    assert sorted(part for part in parts if part not in known) == []
    assert len(messages) > 35
