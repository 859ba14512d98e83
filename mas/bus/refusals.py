"""The errors that a sender gets for a message that is not delivered, or whose answer does not come: on every bus."""

from collections.abc import Collection, Iterable

from mas.core.errors import Closed, Denied, Expired, NoRoute, RemoteError
from mas.core.messages import Envelope
from mas.core.naming import did_you_mean, listed


def closed(envelope: Envelope) -> Closed:
    """The bus ends, or has ended."""
    return Closed(f"message {envelope.id!r}: the bus is closed")


def no_listener(envelope: Envelope, addresses: Iterable[str]) -> NoRoute:
    """No subscription at the target. `addresses`: those that have one."""
    return NoRoute(
        f"message {envelope.id!r}: there is no listener at {envelope.target!r}. "
        f"{did_you_mean(envelope.target, addresses)}"
    )


def no_listener_left(envelope: Envelope) -> NoRoute:
    """The last subscription at the target ended."""
    return NoRoute(f"message {envelope.id!r}: the last listener at {envelope.target!r} left")


def no_answer(envelope: Envelope) -> Closed:
    """The receiver of a request left or died without an answer."""
    return Closed(f"request {envelope.id!r}: its listener at {envelope.target!r} left without an answer")


def not_a_reader(envelope: Envelope, readers: Collection[str]) -> Denied:
    """These read at the target, and the message is not for them."""
    return Denied(
        f"message {envelope.id!r}: {listed(readers)} at {envelope.target!r} is not in its visibility: "
        f"{listed(envelope.visibility or ())}"
    )


def not_received(envelope: Envelope) -> Expired:
    """The deadline passed before a receiver had it."""
    return Expired(f"message {envelope.id!r} to {envelope.target!r} was not received in time")


def not_answered(envelope: Envelope) -> Expired:
    """The deadline passed while a receiver had it."""
    return Expired(f"request {envelope.id!r}: {envelope.target!r} did not answer in time")


def given_up(envelope: Envelope, cause: str) -> RemoteError:
    """It was tried as often as it may be, or its receiver rejected it."""
    return RemoteError(f"message {envelope.id!r} to {envelope.target!r} was given up: {cause}")
