"""Frames between the driver and a worker: four bytes of length, big-endian, then one message in MessagePack."""

import asyncio
from typing import Final, TypeVar

import msgspec

from mas.cluster.records import Outcome
from mas.core.version import VERSION

MARGIN: Final = 1 << 20
"""What a frame may hold beside its payload: names, and tracebacks."""
READ_AHEAD: Final = 1 << 20
"""Bytes that a side reads before they are asked for."""
T = TypeVar("T")


class StartRequest(msgspec.Struct, frozen=True, tag="begin", kw_only=True):
    """The first request: make the object."""

    id: int
    factory: str
    arguments: bytes
    objects: str
    """The directory of objects; empty: the worker gets them in another way."""
    limit: int
    """The largest payload in bytes."""
    version: str = VERSION
    """Of mas in the driver."""


class CallRequest(msgspec.Struct, frozen=True, tag="call", kw_only=True):
    """Call a method."""

    id: int
    method: str
    payload: bytes
    objects: list[str]
    """Names of objects: of files in the directory of objects, or of what the worker holds."""


class CancelRequest(msgspec.Struct, frozen=True, tag="cancel", kw_only=True):
    """Cancel a call; has no answer."""

    id: int


class PingRequest(msgspec.Struct, frozen=True, tag="ping", kw_only=True):
    """Ask for a sign of life."""

    id: int


class StopRequest(msgspec.Struct, frozen=True, tag="stop", kw_only=True):
    """Close the object and end."""

    id: int


Request = StartRequest | CallRequest | CancelRequest | PingRequest | StopRequest


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to the request with this id; to a PingRequest, a HeartbeatReply as payload."""

    id: int
    outcome: Outcome


class CorruptFrame(Exception):
    """Bytes that are no frame; the connection is of no use any more. Stays within the package."""


REQUESTS: Final[msgspec.msgpack.Decoder[Request]] = msgspec.msgpack.Decoder(Request)
REPLIES: Final[msgspec.msgpack.Decoder[Reply]] = msgspec.msgpack.Decoder(Reply)
_encoder = msgspec.msgpack.Encoder()


async def read_frame(reader: asyncio.StreamReader, kind: msgspec.msgpack.Decoder[T], limit: int) -> T:
    """The next message. `kind`: `REQUESTS` or `REPLIES`.

    Raises:
        EOFError: the connection has ended, in the middle of a frame or not. CorruptFrame: what came is no such message.
    """
    try:
        length = int.from_bytes(await reader.readexactly(4))
        if length > limit + MARGIN:
            raise CorruptFrame(f"a frame of {length} bytes, {limit + MARGIN} are possible")
        return kind.decode(await reader.readexactly(length))
    except (asyncio.IncompleteReadError, OSError) as error:  # an OSError: the network gave up, as after ETIMEDOUT
        raise EOFError("the connection was closed, or broke") from error
    except msgspec.DecodeError as error:
        raise CorruptFrame(f"a frame that is no message ({error})") from error


async def write_frame(writer: asyncio.StreamWriter, message: Request | Reply) -> None:
    """Write one frame whole, and wait while the other side lags behind.

    Raises:
        OSError: the connection is closed.
    """
    body = _encoder.encode(message)
    writer.writelines([len(body).to_bytes(4), body])
    await writer.drain()
