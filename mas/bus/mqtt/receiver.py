"""What came to this process from others: each message is handed to the local bus once, and what became of it is kept.

The desk never speaks first: it answers messages, and questions after them. So a word that was lost is only asked for
again, and a message that comes twice gets the same word twice.
"""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final

import msgspec

from mas.bus.memory import MemoryBus
from mas.bus.mqtt.after_write import Behind
from mas.bus.mqtt.frames import LAST, Answer, Codec, Failed, Find, Send, Standing, Status, Word
from mas.bus.mqtt.journal import Store
from mas.bus.mqtt.parts import way_to
from mas.bus.mqtt.received import Case, Key, Over
from mas.bus.mqtt.references import References
from mas.bus.mqtt.topics import Peer
from mas.bus.parts import Take
from mas.bus.watch import Fate
from mas.core.errors import Closed, Malformed, MasError, NoRoute
from mas.core.messages import Delivery, Envelope

_WORDS = 500
"""In one frame: so that it is short enough for any broker, whatever came at once."""
_OVER: Final = frozenset({"done", "dead", "left", "unknown"})


class Desk:
    """The receiving side of one process.

    Args:
        local: the bus that its subscriptions belong to.
        process: this process's name.
        say: sends bytes to a process.
        pass_on: sends bytes that need not arrive; False: they are dropped.
        listens: whether this process listens at an address.
        remembered: cases that are over and kept, at most; as many again of senders that are away and may come back.
        references: fetches and stores payloads that travel by reference.
        store: has what is done before its sender hears of it; None: nothing does.
    """

    def __init__(
        self,
        local: MemoryBus,
        *,
        process: str,
        codec: Codec,
        say: Callable[[Peer, bytes], None],
        pass_on: Callable[[Peer, bytes], bool],
        listens: Callable[[str], bool],
        remembered: int,
        references: References,
        store: Store | None = None,
    ) -> None:
        self.repeated = 0
        self._local = local
        self._process = process
        self._codec = codec
        self._say = say
        self._way_to = partial(way_to, process=process, codec=codec, pass_on=pass_on, counters=local.parts.counters)
        self._listens = listens
        self._references = references
        self._cases: dict[Key, Case] = {}
        self._over = Over(remembered, forget=lambda key: self._cases.pop(key, None))
        self._words: defaultdict[Peer, dict[str, Word]] = defaultdict(dict)
        self._store = store
        written = None if store is None else store.journal.flush
        self._writing = Behind(written, failed=lambda _: None, name="mqtt journal: done")
        for key, attempt, reply in () if store is None else store.taken():
            self._cases[key] = Case(key, attempt, "done", heard=self._became)
            self._cases[key].reply = reply
            self._over.add(key)

    def send(self, sender: Peer, frame: Send) -> None:
        """A message came; its envelope says who sent it, and when it expires on this process's clock."""
        key = (sender, frame.ticket)
        case = self._cases.get(key)
        if case is not None and (frame.attempt <= case.attempt or case.standing not in ("left", "unknown")):
            self.repeated += 1
            self._tell(case, frame.attempt)
            return
        self._over.discard(key)
        envelope = frame.envelope
        case = self._cases[key] = Case(
            key,
            frame.attempt,
            "held",
            heard=self._became,
            mode=frame.mode,
            delivery=envelope.delivery,
            tries=frame.tries,
        )
        case.handed = (envelope.target, envelope.id)
        if frame.tries >= envelope.attempt:
            envelope = msgspec.structs.replace(envelope, attempt=frame.tries + 1)
        take = self._way_to(*key, frame.attempt) if frame.is_streamed else None
        case.task = asyncio.create_task(self._hand_over(case, envelope, take), name=f"mqtt {envelope.id}")
        case.task.add_done_callback(lambda task: self._handed_over(case, is_cancelled=task.cancelled()))
        if frame.eager:
            self._tell(case, frame.attempt)

    def find(self, sender: Peer, frame: Find) -> None:
        """A sender has heard nothing: tell it, and promise not to take what has not come."""
        for ticket, attempt in frame.tickets:
            key = (sender, ticket)
            case = self._cases.get(key)
            if case is None:
                case = self._refuse(key, attempt)
            elif case.standing == "unknown":
                case.attempt = max(case.attempt, attempt)
            self._tell(case, attempt)

    def cancel(self, sender: Peer, ticket: str) -> None:
        """Nobody waits for the message any more; if it is still to come, it is refused."""
        key = (sender, ticket)
        case = self._cases.get(key)
        if case is not None and case.mode == "ask" and case.standing == "taken" and case.handed is not None:
            self._local.forget(*case.handed)  # it may be asked anew
        if case is None:
            self._refuse(key, LAST)
        elif case.task is not None:
            case.attempt = LAST
            case.task.cancel()
        elif case.standing in ("left", "unknown"):
            case.attempt = LAST

    def got(self, sender: Peer, tickets: Iterable[str]) -> None:
        """Answers arrived: only remember that there was one."""
        for ticket in tickets:
            case = self._cases.get((sender, ticket))
            if case is not None and case.reply is not None:
                case.reply, case.standing = None, "done"
                if self._store is not None:
                    self._store.got(case.key)

    def lost(self, sender: Peer) -> None:
        """A sender is gone: nobody waits for what it asked."""
        for (peer, _), case in tuple(self._cases.items()):
            if peer == sender and case.task is not None:
                case.task.cancel()
                if case.mode == "ask" and case.handed is not None:
                    self._local.forget(*case.handed)  # if it comes back, it may ask again

    def away(self, sender: Peer) -> None:
        """A sender is gone that may come back: what becomes of its messages is kept for it."""
        self._over.away(sender)

    def back(self, sender: Peer) -> None:
        """It came back, and will ask soon."""
        self._over.back(sender)

    def forgotten(self, sender: Peer) -> None:
        """It did not come back in time."""
        self._over.forgotten(sender)
        self.lost(sender)

    @property
    def is_heard(self) -> bool:
        """Whether all answers that are remembered were confirmed by whoever asked. Errors never are."""
        return all(case.reply is None and not case.is_stowing for case in self._cases.values())

    @property
    def is_stowing(self) -> bool:
        """Whether an answer is on its way into the store."""
        return any(case.is_stowing for case in self._cases.values())

    async def close(self) -> None:
        """Wait for what is being handed over, and say what becomes of the rest; the local bus must be closed.

        What is in its queues can still be received here, so it is not given to others. What a receiver has in hand is:
        nobody would hear whether it was done.
        """
        tasks = [case.task for case in self._cases.values() if case.task is not None]
        if tasks:
            await asyncio.wait(tasks)
        await self._writing.idle()
        for case in tuple(self._cases.values()):
            if case.mode != "ask" and case.standing in ("accepted", "taken"):
                case.tries += case.standing == "taken"
                if self._store is not None and case.standing == "accepted" and case.handed is not None:
                    self._store.adopt(case.handed[1])
                case.standing = "left" if case.standing == "taken" else "done"
                self._moved(case)
        self._speak()

    async def _hand_over(self, case: Case, envelope: Envelope, take: Take | None) -> None:
        try:
            envelope = await self._references.redeem(envelope, envelope.deadline)
            if case.mode == "ask":
                answer = await self._local.request(envelope, watch=case, take=take)
                timeless = msgspec.structs.replace(answer, deadline=None)  # it would be on this process's clock
                case.is_stowing = True
                self._reply(case, Answer(self._process, case.key[1], await self._references.stow(timeless)))
                if self._store is not None:
                    self._store.took(case.key, case.attempt, case.reply)
            else:
                await self._publish(case, envelope)
        except MasError as error:
            self._failed(case, envelope, error)

    def _handed_over(self, case: Case, *, is_cancelled: bool) -> None:
        """The task ended, or was cancelled before it began."""
        case.task, case.is_stowing = None, False
        if is_cancelled and (case.mode == "ask" or case.standing == "held"):
            case.standing = "unknown"
        if case.mode == "ask" or case.standing not in ("accepted", "taken"):
            self._over.add(case.key)

    async def _publish(self, case: Case, envelope: Envelope) -> None:
        """Into a queue; from then on the local bus says what becomes of it, unless nothing was promised."""
        if case.delivery is Delivery.BEST_EFFORT:
            await self._local.publish(envelope, wait=case.mode == "tell")
            case.standing = "done"
        else:
            await self._local.publish(envelope, wait=case.mode == "tell", watch=case)
            if case.standing != "held":
                return  # it was told already
            case.standing = "accepted"
        self._tell(case, case.attempt)

    def _became(self, case: Case, fate: Fate) -> None:
        """The local bus has news of a message. What becomes of a request in the end, its task says."""
        if case.standing in _OVER:
            return
        if case.mode == "ask":
            if fate in ("taken", "back"):
                case.standing = "taken" if fate == "taken" else "held"
            return
        if self._store is not None and fate in ("done", "dead"):
            self._store.took(case.key, case.attempt, None)
            self._writing.call(partial(self._moved_to, case, fate))
        else:
            self._moved_to(case, "accepted" if fate == "back" else fate)

    def _moved_to(self, case: Case, standing: Standing) -> None:
        case.standing = standing
        self._moved(case)

    def _failed(self, case: Case, envelope: Envelope, error: MasError) -> None:
        """Tell the error, or, where the local listeners left, that another process may take it."""
        is_spare = case.delivery is Delivery.AT_LEAST_ONCE or case.standing == "held"  # "held": nobody has taken it
        is_left = isinstance(error, NoRoute) or (isinstance(error, Closed) and is_spare)
        if is_left and not self._listens(envelope.target):
            case.tries += case.standing == "taken"
            case.standing = "left"
            self._tell(case, case.attempt)
        else:
            self._reply(case, Failed(self._process, case.key[1], type(error).__name__, str(error)))

    def _reply(self, case: Case, frame: Answer | Failed) -> None:
        peer, ticket = case.key
        try:
            case.reply = self._codec.encode(frame)
        except Malformed as error:
            case.reply = self._codec.encode(Failed(self._process, ticket, "Malformed", str(error)))
        self._say(peer, case.reply)

    def _refuse(self, key: Key, attempt: int) -> Case:
        """Promise not to take a message that has not come, up to this attempt."""
        case = self._cases[key] = Case(key, attempt, "unknown", heard=self._became)
        self._over.add(key)
        return case

    def _moved(self, case: Case) -> None:
        """A message has moved on here, or is over."""
        if case.standing in _OVER:
            self._over.add(case.key)
        self._tell(case, case.attempt)

    def _tell(self, case: Case, attempt: int) -> None:
        """Say how it stands; short words of one turn of the event loop go together."""
        peer, ticket = case.key
        if case.reply is not None:
            self._say(peer, case.reply)
            return
        if not self._words:
            asyncio.get_running_loop().call_soon(self._speak)
        delay_s = max(0.0, case.due - self._local.now()) if case.standing == "left" else 0.0
        self._words[peer][ticket] = Word(ticket, attempt, case.standing, case.tries, delay_s or None)

    def _speak(self) -> None:
        words, self._words = self._words, defaultdict(dict)
        for peer, told in words.items():
            news = list(told.values())
            for begin in range(0, len(news), _WORDS):
                self._say(peer, self._codec.encode(Status(self._process, news[begin : begin + _WORDS])))
