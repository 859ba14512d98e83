"""An event loop whose clock jumps to the next timer when nothing else is to do: hours of waiting take no time."""

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from typing import TypeVar

T = TypeVar("T")


_REAL_S = 0.01


class _NoWait(selectors.DefaultSelector):
    """Never sleeps but for threads at work; tells the loop how long it would have."""

    def __init__(self, is_busy: Callable[[], bool]) -> None:
        super().__init__()
        self.slept_s = 0.0
        self._is_busy = is_busy

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout != 0 and self._is_busy():
            return super().select(_REAL_S)
        found: list[tuple[selectors.SelectorKey, int]] = super().select(0)
        if not found and timeout is None:
            raise RuntimeError("nothing will ever happen: every task waits for another")
        if not found and timeout:
            self.slept_s += timeout
        return found


class VirtualLoop(asyncio.SelectorEventLoop):
    """A loop in virtual time, from 0 s. `is_busy`: whether a thread is at work, for which no virtual time passes."""

    def __init__(self, is_busy: Callable[[], bool] = lambda: False) -> None:
        self.no_wait = _NoWait(is_busy)
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
