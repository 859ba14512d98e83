"""Extras as users write them."""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_extras_have_names_that_every_pip_finds_and_what_is_told_to_install_exists() -> None:
    """Packaging writes `_` as `-` into what is installed, and older pips do not find the extra then."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert all(re.fullmatch(r"[a-z][a-z0-9]*(-[a-z0-9]+)*", name) for name in extras)
    texts = [*ROOT.glob("mas/**/*.py"), *ROOT.glob("mas/**/*.md"), *ROOT.glob("docs/*.md"), ROOT / "README.md"]
    told = {name for path in texts for name in re.findall(r"mas\[([\w-]+)\]", path.read_text())}
    assert told
    assert told <= set(extras)
