"""The command `mas new`: a scenario, role, algorithm or team of a user's own to begin with, and its test."""

import keyword
import re
import shlex
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Literal, NamedTuple, get_args

import typer

from mas.commands.skeletons import ALGORITHM, ROLE, SCENARIO, TEAM, Skeleton
from mas.core.errors import ConfigError, RunDirectoryError

NewKind = Literal["scenario", "role", "algorithm", "team"]
_SKELETONS: Mapping[str, Skeleton] = {"scenario": SCENARIO, "role": ROLE, "algorithm": ALGORITHM, "team": TEAM}
_NAME = re.compile(r"[a-z][a-z0-9_]{0,39}")


class Names(NamedTuple):
    """What a skeleton's texts are filled with: the name, and the same as a class is written."""

    name: str
    class_name: str


def new(
    kind: Annotated[NewKind, typer.Argument(metavar="KIND", help=f"one of {', '.join(get_args(NewKind))}")],
    name: Annotated[str, typer.Argument(metavar="NAME", help="of its files: small letters, digits and _")],
    folder: Annotated[
        Path, typer.Option("--dir", metavar="DIR", help="where they are written; made if it is not there")
    ] = Path(),
) -> None:
    """Write a scenario, role, algorithm or team of your own to begin with, and its test.

    No file is ever overwritten: where one is there, nothing is written.
    """
    names, skeleton = checked_names(name), _SKELETONS[kind]
    files = {folder / filled(path, names): filled(text, names) for path, text in skeleton.files.items()}
    write_new(folder, files)
    for path in files:
        typer.echo(f"wrote {path}")
    begin = [] if folder.resolve() == Path.cwd() else [f"cd {shlex.quote(str(folder))}"]
    if find_spec("pytest") is None:
        begin.append("pip install 'mas[test]'")  # the check needs it, too
    typer.echo("next:")
    for command in (*begin, filled(skeleton.check, names), filled(skeleton.train, names), "pytest"):
        typer.echo(f"  {command}")


def checked_names(name: str) -> Names:
    """The names that the files have.

    Raises:
        ConfigError: it is no name of a Python module that is free.
    """
    if not _NAME.fullmatch(name) or keyword.iskeyword(name):
        raise ConfigError(
            f"NAME {name!r}: write small letters, digits and _, a letter first, at most 40, and no word of Python, "
            "such as my_task"
        )
    if name in sys.stdlib_module_names or name.startswith("test_") or _is_installed(name):
        raise ConfigError(
            f"NAME {name!r}: a module of this name is there already, and would be imported in its place: choose "
            f"another name, such as my_{name.removeprefix('test_')}"
        )
    return Names(name, "".join(part.capitalize() for part in name.split("_")))


def _is_installed(name: str) -> bool:
    """Whether `import NAME` finds a module outside the working directory."""
    spec = find_spec(name)
    return spec is not None and (spec.origin is None or Path(spec.origin).parent.resolve() != Path.cwd())


def filled(text: str, names: Names) -> str:
    """A skeleton's text with the names in it."""
    return text.replace("NAME", names.name).replace("CLASS", names.class_name)


def write_new(folder: Path, files: Mapping[Path, str]) -> None:
    """Write files that are not there yet: all of them, or none.

    Raises:
        RunDirectoryError: one is there, or cannot be written.
    """
    if there := [path for path in files if path.exists() or path.is_symlink()]:
        raise RunDirectoryError(f"{there[0]} is there already, and nothing was written: choose another NAME or --dir")
    missing = [one for one in (folder, *folder.parents) if not one.exists()]
    made: list[Path] = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for path, text in files.items():
            with path.open("x", encoding="utf-8") as file:
                made.append(path)
                file.write(text)
    except BaseException as error:
        for path in made:
            path.unlink(missing_ok=True)
        for one in missing:
            if one.is_dir() and not any(one.iterdir()):
                one.rmdir()
        if not isinstance(error, OSError):
            raise
        where = error.filename or folder
        raise RunDirectoryError(
            f"{where} cannot be written, and nothing was: {error.strerror}. Choose another --dir"
        ) from error
