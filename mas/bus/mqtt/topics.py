"""The topics on the broker. Every level is percent-encoded, so none can hold `/`, `+`, `#`, `$` or a raw `%`.

    mas/{space}/to/{address}/{sender}                      messages to an address, shared by its listeners
    mas/{space}/back/{principal}/{process}/{sender}        to one process: states of messages, answers, queries
    mas/{space}/presence/{principal}/{process}             retained: who is there and listens at what

`sender` is the principal that sends. The broker lets a principal publish only where the last level is its own name, so
a receiver knows who sent a frame from where it came in.
"""

from functools import lru_cache
from hashlib import blake2b
from typing import NamedTuple
from urllib.parse import quote, unquote

import msgspec

MOST_LETTERS = 1_024
"""Of a name: percent-encoded, three of them must fit into a topic."""


class Peer(NamedTuple):
    """One process of one principal."""

    principal: str
    process: str


class Arrival(NamedTuple):
    """What a topic says: `to` an address, `back` to one process, or a `presence`. `sender` of that: its principal."""

    kind: str
    sender: str
    process: str = ""
    address: str = ""


@lru_cache(maxsize=4096)
def level(name: str) -> str:
    """A name as one level of a topic. Letters, digits and `_.-~` stay as they are.

    Raises:
        ValueError: the name is empty or has more than `MOST_LETTERS`.
    """
    if not name:
        raise ValueError("an empty name cannot be a level of a topic")
    if len(name) > MOST_LETTERS:
        raise ValueError(f"a name of {len(name):,} letters cannot be a level of a topic; {MOST_LETTERS:,} are possible")
    return quote(name, safe="")


def share_group(address: str, password: str) -> str:
    """What stands for GROUP in `$share/GROUP/...`: 32 characters of 0-9 and a-f, without a trace of the password.

    The name under which the processes of one principal share the messages to its address. Brokers check who may read
    when they deliver, not at the subscription: a stranger in the group would be handed messages in turn and get
    none of them, and no other reader would. So only holders of the principal's password can work the name out.
    """
    return blake2b(address.encode(), key=blake2b(password.encode()).digest(), digest_size=16).hexdigest()


class Topics(msgspec.Struct, frozen=True):
    """The topics of one space: buses of different spaces on one broker never meet."""

    space: str

    @property
    def root(self) -> str:
        """What all topics of the space begin with."""
        return f"mas/{level(self.space)}"

    def to(self, address: str, sender: str) -> str:
        """Where `sender` publishes messages to an address."""
        return f"{self.root}/to/{level(address)}/{level(sender)}"

    def listen(self, address: str, password: str | None) -> str:
        """The filter that listeners of an address share: each message goes to one of them.

        `password`: of their principal, None where the broker asks for none and any client could listen anyway.
        """
        group = level(address) if password is None else share_group(address, password)
        return f"$share/{group}/{self.root}/to/{level(address)}/+"

    def back(self, peer: Peer, sender: str) -> str:
        """Where `sender` publishes to one process."""
        return f"{self.root}/back/{level(peer.principal)}/{level(peer.process)}/{level(sender)}"

    def replies(self, peer: Peer) -> str:
        """The filter of all that is published to one process."""
        return f"{self.root}/back/{level(peer.principal)}/{level(peer.process)}/+"

    def presence(self, peer: Peer) -> str:
        return f"{self.root}/presence/{level(peer.principal)}/{level(peer.process)}"

    @property
    def presences(self) -> str:
        return f"{self.root}/presence/+/+"

    def arrival(self, topic: str) -> Arrival | None:
        """What the topic of something received says, None: it is no topic of this space, or names what none can be."""
        root = f"{self.root}/"
        if not topic.startswith(root):
            return None
        kind, *names = map(unquote, topic[len(root) :].split("/"))
        if not all(0 < len(name) <= MOST_LETTERS for name in names):
            return None
        match kind, *names:
            case ["to", address, sender]:
                return Arrival("to", sender, address=address)
            case ["back", _, process, sender]:
                return Arrival("back", sender, process)
            case ["presence", principal, process]:
                return Arrival("presence", principal, process)
            case _:
                return None
