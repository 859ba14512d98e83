"""The errors that a sender gets for a message that did not arrive, or whose answer did not."""

from collections.abc import Collection

from mas.bus.mqtt.client import NOT_AUTHORISED
from mas.bus.mqtt.outgoing import Post
from mas.core.errors import Closed, Denied, Expired, Malformed, NoRoute, RemoteError
from mas.core.naming import listed

_TOO_LONG = 149


def not_for(post: Post, strangers: Collection[str]) -> Denied:
    """Others read at its target than it is for."""
    envelope = post.envelope
    return Denied(
        f"message {envelope.id!r}: {listed(strangers)}, who read at {envelope.target!r}, are not in its visibility: "
        f"{listed(envelope.visibility or ())}"
    )


def by_broker(post: Post, principal: str, code: int) -> Denied | Malformed | None:
    """The broker's reason code, None: it is none that stays the same when the message is sent again."""
    envelope = post.envelope
    if code == NOT_AUTHORISED:
        return Denied(f"message {envelope.id!r}: the broker does not let {principal!r} send to {envelope.target!r}")
    if code == _TOO_LONG:
        return Malformed(f"message {envelope.id!r} is longer than the broker allows")
    return None


def nobody_left(post: Post) -> Closed | NoRoute:
    """Nobody is there to take it, or who had taken it is gone."""
    envelope = post.envelope
    if post.holder is not None and post.mode == "ask":
        return Closed(f"request {envelope.id!r}: its listener at {envelope.target!r} vanished without an answer")
    return NoRoute(f"message {envelope.id!r}: nobody listens at {envelope.target!r} any more")


def late(post: Post) -> Expired:
    """Its deadline passed."""
    envelope = post.envelope
    return Expired(f"message {envelope.id!r}: {envelope.target!r} did not take or answer it in time")


def tried_enough(post: Post) -> RemoteError:
    """As many receivers as may try it have left or died with it."""
    envelope = post.envelope
    return RemoteError(
        f"message {envelope.id!r} was given up: it was tried {post.tries} times at {envelope.target!r}, and whoever "
        "had it gave it back, left or died"
    )


def forgotten(post: Post) -> Closed:
    """Who answered does not have the answer any more."""
    return Closed(
        f"request {post.envelope.id!r}: {post.envelope.target!r} has answered it, and keeps the answer no more"
    )


def closed(post: Post) -> Closed:
    """This process ends."""
    return Closed(f"message {post.envelope.id!r}: the bus was closed")
