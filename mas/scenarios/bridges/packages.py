"""Packages that only one bridge needs, imported when it is opened."""

from importlib import import_module
from typing import Any

from mas.core.errors import MissingPackage


def load_package(module: str, extra: str) -> Any:
    """The module of another package.

    Raises:
        MissingPackage: it, or something that it needs, is not installed; says what to install.
    """
    try:
        return import_module(module)
    except ImportError as error:
        raise MissingPackage(f"this needs the extra {extra!r} ({error}): pip install 'mas[{extra}]'") from error
