"""`mas algorithms`, and what `mas train algorithm=?` prints: presets, their papers, their parts, what they reached."""

from importlib import resources
from typing import Annotated

import typer
import yaml
from rich.console import Console
from rich.table import Table
from rich.text import Text

from mas.config.learned import LEARNED
from mas.config.load import instead_of, leaves, presets
from mas.config.recipes import RECIPES, Recipe
from mas.core.errors import ConfigError

ASKED = "algorithm=?"


def algorithms(
    name: Annotated[str, typer.Argument(metavar="[NAME]", help="one algorithm; default: all")] = "",
) -> None:
    """List the algorithms, or say all about one: its paper, its parts, what it does otherwise."""
    console = Console()
    if name and name not in presets("algorithm"):
        raise ConfigError(f"no algorithm {name!r}. {instead_of(name)}")
    if not name:
        console.print(_table())
        console.print(
            Text("one of them in full: mas algorithms NAME   to train: mas train algorithm=NAME", style="dim")
        )
        return
    recipe = RECIPES[name]
    where = f", arXiv {recipe.paper}" if recipe.paper else ""
    lines = [f"{recipe.title}{where}", recipe.does]
    if recipe.differs:
        lines.append(f"Differs: {recipe.differs}.")
    if recipe.needs:
        lines.append(f"Needs: a scenario with {recipe.needs}.")
    lines += ["Sets:", *(f"  {part}" for part in parts_of(name))]
    lines += [f"Run: {command_of(name, recipe)}", f"Status: {status_of(name)}; docs/algorithms/{name}.md"]
    for line in lines:
        console.print(Text(line), soft_wrap=True)


def command_of(name: str, recipe: Recipe) -> str:
    """How to train with it where its roles are found."""
    scenario = f"scenario={recipe.scenario} " if recipe.scenario else ""
    return f"mas train {scenario}algorithm={name} {recipe.beside}".rstrip()


def status_of(name: str) -> str:
    """What three seeds of it reached; without them its formulas and its mechanism are tested, and no more."""
    return str(LEARNED[name]) if name in LEARNED else "tested"


def parts_of(name: str) -> list[str]:
    """What a preset sets, as `key=value`; the rest is the scenario's preset and the defaults."""
    own = yaml.safe_load(resources.files("mas.conf").joinpath(f"algorithm/{name}.yaml").read_text(encoding="utf-8"))
    options = {f"scenario.options.{key}": value for key, value in RECIPES[name].options.items()}
    found = options | {f"algorithm.{key}": value for key, value in leaves(own) if key != "name"}
    return [f"{key}={value}" for key, value in found.items()] or ["algorithm.* (nothing but defaults)"]


def _table() -> Table:
    table = Table(box=None, pad_edge=False)
    for column in ("algorithm", "arXiv", "what it does", "made for", "three seeds, greedy success"):
        table.add_column(column, overflow="fold")
    for name in presets("algorithm"):
        recipe = RECIPES[name]
        made_for = " · ".join(filter(None, (recipe.scenario, recipe.needs))) or "any"
        table.add_row(name, recipe.paper, recipe.does, made_for, status_of(name))
    return table
