"""Engines and model endpoints of a team: started, and asked for what they need before anything is written.

Servers elsewhere are endpoints of roles: peers of single roles, and the whole team of `engine=openai`.
"""

from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from types import MappingProxyType
from typing import TYPE_CHECKING, Protocol

from mas.config.options import EngineOptions, ModelOptions
from mas.config.servers import PeerOptions, RemoteOptions, ServerOptions
from mas.core.concurrency import run_blocking
from mas.core.engine import Tokenizer
from mas.core.errors import ConfigError, EngineError, MissingPackage
from mas.core.naming import did_you_mean
from mas.runtime.agents import ModelEndpoint
from mas.serving.model import BaseModel, load_text, tiny_text
from mas.serving.model_text import END, MessageTokenizer, ModelText
from mas.serving.replicated_engine import ReplicatedEngine
from mas.serving.store import ServingEngine
from mas.serving.transformers_engine import TransformersEngine
from mas.serving.vllm_engine import VllmEngine
from mas.serving.vllm_options import vllm_arguments
from mas.training.setup import Setup

if TYPE_CHECKING:
    from mas.serving.remote_vllm import RemoteVllmEngine

NOT_PUBLISHED = (
    "engine=openai plays what a server serves; nothing can be published to it, so nothing can be trained or served "
    "with it: use engine=transformers, engine=vllm or engine=vllm_server. `mas run` and `mas eval` play with it, and "
    "algorithm=training_free learns with it."
)


def check_published(engine: EngineOptions) -> None:
    """Refuse an engine that nothing can be published to.

    Raises:
        ConfigError: it is one.
    """
    if engine.name == "openai":
        raise ConfigError(NOT_PUBLISHED)
    if engine.name == "tinker":
        raise ConfigError(
            "engine=tinker plays and trains what its service has; nothing that is loaded here can be published to it: "
            "use engine=transformers, engine=vllm or engine=vllm_server"
        )


def check_engine(setup: Setup, base: BaseModel | None) -> None:
    """Find out before anything is written whether the engine and the peers have what they need; servers are asked.

    Raises:
        ModelError: it is not installed, or cannot serve the model. ConfigError: it has no such option.
        EngineError: a server cannot be reached, or cannot do what is wanted.
    """
    if setup.engine.name == "vllm" and base is not None:
        vllm_arguments(base, setup.engine, base.options.highest_rank)

    async def ask_servers() -> None:
        late, training_free = setup.algorithm.reward.late, setup.algorithm.is_training_free
        judge = late.judge if late is not None and late.judge in setup.peers else None
        editor = setup.algorithm.experience.peer if training_free else None
        async with open_peers(setup), open_peer(setup, editor), open_peer(setup, judge):
            if setup.is_served_elsewhere:
                await (await start_served(setup)).engine.close()
            if setup.engine.name == "vllm_server" and base is not None:
                await (await start_engine(setup.engine, base)).close()

    run_blocking(ask_servers())


async def start_engine(options: EngineOptions, base: BaseModel) -> ServingEngine:
    """The engine that the options name, with nothing published yet.

    Raises:
        ModelError: it is not installed, or cannot serve the model. ConfigError: it has no such option, or nothing can
            be published to it. EngineError: its server cannot be reached.
    """
    check_published(options)
    if options.name == "vllm_server":
        return await start_servers(base, options.remote)
    return await start_version_engine(options, base)


async def start_version_engine(options: EngineOptions, base: BaseModel) -> TransformersEngine | VllmEngine:
    """The engine of this process that the options name, `transformers` or `vllm`.

    Raises:
        ModelError: it is not installed, or cannot serve the model. ConfigError: it has no such option.
    """
    if options.name == "vllm":
        return await VllmEngine.start(base, options, rank=base.options.highest_rank)
    return TransformersEngine(base)


class Reading(Protocol):
    """How a model reads text; see `ModelText`."""

    @property
    def tokenizer(self) -> Tokenizer: ...

    @property
    def stop_ids(self) -> tuple[int, ...]: ...

    @property
    def chats(self) -> bool: ...


@dataclass(frozen=True, slots=True)
class _Messages:
    """How models read that exchange text."""

    tokenizer: Tokenizer
    stop_ids: tuple[int, ...] = (END,)
    chats: bool = True


async def start_model_endpoint(options: ServerOptions, model: ModelOptions, place: str) -> ModelEndpoint:
    """A server's model as an endpoint; its engine is the caller's to close.

    Args:
        model: says how it reads tokens, where it exchanges tokens.
        place: where the options stand in the configuration; errors name it.

    Raises:
        ConfigError: the key is not set, or the server does not have the model. EngineError: there is no such server.
        ModelError: there is no such tokenizer.
    """
    # Here, as most runs ask no server, and loading openai takes a second.
    from mas.serving.remote_chat import ChatEngine
    from mas.serving.remote_completions import OpenAIEngine

    if options.api == "chat":
        return ModelEndpoint(engine=await ChatEngine.start(options, place), chats=True)
    text = model_text(model)
    return ModelEndpoint(engine=await OpenAIEngine.start(options, text, place), chats=text.chats)


async def start_served(setup: Setup, saved: Mapping[str, str] = MappingProxyType({})) -> ModelEndpoint:
    """The endpoint of the server elsewhere that has the model; its engine is the caller's to close.

    Args:
        saved: with `engine=tinker`, adapter -> the path of its saved weights.

    Raises:
        As `start_model_endpoint`. MissingPackage: the package `tinker` is not installed.
    """
    remote = setup.engine.remote
    if setup.engine.name != "tinker":
        return await start_model_endpoint(remote, setup.model, "engine.remote")
    if find_spec("tinker") is None:
        raise MissingPackage(
            "engine=tinker needs the package tinker, which is not installed: pip install 'mas[tinker]'"
        )
    from mas.serving.remote_tinker import TinkerEngine

    text = model_text(setup.model)
    return ModelEndpoint(engine=await TinkerEngine.start(remote, text, setup.model.path, saved), chats=text.chats)


def model_text(model: ModelOptions) -> ModelText:
    """How the configured base reads text, without its weights.

    Raises:
        ModelError: the path is no model directory, or the hub id cannot be had.
    """
    return tiny_text(model) if model.path == "tiny" else load_text(model)


@asynccontextmanager
async def open_peers(setup: Setup) -> AsyncIterator[Mapping[str, ModelEndpoint]]:
    """Role -> endpoint for every role that a peer, or an agent elsewhere, plays.

    Raises:
        As `start_model_endpoint`, and `A2aEngine.start`.
    """
    team = setup.team
    endpoints: dict[str, ModelEndpoint] = {}
    async with AsyncExitStack() as stack:
        for name, options in setup.peers.items():
            if name not in {role.peer for role in team.roles.values()}:
                continue  # an editor's, or a judge's
            endpoints[name] = await start_model_endpoint(options, _peer_model(setup.model, options), f"peers.{name}")
            stack.push_async_callback(endpoints[name].engine.close)
        agents: dict[str, ModelEndpoint] = {}
        for name, role in team.roles.items():
            if role.a2a is not None:
                from mas.serving.remote_a2a import A2aEngine

                agents[name] = ModelEndpoint(engine=await A2aEngine.start(role.a2a, name), chats=True)
                stack.push_async_callback(agents[name].engine.close)
        yield agents | {name: endpoints[role.peer] for name, role in team.roles.items() if role.peer is not None}


def peer_texts(setup: Setup) -> dict[str, Reading]:
    """Role -> how its peer, or the agent elsewhere, reads text, for every role that one plays; no server is asked.

    Raises:
        ModelError: as `model_text`.
    """
    peers = {role: setup.peers[spec.peer] for role, spec in setup.team.roles.items() if spec.peer is not None}
    agents = {role: _Messages(MessageTokenizer()) for role, spec in setup.team.roles.items() if spec.a2a is not None}
    return agents | {
        role: _Messages(MessageTokenizer()) if options.api == "chat" else model_text(_peer_model(setup.model, options))
        for role, options in peers.items()
    }


@asynccontextmanager
async def open_peer(setup: Setup, name: str | None) -> AsyncIterator[ModelEndpoint | None]:
    """The endpoint of a peer that no role is played by, such as an editor or a judge; None: no peer.

    Raises:
        As `start_model_endpoint`.
    """
    if name is None:
        yield None
        return
    options = setup.peers[name]
    endpoint = await start_model_endpoint(options, _peer_model(setup.model, options), f"peers.{name}")
    try:
        yield endpoint
    finally:
        await endpoint.engine.close()


def _peer_model(model: ModelOptions, options: PeerOptions) -> ModelOptions:
    return model if options.tokenizer is None else model.model_copy(update={"path": options.tokenizer})


def served_adapters(wanted: Mapping[str, str | None], served: Mapping[str, object], url: str) -> dict[str, str | None]:
    """Role -> adapter as a server has them: those wanted, or none at all where it has none of them.

    Raises:
        ConfigError: it has some of them only.
    """
    names = {name for name in wanted.values() if name is not None}
    missing = sorted(names - served.keys())
    if not missing:
        return dict(wanted)
    if len(missing) < len(names):
        raise ConfigError(
            f"{url} serves only some adapters of the team, not {missing}. {did_you_mean(missing[0], served)}"
        )
    return dict.fromkeys(wanted)


async def start_servers(base: BaseModel, options: RemoteOptions) -> "RemoteVllmEngine | ReplicatedEngine":
    """One `vllm serve`, at `url`, or with those of `replicas` several as one engine: each gets every version, and
    an episode stays with one of them.

    Raises:
        ConfigError: the key is not set, a server does not have the model, or `shared_dir` is no directory.
        EngineError: there is no such server, or adapters cannot be loaded into it; of replicas, says which.
    """
    from mas.serving.remote_vllm import RemoteVllmEngine

    if not options.replicas:
        return await RemoteVllmEngine.start(base, options)
    async with AsyncExitStack() as stack:
        servers = dict[str, RemoteVllmEngine]()
        for number, server in enumerate(options.servers):
            try:
                engine = await RemoteVllmEngine.start(base, server, is_replica=True)
            except EngineError as error:
                raise EngineError(
                    f"server {number + 1} of {len(options.servers)} cannot be used: {error}. Every server that "
                    "engine.remote.replicas names must answer when training starts: start it, or leave it out"
                ) from error
            stack.push_async_callback(engine.close)
            servers[f"server-{number}"] = engine
        limits = min((engine.limits for engine in servers.values()), key=lambda one: one.context)
        first = servers["server-0"]
        replicated = ReplicatedEngine(
            base, servers, limits=limits, reads_files=True, restricts=False, files=first.shared_dir
        )
        stack.pop_all()
    return replicated
