"""The command `mas check`: the contract suites of `mas.testing` on scenarios, roles, algorithms and teams."""

from contextlib import nullcontext
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from mas.commands.find_parts import CheckedProperty, find_parts
from mas.core.errors import MissingPackage
from mas.core.printable import printable
from mas.observe.files import check_json_file, write_json_file
from mas.observe.trust_option import Trust
from mas.runs.overrides import JsonFile


def check(
    parts: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="PART",
            help="FILE.py, FILE.py:NAME, package.module:NAME, TEAM.yaml, a directory or a name that mas knows; "
            "default: this directory. scenario=NAME and scenario.options.KEY=VALUE: where teams and algorithms play",
        ),
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="print only what fails")] = False,
    json: JsonFile = None,
    trust: Trust = False,
) -> None:
    """Run the contract suites on scenarios, roles, algorithms and teams of your own. Exit code 1 if one fails.

    A Python file is imported, and so its code runs. Classes that a team's file names need `--trust`, as elsewhere.
    """
    check_json_file(json)
    overrides = [word for word in parts or [] if "=" in word]
    found = find_parts([word for word in parts or [] if "=" not in word] or ["."])
    _check_suites()
    from mas.commands.check_parts import checked

    console, results = Console(quiet=json == Path("-")), list[CheckedProperty]()
    for part in found:
        if not quiet:
            console.print(Text.assemble((printable(part.name), "bold"), f"  {part.kind}"), soft_wrap=True)
        with nullcontext() if quiet else console.status("checking"):  # at a terminal alone: a suite takes seconds
            for one in checked(part, overrides):
                results.append(one)
                if one.status != "ok" or not quiet:
                    console.print(_line(one, has_part=quiet), soft_wrap=not console.is_terminal)
    failed = [one for one in results if one.status == "failed"]
    if not quiet:
        count = f"{len(results)} properties of {len(found)} part{'s' * (len(found) > 1)}"
        console.print(Text(f"{count}, {len(failed)} failed", style="bold red" if failed else "bold green"))
    if json is not None:
        write_json_file(json, results)
    if failed:
        raise typer.Exit(1)


def _line(one: CheckedProperty, *, has_part: bool) -> Text:
    style = {"ok": "green", "failed": "bold red", "note": "yellow"}[one.status]
    where = f"{one.part}: " if has_part else ""
    why = f": {one.why}" if one.why else ""
    return Text.assemble((f"  {one.status:<7}", style), printable(f"{where}{one.name}{why}"))


def _check_suites() -> None:
    """Refuse to go on without what the suites are written with.

    Raises:
        MissingPackage: pytest or hypothesis is not installed.
    """
    for name in ("pytest", "hypothesis"):
        if find_spec(name) is None:
            raise MissingPackage(f"mas check needs {name}: pip install 'mas[test]'")
