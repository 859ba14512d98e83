"""The command `mas algorithms`: which there are, and all about one."""

from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from mas.algorithms.base import Algorithm, Recipe
from mas.algorithms.registry import find_algorithm, installed
from mas.config.load import instead_of, leaves, presets
from mas.config.study_results import STUDY_RESULTS
from mas.core.errors import ConfigError
from mas.core.options import Options
from mas.core.user_code import is_code

ASKED = "algorithm=?"


def algorithms(
    name: Annotated[str, typer.Argument(metavar="[NAME]", help="one algorithm; default: all")] = "",
) -> None:
    """List the algorithms, or say all about one: its paper, its parts, what it does otherwise."""
    console = Console()
    is_own = is_code(name) or name in installed()
    if name and name not in presets("algorithm") and not is_own:
        raise ConfigError(f"no algorithm {name!r}. {instead_of(name, installed())}")
    if not name:
        console.print(_algorithm_table())
        console.print(
            Text("one of them in full: mas algorithms NAME   to train: mas train algorithm=NAME", style="dim")
        )
        return
    own = find_algorithm(name)
    recipe = own.recipe
    where = f", arXiv {recipe.paper}" if recipe.paper else ""
    lines = [f"{recipe.title}{where}", recipe.does]
    if recipe.differs:
        lines.append(f"Differs: {recipe.differs}.")
    if recipe.needs:
        lines.append(f"Needs: a scenario with {recipe.needs}.")
    lines += ["Sets:", *(f"  {part}" for part in parts_of(name))]
    lines += _own_part_lines(own)
    lines.append(f"Run: {command_of(name, recipe)}")
    lines.append(f"Status: {status_of(name)}; docs/algorithms/{name}.md" if not is_own else "Status: not of mas")
    for line in lines:
        console.print(Text(line), soft_wrap=True)


def command_of(name: str, recipe: Recipe) -> str:
    """How to train with it where its roles are found."""
    scenario = f"scenario={recipe.scenario} " if recipe.scenario else ""
    return f"mas train {scenario}algorithm={name} {recipe.beside}".rstrip()


def status_of(name: str) -> str:
    """Its result in the fair comparison; without one it runs and its mechanism is tested, and no more."""
    return str(STUDY_RESULTS[name]) if name in STUDY_RESULTS else "tested"


def parts_of(name: str) -> list[str]:
    """What a preset sets, as `key=value`; the rest is the scenario's preset and the defaults."""
    algorithm = find_algorithm(name)
    options = {f"scenario.options.{key}": value for key, value in algorithm.recipe.options.items()}
    found = options | {f"algorithm.{key}": value for key, value in leaves(dict(algorithm.parts))}
    return [f"{key}={value}" for key, value in found.items()] or ["algorithm.* (nothing but defaults)"]


def _own_part_lines(algorithm: Algorithm[Any]) -> list[str]:
    """Its own functions and options, with their defaults."""
    functions = {name: getattr(algorithm, name) for name in ("advantages", "loss", "sampler", "update")}
    names = [name for name, function in functions.items() if function is not None]
    options = [
        f"  algorithm.options.{key}"
        + ("" if field.is_required() else f"={field.get_default(call_default_factory=True)}")
        for key, field in algorithm.options.model_fields.items()
    ]
    lines = [f"Functions of its own: {', '.join(names)}"] if names else []
    return lines + (["Options of its own:", *options, *_option_lines(algorithm.options)] if options else [])


def _option_lines(options: type[Options]) -> list[str]:
    """What options mean, as their classes say."""
    classes = [one for one in reversed(options.__mro__) if issubclass(one, Options) and one is not Options]
    return [" ".join(("  " + (one.__doc__ or "")).split()) for one in classes if one.__doc__]


def _algorithm_table() -> Table:
    table = Table(box=None, pad_edge=False)
    for column in ("algorithm", "arXiv", "what it does", "made for", "fair comparison, greedy success"):
        table.add_column(column, overflow="fold")
    for name in presets("algorithm"):
        recipe = find_algorithm(name).recipe
        made_for = " · ".join(filter(None, (recipe.scenario, recipe.needs))) or "any"
        table.add_row(name, recipe.paper, recipe.does, made_for, status_of(name))
    for name, place in installed().items():
        table.add_row(name, "", f"comes with another package: {place}", "", "")
    return table
