"""Writes docs/systems.md from docs/systems.yaml: `python tests/systems_page.py > docs/systems.md`."""

from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[1]
HEAD = """# Systems

Which published systems a recipe runs by name, with the test of the mechanism and what was measured. *works*: the recipe
starts by this command, the code does what the row is about, and the test asserts it. *part*: something of it is
missing, and the row says what. What differs from a paper is on its page. Success is greedy on held-out tasks; → is from
untrained to trained, ± the standard deviation over seeds.

| row | system | paper | recipe | status | test | measured |
|---|---|---|---|---|---|---|
"""


def systems() -> dict[str, dict[str, Any]]:
    """Row id -> its record."""
    found: dict[str, dict[str, Any]] = yaml.safe_load((ROOT / "docs" / "systems.yaml").read_text(encoding="utf-8"))
    return found


def papers(row: dict[str, Any]) -> str:
    """Links to the paper and the page."""
    links = []
    if "paper" in row:
        links.append(f"[arXiv {row['paper']}](https://arxiv.org/abs/{row['paper']})")
    if "page" in row:
        links.append(f"[page]({row['page']})")
    return ", ".join(links)


def page() -> str:
    """The whole page."""
    lines = []
    for name, row in systems().items():
        status = row["status"] if row["status"] == "works" else f"part; missing: {row['missing']}"
        file, _, function = row["test"].partition("::")
        test = f"[{function or file}](../{file})"
        lines.append(
            f"| {name} | {row['system']} | {papers(row)} | `{row['recipe']}` | {status} | {test} | {row['measured']} |"
        )
    return HEAD + "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(page(), end="")
