"""Packages that come with an extra of mas: imported when the first of their environments is opened."""

from importlib import import_module
from types import ModuleType

from mas.core.errors import ConfigError


def need(module: str, extra: str) -> ModuleType:
    """The module of an optional package.

    Raises:
        ConfigError: it cannot be imported; the message names the extra.
    """
    try:
        return import_module(module)
    except ImportError as error:
        raise ConfigError(f"{module} cannot be imported ({error}): pip install 'mas[{extra}]'") from error
