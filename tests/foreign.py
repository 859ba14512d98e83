"""Interpreters with packages that cannot be installed beside those of mas: `make install-foreign` makes them."""

import os
from pathlib import Path

ROOT = Path(__file__).parents[1]


def foreign_python(package: str) -> str:
    """That of `.venv-PACKAGE`, or the one that MAS_PACKAGE_PYTHON names; empty: there is none."""
    made = ROOT / f".venv-{package}" / "bin" / "python"
    return os.environ.get(_variable(package)) or (str(made) if (made.parents[1] / "installed").exists() else "")


def why_none(package: str) -> str:
    """Why a test is skipped."""
    return f"no Python with {package}: make install-foreign, or name one in {_variable(package)}"


def _variable(package: str) -> str:
    return f"MAS_{package.upper()}_PYTHON"
