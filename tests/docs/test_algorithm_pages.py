"""Every algorithm has a page of one form: what its paper does, formulas, what differs, how to run it, its curve."""

import re
from collections.abc import Iterator
from typing import get_args

import pytest
from pages import ROOT, blocks, read
from pydantic import BaseModel

from mas.algorithms.parts.options import AlgorithmOptions
from mas.algorithms.registry import find_algorithm
from mas.commands.algorithms import parts_of
from mas.config.load import presets
from mas.config.study_results import STUDY_RESULTS

HEADINGS = [
    "What the paper does",
    "Formula and file",
    "What differs",
    "Run it",
    "Our curve",
]
every_preset = pytest.mark.parametrize("name", presets("algorithm"))


def page_of(name: str) -> str:
    return read(f"docs/algorithms/{name}.md")


def section(text: str, heading: str) -> str:
    return text.partition(f"## {heading}\n")[2].partition("\n## ")[0]


@every_preset
def test_a_page_has_its_papers_name_and_the_headings_in_order(name: str) -> None:
    title, *rest = page_of(name).splitlines()
    recipe = find_algorithm(name).recipe
    assert title.startswith("# ")
    assert recipe.title.split()[0] in title
    assert [line.removeprefix("## ") for line in rest if line.startswith("#")] == HEADINGS
    if recipe.paper:
        assert f"(https://arxiv.org/abs/{recipe.paper})" in page_of(name)


@every_preset
def test_the_table_of_a_page_names_files_that_exist_and_keys_that_the_preset_sets(name: str) -> None:
    table = section(page_of(name), "Formula and file")
    files = re.findall(r"`([\w/]+\.(?:py|yaml))`", table)
    assert files
    assert [file for file in files if not (ROOT / file).is_file()] == []
    keys = [part.partition("=")[0].removeprefix("algorithm.") for part in parts_of(name) if "=" in part]
    assert not keys or any(key in table for key in keys)


@every_preset
def test_a_page_trains_the_preset_and_shows_its_curve(name: str) -> None:
    text = page_of(name)
    commands = "".join(block.text for block in blocks(f"docs/algorithms/{name}.md", "bash"))
    assert re.search(rf"^mas train .*\balgorithm={name}\b", commands, re.MULTILINE)
    pictures = re.findall(r"!\[[^\]]+\]\(([^)]+)\)", section(text, "Our curve"))
    assert f"curves/{name}.svg" in pictures
    drawn = (ROOT / "docs/algorithms/curves" / f"{name}.svg").read_bytes()
    assert b"<svg" in drawn
    assert len(drawn) < 40_000


@pytest.mark.parametrize("name", sorted(STUDY_RESULTS))
def test_the_result_of_mas_algorithms_is_that_of_the_study_and_stands_on_the_page(name: str) -> None:
    result = STUDY_RESULTS[name]
    rows = [line.split(" | ") for line in read(f"docs/study/{result.study}.md").split("\n\n")[2].splitlines()]
    greedy = {row[2]: float(row[3]) for row in rows[2:] if (row[0], row[1]) == (f"| `{result.scenario}`", "`habits`")}
    assert result.before == pytest.approx(greedy["`no_rl`"], abs=0.0051)
    assert result.after == pytest.approx(greedy[f"`{result.arm}`"], abs=0.0051)
    curve = section(page_of(name), "Our curve")
    assert [said for said in (f"`{result.scenario}`", f"{result.after:.2f}") if said not in curve] == []


@every_preset
def test_a_page_ranks_its_preset_by_the_fair_comparison_only(name: str) -> None:
    curve = section(page_of(name), "Our curve")
    assert re.search(r"`(at_grpo|parallel_grpo)` has \d", curve) is None


def test_every_page_is_of_a_preset_and_in_the_table() -> None:
    pages = {path.stem for path in (ROOT / "docs/algorithms").glob("*.md")} - {"table", "ablation"}
    assert pages == set(presets("algorithm"))
    linked = re.findall(r"\[`(\w+)`\]\(algorithms/(\w+)\.md\)", read("docs/algorithms.md"))
    assert {page for name, page in linked if name == page} == pages


def leaves(model: type[BaseModel], above: str = "") -> Iterator[str]:
    """Every key below a model; lists of models are one key."""
    for name, field in model.model_fields.items():
        kinds = get_args(field.annotation) or (field.annotation,)
        inner = [kind for kind in kinds if isinstance(kind, type) and issubclass(kind, BaseModel)]
        is_list = str(field.annotation).startswith("tuple")
        yield from leaves(inner[0], f"{above}{name}.") if inner and not is_list else [f"{above}{name}"]


def test_the_table_of_the_pipeline_has_every_key() -> None:
    named, last = set[str](), ""
    for row in read("docs/algorithms.md").partition("| part | keys |")[2].partition("\n\n")[0].splitlines()[2:]:
        for key in re.findall(r"`([\w.*]+)`", row.split("|")[2]):
            last = last.rpartition(".")[0] + key if key.startswith(".") else key
            named.add(last.removesuffix(".*"))
    keys = set(leaves(AlgorithmOptions)) - {"code", "name", "options"}  # the algorithm itself
    assert [key for key in sorted(keys) if not any(f"{key}.".startswith(f"{name}.") for name in named)] == []
