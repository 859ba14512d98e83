"""Frames: envelopes and what processes tell each other about them, as bytes. msgpack, with payloads by their kind.

    codec = Codec({**PAYLOADS, **TEAM_PAYLOADS})
    frame = codec.decode(codec.encode(Send(...)))

Only kinds that were named are made, from fields whose types are checked: nothing in a frame can name a class or code. A
frame is one byte of version and one array. Leaves out on purpose: compression.
"""

import hashlib
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

import msgspec
from pydantic import BaseModel, Field, ValidationError

from mas.bus.mqtt.topics import MOST_LETTERS
from mas.core.errors import ConfigError, Malformed
from mas.core.messages import PAYLOADS, Envelope, Payload

VERSION = b"\x01"
LAST = 2**53
"""The highest number in a frame: a file of a journal holds it, and so does every reader of JSON."""
Count = Annotated[int, msgspec.Meta(ge=0, le=LAST)]
Ticket = Annotated[str, msgspec.Meta(max_length=64)]
Process = Annotated[str, msgspec.Meta(min_length=1, max_length=MOST_LETTERS)]
Mode = Literal["publish", "publish_nowait", "request"]
"""One way and waiting for room, one way and not waiting, or a request."""
RemoteState = Literal["received", "queued", "delivered", "done", "dead", "returned", "unknown"]
"""Of one attempt at the process that was asked; docs/delivery.md says what each means."""


class Stored(Payload):
    """Travels in the place of a payload that is in a store: the hash and length of its bytes; never where that is."""

    kind: ClassVar[str] = "mas/stored"
    is_reference: ClassVar[bool] = True
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    size: int = Field(ge=1)


def stored(packed: bytes) -> Stored:
    """What travels in the place of a payload of these bytes."""
    return Stored(sha256=hashlib.sha256(packed).hexdigest(), size=len(packed))


class Send(msgspec.Struct, frozen=True, array_like=True, tag="s"):
    """A message on its way to an address.

    Attributes:
        process: who sent it, and gets what becomes of it.
        ticket: names this sending of the message; the same in every attempt.
        attempt: 1 for the first; a receiver that has said `unknown` to an attempt never takes that attempt later.
        mode: see `Mode`.
        remaining_s: seconds to the deadline, as clocks of processes differ; None: no deadline.
        eager: the sender waits to hear which process has the message, so tell `received` at once.
        tries: how often a receiver, here or elsewhere, had it and did not finish.
        is_streamed: the sender reads the parts of the answer.
    """

    process: Process
    ticket: Ticket
    attempt: Count
    mode: Mode
    remaining_s: float | None
    eager: bool
    envelope: Envelope
    tries: Count = 0
    is_streamed: bool = False


class StateQuery(msgspec.Struct, frozen=True, array_like=True, tag="q"):
    """Asks one process for the states of these (ticket, attempt); an empty list asks whether it is there."""

    process: Process
    tickets: list[tuple[Ticket, Count]]


class Cancel(msgspec.Struct, frozen=True, array_like=True, tag="c"):
    """Nobody waits for this message any more: do not hand it out, stop its handler."""

    process: Process
    ticket: Ticket


class Confirm(msgspec.Struct, frozen=True, array_like=True, tag="g"):
    """The answers of these tickets arrived and need not be kept."""

    process: Process
    tickets: list[Ticket]


class MessageState(msgspec.Struct, frozen=True, array_like=True):
    """The state of one attempt.

    Attributes:
        state: `received` here, `queued`, `delivered` to a receiver, `done`, `dead` (given up: a dead letter there),
            `returned` undone, or `unknown`: it is not here, and will not be taken if it comes.
        tries: as in `Send`, by now.
        delay_s: what was returned is not to be delivered again before; None: at once.
    """

    ticket: Ticket
    attempt: Count
    state: RemoteState
    tries: Count = 0
    delay_s: float | None = None


class Status(msgspec.Struct, frozen=True, array_like=True, tag="t"):
    """The states of messages."""

    process: Process
    states: list[MessageState]


class AnswerFrame(msgspec.Struct, frozen=True, array_like=True, tag="a"):
    """The answer to a request."""

    process: Process
    ticket: Ticket
    envelope: Envelope


class PartFrame(msgspec.Struct, frozen=True, array_like=True, tag="p"):
    """A part of the answer to a request; what it belongs to, and who may read it, its reader knows.

    Attributes:
        attempt: of the request's sender, as in `Send`; again: the receiver's own attempt within.
        sequence: from 0 in each of them.
    """

    process: Process
    ticket: Ticket
    attempt: Count
    again: Count
    sequence: Count
    payload: Payload


class Failed(msgspec.Struct, frozen=True, array_like=True, tag="e"):
    """The error that ended a message: the name of its class in `mas.core.errors`, and its text."""

    process: Process
    ticket: Ticket
    error: str
    text: str


Frame = Send | StateQuery | Cancel | Confirm | Status | AnswerFrame | PartFrame | Failed


class Codec:
    """Turns frames into bytes and back.

    Args:
        payloads: kind -> class of every payload that may travel.
        max_bytes: longest frame, sent or received.

    Raises:
        ConfigError: a kind is not its class's, or `max_bytes` is below 1,024.
    """

    def __init__(self, payloads: Mapping[str, type[Payload]] = PAYLOADS, *, max_bytes: int = 4 << 20) -> None:
        if max_bytes < 1024:
            raise ConfigError(f"max_bytes is {max_bytes}; the longest frame must be 1,024 bytes or more")
        wrong = sorted(
            f"{kind!r} ({cls.__name__}.kind is {cls.kind!r})" for kind, cls in payloads.items() if kind != cls.kind
        )
        if wrong:
            raise ConfigError(f"payloads must be named by their kind: {', '.join(wrong)}")
        self.max_bytes = max_bytes
        self._payloads: dict[str, type[Payload]] = {**payloads, Stored.kind: Stored}
        self._fields = {kind: _fields(cls) for kind, cls in self._payloads.items()}
        self._encoder = msgspec.msgpack.Encoder(enc_hook=self._plain)
        self._decoder = msgspec.msgpack.Decoder(Frame, dec_hook=self._made)
        self._unpacker = msgspec.msgpack.Decoder(Payload, dec_hook=self._made)

    def encode(self, frame: Frame) -> bytes:
        """The frame as bytes.

        Raises:
            Malformed: a payload of a kind that was not named, a value that cannot travel, or more than `max_bytes`.
        """
        try:
            encoded = VERSION + self._encoder.encode(frame)
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            raise Malformed(f"{_label(frame)} cannot travel: {error}") from error
        self._check_length(encoded, _label(frame))
        return encoded

    def decode(self, encoded: bytes) -> Frame:
        """The frame in these bytes.

        Raises:
            Malformed: they are not a frame of this version, or hold a payload of an unknown kind or a wrong shape.
        """
        self._check_length(encoded, "a frame")
        if encoded[:1] != VERSION:
            raise Malformed(f"a frame begins with {encoded[:1]!r}; this version of mas speaks {VERSION!r}")
        try:
            frame: Frame = self._decoder.decode(memoryview(encoded)[1:])
        except (msgspec.MsgspecError, ValueError, TypeError, RecursionError, MemoryError) as error:
            raise Malformed(f"not a frame: {str(error)[:300]}") from error
        if isinstance(frame, Send | AnswerFrame):
            self._check_envelope(frame.envelope)
        elif isinstance(frame, PartFrame) and isinstance(frame.payload, Stored):
            raise Malformed("a part of an answer travels by reference")
        return frame

    def pack(self, payload: Payload) -> bytes:
        """A payload alone as bytes, of any length.

        Raises:
            Malformed: it is of a kind that was not named, or holds a value that cannot travel.
        """
        try:
            return self._encoder.encode(payload)
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            raise Malformed(f"a payload of kind {payload.kind!r} cannot travel: {error}") from error

    def unpack(self, packed: bytes) -> Payload:
        """The payload that `pack` made bytes of, checked as in a frame.

        Raises:
            Malformed: the bytes are no payload of a known kind.
        """
        try:
            return self._unpacker.decode(packed)
        except (msgspec.MsgspecError, ValueError, TypeError, RecursionError, MemoryError) as error:
            raise Malformed(f"not a payload: {str(error)[:300]}") from error

    def _check_envelope(self, envelope: Envelope) -> None:
        if not 0 <= envelope.attempt <= LAST:
            raise Malformed(f"an envelope of attempt {envelope.attempt}")
        if isinstance(envelope.payload, Stored):
            if envelope.kind == Stored.kind or envelope.kind not in self._payloads:
                raise Malformed(f"unknown kind {envelope.kind[:80]!r}; possible: {sorted(self._payloads)}")
        elif envelope.kind != envelope.payload.kind:
            raise Malformed(f"an envelope of kind {envelope.kind!r} holds {envelope.payload.kind!r}")

    def _check_length(self, encoded: bytes, label: str) -> None:
        if len(encoded) > self.max_bytes:
            raise Malformed(
                f"{label} is {len(encoded):,} bytes long, {self.max_bytes:,} are allowed: send less at once, give "
                "every process the same store for long payloads (store=, --store), or raise max_frame_bytes in every "
                "process and the broker's limit"
            )

    def _plain(self, value: Any) -> Any:
        """What msgspec does not know, as something that it does: a payload is its kind and its fields."""
        if isinstance(value, Payload):
            known = self._payloads.get(value.kind)
            if known is not type(value):
                raise TypeError(
                    f"{type(value).__name__} (kind {value.kind!r}) is not among the payloads of this bus; "
                    f"possible: {sorted(self._payloads)}"
                )
            return value.kind, {name: getattr(value, name) for name in self._fields[value.kind].__struct_fields__}
        if isinstance(value, BaseModel):
            return {name: getattr(value, name) for name in type(value).model_fields}
        if isinstance(value, Mapping):
            return dict(value)
        raise TypeError(f"{type(value).__name__} is no type that travels")

    def _made(self, wanted: type, value: Any) -> Any:
        """The object of a type that msgspec does not know, from the plain value that came in its place."""
        if wanted is Payload or (isinstance(wanted, type) and issubclass(wanted, Payload)):
            return self._payload(wanted, value)
        if isinstance(wanted, type) and issubclass(wanted, BaseModel):
            return wanted.model_validate(value)
        raise TypeError(f"{wanted} is no type that travels")

    def _payload(self, wanted: type, value: Any) -> Payload:
        kind, fields = msgspec.convert(value, tuple[str, dict[str, Any]])
        cls = self._payloads.get(kind)
        if cls is None:
            raise ValueError(f"unknown kind {kind[:80]!r}; possible: {sorted(self._payloads)}")
        if not issubclass(cls, wanted):
            raise ValueError(f"kind {kind!r} where {wanted.__name__} is expected")
        typed = msgspec.convert(fields, self._fields[kind], dec_hook=self._made)
        try:
            return cls.model_validate(
                {name: getattr(typed, name) for name in typed.__struct_fields__}, by_name=True, by_alias=False
            )
        except ValidationError as error:
            raise ValueError(f"kind {kind!r}: {error.errors()[0]['msg']}") from None


def _fields(cls: type[Payload]) -> type[msgspec.Struct]:
    """A struct with the fields of a payload, so that msgspec checks and makes what they hold."""
    fields = [(name, field.annotation) for name, field in cls.model_fields.items()]
    return msgspec.defstruct(f"{cls.__name__}Fields", fields, forbid_unknown_fields=True)


def _label(frame: Frame) -> str:
    if isinstance(frame, Send | AnswerFrame):
        return f"message {frame.envelope.id!r} of kind {frame.envelope.kind!r} to {frame.envelope.target!r}"
    if isinstance(frame, PartFrame):
        return f"part {frame.sequence} of kind {frame.payload.kind!r} of an answer"
    return f"a {type(frame).__name__} frame"
