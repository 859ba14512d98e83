"""The command `mas algorithms`: which there are, and all about one."""

from collections.abc import Sequence
from importlib.metadata import entry_points
from typing import Annotated, Any

import msgspec
import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from mas.algorithms.base import Algorithm, Recipe
from mas.algorithms.registry import GROUP, SHIPPED, find_algorithm
from mas.config.completion import complete_algorithm
from mas.config.load import instead_of, leaves, presets
from mas.config.study_results import STUDY_RESULTS
from mas.core.errors import ConfigError
from mas.core.options import Options
from mas.core.plugins import hidden_offers, offered_names, package_of
from mas.core.user_code import is_code
from mas.observe.files import STANDARD_OUTPUT, check_json_file, write_json_file
from mas.runs.overrides import JsonFile

ASKED = "algorithm=?"


class ListedAlgorithm(msgspec.Struct, frozen=True, kw_only=True):
    """One algorithm as the list shows it. `scenario`, `needs`: what it is made for, empty: any; `beside`: further words
    of its command; `status`: its result in the fair comparison, or `tested`; empty for those of other packages."""

    name: str
    title: str = ""
    paper: str = ""
    does: str
    scenario: str = ""
    needs: str = ""
    beside: str = ""
    status: str = ""


def algorithms(
    name: Annotated[
        str,
        typer.Argument(metavar="NAME", help="one algorithm; default: all", autocompletion=complete_algorithm),
    ] = "",
    find: Annotated[
        list[str] | None, typer.Option(metavar="WORD", help="list those whose lines have this word (may be repeated)")
    ] = None,
    scenario: Annotated[
        str, typer.Option(metavar="NAME", help="list those that are made for this scenario, or for any")
    ] = "",
    json: JsonFile = None,
) -> None:
    """List the algorithms, or say all about one: its paper, its parts, what it does otherwise."""
    check_json_file(json)
    console = Console(quiet=json == STANDARD_OUTPUT)
    offered = offered_names(GROUP)
    is_own = name not in SHIPPED and (is_code(name) or name in offered)
    if name and name not in SHIPPED and not is_own:
        raise ConfigError(f"no algorithm {name!r}. {instead_of(name, offered)}")
    if name and (find or scenario):
        raise ConfigError("--find and --scenario choose from the list, and NAME names one: leave one of them out")
    listed = [_listed(name)] if name else _found(find or [], scenario)
    if json is not None:
        write_json_file(json, listed)
    if not name:
        console.print(_algorithm_table(listed))
        console.print(
            Text("one of them in full: mas algorithms NAME   to train: mas train algorithm=NAME", style="dim")
        )
        for why in hidden_offers("algorithm", GROUP, SHIPPED):
            console.print(Text(why, style="red"), soft_wrap=True)
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


def _listed(name: str) -> ListedAlgorithm:
    recipe = find_algorithm(name).recipe
    return ListedAlgorithm(
        name=name,
        title=recipe.title,
        paper=recipe.paper,
        does=recipe.does,
        scenario=recipe.scenario,
        needs=recipe.needs,
        beside=recipe.beside,
        status=status_of(name) if name in SHIPPED else "",
    )


def _found(words: Sequence[str], scenario: str) -> list[ListedAlgorithm]:
    """Those whose texts have all words, and that are made for `scenario` or for any.

    Raises:
        ConfigError: there are none.
    """
    listed = [_listed(name) for name in presets("algorithm")]
    listed += [
        ListedAlgorithm(name=point.name, does=f"comes with the package {package_of(point)}: {point.value}")
        for point in sorted(entry_points(group=GROUP))
        if point.name not in SHIPPED
    ]
    fit = [one for one in listed if not scenario or one.scenario in ("", scenario)]
    chosen = [
        one for one in fit if all(word.lower() in " ".join(msgspec.structs.astuple(one)).lower() for word in words)
    ]
    if not chosen:
        raise ConfigError(f"no algorithm has {' and '.join(map(repr, words))} in its lines: take fewer or other words")
    return chosen


def _algorithm_table(listed: Sequence[ListedAlgorithm]) -> Table:
    """Two columns, which fit 80 characters: a name with its paper, and what is known of it, a line each."""
    table = Table(box=None, pad_edge=False)
    table.add_column("algorithm, arXiv", no_wrap=True)
    table.add_column("what it does; made for; greedy success in the fair comparison", overflow="fold")
    for one in listed:
        made_for = " · ".join(filter(None, (one.scenario, one.needs)))
        lines = [one.does, f"for {made_for}" if made_for else "", "" if one.status == "tested" else one.status]
        table.add_row(
            Text.assemble((one.name, "bold"), f"\n{one.paper}" if one.paper else ""),
            Text.assemble(lines[0], ("".join(f"\n{line}" for line in lines[1:] if line), "dim")),
        )
    return table
