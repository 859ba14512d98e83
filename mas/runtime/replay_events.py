"""The events of a play as data: enough to resume it in another process. See `mas.runtime.replay_log`."""

from collections.abc import Callable
from hashlib import blake2b

import msgspec

from mas.bus.wire import pack, unpacker
from mas.core.environment import Step
from mas.core.errors import MasError, error_named
from mas.runtime.payloads import Candidate
from mas.runtime.policies import Spent

Setting = str | int | float | bool | None


class Beginning(msgspec.Struct, frozen=True, kw_only=True):
    """What must be the same whenever the play is resumed.

    Attributes:
        plan: digest of the team; state: fingerprint of the environment after its reset.
        settings: what else the player says that the play depends on.
    """

    plan: str
    state: str
    settings: dict[str, Setting]


class TurnBegan(msgspec.Struct, frozen=True, kw_only=True, tag="turn"):
    """A team turn began. `seen`: fingerprint of what its agents see; `at`: seconds that the play had been played."""

    turn: int
    seen: str
    at: float


class CallEvent(msgspec.Struct, frozen=True, kw_only=True, tag="called"):
    """An agent, or its stand-in, was asked and has answered or failed.

    Attributes:
        visit: how often the agent has spoken in this turn before; number: of the call in this visit, from 1.
        asked: fingerprint of the question; name: who was asked.
        began, at: when it was asked and when it answered, in seconds that the play had been played.
        spent: what it took from the budgets that limit it, reservations that stay spent included.
        candidates: the answer; error: name and text of the error, None where there is an answer.
    """

    turn: int
    agent: str
    visit: int
    number: int
    asked: str
    name: str
    began: float
    at: float
    spent: Spent
    candidates: tuple[Candidate, ...] = ()
    error: tuple[str, str] | None = None

    def outcome(self) -> tuple[Candidate, ...]:
        """The answer.

        Raises:
            MasError: what it failed with.
        """
        if self.error is not None:
            raise error_named(*self.error)
        return self.candidates


class Round(msgspec.Struct, frozen=True, kw_only=True, tag="round"):
    """The tokens of agents that spoke at once travelled, and then joins that had waited long enough waited no more."""

    turn: int
    spoke: tuple[str, ...]
    expired: tuple[str, ...]
    at: float


class DroppedEvent(msgspec.Struct, frozen=True, kw_only=True, tag="dropped"):
    """An answer came just when it was not awaited any more."""

    turn: int
    agent: str
    visit: int
    number: int


class GaveUp(msgspec.Struct, frozen=True, kw_only=True, tag="gave_up"):
    """The turn failed with an agent; on resume it is asked again."""

    turn: int
    agent: str
    visit: int


class Committed(msgspec.Struct, frozen=True, kw_only=True, tag="committed"):
    """The environment made a step. `state`: the environment's snapshot afterwards; `key`: its `state_key`."""

    turn: int
    actions: dict[str, str]
    step: Step
    state: bytes
    key: str
    at: float


class EndEvent(msgspec.Struct, frozen=True, kw_only=True, tag="over"):
    """The play came to its end, or can never do so: what it failed with."""

    failure: str | None
    at: float


Event = TurnBegan | CallEvent | Round | DroppedEvent | GaveUp | Committed | EndEvent


read_event: Callable[[bytes], Event] = unpacker(Event)
"""The event that `pack` made bytes of; Malformed where they are none, or hold a payload that is unknown here."""
read_beginning: Callable[[bytes], Beginning] = unpacker(Beginning)


class _EventParts(msgspec.Struct):
    parts: tuple[object, ...]


def fingerprint(*parts: object) -> str:
    """Equal for equal parts, 32 hexadecimal digits."""
    return blake2b(pack(_EventParts(parts)), digest_size=16).hexdigest()


def failure_of(error: MasError) -> tuple[str, str]:
    """Name and text, for a record."""
    return type(error).__name__, str(error)
