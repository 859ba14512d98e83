"""Finds scenarios by name: those of mas, and entry points `mas.scenarios` of other packages."""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from importlib import import_module
from types import MappingProxyType
from typing import Any, NamedTuple

from pydantic import ValidationError

from mas.config.checks import bridged_id, describe_option, is_bridged
from mas.config.options import ScenarioOptions
from mas.core.errors import ConfigError
from mas.core.naming import did_you_mean
from mas.core.options import Options
from mas.core.plugins import find_offer, load_offer, offered_names
from mas.core.scenario import Scenario
from mas.scenarios import user_class


class ScenarioEntry(NamedTuple):
    """One scenario: its option model, how to build it, and what kind of task it is.

    Attributes:
        family: what it has in common with others, as `cooperative planning`.
        sizes: options of its sizes by name, the smallest first; the defaults of the options are the smallest.
        is_demonstrated: whether it has demonstrations for the tiny base.
    """

    options: type[Options]
    build: Callable[[Any], Scenario]
    family: str = "other"
    sizes: Mapping[str, Mapping[str, Any]] = MappingProxyType({"small": MappingProxyType({})})
    is_demonstrated: bool = True


class Shipped(Mapping[str, ScenarioEntry]):
    """Name -> the `ENTRY` of the module `mas.scenarios.NAME`, which is imported when it is asked for."""

    def __init__(self, *names: str) -> None:
        self._names = dict.fromkeys(names)

    def __getitem__(self, name: str) -> ScenarioEntry:
        if name not in self._names:
            raise KeyError(name)
        entry: ScenarioEntry = import_module(f"mas.scenarios.{name}").ENTRY
        return entry

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


_NAMES = """
relay two_hop shop plan_path matrix_games two_player bridge red_team propose sokoban sudoku leader_follower
imposter refine discussion debate safe_reply help_desk math_team code_team tool_use workflow retrieval delegate
subagents negotiation market questions commons economy reasoning
"""
SCENARIOS: Mapping[str, ScenarioEntry] = Shipped(*_NAMES.split())
"""Those of mas that a team's graph plays."""
GROUP = "mas.scenarios"
"""The entry points of other packages."""
PLAYED_ELSEWHERE: Mapping[str, ScenarioEntry] = Shipped("program")
"""Those that programs play, see `mas.gateway`."""


def find_scenario(name: str) -> ScenarioEntry:
    """A built-in scenario, one that another package offers as entry point `mas.scenarios` (a `ScenarioEntry`, or a
    class), or a user's class, `file.py:CLASS` or `package.module:CLASS`, which is imported.

    Raises:
        ConfigError: there is no such scenario, several packages offer it, or the one that does breaks; or as
            `user_class.load_class`.
    """
    if name in SCENARIOS:
        return SCENARIOS[name]
    if name in PLAYED_ELSEWHERE:
        return PLAYED_ELSEWHERE[name]
    if (point := find_offer("scenario", GROUP, name)) is not None:
        return _entry_of(name, point.value, load_offer("scenario", point))
    if is_bridged(name):
        raise ConfigError(bridged_id(name))
    if ":" in name:
        return _of_class(user_class.load_class(name), "of your own")
    raise ConfigError(f"no scenario {name!r}. {did_you_mean(name, [*SCENARIOS, *offered_names(GROUP)])}")


def _entry_of(name: str, place: str, found: object) -> ScenarioEntry:
    """What the entry point of another package names, as an entry."""
    if isinstance(found, type):
        user_class.check_class(f"scenario {name!r}", found)
        return _of_class(found, "other")
    if isinstance(found, tuple) and 2 <= len(found) <= len(ScenarioEntry._fields):
        return ScenarioEntry(*found)
    raise ConfigError(
        f"scenario {name!r}: {place} of another package is a {type(found).__name__}, and neither a "
        "mas.scenarios.ScenarioEntry nor a class: see docs/scenarios.md"
    )


def _of_class(kind: type, family: str) -> ScenarioEntry:
    if user_class.is_tool_class(kind):
        from mas.scenarios import tool_class  # its import takes numpy, which `mas --help` does without

        build = partial(tool_class.build, kind)
        return ScenarioEntry(tool_class.ToolClassOptions, build, family, is_demonstrated=False)
    return ScenarioEntry(user_class.options_of(kind), partial(user_class.build, kind), family)


def build_scenario(options: ScenarioOptions) -> Scenario:
    """The scenario that the options name, with its own options checked.

    Raises:
        ConfigError: an unknown scenario, or an option that it does not have or cannot take.
    """
    entry = find_scenario(options.name)
    try:
        return entry.build(entry.options(**options.options))
    except ValidationError as error:
        names = entry.options.model_fields
        problems = [describe_option("scenario.options", problem, names) for problem in error.errors()]
        raise ConfigError(f"scenario {options.name!r}: " + " ".join(problems)) from error
