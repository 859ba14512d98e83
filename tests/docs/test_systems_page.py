"""The table of systems: its recipes load, its tests exist, tier 1 is whole, and the page is what the data makes."""

import ast
import shlex

import pytest
import typer.main
from systems_page import ROOT, page, systems
from typer.core import TyperGroup

from mas.cli import app
from mas.config.load import load_config
from mas.scenarios import build_scenario
from mas.study.options import ABLATION, ablation

TIER_1 = (
    *("T1", "T2", "T3", "T4", "T5", "T6", "T7", "T21", "A1", "A2", "A3", "A4", "A5", "A6", "A7", "A10", "A17", "A32"),
    *("R11", "R20", "S1", "S2", "S3", "S7", "S17", "S20", "O1", "M1", "P1", "P2", "E6"),
)


def test_the_page_is_what_the_data_makes() -> None:
    assert (ROOT / "docs" / "systems.md").read_text(encoding="utf-8") == page()


def test_tier_1_is_whole_and_what_is_missing_is_said() -> None:
    rows = systems()
    assert len(TIER_1) == len(set(TIER_1)) == 31
    assert set(TIER_1) <= set(rows)
    for name, row in rows.items():
        assert row["status"] in ("works", "part"), name
        assert ("missing" in row) == (row["status"] == "part"), name
        assert "paper" in row or "page" in row, name


def test_every_recipe_is_a_command_whose_configuration_loads() -> None:
    pytest.importorskip("pyspiel")
    for name, row in systems().items():
        program, command, *words = shlex.split(row["recipe"])
        assert program == "mas", name
        if command == "train":
            build_scenario(load_config(words).scenario)
        elif [command, *words[:1]] == ["study", ABLATION]:
            assert ablation(words[1:], 1).cases
        else:
            group = typer.main.get_command(app)
            found = group.commands[command]
            if isinstance(found, TyperGroup):
                found, words = found.commands[words[0]], words[1:]
            found.make_context(command, words)


def test_every_test_is_there_under_its_name() -> None:
    missing = []
    for name, row in systems().items():
        file, _, function = row["test"].partition("::")
        tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
        tests = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
        if not any(each.startswith("test_") for each in tests) or (function and function not in tests):
            missing.append((name, row["test"]))
    assert missing == []
