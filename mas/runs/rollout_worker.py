"""A rollout worker: the process that plays the tasks of training steps for another one that learns."""

import asyncio
from contextlib import AsyncExitStack

import msgspec

from mas.core.engine import AdapterRef
from mas.core.errors import EngineLost
from mas.runs.worker_setup import load_setup
from mas.runtime.team import TeamRuntime
from mas.serving.adapter_files import HeldVersionOrder, received_weights
from mas.serving.model import BaseModel
from mas.serving.vllm_engine import VllmEngine
from mas.training.rollout import Rollout
from mas.training.session import TeamSession, open_team
from mas.training.setup import plan_tasks
from mas.training.tasks.plan import TaskOrder

FACTORY = "mas.runs.rollout_worker:make"


class RolloutWorker:
    """Plays orders with the versions that it holds. As many batches at once as `train.staleness` lets be in flight."""

    def __init__(self, base: BaseModel, session: TeamSession, rollout: Rollout, stack: AsyncExitStack) -> None:
        self._base, self._session, self._rollout, self._stack = base, session, rollout, stack
        self._leases: dict[AdapterRef, AsyncExitStack] = {}

    async def hold(self, payload: bytes, content: bytes) -> bytes:
        """Publish an adapter version in this process, and keep it.

        Raises:
            EngineError: it came damaged, or is older than one that came before.
        """
        order = msgspec.json.decode(payload, type=HeldVersionOrder)
        weights = received_weights(order, content, self._base.bank)
        if order.ref not in self._leases:
            store = self._session.publishing.store
            name = order.ref.name
            is_kept = name in store.current() and order.ref in store.versions(name)
            if not is_kept:  # else it was held before, and nothing came after it
                await store.publish(name, weights, version=order.ref.version)
            lease = AsyncExitStack()
            await lease.enter_async_context(store.lease(str(order.ref)))
            self._leases[order.ref] = lease
        return b""

    async def drop(self, payload: bytes) -> bytes:
        """Keep a version no longer."""
        order = msgspec.json.decode(payload, type=HeldVersionOrder)
        if (lease := self._leases.pop(order.ref, None)) is not None:
            await lease.aclose()
        return b""

    async def play(self, payload: bytes) -> bytes:
        """The episodes of an order, in MessagePack.

        Raises:
            EngineLost: vLLM died and is not started again. What failed with it is no episode.
        """
        order = msgspec.json.decode(payload, type=TaskOrder)
        played = await self._rollout.play_order(self._lane(order), order)
        engine = self._session.engine
        if isinstance(engine, VllmEngine) and engine.is_lost:
            raise EngineLost(f"vLLM died in this worker, and was restarted {engine.restarts} times before")
        return msgspec.msgpack.encode(played)

    def _lane(self, order: TaskOrder) -> TeamRuntime:
        """The lane of the order's step: no other step in flight has it."""
        lane = self._session.lanes[order.step % len(self._session.lanes)]
        lane.use_adapters(order.speaking)
        return lane

    async def close(self) -> None:
        await self._stack.aclose()


async def make(arguments: bytes) -> RolloutWorker:
    """A worker; see `setup_of`.

    Raises:
        ConfigError, ModelError: as in the process that learns, where they came first.
    """
    setup, base = await asyncio.to_thread(load_setup, arguments)
    async with AsyncExitStack() as stack:
        session = await stack.enter_async_context(open_team(setup, base, lanes=setup.train.staleness + 1))
        return RolloutWorker(base, session, Rollout(setup, plan_tasks(setup)), stack.pop_all())
