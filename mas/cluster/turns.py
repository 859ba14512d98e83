"""Calls that may arrive in any order begin in the order of their numbers."""

import asyncio


class Turns:
    """Numbers from 0. Each is passed once: when its call begins, or when it is known that it never will."""

    def __init__(self) -> None:
        self._next = 0
        self._passed: set[int] = set()
        self._waiting: dict[int, asyncio.Future[None]] = {}

    def is_passed(self, number: int) -> bool:
        return number < self._next or number in self._passed

    async def wait(self, number: int) -> None:
        """Wait until all before this one are passed."""
        if number > self._next:
            self._waiting[number] = asyncio.get_running_loop().create_future()
            try:
                await self._waiting[number]
            finally:
                del self._waiting[number]

    def pass_on(self, number: int) -> None:
        """Pass a number; nothing if it is passed."""
        if self.is_passed(number):
            return
        self._passed.add(number)
        while self._next in self._passed:
            self._passed.remove(self._next)
            self._next += 1
        waiting = self._waiting.get(self._next)
        if waiting is not None and not waiting.done():
            waiting.set_result(None)
