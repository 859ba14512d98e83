"""Waiting for several things at once."""

import asyncio
from collections.abc import Awaitable, Iterable
from typing import TypeVar

T = TypeVar("T")


async def together(calls: Iterable[Awaitable[T]], name: str) -> list[T]:
    """All results in order. The first error cancels the other calls, waits for them, and is raised as it is."""
    waiting = list(calls)
    if len(waiting) == 1:
        return [await waiting[0]]
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(_await(call), name=f"{name}-{index}") for index, call in enumerate(waiting)]
    except BaseExceptionGroup as failed:
        raise failed.exceptions[0] from None
    return [task.result() for task in tasks]


async def _await(call: Awaitable[T]) -> T:
    return await call
