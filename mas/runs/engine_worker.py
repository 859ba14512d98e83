"""An engine replica: the process that generates and scores for the one that trains."""

import asyncio
import shutil

import msgspec

from mas.runs.worker_setup import load_setup
from mas.serving.adapter_files import VersionFiles, received_files, received_weights
from mas.serving.model import BaseModel
from mas.serving.publication import AdapterVersion, VersionEngine
from mas.training.engine_processes import EngineVersionOrder, GenerateOrder, ScoreOrder
from mas.training.engines import start_version_engine

FACTORY = "mas.runs.engine_worker:make"


class EngineWorker:
    """Has the versions that it is given, by the numbers that they have in the process that trains."""

    def __init__(self, base: BaseModel, engine: VersionEngine) -> None:
        self._base, self._engine = base, engine
        self._versions: dict[int, AdapterVersion] = {}
        self._files = VersionFiles()

    async def load(self, payload: bytes, content: bytes) -> bytes:
        """Make a version ready; one that is ready stays as it is.

        Raises:
            EngineError: it came damaged, or cannot be loaded.
        """
        order = msgspec.json.decode(payload, type=EngineVersionOrder)
        if order.number in self._versions:
            return b""
        weights, path = received_weights(order, content, self._base.bank), None
        if self._engine.reads_files:
            path = self._files.write(f"{order.ref}-{order.number}", received_files(order, content))
        version = AdapterVersion(order.ref, order.number, weights, path)
        await self._engine.load(version)
        self._versions[order.number] = version
        return b""

    async def unload(self, payload: bytes) -> bytes:
        """Forget a version; nothing if it is not there."""
        if (version := self._versions.pop(msgspec.json.decode(payload, type=int), None)) is not None:
            await self._engine.unload(version)
            if version.path is not None:
                shutil.rmtree(version.path, ignore_errors=True)
        return b""

    async def generate(self, payload: bytes) -> bytes:
        """The completions of a request, in MessagePack."""
        order = msgspec.msgpack.decode(payload, type=GenerateOrder)
        return msgspec.msgpack.encode(await self._engine.generate_version(self._version(order.number), order.request))

    async def score(self, payload: bytes) -> bytes:
        """The log-probabilities of a completion, in MessagePack."""
        order = msgspec.msgpack.decode(payload, type=ScoreOrder)
        version = self._version(order.number)
        return msgspec.msgpack.encode(await self._engine.score_version(version, order.prompt_ids, order.completion_ids))

    async def close(self) -> None:
        await self._engine.close()
        self._files.close()

    def _version(self, number: int | None) -> AdapterVersion | None:
        return None if number is None else self._versions[number]


async def make(arguments: bytes) -> EngineWorker:
    """A replica; see `setup_of`.

    Raises:
        ConfigError, ModelError: as `load_setup`, or the engine is not installed or cannot serve the model.
    """
    setup, base = await asyncio.to_thread(load_setup, arguments)
    return EngineWorker(base, await start_version_engine(setup.engine, base))
