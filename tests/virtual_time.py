"""An event loop whose clock jumps to the next timer when nothing else is to do: hours of waiting take no time."""

import asyncio
import selectors
from collections.abc import Coroutine
from typing import TypeVar

T = TypeVar("T")


class _NoWait(selectors.DefaultSelector):
    """Never sleeps; tells the loop how long it would have."""

    slept_s = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        found: list[tuple[selectors.SelectorKey, int]] = super().select(0)
        if not found and timeout is None:
            raise RuntimeError("nothing will ever happen: every task waits for another")
        if not found and timeout:
            self.slept_s += timeout
        return found


class VirtualLoop(asyncio.SelectorEventLoop):
    """A loop in virtual time, from 0 s."""

    def __init__(self) -> None:
        self.no_wait = _NoWait()
        super().__init__(self.no_wait)

    def time(self) -> float:
        return self.no_wait.slept_s


def play(main: Coroutine[object, object, T]) -> T:
    """Run to the end in virtual time.

    Raises:
        AssertionError: a task outlived it.
    """

    async def whole() -> T:
        result = await main
        assert asyncio.all_tasks() == {asyncio.current_task()}, "tasks that outlive the play"
        return result

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(whole())
