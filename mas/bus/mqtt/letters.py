"""Dead letters of the sending side: accepted messages that nobody is left to give up on but their sender."""

import time
from collections import OrderedDict

from mas.bus.dead import DeadLetter
from mas.bus.mqtt.outgoing import Post


class Letters:
    """The latest messages that one process has sent and given up on, oldest first.

    Args:
        limit: how many are kept; of the older ones only the number `forgotten` is left. 0: none is kept.

    Attributes:
        given_up: messages sent from here that died, here or in the process that had them.
    """

    def __init__(self, limit: int) -> None:
        self.forgotten = 0
        self.given_up = 0
        self._limit = limit
        self._letters: OrderedDict[str, tuple[DeadLetter, Post]] = OrderedDict()

    def add(self, post: Post, cause: str) -> None:
        """Keep a message that dies now, if its sender believes it to be on its way."""
        if not post.future.done():
            return
        self.given_up += 1
        letter = DeadLetter(envelope=post.envelope, cause=cause, attempts=post.tries, died_at=time.time())
        self._letters[post.ticket] = (letter, post)
        while len(self._letters) > self._limit:
            self._letters.popitem(last=False)
            self.forgotten += 1

    def all(self) -> tuple[DeadLetter, ...]:
        """Every letter that is kept, oldest first."""
        return tuple(letter for letter, _ in self._letters.values())

    def take(self, message_id: str | None) -> list[Post]:
        """Remove the letters with this id, None: all; returns their messages."""
        taken = [post for _, post in self._letters.values() if message_id in (None, post.envelope.id)]
        for post in taken:
            del self._letters[post.ticket]
            self.given_up -= 1
        return taken
