"""Agents in other processes, whose adapters are trained here: which version each uses, and what is done when
the process of one is gone.

Asking again is safe: what an agent says is a function of the request and of the adapter version that it names.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

from mas.core.engine import PinnedAdapter
from mas.core.errors import Closed, MasError, NoRoute, NotServed, RunError
from mas.runtime.payloads import Candidate

T = TypeVar("T")
UntilThere = Callable[[str], Awaitable[bool]]
"""Address -> whether it has a listener; waits for one as long as is allowed."""

ATTEMPTS = 5
"""How often a request is made whose listeners vanish: one that ends every process that takes it must end, too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteAgents:
    """How the trainer asks agents of other processes.

    Attributes:
        pinned: role name -> the version that its agents must use; None: what they have.
        until_there: waits for a listener.
    """

    pinned: Callable[[str], PinnedAdapter | None]
    until_there: UntilThere


async def insist(
    call: Callable[[], Awaitable[T]],
    until_there: Callable[[], Awaitable[bool]],
    note: Callable[[int, MasError | None], object],
) -> T:
    """Make a request again when its listener vanished or left, as soon as there is another one.

    Args:
        call: makes the request, each time with an id of its own.
        until_there: waits for a listener; False: none came in time.
        note: called with the number and the error of every attempt that failed, and of the first that then did not.

    Raises:
        NoRoute, Closed: no listener came in time, or `ATTEMPTS` listeners have vanished. Otherwise what `call` raises.
    """
    for number in range(1, ATTEMPTS + 1):
        try:
            answer = await call()
        except (NoRoute, Closed) as error:
            note(number, error)
            if number == ATTEMPTS or not await until_there():
                raise
        else:
            if number > 1:
                note(number, None)
            return answer
    raise AssertionError("the last attempt returns or raises")


def check_answer(
    role: str, wanted: PinnedAdapter | None, seeds: tuple[int, ...], candidates: tuple[Candidate, ...]
) -> None:
    """Refuse candidates that are not what was asked for: nothing of them is trained on.

    Args:
        role: of the agent that was asked.
        wanted: None: any version is right, as of a role that is not trained.
        seeds: one candidate was asked for each.

    Raises:
        RunError: not one for each seed, from another role, or with another number of supports than of tokens.
        NotServed: of another version than was wanted.
    """
    spoken = [(candidate.role, candidate.seed) for candidate in candidates]
    if spoken != [(role, seed) for seed in seeds]:
        raise RunError(
            f"role {role!r} was asked for {len(seeds)} candidates and answered, as (role, seed): {spoken}; its process "
            "must be given the same team"
        )
    for candidate in candidates:
        supports, tokens = len(candidate.generation.supports), len(candidate.generation.token_ids)
        if supports not in (0, tokens):
            raise RunError(
                f"role {role!r} answered {tokens} tokens with {supports} supports; each token has one, or none"
            )
        if wanted is not None and candidate.generation.adapter != wanted.ref:
            raise NotServed(
                f"role {role!r} was asked to use adapter {wanted.ref} and used "
                f"{candidate.generation.adapter or 'the bare base'}"
            )
