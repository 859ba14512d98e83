"""Parts of answers on their way between processes: given to the connection once, and never asked for again."""

from collections.abc import Callable

from mas.bus.mqtt.frames import Codec, Part
from mas.bus.mqtt.outgoing import Post
from mas.bus.mqtt.topics import Peer
from mas.bus.parts import PartCounters, Take, part_of
from mas.core.messages import Envelope


def way_to(
    peer: Peer,
    ticket: str,
    attempt: int,
    *,
    process: str,
    codec: Codec,
    pass_on: Callable[[Peer, bytes], bool],
    counters: PartCounters,
) -> Take:
    """The way of an answer's parts to the process that reads them.

    Args:
        ticket: of the request; attempt: of its sender.
        process: this process's name.
        pass_on: gives bytes for a process to the connection; False: there is none, or it is behind.
    """

    def take(part: Envelope) -> bool:
        frame = Part(process, ticket, attempt, part.attempt, part.sequence, part.payload)
        is_passed = pass_on(peer, codec.encode(frame))
        counters.passed += is_passed
        return is_passed

    return take


class PartsIn:
    """Takes parts that come from other processes to their readers.

    Args:
        find: the message of a ticket, None: it is over.
    """

    def __init__(self, find: Callable[[str], Post | None], counters: PartCounters) -> None:
        self._find = find
        self._counters = counters

    def take(self, peer: Peer, frame: Part) -> None:
        """A part came; one that nobody reads, or not from who has the request now, is dropped and counted."""
        self._counters.accepted += 1
        post = self._find(frame.ticket)
        if post is None or not _read(post, peer, frame):
            self._counters.dropped += 1


def _read(post: Post, peer: Peer, frame: Part) -> bool:
    if post.stream is None or frame.attempt != post.attempt or post.holder not in (None, peer):
        return False
    part = part_of(post.envelope, frame.payload, sequence=frame.sequence, attempt=frame.again, principal=peer.principal)
    return post.stream.take(part, frame.attempt)
