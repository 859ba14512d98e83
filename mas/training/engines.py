"""The engine of a team: started, and asked for what it needs before anything is written."""

from mas.config.options import EngineOptions
from mas.core.concurrency import run_blocking
from mas.core.errors import ConfigError
from mas.serving.model import BaseModel
from mas.serving.remote_vllm import RemoteVllmEngine
from mas.serving.store import ServingEngine
from mas.serving.transformers_engine import TransformersEngine
from mas.serving.vllm_engine import VllmEngine
from mas.serving.vllm_options import vllm_arguments
from mas.training.model_endpoints import open_peer, open_peers, start_model_endpoint
from mas.training.setup import Setup

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
            if setup.engine.name == "openai":
                endpoint = await start_model_endpoint(setup.engine.remote, setup.model, "engine.remote")
                await endpoint.engine.close()
            if setup.engine.name == "vllm_server" and base is not None:
                await (await start_engine(setup.engine, base)).close()

    run_blocking(ask_servers())


async def start_engine(options: EngineOptions, base: BaseModel) -> ServingEngine:
    """The engine that the options name, with nothing published yet.

    Raises:
        ModelError: it is not installed, or cannot serve the model. ConfigError: it has no such option, or nothing can
            be published to it. EngineError: its server cannot be reached.
    """
    if options.name == "vllm":
        return await VllmEngine.start(base, options, rank=base.options.highest_rank)
    if options.name == "vllm_server":
        return await RemoteVllmEngine.start(base, options.remote)
    check_published(options)
    return TransformersEngine(base)
