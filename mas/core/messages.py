"""What travels on the bus: an `Envelope` around one typed payload.

Members of a team that act together make one payload: a JSON object of what each of them does (`joint_action`).
Leaves out on purpose: serialisation for a wire, and where long payloads are kept: a transport's own concerns.
"""

from collections.abc import Collection, Mapping
from enum import StrEnum
from inspect import get_annotations
from types import MappingProxyType
from typing import Any, ClassVar, Literal, Self

import msgspec
from pydantic import BaseModel, ConfigDict, Field


class Delivery(StrEnum):
    """What the bus promises for one message.

    best_effort: delivered once or not at all; a publisher never waits: the message is dropped where there is no room.
    at_least_once: delivered again until it is `done`; the same id may be accepted twice.
    effectively_once: delivered again until it is `done`; a second message with its id is dropped.
    """

    BEST_EFFORT = "best_effort"
    AT_LEAST_ONCE = "at_least_once"
    EFFECTIVELY_ONCE = "effectively_once"


class Payload(BaseModel):
    """Base of everything an envelope can hold. Frozen; `kind` is its name in teams and on the wire.

    `is_reference`: it says where a payload of the envelope's kind is. `raw`: the text of
    the model that was parsed, kept where the agent may be shown it again; it is not sent to other agents.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")
    kind: ClassVar[str] = "payload"
    is_reference: ClassVar[bool] = False
    raw: str | None = Field(default=None, exclude_if=lambda raw: raw is None)

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "raw" in get_annotations(cls):
            raise TypeError(f"{cls.__name__} has a field 'raw', which every payload has: give it another name")

    def without_raw(self) -> Self:
        """The payload as it is sent to other agents."""
        return self if self.raw is None else self.model_copy(update={"raw": None})

    @property
    def route(self) -> str | None:
        """The name of the edge condition that this payload chooses, None where it chooses nothing."""
        return None

    @property
    def content(self) -> str:
        """The payload as the text that other roles read in their prompts."""
        return ""


class Text(Payload):
    """Base of payloads that are one text."""

    text: str

    @property
    def content(self) -> str:
        return self.text


class RoutedText(Text):
    """Base of texts whose route, where their role has any, is the one that the role chose. Without one, nothing is
    written of it: notes and actions of teams without tools are what they were before there were any."""

    chosen_route: str | None = Field(default=None, exclude_if=lambda route: route is None)

    @property
    def route(self) -> str | None:
        return self.chosen_route


class Note(RoutedText):
    """Free text from one role to others."""

    kind: ClassVar[str] = "note"


class Plan(RoutedText):
    """What the planner wants done."""

    kind: ClassVar[str] = "plan"
    chosen_route: str | None = None


class Action(RoutedText):
    """A move in the environment, or an answer to the task."""

    kind: ClassVar[str] = "action"


class Verdict(Text):
    """A verifier's decision over an action; its route is `accept` or `reject`."""

    kind: ClassVar[str] = "verdict"
    accept: bool

    @property
    def route(self) -> Literal["accept", "reject"]:
        return "accept" if self.accept else "reject"


class Feedback(Text):
    """What should change in a rejected action."""

    kind: ClassVar[str] = "feedback"


class Items(Payload):
    """A list: what an edge with `map` hands out one by one, and what a mapped agent's outputs are joined into."""

    kind: ClassVar[str] = "items"
    items: tuple[str, ...]

    @property
    def content(self) -> str:
        """One numbered line per item."""
        return "\n".join(f"{number}. {item}" for number, item in enumerate(self.items, 1))


class Failure(Text):
    """Output that did not parse: recorded, counted, and passed on as data. `text` is the raw output."""

    kind: ClassVar[str] = "failure"
    cause: str
    chosen_route: str | None = None

    @property
    def route(self) -> str | None:
        return self.chosen_route

    @property
    def content(self) -> str:
        return "?"


def parsed_text(payload: Payload | None) -> str:
    """The content of an output, or the empty text if there is no output or it did not parse."""
    return "" if payload is None or isinstance(payload, Failure) else payload.content


class Beat(Payload):
    """A heartbeat, from whoever works on the request that the envelope's `correlation` names. `number`: from 0."""

    kind: ClassVar[str] = "beat"
    number: int


class Envelope(msgspec.Struct, frozen=True, kw_only=True):
    """One message. Created by the bus's callers, never changed after.

    Attributes:
        id: unique; receivers drop a second message with the same id (effectively once).
        kind: the payload's kind, repeated here so that a transport need not open the payload.
        source: address of the sender.
        target: address of the receiver.
        correlation: id of the request that this message answers, None for a message that answers nothing.
        causation: id of the message that caused this one.
        reply_to: address that an answer goes to.
        key: messages with the same key from one source are delivered in order; None: no order asked.
        sequence: of a part of an answer, its number from 0; of the answer, the number of its parts if they were read.
        final: False for parts.
        attempt: 1 for the first delivery; more: it may have been delivered before.
        deadline: seconds on the bus's own monotonic clock after which it is not delivered; None: never.
        visibility: principals who may read the payload; None: everyone it is delivered to.
        principal: who sent it, as the guard knows it.
    """

    id: str
    kind: str
    source: str
    target: str
    payload: Payload
    correlation: str | None = None
    causation: str | None = None
    reply_to: str | None = None
    key: str | None = None
    sequence: int = 0
    final: bool = True
    attempt: int = 1
    deadline: float | None = None
    delivery: Delivery = Delivery.EFFECTIVELY_ONCE
    visibility: frozenset[str] | None = None
    principal: str | None = None
    run: str | None = None
    episode: str | None = None
    group: str | None = None
    role: str | None = None
    turn: int | None = None
    adapter: str | None = None
    traceparent: str | None = None


PAYLOADS: dict[str, type[Payload]] = {
    kind.kind: kind for kind in (Note, Plan, Action, Verdict, Feedback, Items, Failure)
}


_READ = msgspec.json.Decoder(dict[str, str])


def joint_action(said: Mapping[str, str]) -> str:
    """Agent -> what it does, as the one text that a world gets; empty (a pass) where nobody does anything."""
    texts = {agent: text.encode(errors="replace").decode() for agent, text in said.items()}
    return msgspec.json.encode(texts).decode() if texts else ""


def read_joint(action: str, agents: Collection[str]) -> Mapping[str, str] | None:
    """Agent -> what it does. None: it is no JSON object of texts, is empty, or names somebody else."""
    try:
        said = _READ.decode(action)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return None
    return MappingProxyType(said) if said and said.keys() <= set(agents) else None
