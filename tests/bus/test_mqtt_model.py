"""The promises of docs/delivery.md and docs/bus.md between processes, over a link in memory that breaks by a seed.

Faster and harder than tests/chaos, which has real brokers and processes: each seed is another order of losses, copies,
delays, cut connections, restarts of the broker and deaths of processes, and fails the same way when it is run again.
"""

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest
from memory_broker import MemoryBroker, MemoryConnection, run_virtual

from mas.bus.journal import Journal
from mas.bus.memory import MemoryBus
from mas.bus.mqtt import node as nodes
from mas.bus.mqtt.bus import MqttBus, limits_of
from mas.bus.mqtt.frames import Codec
from mas.bus.mqtt.journal import ProcessJournal, take_ownership
from mas.bus.mqtt.options import MqttOptions, parse_broker
from mas.bus.mqtt.presence import any_address
from mas.bus.serve import EnvelopeFactory, serve
from mas.core.errors import Expired, RemoteError
from mas.core.messages import PAYLOADS, Envelope, Note, Payload

every_seed = pytest.mark.matrix("seed", range(50), default=range(6))
OPTIONS = MqttOptions(ack_s=0.2, poll_s=0.5, absent_s=1.0)
MESSAGES = 60


class World:
    """Processes around one broker in memory."""

    def __init__(self, seed: int, monkeypatch: pytest.MonkeyPatch, *, faults: bool = True) -> None:
        self.random = random.Random(seed)
        rates = {"lost": 0.1, "repeated": 0.2, "delayed": 0.3} if faults else {}
        self.broker = MemoryBroker(self.random, **rates)
        self._number = 0
        monkeypatch.setattr(nodes, "Connection", self.broker.connect)

    def bus(self, principal: str, journal: Journal | None = None, options: MqttOptions = OPTIONS) -> MqttBus:
        """A process that is not connected yet, with the loop's clock."""
        self._number += 1
        broker, name, books = parse_broker(f"mqtt://{principal}@memory/lab"), f"p{self._number}", None
        if journal is not None:
            owner = take_ownership(journal, principal=principal, space="lab", process=None, new=name)
            name, books = owner.process, ProcessJournal(journal, owner, PAYLOADS)
        clock = asyncio.get_running_loop().time
        return MqttBus(
            nodes.MqttNode(
                broker,
                local=MemoryBus(clock=clock, limits=limits_of(options), journal=journal),
                codec=Codec(PAYLOADS),
                options=options,
                process=name,
                store=None,
                journal=books,
                owns=any_address,
            )
        )

    def disturb(self, times: int, until_s: float, breaks: Callable[[], object]) -> None:
        """Have something break at random moments."""
        for _ in range(times):
            asyncio.get_running_loop().call_later(self.random.uniform(0.0, until_s), breaks)

    def cut_one(self) -> None:
        if self.broker.connections:
            self.random.choice(self.broker.connections).cut()


def kill(bus: MqttBus) -> None:
    """The process dies without a word."""
    connection = bus._node.connection
    assert isinstance(connection, MemoryConnection)
    connection.die()
    if bus._node._checking is not None:
        bus._node._checking.cancel()


class Worker:
    """A process that serves `work`, and what it has handled, in order."""

    def __init__(self, world: World) -> None:
        self.handled: list[str] = []
        self.is_dead = False
        self.world = world
        self.bus = world.bus("worker")

    async def handle(self, envelope: Envelope) -> Payload:
        await asyncio.sleep(self.world.random.uniform(0.0, 0.05))
        if self.is_dead:
            await asyncio.get_running_loop().create_future()
        self.handled.append(envelope.payload.content)
        return envelope.payload

    def kill(self) -> None:
        self.is_dead = True
        kill(self.bus)


@asynccontextmanager
async def working(world: World, concurrency: int = 4) -> AsyncIterator[Worker]:
    worker = Worker(world)
    await worker.bus.__aenter__()
    service = serve(worker.bus, "work", worker.handle, concurrency=concurrency)
    await service.__aenter__()
    try:
        yield worker
    finally:
        if not worker.is_dead:
            await service.__aexit__(None, None, None)
            await worker.bus.close()
        else:
            worker.bus._node.references.close()
            await worker.bus._local.close()
            await service.__aexit__(None, None, None)


async def send_all(bus: MqttBus, world: World, keys: int = 0) -> list[str]:
    """Every third message one way, the others as requests; answers in any order, when everything is done."""
    envelopes = EnvelopeFactory("asker", process=bus.me.process)
    answers: list[str] = []

    async def send(number: int) -> None:
        key = f"k{number % keys}" if keys else None
        envelope = envelopes.new("work", Note(text=str(number)), key=key)
        if number % 3 == 0:
            await bus.publish(envelope)
        else:
            answers.append((await bus.request(envelope, timeout_s=120.0)).payload.content)

    async with asyncio.TaskGroup() as sending:
        for number in range(MESSAGES):
            sending.create_task(send(number), name=f"send {number}")
            await asyncio.sleep(world.random.uniform(0.0, 0.05))
    async with asyncio.timeout(120.0):
        while bus.statistics().outbox > 0:  # noqa: ASYNC110 - virtual time
            await asyncio.sleep(0.05)
    return answers


def assert_done(answers: list[str], workers: list[Worker]) -> None:
    """Every request is answered, everything is handled, and nothing twice by processes that live."""
    assert sorted(answers, key=int) == [str(number) for number in range(MESSAGES) if number % 3]
    living = Counter(text for worker in workers if not worker.is_dead for text in worker.handled)
    dead = {text for worker in workers if worker.is_dead for text in worker.handled}
    assert {*living, *dead} == {str(number) for number in range(MESSAGES)}
    assert [text for text, times in living.items() if times > 1] == []


@every_seed
def test_frames_that_are_lost_repeated_and_late_lose_and_repeat_nothing(seed: int, monkeypatch: pytest.MonkeyPatch):
    async def main() -> None:
        world = World(seed, monkeypatch)
        async with working(world) as first, working(world) as second, world.bus("asker") as asker:
            assert_done(await send_all(asker, world), [first, second])

    run_virtual(main())


@every_seed
def test_cut_connections_and_restarts_of_the_broker_lose_and_repeat_nothing(seed: int, monkeypatch: pytest.MonkeyPatch):
    async def main() -> None:
        world = World(seed, monkeypatch)
        async with working(world) as first, working(world) as second, world.bus("asker") as asker:
            world.disturb(3, 1.5, world.cut_one)
            world.disturb(1, 1.5, world.broker.restart)
            assert_done(await send_all(asker, world), [first, second])

    run_virtual(main())


@every_seed
def test_a_process_that_dies_and_another_one_that_comes_lose_nothing(seed: int, monkeypatch: pytest.MonkeyPatch):
    async def main() -> None:
        world = World(seed, monkeypatch)
        async with (
            AsyncExitStack() as stack,
            working(world) as dies,
            working(world) as stays,
            world.bus("asker") as asker,
        ):
            workers = [dies, stays]
            world.disturb(1, 1.5, dies.kill)
            world.disturb(1, 1.5, world.cut_one)

            async def replace() -> None:
                await asyncio.sleep(world.random.uniform(0.0, 2.0))
                workers.append(await stack.enter_async_context(working(world)))

            replacing = asyncio.create_task(replace(), name="replace")
            answers = await send_all(asker, world)
            await replacing
            assert_done(answers, workers)

    run_virtual(main())


@every_seed
def test_messages_of_one_key_are_handled_in_order_though_a_process_dies(seed: int, monkeypatch: pytest.MonkeyPatch):
    async def main() -> None:
        world = World(seed, monkeypatch)
        order: list[tuple[int, str]] = []
        async with working(world, 1) as dies, working(world, 1) as stays, world.bus("asker") as asker:
            for worker in (dies, stays):
                worker.handled = order_of(worker, order)
            world.disturb(1, 1.5, dies.kill)
            await send_all(asker, world, keys=3)
        for key in range(3):
            numbers = [int(text) for _, text in order if int(text) % 3 == key]
            assert numbers == sorted(numbers), "a message of the process that died may come again at its place"
            assert set(numbers) == set(range(key, MESSAGES, 3))

    def order_of(worker: Worker, order: list[tuple[int, str]]) -> list[str]:
        class Noting(list[str]):
            def append(self, text: str) -> None:
                order.append((id(worker), text))
                super().append(text)

        return Noting()

    run_virtual(main())


@every_seed
def test_a_message_that_is_rejected_is_one_dead_letter_and_its_sender_hears(seed: int, monkeypatch: pytest.MonkeyPatch):
    async def main() -> None:
        world = World(seed, monkeypatch)
        async with world.bus("worker") as receives, world.bus("asker") as sends, receives.subscribe("work") as inbox:
            await sends.publish(EnvelopeFactory("asker").new("work", Note(text="x")))
            for _ in range(OPTIONS.max_attempts - 1):
                assert inbox.nack(await inbox.receive())
            assert not inbox.nack(await inbox.receive(), cause="no use")
            async with asyncio.timeout(60.0):
                while sends.statistics().outbox > 0:  # noqa: ASYNC110 - virtual time
                    await asyncio.sleep(0.05)
            assert [letter.cause for letter in receives.dead_letters()] == ["no use"]
            assert sends.statistics().given_up == 1
            assert sends.dead_letters() == ()

    run_virtual(main())


@every_seed
def test_a_message_that_kills_every_process_is_given_up_after_its_attempts(seed: int, monkeypatch: pytest.MonkeyPatch):
    options = MqttOptions(ack_s=0.2, poll_s=0.5, absent_s=1.0, max_attempts=3)

    async def main() -> None:
        world, killed = World(seed, monkeypatch), 0
        async with world.bus("asker", options=options) as asker, AsyncExitStack() as stack:
            for _ in range(4):
                bus = await stack.enter_async_context(dying(world, options))
                inbox = await bus.subscribe("work").__aenter__()

                async def die(bus: MqttBus = bus, inbox=inbox) -> None:
                    nonlocal killed
                    await inbox.receive()
                    await asyncio.sleep(1.0)  # long enough that its sender hears that a receiver has it
                    killed += 1
                    kill(bus)

                stack.push_async_callback(end, asyncio.create_task(die(), name="die"))
            with pytest.raises(RemoteError, match="tried 3 times"):
                await asker.request(EnvelopeFactory("asker").new("work", Note(text="poison")), timeout_s=120.0)
            assert killed == 3

    run_virtual(main())


def test_a_deadline_beside_a_silent_process_says_whether_it_had_the_message(monkeypatch: pytest.MonkeyPatch):
    options = MqttOptions(ack_s=0.2, poll_s=0.5, absent_s=100.0)

    async def main() -> None:
        world, notes = World(0, monkeypatch, faults=False), EnvelopeFactory("asker")
        async with world.bus("asker", options=options) as asker, dying(world, options) as receives:
            inbox = await receives.subscribe("work").__aenter__()
            asking = asyncio.create_task(asker.request(notes.new("work", Note(text="had")), timeout_s=5.0), name="ask")
            await inbox.receive()
            await asyncio.sleep(1.0)  # long enough that its sender hears that a receiver has it
            kill(receives)
            with pytest.raises(Expired, match="'work' was not received in time"):
                await asker.request(notes.new("work", Note(text="never had")), timeout_s=2.0)
            with pytest.raises(Expired, match="'work' did not answer in time"):
                await asking
            assert (asker.dead_letters(), asker.statistics().outbox) == ((), 0)

    run_virtual(main())


async def end(task: "asyncio.Task[None]") -> None:
    task.cancel()
    await asyncio.wait([task])


@asynccontextmanager
async def dying(world: World, options: MqttOptions) -> AsyncIterator[MqttBus]:
    bus = await world.bus("worker", options=options).__aenter__()
    try:
        yield bus
    finally:
        kill(bus)
        await bus._local.close()


def numbered(number: int) -> Envelope:
    """The same message in every life."""
    return Envelope(id=str(number), kind="note", source="asker", target="work", payload=Note(text=str(number)))


class Lives:
    """A process with a journal that sends 20 messages in every life, every second one as a request."""

    def __init__(self, world: World, path: Path) -> None:
        self.journal: Journal | None = None
        self.answers: dict[int, str] = {}
        self._world, self._path = world, path

    @property
    def is_writing(self) -> bool:
        """The thread that writes the journal is at work."""
        writer = None if self.journal is None else self.journal._writer
        return writer is not None and writer.added > writer._written

    async def live(self, life_s: float) -> None:
        """One life: it ends when all is done, or by a kill."""
        self.journal = Journal.open(self._path, keep=None)
        bus = await self._world.bus("asker", self.journal).__aenter__()
        self.answers = {}
        sending = asyncio.create_task(self._send_all(bus), name="life")
        await asyncio.wait([sending], timeout=life_s)
        if sending.done():
            sending.result()
            await bus.close()
            self.journal.close()
        else:
            kill(bus)
            self.journal.close()  # first: whoever waits was not cancelled, the process died
            sending.cancel()
            await asyncio.wait([sending])
            await bus._local.close()

    async def _send_all(self, bus: MqttBus) -> None:
        async with asyncio.TaskGroup() as sending:
            for number in range(20):
                sending.create_task(self._send(bus, number), name=f"send {number}")
                await asyncio.sleep(self._world.random.uniform(0.0, 0.05))
        while bus.statistics().outbox > 0:  # noqa: ASYNC110 - virtual time
            await asyncio.sleep(0.05)

    async def _send(self, bus: MqttBus, number: int) -> None:
        if number % 2 == 0:
            await bus.publish(numbered(number))
        else:
            self.answers[number] = (await bus.request(numbered(number), timeout_s=60.0)).payload.content


@every_seed
def test_a_sender_with_a_journal_that_is_killed_goes_on_and_nothing_is_handled_twice(
    seed: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    world = World(seed, monkeypatch)
    process = Lives(world, tmp_path / "asker.sqlite")

    async def main() -> None:
        async with working(world) as first, working(world) as second:
            for life_s in (world.random.uniform(0.1, 0.8), world.random.uniform(0.1, 0.8), 120.0):
                await process.live(life_s)
            handled = Counter(first.handled + second.handled)
        assert process.answers == {number: str(number) for number in range(1, 20, 2)}
        assert sorted(handled, key=int) == [str(number) for number in range(20)]
        assert max(handled.values()) == 1

    run_virtual(main(), is_busy=lambda: process.is_writing)
