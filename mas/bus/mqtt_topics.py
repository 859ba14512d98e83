"""Names of MQTT topics: who speaks to whom is in the topic, so that a broker can check it.

    mas/{space}/to/{address}/{sender}                  messages to an address; its listeners share them
    mas/{space}/back/{principal}/{process}/{sender}    acks, answers, errors and cancels to one process
    mas/{space}/stream/{principal}/{process}/{sender}  token streams to one process
    mas/{space}/card/{principal}/{process}             retained presence cards

`sender` is the principal that publishes: the broker lets nobody write under another's name. Every name is one level,
percent-encoded, so that none can be a wildcard, a separator or a topic of the broker's own.
"""

from hashlib import blake2b
from urllib.parse import quote

ROOT = "mas"


def level(name: str) -> str:
    """A name as one level of a topic.

    Raises:
        ValueError: the name is empty.
    """
    if not name:
        raise ValueError("an empty name cannot be a level of a topic")
    return quote(name, safe="")


def to_topic(space: str, address: str, sender: str | None) -> str:
    """Messages from a principal to an address; None: from anybody."""
    return _topic(space, "to", address, sender)


def back_topic(space: str, principal: str, process: str | None, sender: str | None) -> str:
    """What comes back to a process of a principal; None: any of its processes, anybody's answers."""
    return _topic(space, "back", principal, process, sender)


def stream_topic(space: str, principal: str, process: str | None, sender: str | None) -> str:
    """Token streams to a process of a principal; None: any of its processes, anybody's streams."""
    return _topic(space, "stream", principal, process, sender)


def card_topic(space: str, principal: str | None, process: str | None) -> str:
    """Presence of a process of a principal; None: of any."""
    return _topic(space, "card", principal, process)


def share_group(address: str, password: str) -> str:
    """Name of the group in which the processes of one principal share the messages to its address.

    Brokers check who may read when they deliver, not when somebody subscribes. A stranger in the group would be handed
    messages in turn and get none of them, and so would everybody else: they are lost. Hence a name that only holders
    of the principal's password can work out.
    """
    return blake2b(address.encode(), key=blake2b(password.encode()).digest(), digest_size=16).hexdigest()


def shared_filter(space: str, address: str, group: str) -> str:
    """What a listener at an address subscribes to: each message goes to one member of the group."""
    return f"$share/{level(group)}/{to_topic(space, address, None)}"


def _topic(space: str, kind: str, *names: str | None) -> str:
    levels = ("+" if name is None else level(name) for name in names)
    return "/".join((ROOT, level(space), kind, *levels))
