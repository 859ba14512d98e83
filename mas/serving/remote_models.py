"""What a server lists under `/models`: bases, adapters and, in `mas serve`, teams."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType

import msgspec

from mas.core.engine import AdapterRef
from mas.core.errors import ConfigError
from mas.core.naming import did_you_mean
from mas.serving.remote_completions import read
from mas.serving.remote_server import RemoteServer


class ServedModel(msgspec.Struct, frozen=True):
    """One entry. `parent`: the base of an adapter; `version` and `kind` are given by `mas serve` only."""

    id: str
    parent: str | None = None
    max_model_len: int | None = None
    version: int | None = None
    kind: str | None = None


class _List(msgspec.Struct):
    data: tuple[ServedModel, ...]


async def list_models(server: RemoteServer) -> tuple[ServedModel, ...]:
    """The server's list, in its order.

    Raises:
        EngineError: it cannot be had. NoSuchPath: the server has none.
    """
    return read(await server.get("/models"), _List, server).data


def choose_model(models: Sequence[ServedModel], server: RemoteServer) -> ServedModel:
    """The model that the options name, else the first base.

    Raises:
        ConfigError: the server does not list it.
    """
    wanted, names = server.options.model, [model.id for model in models]
    if wanted is not None:
        found = next((model for model in models if model.id == wanted), None)
        if found is None:
            raise ConfigError(
                f"{server.place}.model={wanted}: {server.options.url} does not serve it. {did_you_mean(wanted, names)}"
            )
        return found
    first = next((model for model in models if model.parent is None and model.kind != "team"), None)
    if first is None:
        raise ConfigError(f"{server.options.url} lists no base model; set {server.place}.model to one of: {names}")
    return first


def context_of(model: ServedModel, models: Sequence[ServedModel]) -> int | None:
    """Longest context in tokens, an adapter's being its base's; None where the server does not say."""
    parent = next((other for other in models if other.id == model.parent), model)
    return model.max_model_len or parent.max_model_len


def adapters_of(models: Sequence[ServedModel]) -> Mapping[str, AdapterRef]:
    """Every adapter by name; a server without version numbers has version 0 of each."""
    adapters = [model for model in models if model.parent is not None and model.kind != "team"]
    return MappingProxyType({model.id: AdapterRef(model.id, model.version or 0) for model in adapters})
