"""Adapter versions on their way to processes that play or generate: their files, checked where they come."""

import msgspec

from mas.core.engine import AdapterRef
from mas.core.errors import EngineError
from mas.serving.adapter_bank import AdapterBank
from mas.serving.adapter_files import digest_of, from_files, to_files
from mas.serving.adapter_weights import AdapterWeights
from mas.serving.model_sources import Origin


class HeldVersionOrder(msgspec.Struct, frozen=True, kw_only=True):
    """A process is to hold this adapter version, whose files come with the order; `digest`: theirs."""

    ref: AdapterRef
    digest: str


def packed_files(weights: AdapterWeights, origin: Origin) -> tuple[str, bytes]:
    """The digest of an adapter's files, and the files as bytes."""
    files = to_files(weights, origin)
    return digest_of(files), msgspec.msgpack.encode(files)


def received_files(order: HeldVersionOrder, content: bytes) -> dict[str, bytes]:
    """The files of an order.

    Raises:
        EngineError: they came damaged.
    """
    files = msgspec.msgpack.decode(content, type=dict[str, bytes])
    if digest_of(files) != order.digest:
        raise EngineError(f"adapter {order.ref} came damaged: its digest is another one")
    return files


def received_weights(order: HeldVersionOrder, content: bytes, bank: AdapterBank) -> AdapterWeights:
    """The weights of an order.

    Raises:
        EngineError: as `received_files`. CheckpointError: they are of another base.
    """
    return from_files(received_files(order, content), bank, f"adapter {order.ref}")
