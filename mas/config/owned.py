"""Parts of `algorithm.*` that only some algorithms have: these set them, and their options say how."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from mas.algorithms.base import Algorithm
from mas.algorithms.registry import SHIPPED, find_algorithm
from mas.core.errors import ConfigError
from mas.core.naming import did_you_mean

OWNED = (
    *("update", "stages", "swap", "fork", "critic", "preference", "experience"),
    *("sampler.max_leaves", "sampler.branch", "sampler.horizon", "sampler.resample", "sampler.refill"),
    *("sampler.filter", "sampler.replay"),
    *("reward.length", "reward.model", "reward.late", "reward.gain", "reward.partial", "reward.shared"),
    "reward.proposer",
    *("advantage.single", "advantage.decay", "advantage.components", "advantage.strata", "advantage.step"),
    *("advantage.tree", "advantage.early", "advantage.inherit", "advantage.uncertainty", "advantage.entropy_weight"),
    *("loss.tau_pos", "loss.tau_neg", "loss.bias_correction", "loss.multiple_of", "loss.smoothing"),
)
"""Paths below `algorithm`: such a part makes sense beside the other parts of its algorithm only."""
_ROOT, _OPTIONS = "algorithm.", "algorithm.options."
_FILE = "For another mix of parts write an algorithm of your own, a file of a few lines: docs/own_algorithm.md"


def is_owned(key: str) -> bool:
    """Whether a key below `algorithm` is of a part that only some algorithms have."""
    return any(_is_within(key, path) for path in OWNED)


def check_open(key: str, value: Any, own: Algorithm[Any] | None) -> None:
    """Refuse a value for a part that only an algorithm sets, or for a whole section that holds such parts.

    Args:
        key: dotted, of a value that is no section, as `mas.config.load.leaves` has them.
        own: the algorithm; None: it is not known.

    Raises:
        ConfigError: says which algorithms have the part, and what the option is called there.
    """
    if not key.startswith(_ROOT) or key.startswith(_OPTIONS):
        return
    path = key.removeprefix(_ROOT)
    if is_owned(path):
        raise ConfigError(
            f"{key} cannot be set by itself: {_owners(path)}. {_FILE}, with parts={_nested(path, value)!r}"
        )
    if any(part.startswith(f"{path}.") for part in OWNED):
        raise ConfigError(f"{key}={value!r} is not possible: {key} is a section; set its keys one by one, as {key}.KEY")
    for name, place in own.places.items() if own is not None else ():
        if _is_within(path, place) or _is_within(place, path):
            raise ConfigError(f"{key} is set by the algorithm's own option: write {_OPTIONS}{name}=VALUE")


def check_critic(baseline: str, own: Algorithm[Any]) -> None:
    """Refuse a critic that an algorithm has no options for, and options of a critic without it.

    Raises:
        ConfigError: as above.
    """
    is_of_critic = _part(own, "advantage.baseline") == "critic" or _has(own, "critic")
    if "advantage.baseline" in own.places.values() or is_of_critic == (baseline == "critic"):
        return
    if is_of_critic:
        raise ConfigError(f"algorithm.advantage.baseline={baseline} has no critic, which this algorithm trains")
    raise ConfigError("algorithm.advantage.baseline=critic is of algorithms with a critic and its options, such as ppo")


def check_places(name: str, own: Algorithm[Any]) -> None:
    """Refuse places that could not be what an algorithm means.

    Raises:
        ConfigError: they name no option, or a part that the algorithm sets as well.
    """
    for option, path in own.places.items():
        if option not in own.options.model_fields:
            hint = did_you_mean(option, own.options.model_fields)
            raise ConfigError(f"algorithm {name!r}: places has {option!r}, which is none of its options. {hint}")
        if _part(own, path) is not None:
            raise ConfigError(f"algorithm {name!r}: parts and the option {option!r} both set {path}: leave one out")
        for other, its in own.places.items():
            if other != option and _is_within(path, its):
                raise ConfigError(f"algorithm {name!r}: the options {other!r} and {option!r} both set {path}")


def place(values: dict[str, Any], own: Algorithm[Any], options: Mapping[str, Any]) -> None:
    """Put options of an algorithm where they belong in the values of `algorithm`."""
    for name, path in own.places.items():
        if name in options:
            *parents, last = path.split(".")
            node = values
            for part in parents:
                node[part] = node = dict(node.get(part) or {})
            node[last] = options[name]


def placed(key: str, own: Algorithm[Any] | None) -> str:
    """The part that an option's key sets, as `algorithm.advantage.step.weight`; any other key as it is."""
    name, _, rest = key.removeprefix(_OPTIONS).partition(".")
    if own is None or not key.startswith(_OPTIONS) or name not in own.places:
        return key
    return _ROOT + own.places[name] + (f".{rest}" if rest else "")


def named(key: str, own: Algorithm[Any] | None) -> str:
    """The key by which a part is set beside this algorithm: the reverse of `placed`."""
    for name, path in own.places.items() if own is not None else ():
        if _is_within(key, _ROOT + path):
            return _OPTIONS + name + key.removeprefix(_ROOT + path)
    return key


def renamed(text: str, own: Algorithm[Any] | None) -> str:
    """A text in which parts are called as the options of this algorithm that set them."""

    def option(found: re.Match[str]) -> str:
        key = _ROOT + found[0].removeprefix(_ROOT)
        return found[0] if (told := named(key, own)) == key else told

    return re.sub(r"\b[a-z]\w*(?:\.[a-z_]+)+", option, text)


def _owners(path: str) -> str:
    having: dict[str, list[str]] = {}
    for name, one in _shipped():
        if (option := named(_ROOT + path, one)) != _ROOT + path:
            having.setdefault(option, []).append(name)
    if having:
        told = [f"algorithm={' or '.join(names)}, as {option}=VALUE" for option, names in having.items()]
        return f"it is an option of {', and of '.join(told)}"
    section = next(part for part in OWNED if _is_within(path, part))
    names = [name for name, one in _shipped() if _has(one, section)]
    return f"it is a part of algorithm={' and '.join(names)}, which `mas algorithms NAME` prints with its options"


def _shipped() -> Iterator[tuple[str, Algorithm[Any]]]:
    return ((name, find_algorithm(name)) for name in SHIPPED)


def _part(own: Algorithm[Any], path: str) -> Any:
    node: Any = own.parts
    for part in path.split("."):
        node = node.get(part) if isinstance(node, Mapping) else None
    return node


def _has(own: Algorithm[Any], section: str) -> bool:
    return _part(own, section) is not None or any(_is_within(path, section) for path in own.places.values())


def _is_within(key: str, path: str) -> bool:
    return key == path or key.startswith(f"{path}.")


def _nested(path: str, value: Any) -> dict[str, Any]:
    for part in reversed(path.split(".")):
        value = {part: value}
    nested: dict[str, Any] = value
    return nested
