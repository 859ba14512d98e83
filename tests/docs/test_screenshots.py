"""Pictures of the docs: each is there, shown, described in words and small, and the script makes it."""

import importlib.util
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from pages import PAGES, ROOT, prose

FOLDER = ROOT / "docs" / "images"
PICTURES = sorted(FOLDER.glob("*.webp"))
ALL_BYTES = 1_200_000


@pytest.fixture(scope="module")
def script() -> Iterator[ModuleType]:
    """The module docs/site/screenshots.py, which is no part of a package."""
    spec = importlib.util.spec_from_file_location("screenshots", ROOT / "docs" / "site" / "screenshots.py")
    assert spec is not None
    assert spec.loader is not None
    sys.modules[spec.name] = module = importlib.util.module_from_spec(spec)  # its dataclass looks itself up
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]


def shown() -> list[tuple[str, str, Path]]:
    """Every image of every page: the page, its alternative text and its file."""
    return [
        (page, text, (ROOT / page).parent / link)
        for page in PAGES
        for text, link in re.findall(r"!\[([^\]]*)\]\((?!https://)([^)\s]+)\)", prose(page))
    ]


def test_every_image_of_a_page_is_a_file_and_has_a_text_that_says_what_it_shows() -> None:
    assert [(page, file.name) for page, text, file in shown() if not file.is_file() or len(text.split()) < 3] == []
    assert len(shown()) > 70


def test_every_image_of_the_docs_is_on_a_page() -> None:
    on_pages = {file.resolve() for _, _, file in shown()}
    linked = {
        ((ROOT / page).parent / link).resolve()
        for page in PAGES
        for link in re.findall(r"\]\((?!https://)([^)\s]+\.svg)\)", prose(page))
    }
    there = {path for kind in ("svg", "webp", "png", "jpg") for path in (ROOT / "docs").rglob(f"*.{kind}")}
    assert [path.name for path in sorted(there - on_pages - linked)] == []


def test_the_script_makes_the_pictures_that_are_there(script: ModuleType) -> None:
    assert sorted(script.PICTURES) == sorted(path.stem for path in PICTURES)
    assert {picture.scheme for picture in script.PICTURES.values()} == {"light", "dark"}


def test_pictures_are_small(script: ModuleType) -> None:
    sizes = {path.name: path.stat().st_size for path in PICTURES}
    assert [name for name, size in sizes.items() if size > script.MOST_BYTES] == []
    assert sum(sizes.values()) <= ALL_BYTES
    assert all(path.read_bytes()[8:12] == b"WEBP" for path in PICTURES)
