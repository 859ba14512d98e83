"""`mas agent` in processes of their own that a test can let in, and have killed at a chosen request."""

import asyncio
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.context import ForkServerProcess
from multiprocessing.synchronize import Event
from typing import Any, NamedTuple

from brokers import Broker, read_env
from forked import FORKED

from mas.core.engine import Generation, Request


class Fate(NamedTuple):
    """When a process dies by SIGKILL: at a request, once it is `armed`.

    Only requests for `candidates` or more count; of these it answers `spared`, and holds the next `until` the event.
    """

    armed: Event
    candidates: int = 1
    spared: int = 0
    until: Event | None = None


def speak(
    words: Sequence[str], variables: dict[str, str], loaded: Event, let_in: Event | None, fate: Fate | None
) -> None:
    """The command `mas agent` with these words, in this process. `loaded` is set when it has announced for whom it
    speaks or, if it has to wait for `let_in`, when its base is loaded."""
    os.environ.update(variables)
    sys.stdout = open(os.devnull, "w")  # noqa: PTH123, SIM115 - it is this process's for good
    from mas.bus.mqtt import MqttBus
    from mas.cli import main
    from mas.training import distributed

    enter, accept_shutdown = MqttBus.__aenter__, distributed.accept_shutdown

    async def late(bus: MqttBus) -> MqttBus:
        if let_in is not None:
            loaded.set()
            await until(let_in)
        return await enter(bus)

    def there(bus: MqttBus, principal: str) -> None:
        accept_shutdown(bus, principal)
        loaded.set()

    MqttBus.__aenter__, distributed.accept_shutdown = late, there
    if fate is not None:
        doom(fate)
    sys.argv = ["mas", "agent", *words]
    main()


async def until(event: Event | None) -> None:
    """Wait for an event of another process; None: not at all."""
    while event is not None and not event.is_set():  # noqa: ASYNC110 - no loop of this process sets it
        await asyncio.sleep(0.01)


def doom(fate: Fate) -> None:
    """Let this process die as its fate says, with requests in its hands."""
    from mas.training.remote_adapter_sync import SyncedEngine

    generate, left = SyncedEngine.generate, fate.spared

    async def doomed(self: SyncedEngine, request: Request) -> tuple[Generation, ...]:
        nonlocal left
        if fate.armed.is_set() and len(request.seeds) >= fate.candidates:
            left -= 1
            if left < 0:
                await until(fate.until)
                os.kill(os.getpid(), signal.SIGKILL)
        return await generate(self, request)

    SyncedEngine.generate = doomed


class Agents:
    """Starts them on a broker of `mas broker relay`."""

    def __init__(self, broker: Broker, words: Sequence[str]) -> None:
        self._broker, self._words = broker, words
        self.started: list[ForkServerProcess] = []
        self._loaded: list[Event] = []

    def wait(self) -> None:
        """Return when those that wait for an event have loaded the base, and the others have announced themselves."""
        assert all(event.wait(120) for event in self._loaded)

    def start(self, agent: str, *, let_in: Event | None = None, fate: Fate | None = None) -> ForkServerProcess:
        variables = read_env(self._broker.directory / "passwords" / f"relay.{agent}.env")
        variables["MAS_CACHE"] = os.environ["MAS_CACHE"]
        self._loaded.append(FORKED.Event())
        arguments: tuple[Any, ...] = ([agent, *self._words], variables, self._loaded[-1], let_in, fate)
        process = FORKED.Process(target=speak, args=arguments, daemon=True)
        process.start()
        self.started.append(process)
        return process


@contextmanager
def agents(broker: Broker, words: Sequence[str]) -> Iterator[Agents]:
    """Agents that are gone when the block is over."""
    made = Agents(broker, words)
    try:
        yield made
    finally:
        for process in made.started:
            process.kill()
            process.join()
