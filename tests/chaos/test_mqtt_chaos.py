"""Whatever breaks between processes: no message is lost, and no process that lives does one twice.

A default run draws once when things break, `make chaos` ten times.
"""

import asyncio
import os
import random
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from pathlib import Path

import pytest
from mosquitto import Mosquitto, needs_mosquitto, running_mosquitto

from mas.bus.mqtt import MqttBus
from mas.bus.mqtt.options import MqttOptions
from mas.bus.serve import EnvelopeFactory, serve
from mas.core.messages import Envelope, Note, Payload

pytestmark = [needs_mosquitto, pytest.mark.slow]
MESSAGES, IN_FLIGHT = 3_000, 16
ROOT = Path(__file__).parents[2]
every_seed = pytest.mark.matrix("seed", range(10), default=[0])
Disturb = Callable[[], Awaitable[object]]


class Worker:
    """A serving process and what it has handled."""

    def __init__(self, url: str, notes: Path) -> None:
        self.notes = notes
        notes.touch()
        self.process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("worker.py")), url, str(notes)],
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == b"ready\n"

    def handled(self) -> Counter[str]:
        return Counter(self.notes.read_text(encoding="utf-8").split())

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()


@contextmanager
def working(url: str, notes: Path) -> Iterator[Worker]:
    worker = Worker(url, notes)
    try:
        yield worker
    finally:
        worker.kill()


async def ask_all(bus: MqttBus, disturbances: dict[int, Disturb]) -> list[str]:
    """Send that often, `IN_FLIGHT` at once, every third time one way; the answers to the others when all are done.

    `disturbances`: what happens before which message.
    """
    envelopes = EnvelopeFactory("asker")
    numbers = iter(range(MESSAGES))
    answers: list[str] = []

    async def ask() -> None:
        for number in numbers:
            if number in disturbances:
                await disturbances[number]()
            envelope = envelopes.new("work", Note(text=str(number)))
            if number % 3 == 0:
                await bus.publish(envelope)
            else:
                answers.append((await bus.request(envelope, timeout_s=90.0)).payload.content)

    async with asyncio.TaskGroup() as asking:
        for _ in range(IN_FLIGHT):
            asking.create_task(ask())
    async with asyncio.timeout(60.0):
        while bus.statistics().outbox > 0:  # noqa: ASYNC110 - what it waits for is in another process
            await asyncio.sleep(0.05)
    return answers


def assert_nothing_lost_or_done_twice(answers: list[str], survivors: Counter[str], dead: Iterable[str] = ()) -> None:
    """`survivors`, `dead`: what was handled by processes that live, and by those that do not."""
    assert sorted(answers, key=int) == [str(number) for number in range(MESSAGES) if number % 3]
    assert {*survivors, *dead} == {str(number) for number in range(MESSAGES)}
    assert {number: times for number, times in survivors.items() if times > 1} == {}


def handled(workers: Iterable[Worker]) -> Counter[str]:
    return sum((worker.handled() for worker in workers), Counter())


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Mosquitto]:
    with running_mosquitto(tmp_path) as broker:
        yield broker


@every_seed
async def test_a_broker_that_is_killed_and_started_again_loses_nothing(
    broker: Mosquitto, tmp_path: Path, seed: int
) -> None:
    random_ = random.Random(seed)

    async def restart() -> None:
        broker.kill()
        await asyncio.sleep(random_.uniform(0.0, 1.0))
        await asyncio.to_thread(broker.start)

    when = random_.sample(range(100, MESSAGES), 3)
    with ExitStack() as workers:
        both = [workers.enter_context(working(broker.url("worker"), tmp_path / name)) for name in "ab"]
        async with MqttBus.connect(broker.url("asker")) as bus:
            answers = await ask_all(bus, dict.fromkeys(when, restart))
            assert bus.statistics().reconnects == 3
        assert_nothing_lost_or_done_twice(answers, handled(both))
        assert all(worker.handled() for worker in both), "both had a share"


@pytest.mark.nightly(of=16)
@every_seed
async def test_a_serving_process_that_is_killed_and_replaced_loses_nothing(
    broker: Mosquitto, tmp_path: Path, seed: int
) -> None:
    random_ = random.Random(seed)
    replaced = asyncio.Event()
    with ExitStack() as workers:
        first, stays = (workers.enter_context(working(broker.url("worker"), tmp_path / name)) for name in "ab")
        survivors = [stays]

        async def kill() -> None:
            first.kill()

        async def replace() -> None:
            new = await asyncio.to_thread(Worker, broker.url("worker"), tmp_path / "c")
            workers.callback(new.kill)
            survivors.append(new)
            replaced.set()

        killed, replacing = sorted(random_.sample(range(100, MESSAGES - 500), 2))
        late = dict.fromkeys(range(MESSAGES - 200, MESSAGES), replaced.wait)
        async with MqttBus.connect(broker.url("asker")) as bus:
            answers = await ask_all(bus, {killed: kill, replacing: replace, **late})
        assert_nothing_lost_or_done_twice(answers, handled(survivors), first.handled())
        assert all(worker.handled() for worker in (first, *survivors)), "each had a share"


@pytest.mark.nightly
@every_seed
async def test_a_broker_that_stands_still_for_ten_seconds_loses_nothing(
    broker: Mosquitto, tmp_path: Path, seed: int
) -> None:
    random_ = random.Random(seed)

    async def stand_still() -> None:
        broker.freeze()
        await asyncio.sleep(10.0)
        broker.thaw()

    with ExitStack() as workers:
        both = [workers.enter_context(working(broker.url("worker"), tmp_path / name)) for name in "ab"]
        async with MqttBus.connect(broker.url("asker"), options=MqttOptions(keepalive_s=2)) as bus:
            answers = await ask_all(bus, {random_.randrange(100, MESSAGES): stand_still})
        assert_nothing_lost_or_done_twice(answers, handled(both))


def disturb(bus: MqttBus, random_: random.Random) -> None:
    """Lose, repeat and delay a part of what the bus receives, presences and its own echoes excepted."""
    received = bus._node.dispatcher.take

    def disturbed(topic: str, payload: bytes) -> None:
        if "/presence/" in topic or topic.endswith(f"/{bus._node.me.process}/{bus._node.me.principal}"):
            received(topic, payload)
            return
        draw = random_.random()
        if draw < 0.1:
            return
        for _ in range(2 if draw < 0.3 else 1):
            if draw > 0.7:
                asyncio.get_running_loop().call_later(random_.uniform(0.0, 0.15), received, topic, payload)
            else:
                received(topic, payload)

    bus._node.dispatcher.take = disturbed


@asynccontextmanager
async def serving(url: str, options: MqttOptions, random_: random.Random) -> AsyncIterator[Counter[str]]:
    """A disturbed process that serves `work`; what it handled."""
    handled: Counter[str] = Counter()

    async def handle(envelope: Envelope) -> Payload:
        handled[envelope.payload.content] += 1
        return envelope.payload

    bus = MqttBus.connect(url, options=options)
    disturb(bus, random_)
    async with bus, serve(bus, "work", handle):
        yield handled


@pytest.mark.nightly(of=16)
@every_seed
async def test_frames_lost_repeated_and_out_of_order_lose_nothing(broker: Mosquitto, seed: int) -> None:
    random_ = random.Random(seed)
    options = MqttOptions(ack_s=0.1, poll_s=0.3)
    async with (
        serving(broker.url("worker"), options, random_) as first,
        serving(broker.url("worker"), options, random_) as second,
    ):
        bus = MqttBus.connect(broker.url("asker"), options=options)
        disturb(bus, random_)
        async with bus:
            answers = await ask_all(bus, {})
            assert bus.statistics().resent > 0
    assert_nothing_lost_or_done_twice(answers, first + second)
    assert first
    assert second
