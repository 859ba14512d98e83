"""The pages of the project and what is in them."""

import re
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
FOLDERS = ("algorithms", "reference", "tutorials")
PAGES = sorted(
    path.relative_to(ROOT).as_posix()
    for pattern in (*("*.md", "docs/*.md", "mas/scenarios/*/README.md"), *(f"docs/{name}/*.md" for name in FOLDERS))
    for path in ROOT.glob(pattern)
)
_FENCE = re.compile(r"^(?:(?P<before>[^\n]*)\n\n?)?```(?P<language>\w*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
_FILE = re.compile(r"`([\w/]+\.\w+)`[:,.]?[^`]*:?$")


class Block(NamedTuple):
    """A fenced block. `file`: the file that the line before it names, None where it names none."""

    language: str
    text: str
    file: str | None


def read(page: str) -> str:
    """The page as text."""
    return (ROOT / page).read_text(encoding="utf-8")


def blocks(page: str, language: str) -> list[Block]:
    """All fenced blocks of one language, in order."""
    found = []
    for match in _FENCE.finditer(read(page)):
        named = _FILE.search(match["before"] or "")
        found.append(Block(match["language"], match["text"], named[1] if named else None))
    return [block for block in found if block.language == language]


def prose(page: str) -> str:
    """The page without its fenced blocks."""
    return re.sub(r"^```.*?^```$", "", read(page), flags=re.MULTILINE | re.DOTALL)
