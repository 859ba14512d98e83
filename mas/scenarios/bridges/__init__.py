"""Environments of other packages behind our contract, each by an id such as `open_spiel:kuhn_poker`."""

from importlib import import_module
from typing import cast

from mas.core.environment import Environment
from mas.core.errors import ConfigError
from mas.core.naming import did_you_mean

PREFIX = {
    "gymnasium": "mas.scenarios.bridges.gymnasium",
    "jaxmarl": "mas.scenarios.bridges.jaxmarl",
    "open_spiel": "mas.scenarios.bridges.open_spiel",
    "openenv": "mas.scenarios.bridges.openenv",
    "pettingzoo": "mas.scenarios.bridges.pettingzoo",
    "reasoning_gym": "mas.scenarios.reasoning",
    "textarena": "mas.scenarios.bridges.textarena",
    "textworld": "mas.scenarios.bridges.textworld",
    "verifiers": "mas.scenarios.bridges.verifiers",
}
"""What an id begins with -> the module whose `open_environment` takes the rest.

Imported by name when an id needs it: `reasoning_gym` lies with the scenario that is made of it and uses
`mas.scenarios.bridges.packages`, so an import here would be a circle.
"""


def open_bridge(name: str) -> Environment:
    """The environment that an id names, `PACKAGE:NAME`, not yet reset.

    Raises:
        ConfigError: no such package or name, or the package is not installed.
    """
    package, _, rest = name.partition(":")
    if package not in PREFIX or not rest:
        raise ConfigError(f"{name!r} is no id of a bridge: write PACKAGE:NAME. {did_you_mean(package, PREFIX)}")
    return cast(Environment, import_module(PREFIX[package]).open_environment(rest))
