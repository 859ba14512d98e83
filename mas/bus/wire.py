"""Envelopes as bytes and back: msgpack by msgspec, payloads by their kind. No pickle, no import by name.

A payload may hold what msgspec knows (numbers, texts, containers, dataclasses, its structs), pydantic models and other
payloads. A kind is known once the class that bears it was imported.
"""

from collections.abc import Callable, Mapping
from typing import Any

import msgspec
from pydantic import BaseModel

from mas.core.errors import Malformed
from mas.core.messages import Envelope, Payload
from mas.core.naming import did_you_mean

_kinds: dict[str, type[Payload]] = {}


class UnknownKind(Malformed):
    """The class of a message's payload is not imported here; the bytes may be in order."""


def encode(envelope: Envelope) -> bytes:
    """The envelope as bytes.

    Raises:
        Malformed: its payload holds something that cannot be written, or its kind is another class's.
    """
    try:
        return _encoder.encode(envelope)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise Malformed(
            f"message {envelope.id!r}: its payload {type(envelope.payload).__name__} cannot be written: {error}"
        ) from error


def decode(frame: bytes) -> Envelope:
    """The envelope that `encode` made bytes of, every field checked.

    Raises:
        Malformed: the bytes are no envelope, or its payload's class is unknown here or does not fit.
    """
    try:
        envelope = _decoder.decode(frame)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise Malformed(f"{len(frame)} bytes are no message: {error}") from error
    if envelope.kind != envelope.payload.kind and not envelope.payload.is_reference:
        raise Malformed(
            f"message {envelope.id!r} says that it holds {envelope.kind!r} and holds {envelope.payload.kind!r}"
        )
    return envelope


def read_plain(frame: bytes) -> dict[str, Any]:
    """An envelope's fields without its classes, for readers that know no payloads; `payload` has `kind` and `fields`.

    Raises:
        Malformed: the bytes are no envelope.
    """
    try:
        plain = msgspec.msgpack.decode(frame, type=dict[str, Any])
        if {"id", "kind", "source", "target", "payload"} <= plain.keys():
            return plain
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise Malformed(f"{len(frame)} bytes are no message: {error}") from error
    raise Malformed(f"{len(frame)} bytes are no message: it has no {'id'!r}, kind, source, target or payload")


def pack(value: msgspec.Struct) -> bytes:
    """A struct that may hold payloads as bytes.

    Raises:
        Malformed: it holds something that cannot be written, or a payload whose kind is another class's.
    """
    try:
        return _encoder.encode(value)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise Malformed(f"a {type(value).__name__} cannot be written: {error}") from error


def unpacker(kind: Any) -> Callable[[bytes], Any]:
    """A function that gives the value that `pack` made bytes of, every field checked. It raises Malformed where the
    bytes are none, or hold a payload whose class is unknown here or does not fit.

    Args:
        kind: the value's type, or a union of tagged structs.
    """
    decoder = msgspec.msgpack.Decoder(kind, dec_hook=_read)

    def unpack(frame: bytes) -> Any:
        try:
            return decoder.decode(frame)
        except (msgspec.DecodeError, ValueError, RecursionError) as error:
            raise Malformed(f"{len(frame)} bytes are no such record: {error}") from error

    return unpack


def _payload_class(kind: object) -> type[Payload]:
    """The imported class of a kind."""
    if not isinstance(kind, str):
        raise Malformed(f"the kind of a payload is a text, not {kind!r}")
    if kind not in _kinds:
        _kinds.clear()
        _collect(Payload)
    if kind not in _kinds:
        raise UnknownKind(f"no payload of kind {kind!r} is known; import its class. {did_you_mean(kind, _kinds)}")
    return _kinds[kind]


def _collect(base: type[Payload]) -> None:
    for payload in base.__subclasses__():
        if "kind" in payload.__dict__:
            _kinds[payload.kind] = payload
        _collect(payload)


def _write(value: Any) -> Any:
    if isinstance(value, Payload):
        if _payload_class(value.kind) is not type(value):
            raise TypeError(
                f"kind {value.kind!r} is {_payload_class(value.kind).__name__}'s, not {type(value).__name__}'s"
            )
        return {"kind": value.kind, "fields": _fields(value)}
    if isinstance(value, BaseModel):
        return _fields(value)
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} objects cannot be written")


def _read(wanted: type, value: Any) -> Any:
    if not issubclass(wanted, BaseModel):
        raise TypeError(f"{wanted.__name__} objects cannot be read")
    fields = value
    if issubclass(wanted, Payload):
        if not isinstance(value, dict) or value.keys() != {"kind", "fields"}:
            raise ValueError("a payload has 'kind' and 'fields'")
        actual = _payload_class(value["kind"])
        if not issubclass(actual, wanted):
            raise ValueError(f"a payload of kind {actual.kind!r} is no {wanted.__name__}")
        wanted, fields = actual, value["fields"]
    return _build(wanted, fields)


def _build(model: type[BaseModel], fields: Any) -> BaseModel:
    if not isinstance(fields, dict):
        raise ValueError(f"the fields of {model.__name__} are a {type(fields).__name__}, not a mapping")
    types = {name: field.annotation for name, field in model.model_fields.items()}
    typed = {
        name: msgspec.convert(value, types[name], dec_hook=_read) if name in types else value
        for name, value in fields.items()
    }
    return model.model_validate(typed)


def _fields(value: BaseModel) -> dict[str, Any]:
    return {name: getattr(value, name) for name in type(value).model_fields}


_encoder = msgspec.msgpack.Encoder(enc_hook=_write)
_decoder = msgspec.msgpack.Decoder(Envelope, dec_hook=_read)
