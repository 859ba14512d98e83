"""Every algorithm has a page of one form: what its paper does, formulas, what differs, how to run it, its curve."""

import re

import pytest
from pages import ROOT, blocks, read

from mas.algorithms.registry import find_algorithm
from mas.commands import parts_of
from mas.config.learned import LEARNED
from mas.config.load import presets

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


@every_preset
def test_what_mas_algorithms_says_was_learned_stands_on_the_page(name: str) -> None:
    if (learned := LEARNED.get(name)) is not None:
        curve = section(page_of(name), "Our curve")
        for told in (f"`{learned.scenario}`", f"{learned.before:.2f}", f"{learned.after:.2f}"):
            assert told in curve


def test_every_page_is_of_a_preset_and_in_the_table() -> None:
    pages = {path.stem for path in (ROOT / "docs/algorithms").glob("*.md")} - {"table", "ablation"}
    assert pages == set(presets("algorithm"))
    linked = re.findall(r"\[`(\w+)`\]\(algorithms/(\w+)\.md\)", read("docs/algorithms.md"))
    assert {page for name, page in linked if name == page} == pages


def test_everything_that_was_learned_is_of_a_preset() -> None:
    assert set(LEARNED) <= set(presets("algorithm"))
