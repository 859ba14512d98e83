"""Training a team whose agents are processes of `mas agent` on a bus: they generate, this process learns.

    opening = over_bus(setup, "mqtt://coordinator@127.0.0.1:1883/lab", note=print)
    train_in_directory(config, scenario, opening=opening)

Environments, their clones and the computation of advantages stay here. So do the adapters: an agent fetches the version
that it is asked to use (`mas.training.remote_adapter_sync`) from the `AgentsEngine`, to which the trainer
publishes. An agent whose process is gone is waited for.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import partial
from pathlib import Path

from mas.bus.mqtt import MqttBus
from mas.bus.mqtt.coordination import ask_for_lease
from mas.bus.mqtt.options import MqttOptions
from mas.bus.serve import EnvelopeFactory, serve
from mas.config.options import EngineOptions
from mas.core.bus import Bus
from mas.core.concurrency import together
from mas.core.engine import AdapterRef, PinnedAdapter
from mas.core.errors import ConfigError, EngineError, NoRoute, RunError, UnknownAdapter
from mas.core.messages import Envelope
from mas.core.naming import listed
from mas.runtime.payloads import TEAM_PAYLOADS, CompletionScores, Fetch, Fetched, Score
from mas.runtime.placement import ENVIRONMENT, RUN, ProcessRole
from mas.runtime.processes import team_owns, who_is_there
from mas.runtime.remote import RemoteAgents, UntilThere, insist
from mas.runtime.team import TeamRuntime
from mas.serving.adapter_files import digest_of, to_files
from mas.serving.model import BaseModel
from mas.serving.publication import AdapterVersion
from mas.serving.store import AdapterStore
from mas.training.base import Note
from mas.training.check_setup import check_vanishing
from mas.training.distributed import LOOK_S, Elsewhere, check_alone, peers_elsewhere, watch_connection
from mas.training.session import Opening, TeamSession
from mas.training.setup import Setup

WAIT_S = 300.0
"""How long an agent whose process is gone is waited for, if nothing else is said."""
_ENVELOPE = 4096
"""Bytes of a message that are not its payload, at most."""


class AgentsEngine(Elsewhere):
    """Satisfies `mas.serving.store.ServingEngine`, but generates nothing: the agents fetch what is published here, and
    score for its canary.

    Args:
        bus: where they are; envelopes: makes what is sent to them, as `principal`.
        address_of: adapter -> the address of an agent that uses it.
        until_there: as in `RemoteAgents`.
        max_bytes: of one payload on the bus.
        timeout_s: of one score; None: no limit.
    """

    reads_files = False

    def __init__(
        self,
        base: BaseModel,
        bus: Bus,
        *,
        envelopes: EnvelopeFactory,
        principal: str,
        address_of: Mapping[str, str],
        until_there: UntilThere,
        max_bytes: int,
        timeout_s: float | None,
    ) -> None:
        super().__init__(base)
        self.dtype = base.options.dtype
        self.origin = base.origin
        self.store = AdapterStore(self)
        self._bus, self._envelopes, self._principal = bus, envelopes, principal
        self._address_of, self._until_there = address_of, until_there
        self._max_bytes, self._timeout_s = max_bytes - _ENVELOPE, timeout_s
        self._files: dict[AdapterRef, tuple[PinnedAdapter, dict[str, bytes]]] = {}

    def adapters(self) -> Mapping[str, AdapterRef]:
        return self.store.current()

    def pinned(self, adapter: str) -> PinnedAdapter:
        """The version that a published name points to."""
        return self._files[self.store.current()[adapter]][0]

    async def load(self, version: AdapterVersion) -> None:
        """Have it ready for whoever fetches it.

        Raises:
            EngineError: no message can hold it.
        """
        files = to_files(version.weights, self.origin)
        size = sum(len(content) for content in files.values())
        if size > self._max_bytes:
            raise EngineError(
                f"adapter {version.ref} has {size:,} bytes, and a message on this bus holds {self._max_bytes:,}: "
                "give all processes the same --store, lower model.lora.rank, or train in one process"
            )
        self._files[version.ref] = PinnedAdapter(version.ref, digest_of(files)), files

    async def unload(self, version: AdapterVersion) -> None:
        """Nobody fetches it any more."""
        self._files.pop(version.ref, None)

    async def handle(self, envelope: Envelope) -> Fetched:
        """Answer one `Fetch`.

        Raises:
            UnknownAdapter: that version is not published now.
        """
        payload = envelope.payload
        if not isinstance(payload, Fetch):
            raise RunError(f"whoever trains was sent {envelope.kind!r}, it answers 'fetch'")
        pinned, files = self._files.get(payload.adapter.ref, (None, {}))
        if pinned != payload.adapter:
            published = [str(one) for one, _ in self._files.values()]
            raise UnknownAdapter(f"no adapter {payload.adapter} is published; published are: {published}")
        return Fetched(files=files)

    async def score_version(
        self, version: AdapterVersion | None, prompt_ids: Sequence[int], completion_ids: Sequence[int]
    ) -> tuple[float, ...]:
        """As an agent scores that uses the adapter; the bare base as any of them does."""
        target = next(iter(self._address_of.values())) if version is None else self._address_of[version.ref.name]
        pinned = None if version is None else self._files[version.ref][0]
        score = Score(prompt_ids=tuple(prompt_ids), completion_ids=tuple(completion_ids), adapter=pinned)
        readers = frozenset((target, self._principal))

        async def request() -> Envelope:
            envelope = self._envelopes.new(target, score, visibility=readers)
            return await self._bus.request(envelope, timeout_s=self._timeout_s)

        answer = await insist(request, partial(self._until_there, target), lambda number, error: None)
        if not isinstance(answer.payload, CompletionScores):
            raise RunError(f"{target!r} answered {answer.kind!r} to 'score'")
        return answer.payload.logprobs

    async def close(self) -> None:
        self.store.close()


def over_bus(
    setup: Setup,
    url: str,
    *,
    note: Note,
    ca_file: Path | None = None,
    store: str | None = None,
    wait_s: float = WAIT_S,
    options: MqttOptions | None = None,
) -> Opening:
    """How a trainer opens, once, the configured team, whose agents are processes of `serve_agent` on the bus at `url`.

    Args:
        note: told who is waited for.
        store: where adapters lie that are too long for the broker; the agents have the same. None: there are none.
        wait_s: how long an agent may be gone: at the beginning, and whenever it is asked.
        options: of the bus; None: the defaults.

    Raises:
        ConfigError: no adapter is trained, the URL, `ca_file` or `store` is wrong, engine options are set, which are
        the agents', or a policy of the team lets time decide; see `check_vanishing`.
        On entry: ConfigError: somebody plays this team on this bus. NoRoute: an agent is not on it. EngineError: an
        adapter is too large for it. Otherwise as `MqttBus.connect`.
    """
    team = setup.team
    check_vanishing(team)
    if setup.algorithm.swap is not None:
        raise ConfigError("algorithm.swap: agents in processes of their own keep their adapters; train without --bus")
    if setup.algorithm.is_training_free:
        raise ConfigError(
            "algorithm.update=training_free cannot be trained with --bus yet: agents that are processes of their own "
            "do not hear of new experiences; train in one process, with engine=openai where a server has the model"
        )
    if setup.engine != EngineOptions():
        raise ConfigError(
            f"engine.* (engine.name is {setup.engine.name!r}) has no effect on whoever trains over a bus, where the "
            "agents generate: give it to `mas agent`"
        )
    options = options or MqttOptions()
    bus = MqttBus.connect(
        url, payloads=TEAM_PAYLOADS, ca_file=ca_file, options=options, store=store, owns=team_owns(team)
    )
    longest = options.max_frame_bytes if store is None else options.max_stored_bytes
    watch_connection(bus, note)
    presence = AgentPresence(bus, wait_s=wait_s, note=note)

    @asynccontextmanager
    async def opening(base: BaseModel | None) -> AsyncIterator[TeamSession]:
        assert base is not None
        async with bus, _open(setup, base, bus, presence, longest) as session:
            yield session

    return opening


class AgentPresence:
    """Who is on the bus, waited for.

    Args:
        wait_s: how long an agent may be gone; note: told when somebody is waited for, and when it is there.
    """

    def __init__(self, bus: MqttBus, *, wait_s: float, note: Note) -> None:
        self._bus = bus
        self._wait_s = wait_s
        self._note = note
        self._waiting: Counter[str] = Counter()

    async def until_there(self, address: str) -> bool:
        """Wait until somebody listens at the address; False: nobody came in time. Says so once, however many wait."""
        if self._is_there(address):
            return True
        self._waiting[address] += 1
        if self._waiting[address] == 1:
            agent = address.partition("/")[2]
            self._note(f"no process serves {address}: waiting {self._wait_s:g} s for `mas agent {agent} --bus URL`")
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._wait_s):
                    while not self._is_there(address):  # noqa: ASYNC110 - presence comes from the network and sets no event
                        await asyncio.sleep(LOOK_S)
        finally:
            self._waiting[address] -= 1
        is_there = self._is_there(address)
        if not self._waiting[address]:
            self._note(f"{address} is there" if is_there else f"{address} did not come")
        return is_there

    async def until_all(self, addresses: Iterable[str]) -> None:
        """Wait for somebody at each of them.

        Raises:
            NoRoute: somebody did not come in time.
        """
        wanted = list(addresses)
        there = await together((self.until_there(address) for address in wanted), "presence")
        missing = [address for address, is_there in zip(wanted, there, strict=True) if not is_there]
        if missing:
            raise NoRoute(
                f"after {self._wait_s:g} s no process serves {listed(missing)} on this bus "
                f"({who_is_there(self._bus)}): start each with `mas agent NAME --bus URL`"
            )

    def _is_there(self, address: str) -> bool:
        return any(presence.takes(address) for presence in self._bus.processes().values())


@asynccontextmanager
async def _open(
    setup: Setup, base: BaseModel, bus: MqttBus, presence: AgentPresence, max_bytes: int
) -> AsyncIterator[TeamSession]:
    team, plan, me, uses = setup.team, setup.plan, bus.me, setup.sampling_adapters
    engine = _engine(setup, base, bus, presence, max_bytes)

    def pinned(role: str) -> PinnedAdapter | None:
        adapter = uses.get(role)
        return None if adapter is None else engine.pinned(adapter)

    runtime = TeamRuntime(
        plan,
        engine,
        bus,
        adapters=uses,
        chats=base.chats,
        timeout_s=setup.train.answer_timeout_s,
        peers=peers_elsewhere(setup),
        place=ProcessRole(
            hosts=frozenset((ENVIRONMENT,)),
            principal=me.principal,
            process=me.process,
            remote=RemoteAgents(pinned=pinned, until_there=presence.until_there),
        ),
    )
    async with AsyncExitStack() as stack:
        stack.push_async_callback(engine.close)
        async with ask_for_lease(bus, f"{team.name}/{ENVIRONMENT}", most=1) as first:
            check_alone(first)
            await stack.enter_async_context(serve(bus, f"{team.name}/{RUN}", engine.handle, principal=me.principal))
            await stack.enter_async_context(runtime)
        await presence.until_all(f"{team.name}/{name}" for name in (*plan.roles, *plan.stand_ins))
        yield TeamSession(setup=setup, runtime=runtime, engine=engine)


def _engine(setup: Setup, base: BaseModel, bus: MqttBus, presence: AgentPresence, max_bytes: int) -> AgentsEngine:
    name, me, adapter_of = setup.team.name, bus.me, setup.trained_adapters
    trained = {agent: role.name for agent, role in setup.plan.roles.items() if role.name in adapter_of}
    return AgentsEngine(
        base,
        bus,
        envelopes=EnvelopeFactory(f"{name}/{RUN}", principal=me.principal, process=me.process),
        principal=me.principal,
        address_of={adapter_of[role]: f"{name}/{agent}" for agent, role in trained.items()},
        until_there=presence.until_there,
        max_bytes=max_bytes,
        timeout_s=setup.train.answer_timeout_s,
    )
