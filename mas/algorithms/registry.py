"""Finds algorithms: those of mas, files, modules, and entry points `mas.algorithms` of other packages."""

from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import Any

from mas.algorithms.base import Algorithm
from mas.core.errors import ConfigError
from mas.core.naming import did_you_mean
from mas.core.plugins import find_offer, load_offer, offered_names
from mas.core.user_code import is_code, load_module

EXAMPLE = "path/file.py:NAME"
GROUP = "mas.algorithms"
"""The entry points of other packages."""
FORMER: dict[str, str] = {"hrpo": "action_grpo"}
"""Algorithms of mas by the names that they had before."""
_OTHERS = ("base", "registry", "settings")
SHIPPED: dict[str, str] = {
    module.name: f"mas.algorithms.{module.name}"
    for module in iter_modules([str(Path(__file__).parent)])
    if module.name.isidentifier() and not module.ispkg and module.name not in _OTHERS
}
"""Those of mas: name -> module, which has it as `algorithm`."""


def find_algorithm(name: str) -> Algorithm[Any]:
    """The algorithm of a name: one of mas, `path/file.py`, `path/file.py:NAME`, `package.module:NAME`, or an entry
    point's.

    A file's name alone is enough where the file has one algorithm.

    Raises:
        ConfigError: there is no such file, module or entry point, it cannot be imported, or it has no such algorithm;
            several packages offer the name.
    """
    if name in SHIPPED:
        own: Algorithm[Any] | None = getattr(import_module(SHIPPED[name]), "algorithm", None)
        if own is None:
            raise ConfigError(f"{SHIPPED[name]} has no `algorithm`: a file of that folder is one algorithm")
        return own
    point = find_offer("algorithm", GROUP, name)
    if point is not None:
        offered = load_offer("algorithm", point)
        if isinstance(offered, Algorithm):
            return offered
        raise ConfigError(
            f"algorithm {name!r}: {point.value} of another package is a {type(offered).__name__}, no "
            "mas.algorithms.Algorithm: see docs/own_algorithm.md"
        )
    if not is_code(name):
        raise ConfigError(
            f"no algorithm {name!r} comes with an installed package. {did_you_mean(name, offered_names(GROUP))}"
        )
    what = f"algorithm {name!r}"
    path, mark, attribute = (name, "", "") if name.endswith(".py") else name.rpartition(":")
    if not path or (mark and not attribute.isidentifier()):
        raise ConfigError(f"{what}: write path/file.py, {EXAMPLE} or package.module:NAME")
    found = {
        key: value
        for key, value in vars(load_module(what, path, EXAMPLE)).items()
        if isinstance(value, Algorithm) and not key.startswith("_")
    }
    if attribute in found:
        return found[attribute]
    if attribute or not found:
        wanted = f"no algorithm {attribute!r}" if attribute else "no algorithm"
        possible = f" {did_you_mean(attribute, found)}" if found else ""
        raise ConfigError(
            f"{what}: {path} has {wanted}.{possible} One is made by mas.algorithms.Algorithm: see docs/own_algorithm.md"
        )
    if len(found) > 1:
        raise ConfigError(f"{what}: {path} has {len(found)} algorithms; write one of {_places(path, found)}")
    return next(iter(found.values()))


def label_of(name: str) -> str:
    """What an algorithm is called in files and curves: the name of its file, or of what is in a module."""
    if name.endswith(".py"):
        return Path(name).stem
    return name.rpartition(":")[2]


def _places(path: str, found: dict[str, Algorithm[Any]]) -> str:
    return ", ".join(f"{path}:{name}" for name in sorted(found))
