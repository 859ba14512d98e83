"""One `vllm serve` or several as one engine: each server gets every version, and an episode stays with one of them."""

from contextlib import AsyncExitStack

from mas.config.servers import RemoteOptions
from mas.core.errors import EngineError
from mas.serving.model import BaseModel
from mas.serving.remote_vllm import RemoteVllmEngine
from mas.serving.replicated_engine import ReplicatedEngine


async def start_servers(base: BaseModel, options: RemoteOptions) -> RemoteVllmEngine | ReplicatedEngine:
    """Speak to the server at `url`, and to those of `replicas`, if there are any.

    Raises:
        ConfigError: the key is not set, a server does not have the model, or `shared_dir` is no directory.
        EngineError: there is no such server, or adapters cannot be loaded into it; of replicas, says which.
    """
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
