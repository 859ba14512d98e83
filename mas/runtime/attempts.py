"""Retries and fallbacks: asking an agent again, or another one in its place, as its policy says."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Literal, TypeVar

from mas.core.errors import (
    BudgetExceeded,
    Closed,
    ConfigError,
    Denied,
    Expired,
    Halted,
    JournalError,
    MasError,
    NoPayload,
    NoRoute,
    RemoteError,
    ReplayError,
)
from mas.core.naming import Part, derive_seed
from mas.core.policy import Policy, Retries
from mas.core.records import Attempt

T = TypeVar("T")
OnAttempt = Callable[[Attempt], None]

MAY_PASS = (Expired, RemoteError, Closed, NoRoute, NoPayload)
"""Errors after which another attempt may help."""
FINAL = (Denied, ConfigError, BudgetExceeded, Halted, JournalError, ReplayError)
"""Errors after which the fallback is not asked either."""


def wait_before(retries: Retries, attempt: int, *key: Part) -> float:
    """Seconds before an attempt, from 2 on; see `Retries`. `key`: names the decision, for the jitter's seed."""
    draw = derive_seed("retry", *key, attempt) / 2**62 - 1
    wait_s = retries.wait_s * retries.factor ** (attempt - 2)
    return wait_s * (1 + retries.jitter * draw)


async def ask_with_retries(
    policy: Policy,
    turn: int,
    agent: str,
    key: tuple[Part, ...],
    call: Callable[[str], Awaitable[T]],
    note: OnAttempt,
    pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> T:
    """Ask an agent as often as its policy says, and then its fallback, once.

    Args:
        turn: team turn, for the record.
        key: names the decision, for the jitter's seed.
        call: asks the agent of a name, once.
        note: called with every attempt that failed, and with the first that then did not.
        pause: waits so many seconds before another attempt.

    Raises:
        MasError: the last attempt's error.
    """
    attempts = 1 if policy.retries is None else policy.retries.attempts
    for number in range(1, attempts + 1):
        try:
            answer = await call(agent)
        except MasError as error:
            note(_attempt(turn, agent, agent, number, error))
            if isinstance(error, FINAL):
                raise
            if isinstance(error, MAY_PASS) and policy.retries is not None and number < attempts:
                await pause(wait_before(policy.retries, number + 1, *key))
                continue
            if policy.fallback is None:
                raise
            break
        if number > 1:
            note(_attempt(turn, agent, agent, number, None))
        return answer
    assert policy.fallback is not None
    try:
        answer = await call(policy.fallback)
    except MasError as error:
        note(_attempt(turn, agent, policy.fallback, 1, error))
        raise
    note(_attempt(turn, agent, policy.fallback, 1, None))
    return answer


def _attempt(turn: int, agent: str, asked: str, number: int, error: MasError | None) -> Attempt:
    cause = None if error is None else f"{type(error).__name__}: {error}"
    purpose: Literal["answer", "fallback"] = "answer" if asked == agent else "fallback"
    return Attempt(turn=turn, agent=agent, asked=asked, number=number, purpose=purpose, cause=cause)


@contextmanager
def noting(notes: dict[str, OnAttempt], episode: str, note: OnAttempt) -> Iterator[None]:
    """Within the block `note` is called with the attempts of an episode."""
    notes[episode] = note
    try:
        yield
    finally:
        del notes[episode]
