"""The command `mas bench`, which stands in `benchmarks/` of the repository and not in the package."""

import sys
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import typer

from mas.core.errors import ConfigError

_NO_BENCHMARKS = (
    "benchmarks are no part of the installed package: clone the repository of mas and write `make bench` there, or "
    "install the clone (pip install --editable '.[bench]') and write mas bench"
)


def add_bench(app: typer.Typer, root: Path = Path(__file__).parents[2]) -> None:
    """Give the app the commands of `benchmarks/`; without it one command, which raises ConfigError.

    Args:
        root: of the repository, if mas runs from one.
    """
    if (root / "pyproject.toml").is_file() and (root / "benchmarks" / "command.py").is_file():
        _import_benchmarks(root / "benchmarks")
        app.add_typer(import_module("benchmarks.command").bench)
        return

    @app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
    def bench() -> None:
        """Measure mas against others, in a clone of its repository."""
        raise ConfigError(_NO_BENCHMARKS)


def _import_benchmarks(folder: Path) -> None:
    """Make `benchmarks` this folder, whatever another package has installed under that name."""
    if "benchmarks" in sys.modules:
        return
    spec = spec_from_file_location("benchmarks", folder / "__init__.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    sys.modules["benchmarks"] = module
    spec.loader.exec_module(module)


bench_app = typer.Typer()
add_bench(bench_app)
