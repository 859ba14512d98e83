"""Runs notebooks without Jupyter: each cell in an event loop, and what its last expression shows."""

import ast
import inspect
import json
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted((ROOT / "examples").glob("*.ipynb"))


def cells(path: Path) -> list[dict[str, Any]]:
    """All cells, in order."""
    found: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return found


async def run_notebook(path: Path, parameters: dict[str, Any]) -> dict[str, str]:
    """Run every cell of code, `parameters` in place of what the cell with the tag `parameters` assigns.

    Returns:
        The source of each cell with what it shows: its HTML, else its text, empty where it shows nothing.

    Raises:
        KeyError: the notebook has no such parameter. Otherwise what a cell raises.
    """
    space: dict[str, Any] = {"__name__": "__main__"}
    shown = {}
    for cell in cells(path):
        if cell["cell_type"] != "code":
            continue
        source = "".join(cell["source"])
        value = await _value(source, space)
        if "parameters" in cell["metadata"].get("tags", ()):
            if unknown := parameters.keys() - space.keys():
                raise KeyError(f"{path.name} has no parameters {sorted(unknown)}")
            space |= parameters
        shown[source] = _shown(value)
    return shown


async def _value(source: str, space: dict[str, Any]) -> object:
    """Of the last statement, if it is an expression."""
    body = ast.parse(source).body
    last = ast.Expression(body.pop().value) if isinstance(body[-1], ast.Expr) else None
    value: object = None
    for tree, mode in ((ast.Module(body, []), "exec"), (last, "eval")):
        if tree is not None:
            code = compile(tree, "cell", mode, flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
            value = eval(code, space)  # noqa: S307 - our own notebook
            if inspect.iscoroutine(value):
                value = await value
    return value


def _shown(value: object) -> str:
    if value is None:
        return ""
    html = getattr(value, "_repr_html_", None)
    return repr(value) if html is None else html()
