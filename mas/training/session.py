"""A team ready to play: its endpoint, engine, bus and runtime, put together for one setup."""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import MappingProxyType

from mas.bus.memory import MemoryBus
from mas.bus.serve import EnvelopeFactory
from mas.core.bus import Bus
from mas.core.scenario import Scenario
from mas.graph.plan import TeamPlan
from mas.runtime.human import HumanDesk
from mas.runtime.placement import RUN, ProcessRole
from mas.runtime.replay_log import ReplayLog
from mas.runtime.team import TeamRuntime
from mas.serving.adapter_weights import AdapterWeights
from mas.serving.model import BaseModel
from mas.serving.store import ServingEngine
from mas.tools.recorded import open_tools
from mas.training.engines import open_peers, served_adapters, start_engine, start_served
from mas.training.remote_adapter_sync import SyncedEngine
from mas.training.setup import Setup
from mas.training.tasks.plan import ProgramPlayer


@dataclass(frozen=True, slots=True, kw_only=True)
class Shared:
    """A bus that is open, and stays so, with other processes on it, and what of a team this one does."""

    bus: Bus
    place: ProcessRole


@dataclass(frozen=True, slots=True, kw_only=True)
class TeamSession:
    """A team that plays its scenario.

    Attributes:
        engine: where adapters are published; None: nothing can be, as a server or other processes serve the team.
        lanes: the same team as often as batches are in flight at once, each on a bus of its own: each samples with
            adapters of its own.
        programs: play all tasks in place of the team's graph; None: the graph does.
    """

    setup: Setup
    runtime: TeamRuntime
    engine: ServingEngine | None = None
    lanes: Sequence[TeamRuntime] = ()
    programs: ProgramPlayer | None = None

    @property
    def scenario(self) -> Scenario:
        return self.setup.scenario

    @property
    def plan(self) -> TeamPlan:
        return self.setup.plan

    @property
    def publishing(self) -> ServingEngine:
        """The engine, where there must be one.

        Raises:
            RuntimeError: there is none: a team was opened without a base and is used as if it had one.
        """
        if self.engine is None:
            raise RuntimeError("no adapter can be published here: the team was opened without a base")
        return self.engine


Opening = Callable[[BaseModel | None], AbstractAsyncContextManager[TeamSession]]
"""Puts the team that is trained on a bus, with a base; None where a server elsewhere has it."""


@asynccontextmanager
async def open_team(
    setup: Setup,
    base: BaseModel | None,
    adapters: Mapping[str, AdapterWeights] | None = None,
    uses: Mapping[str, str] | None = None,
    *,
    engine: ServingEngine | None = None,
    desk: HumanDesk | None = None,
    shared: Shared | None = None,
    log: ReplayLog | None = None,
    versions: Mapping[str, int] | None = None,
    lanes: int = 0,
    calls: Path | None = None,
    saved: Mapping[str, str] = MappingProxyType({}),
) -> AsyncIterator[TeamSession]:
    """Publish the adapters and put the team on a bus.

    Args:
        base: None with `engine=openai` or `engine=tinker`: no weights are loaded here. Each role then samples with its
            adapter if the server has the team's adapters; else all sample with the server's base.
        adapters, versions: those to publish, by name, and as which version; without one they begin with 0.
        uses: role -> adapter that it samples with, in place of `setup.sampling_adapters`, say to exchange two roles.
        engine: serves them and stays open afterwards; None: one of the session's own.
        desk: where people are asked; None: a team with a role that a person plays is refused.
        shared: the bus, and what of the team is here; None: all of it, on a bus of its own.
        log: where every play is written down; None: nowhere.
        lanes: how many batches can be in flight at once; 0: `TeamSession.runtime` plays them, one at a time.
        calls: the file that keeps what came of calls of tools; None: it is known until the session ends.
        saved: see `start_served`.

    Raises:
        ConfigError: the server has some of the adapters only, or a limit of the configuration is wrong for it.
        EngineError: a server cannot be reached. ModelError: the engine is not installed, or cannot serve the model.
    """
    async with AsyncExitStack() as stack:
        peers = await stack.enter_async_context(open_peers(setup))
        serving = engine
        if base is not None and engine is None:
            serving = await start_engine(setup.engine, base)
            stack.push_async_callback(serving.close)
        if base is None or serving is None:
            endpoint = await start_served(setup, saved)
            stack.push_async_callback(endpoint.engine.close)
            sampling, chats = endpoint.engine, endpoint.chats
            used = served_adapters(setup.sampling_adapters, sampling.adapters(), setup.engine.remote.url)
        else:
            for name, weights in (adapters or {}).items():
                await serving.store.publish(name, weights, version=(versions or {}).get(name))
            sampling = serving if shared is None else _following(serving, base, setup.team.name, shared)
            chats, used = base.chats, {**setup.sampling_adapters, **(uses or {})} if setup.sampling_adapters else {}
        tools = await stack.enter_async_context(open_tools(setup.team, calls)) if setup.team.tools else None
        bus, place = await stack.enter_async_context(_bus_of(shared))
        team = partial(
            TeamRuntime, setup.plan, sampling, adapters=used, chats=chats, peers=peers, desk=desk, tools=tools
        )
        playing = partial(team, timeout_s=setup.train.answer_timeout_s)
        runtime = await stack.enter_async_context(playing(bus, place=place, log=log))
        lane = partial(_lane, partial(playing, accounts=runtime.accounts))
        further = tuple([await stack.enter_async_context(lane()) for _ in range(lanes)])
        yield TeamSession(setup=setup, runtime=runtime, engine=serving, lanes=further)


@asynccontextmanager
async def _lane(playing: Callable[[Bus], TeamRuntime]) -> AsyncIterator[TeamRuntime]:
    """A runtime on a bus of its own."""
    async with _bus_of(None) as (bus, _), playing(bus) as runtime:
        yield runtime


@asynccontextmanager
async def _bus_of(shared: Shared | None) -> AsyncIterator[tuple[Bus, ProcessRole | None]]:
    """The shared bus with what of the team is here; None: a bus of its own for all of it."""
    if shared is not None:
        yield shared.bus, shared.place
        return
    bus = MemoryBus()
    try:
        yield bus, None
    finally:
        await bus.close()


def _following(engine: ServingEngine, base: BaseModel, team: str, shared: Shared) -> SyncedEngine:
    """The engine, with what another process on the bus trains."""
    place = shared.place
    envelopes = EnvelopeFactory(place.principal, process=place.process)
    return SyncedEngine(engine, base.bank, shared.bus, trainer=f"{team}/{RUN}", envelopes=envelopes)
