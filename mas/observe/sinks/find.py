"""Finds the sinks that `train.sinks` names: those of mas, and classes of users."""

import os
from collections.abc import Callable, Sequence
from importlib import import_module

from mas.core.errors import ConfigError, MissingPackage
from mas.core.naming import did_you_mean
from mas.core.user_code import is_code, load_module
from mas.observe.sinks.base import Sink

SHIPPED: dict[str, tuple[str, dict[str, str]]] = {
    "wandb": ("WandbSink", {"WANDB_ERROR_REPORTING": "false"}),
    "trackio": ("TrackioSink", {"GRADIO_ANALYTICS_ENABLED": "False", "HF_HUB_DISABLE_TELEMETRY": "1"}),
    "mlflow": ("MlflowSink", {"MLFLOW_DISABLE_TELEMETRY": "true", "MLFLOW_LOGGING_LEVEL": "WARNING"}),
}
"""Name, also of the library, of its extra and of the module here -> its class, and what keeps the library from sending
reports of its use. That is set before the library is imported; what a user has set stays."""
EXAMPLE = "path/file.py:NAME"


def find_sinks(names: Sequence[str]) -> dict[str, Callable[[], Sink]]:
    """The classes of sinks, with their libraries imported: `wandb`, `trackio`, `mlflow`, `path/file.py:NAME` or
    `package.module:NAME`.

    Raises:
        MissingPackage: a library is not installed; names the extra.
        ConfigError: a name that is none of these or comes twice, or a class that cannot be imported or is no sink.
    """
    if twice := {name for name in names if names.count(name) > 1}:
        raise ConfigError(f"train.sinks has {sorted(twice)[0]!r} twice: name each sink once")
    return {name: _shipped(name) if name in SHIPPED else _own(name) for name in names}


def _shipped(name: str) -> Callable[[], Sink]:
    class_name, environment = SHIPPED[name]
    for key, value in environment.items():
        os.environ.setdefault(key, value)
    try:
        sink: Callable[[], Sink] = getattr(import_module(f"mas.observe.sinks.{name}"), class_name)
    except ImportError as error:
        raise MissingPackage(
            f"the sink {name} of train.sinks needs the extra {name!r} ({error}): pip install 'mas[{name}]'"
        ) from error
    return sink


def _own(name: str) -> Callable[[], Sink]:
    what = f"train.sinks: {name!r}"
    if not is_code(name):
        raise ConfigError(
            f"{what} is no sink. {did_you_mean(name, SHIPPED)} Your own is {EXAMPLE} or package.module:NAME"
        )
    place, _, class_name = name.rpartition(":")
    if not place or not class_name.isidentifier():
        raise ConfigError(f"{what}: write {EXAMPLE} or package.module:NAME")
    members = vars(load_module(what, place, EXAMPLE))
    sink: Callable[[], Sink] | None = members.get(class_name)
    if sink is None:
        classes = [key for key, value in members.items() if isinstance(value, type)]
        raise ConfigError(f"{what}: {place} has no {class_name!r}. {did_you_mean(class_name, classes)}")
    missing = [method for method in ("open", "log", "close") if not callable(getattr(sink, method, None))]
    if missing:
        raise ConfigError(f"{what} is no sink: it lacks {', '.join(missing)}; see mas.observe.sinks.base.Sink")
    return sink
