"""What every delivery has in common, in one process and between processes: a sender that waits, and what is remembered.

A message has one outcome; the first one counts. `mas.bus.in_flight` and `mas.bus.mqtt.outgoing` add where it is.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import TypeVar

from mas.core.messages import Envelope

Outcome = Envelope | Exception | None
"""An answer, an error to raise, or None: accepted, or done."""
K = TypeVar("K", bound=Hashable)


class Pending:
    """A message whose outcome is not final.

    Attributes:
        future: what the sender waits on; None: it does not wait. It holds errors as results, see `wait`.
        outcome: the outcome of a message that is not awaited.
        timer: fires at the deadline.
        tries: how often a receiver had it and did not finish.
    """

    __slots__ = ("envelope", "future", "outcome", "timer", "tries")

    def __init__(self, envelope: Envelope, future: "asyncio.Future[Outcome] | None" = None) -> None:
        self.envelope = envelope
        self.future = future
        self.outcome: Outcome = None
        self.timer: asyncio.TimerHandle | None = None
        self.tries = 0

    @property
    def is_settled(self) -> bool:
        """The sender has the outcome, or was cancelled."""
        return self.future is not None and self.future.done()

    def settle(self, outcome: Outcome) -> None:
        """Give the sender its outcome; the first one counts."""
        if self.future is None:
            self.outcome = outcome
        elif not self.future.done():
            self.future.set_result(outcome)

    async def wait(self) -> Envelope | None:
        """The outcome.

        Raises:
            The error, if the outcome is one.
        """
        assert self.future is not None
        outcome = await self.future
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def at(self, deadline: float, clock: Callable[[], float], call: Callable[[], object]) -> None:
        """Call at the deadline, at once if it is past. The timer runs in real time, the clock decides."""
        remaining_s = deadline - clock()
        if remaining_s > 0:
            self.timer = asyncio.get_running_loop().call_later(remaining_s, self.at, deadline, clock, call)
        else:
            call()

    def stop_timer(self) -> None:
        """The deadline does not matter any more."""
        if self.timer is not None:
            self.timer.cancel()


class Recent(OrderedDict[K, None]):
    """The latest keys, at most `limit`; the oldest is forgotten first."""

    def __init__(self, limit: int) -> None:
        super().__init__()
        self._limit = limit

    def add(self, key: K) -> K | None:
        """Remember a key, a new one as the latest; returns the key that is forgotten for it, None: none is."""
        self[key] = None
        return self.popitem(last=False)[0] if len(self) > self._limit else None
