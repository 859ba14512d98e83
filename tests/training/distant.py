"""`mas agent` in processes of their own that a test can let in, and have killed at a chosen request."""

import asyncio
import multiprocessing
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.context import ForkServerProcess
from multiprocessing.synchronize import Event
from typing import Any

from brokers import Broker, read_env

from mas.core.engine import Generation, Request

CONTEXT = multiprocessing.get_context("forkserver")
Fate = tuple[int, Event]
"""Dies by SIGKILL at the first request for so many candidates or more after the event."""


def speak(words: Sequence[str], variables: dict[str, str], let_in: Event | None, fate: Fate | None) -> None:
    """The command `mas agent` with these words, in this process."""
    os.environ.update(variables)
    sys.stdout = open(os.devnull, "w")  # noqa: PTH123, SIM115 - it is this process's for good
    from mas.bus.mqtt import MqttBus
    from mas.cli import main

    if let_in is not None:
        enter = MqttBus.__aenter__

        async def late(bus: MqttBus) -> MqttBus:
            while not let_in.is_set():  # noqa: ASYNC110 - it is set by another process
                await asyncio.sleep(0.01)
            return await enter(bus)

        MqttBus.__aenter__ = late  # type: ignore[assignment, method-assign]
    if fate is not None:
        doom(fate)
    sys.argv = ["mas", "agent", *words]
    main()


def doom(fate: Fate) -> None:
    """Let this process die as its fate says, with requests in its hands."""
    from mas.training.following import Follower

    generate, (candidates, struck) = Follower.generate, fate

    async def doomed(self: Follower, request: Request) -> tuple[Generation, ...]:
        if struck.is_set() and len(request.seeds) >= candidates:
            os.kill(os.getpid(), signal.SIGKILL)
        return await generate(self, request)

    Follower.generate = doomed  # type: ignore[method-assign]


class Agents:
    """Starts them on a broker of `mas broker relay`."""

    def __init__(self, broker: Broker, words: Sequence[str]) -> None:
        self._broker, self._words = broker, words
        self.started: list[ForkServerProcess] = []

    def start(self, agent: str, *, let_in: Event | None = None, fate: Fate | None = None) -> ForkServerProcess:
        variables = read_env(self._broker.directory / "passwords" / f"relay.{agent}.env")
        variables["MAS_CACHE"] = os.environ["MAS_CACHE"]
        arguments: tuple[Any, ...] = ([agent, *self._words], variables, let_in, fate)
        process = CONTEXT.Process(target=speak, args=arguments, daemon=True)
        process.start()
        self.started.append(process)
        return process


@contextmanager
def agents(broker: Broker, words: Sequence[str]) -> Iterator[Agents]:
    """Agents that are gone when the block is over."""
    CONTEXT.set_forkserver_preload(["mas.training.spread", "mas.scenarios"])
    made = Agents(broker, words)
    try:
        yield made
    finally:
        for process in made.started:
            process.kill()
            process.join()
