"""What this process has sent and what became of it: nothing is forgotten before it is done somewhere.

A message goes to its address, where the broker gives it to one listening process. When nothing is heard of it, the
processes that may have it are asked. Each either says what it made of it, or promises never to take this attempt; only
when all that live have promised does the next attempt go out. So no two living processes do it, whatever was lost.
"""

import asyncio
import secrets
from collections import defaultdict
from collections.abc import Callable, Container
from functools import partial

from mas.bus.mqtt import refusals
from mas.bus.mqtt.after_write import Behind
from mas.bus.mqtt.client import NOBODY, NOT_AUTHORISED
from mas.bus.mqtt.frame_writer import Speaker
from mas.bus.mqtt.frames import Mode, Word
from mas.bus.mqtt.journal import Store
from mas.bus.mqtt.letters import Letters
from mas.bus.mqtt.options import MqttOptions
from mas.bus.mqtt.outgoing import Lanes, Post
from mas.bus.mqtt.presence import Cards
from mas.bus.mqtt.topics import Peer
from mas.bus.parts import PartStream
from mas.core.errors import Closed, JournalError, Malformed, error_named
from mas.core.messages import Envelope

_RETRY_S = 0.05


class Outbox:
    """The messages of one process.

    Args:
        clock: seconds that deadlines refer to; that of the event loop.
        removed: called when a message is over and there is room for another one.
        store: has messages before they are sent; None: nothing does.
    """

    def __init__(
        self,
        speaker: Speaker,
        *,
        cards: Cards,
        options: MqttOptions,
        clock: Callable[[], float],
        removed: Callable[[], None],
        store: Store | None = None,
    ) -> None:
        self.resent = 0
        self.lost = 0
        self.letters = Letters(options.dead_letters)
        self._speaker = speaker
        self._cards = cards
        self._options = options
        self._clock = clock
        self._removed = removed
        self._posts: dict[str, Post] = {}
        self._lanes = Lanes(cards.listeners, self._go)
        self._store = store
        written = None if store is None else store.journal.is_safe
        self._writing = Behind(written, failed=self._unwritten, name="mqtt journal: sending")

    def __len__(self) -> int:
        return len(self._posts)

    def find(self, ticket: str) -> Post | None:
        """The message of a ticket, None: it is over."""
        return self._posts.get(ticket)

    def add(self, envelope: Envelope, mode: Mode, deadline: float | None, stream: PartStream | None = None) -> Post:
        """Send a message; its `future` says what became of it. If an earlier life sent it, who may have it is asked.

        Raises:
            Malformed: it cannot travel. JournalError: it cannot be written down.
        """
        future = asyncio.get_running_loop().create_future()
        former = None if self._store is None else self._store.again(envelope, mode)
        ticket = None if former is None else former.ticket
        post = Post(ticket or secrets.token_hex(8), envelope, mode, deadline, future, stream)
        self._speaker.check(post)
        if self._store is not None and post.may_repeat:
            self._store.sent(post, former, expires_in_s=None if deadline is None else deadline - self._clock())
            post.is_written = False
        self._join(post)
        if not post.is_written:
            self._writing.call(partial(self._written, post))
        return post

    def resume(self) -> None:
        """Take over what earlier lives of this process did not see done. Whoever is there must be known."""
        if self._store is not None:
            for post in self._store.posts(self._clock()):
                self._join(post)

    def cancel(self, post: Post) -> None:
        """Nobody waits for it any more."""
        if post.ticket not in self._posts:
            return
        peers = {post.holder} if post.holder else set(self._cards.listeners(post.envelope.target))
        if self._store is not None:
            self._store.cancelled(post)
        self._remove(post)
        if post.is_sent:
            self._speaker.cancel(post.ticket, peers)

    def heard(self, peer: Peer, word: Word) -> None:
        """A process says how a message stands there."""
        post = self._posts.get(word.ticket)
        if post is None or (word.attempt != post.attempt and word.standing not in ("done", "dead")):
            return
        post.tries = max(post.tries, word.tries)
        if word.standing == "unknown":
            self._is_without(post, peer)
        elif word.standing == "left":
            post.not_before = self._clock() + (word.delay_s or 0.0)
            self._leave_to_others(post, peer)
        elif word.standing in ("done", "dead"):
            self.letters.given_up += word.standing == "dead"
            self._end(post, refusals.forgotten(post) if post.mode == "ask" else None)
        else:
            self._is_with(post, peer, word)

    def answered(self, ticket: str, answer: Envelope) -> None:
        """The answer to a request came; the first one counts."""
        post = self._posts.get(ticket)
        if post is not None:
            self._end(post, answer)

    def failed(self, peer: Peer, ticket: str, name: str, text: str) -> None:
        """A message ended in an error; what was promised outlives a bus that closes."""
        post = self._posts.get(ticket)
        if post is not None and name == Closed.__name__ and post.future.done() and post.holder in (None, peer):
            self._leave_to_others(post, peer)
        elif post is not None:
            self._fail(post, error_named(name, text), is_told=True)

    def gone(self, peer: Peer, addresses: Container[str]) -> None:
        """A process is there no more, and had not left these addresses in good order: it may have died of a message."""
        for post in tuple(self._posts.values()):
            if post.holder == peer:
                post.tries += post.is_taken
                self._leave_to_others(post, peer)
            else:
                if post.may_be_with(peer) and post.envelope.target in addresses:
                    post.may_have_died()
                self._is_without(post, peer)

    def appeared(self, peer: Peer) -> None:
        """A process showed: ask it for what it may have."""
        now = self._clock()
        for post in self._posts.values():
            if post.holder == peer or (post.asked is not None and peer in post.asked):
                post.due = now

    def reconnected(self) -> None:
        """Nothing is known of what was on its way when the connection broke."""
        now = self._clock()
        for post in self._posts.values():
            post.due = now + _RETRY_S
        self._speaker.cancel_again()

    def look(self) -> None:
        """Look after what is due: send what could not be sent, ask for what was not heard of."""
        now = self._clock()
        finds: defaultdict[Peer, list[tuple[str, int]]] = defaultdict(list)
        for peer in self._cards.suspects:
            finds[peer] = []
        for post in [post for post in self._posts.values() if post.attempt > 0 and post.due <= now]:
            for peer in self._to_ask(post, now):
                finds[peer].append((post.ticket, post.attempt))
        for peer, tickets in finds.items():
            self._speaker.ask(peer, tickets, partial(self._cards.found, peer))

    def close(self) -> None:
        """Wake all senders with Closed. What was accepted stays in the journal, if there is one, for the next life."""
        for post in tuple(self._posts.values()):
            self.lost += post.future.done() and post.record is None
            if self._store is not None:
                self._store.interrupted(post)
            post.settle(refusals.closed(post))
            self._remove(post)

    def redrive(self, message_id: str | None) -> int:
        """Send the dead letters with this id again, None: all of them; returns how many."""
        for post in (posts := self.letters.take(message_id)):
            post.revive(self._clock())
            if self._store is not None:
                self._store.redriven(post)
            self._join(post)
        return len(posts)

    def _join(self, post: Post) -> None:
        self._posts[post.ticket] = post
        if post.deadline is not None:
            remaining = max(0.0, post.deadline - self._clock())
            post.timer = asyncio.get_running_loop().call_later(remaining, self._at_deadline, post)
        self._lanes.join(post)

    def _written(self, post: Post) -> None:
        """The journal has it."""
        post.is_written = True
        if post.ticket in self._posts:
            self._lanes.advance(post)

    def _unwritten(self, error: JournalError) -> None:
        """The disk has failed: what it does not have is not sent."""
        for post in [post for post in self._posts.values() if not post.is_written]:
            self._fail(post, error)

    def _go(self, post: Post) -> None:
        """It is its turn, though perhaps not yet its time."""
        if not post.is_written:
            return
        if post.not_before > self._clock():
            post.due = post.not_before
            return
        if post.is_resumed and post.attempt == 0 and self._store is not None:  # who may have it is asked first
            post.attempt, post.is_sent = self._store.first_attempt, True
            post.due, post.pause_s = self._clock(), self._options.ack_s
            return
        post.attempt = max(1, post.attempt)
        self._send(post)

    def _is_with(self, post: Post, peer: Peer, word: Word) -> None:
        post.is_taken = word.standing == "taken"
        if post.holder != peer:
            post.holder, post.asked, post.is_orphan = peer, None, False
            post.look_after(self._clock(), self._options.ack_s)
        if word.standing == "accepted" or (post.is_taken and post.mode != "ask"):
            post.settle(None)
        self._lanes.advance(post)

    def _send(self, post: Post) -> None:
        """Give the message to its address."""
        address, visibility = post.envelope.target, post.envelope.visibility
        readers = self._cards.readers(address)
        if visibility is not None and not readers <= visibility:
            self._fail(post, refusals.not_for(post, readers - visibility))
            return
        post.holder, post.asked = None, None
        post.look_after(self._clock(), self._options.ack_s)
        try:
            post.is_sent = self._speaker.send(post, partial(self._taken, post, post.attempt))
        except Malformed as error:  # the broker behind a new connection may take less than the one before
            self._fail(post, error)

    def _taken(self, post: Post, attempt: int, code: int) -> None:
        """The broker says what it did with one attempt."""
        if post.ticket not in self._posts or post.attempt != attempt or post.holder is not None:
            return
        if code == NOBODY:
            self._unrouted(post)
        elif (error := refusals.by_broker(post, self._speaker.me.principal, code)) is not None:
            self._fail(post, error)
        elif code > NOT_AUTHORISED:
            post.is_sent = False  # it is short of something: again in a while
        else:
            post.unrouted_since = None

    def _unrouted(self, post: Post) -> None:
        """Nobody listens: at all, or not yet again."""
        now, target = self._clock(), post.envelope.target
        post.is_sent = False
        if self._can_wait(post):
            self._wait_for_drained(post)
            return
        post.unrouted_since = since = now if post.unrouted_since is None else post.unrouted_since
        listeners = self._cards.listeners(target)
        if not listeners or now - since > self._options.absent_s:
            self._give_up(post)
            return
        for peer in listeners:
            self._cards.suspect(peer)
        post.due = post.not_before = now + _RETRY_S

    def _to_ask(self, post: Post, now: float) -> tuple[Peer, ...]:
        """Who should be asked for a message that is due; none where it is sent instead."""
        if not post.is_sent:
            post.due = now + self._options.ack_s
            self._lanes.advance(post)
            return ()
        if post.holder is None and post.asked is None:
            post.asked = set(self._cards.listeners(post.envelope.target))
            if not post.asked:
                self._again(post)
                return ()
        post.look_after(now, post.pause_s)
        post.pause_s = min(2 * post.pause_s, self._options.poll_s)
        return (post.holder,) if post.holder is not None else tuple(post.asked or ())

    def _is_without(self, post: Post, peer: Peer) -> None:
        """A process does not have it and will not take this attempt."""
        if post.holder == peer:
            post.tries += post.is_taken  # it has begun anew since
            self._again(post)
        elif post.asked is not None and peer in post.asked:
            post.asked.remove(peer)
            if not post.asked and post.holder is None:
                self._again(post)

    def _leave_to_others(self, post: Post, peer: Peer) -> None:
        post.shunned.add(peer)
        if post.may_repeat:
            self._again(post)
        else:
            self._give_up(post)

    def _again(self, post: Post) -> None:
        """The next attempt when it is its turn, if there is one left and somebody for it."""
        if post.tries >= self._options.max_attempts:
            self._fail(post, refusals.tried_enough(post))
        elif not set(self._cards.listeners(post.envelope.target)) - post.shunned:
            self._give_up(post)
        else:
            self.resent += 1
            post.let_go()
            post.look_after(self._clock(), self._options.ack_s)
            self._lanes.advance(post)

    def _give_up(self, post: Post) -> None:
        """Nobody is left to take it: it waits for a listener if its sender was told that it will be delivered."""
        if post.future.done() and post.may_repeat:
            others = sum(other.is_orphan for other in self._posts.values() if other is not post)
            if 2 * others < self._options.outbox or not post.has_room:  # the other half is for what can go on
                post.begin_again(self._clock() + 2 * self._options.ack_s)
                return
            self.lost += 1
        elif self._can_wait(post):
            self._wait_for_drained(post)
            return
        self._end(post, refusals.nobody_left(post), is_told=False)

    def _can_wait(self, post: Post) -> bool:
        """Whether who listens takes nothing new, but has not ended yet."""
        return post.may_repeat and post.mode != "try" and self._cards.is_draining(post.envelope.target)

    def _wait_for_drained(self, post: Post) -> None:
        """As in one process, until they have ended or somebody else listens."""
        post.begin_again(self._clock() + self._options.ack_s)
        post.is_orphan = False

    def _at_deadline(self, post: Post) -> None:
        """Wait a little for the receiver's own word, where it may have one."""
        if post.is_sent and self._speaker.line.is_up:
            post.timer = asyncio.get_running_loop().call_later(self._options.grace_s, self._expire, post)
        else:
            self._expire(post)

    def _expire(self, post: Post) -> None:
        end = self._fail if post.holder is None else self._end
        end(post, refusals.late(post), is_told=False)

    def _fail(self, post: Post, error: Exception, *, is_told: bool = False) -> None:
        self.letters.add(post, str(error))
        self._end(post, error, is_told=is_told)

    def _end(self, post: Post, outcome: Envelope | Exception | None, *, is_told: bool = True) -> None:
        """`is_told`: a process said so; else one may still have it."""
        if self._store is not None:
            self._store.over(post, outcome, is_told=is_told)
        post.settle(outcome)
        self._remove(post)

    def _remove(self, post: Post) -> None:
        if self._posts.pop(post.ticket, None) is not None:
            if post.timer is not None:
                post.timer.cancel()
            self._lanes.leave(post)
            if post.has_room:
                self._removed()
