"""One process on the broker: its connection, its card, what it has sent, and what came to it."""

import asyncio
import secrets
import time
from contextlib import AbstractContextManager, nullcontext
from functools import partial

import msgspec

from mas.bus.memory import MemoryBus
from mas.bus.mqtt.admission import Admission, Owns
from mas.bus.mqtt.blobs import BlobStore
from mas.bus.mqtt.client import REFUSED
from mas.bus.mqtt.connection import Link
from mas.bus.mqtt.dispatcher import Ear
from mas.bus.mqtt.frame_writer import Speaker
from mas.bus.mqtt.frames import Codec, Mode
from mas.bus.mqtt.journal import Store
from mas.bus.mqtt.options import MqttOptions
from mas.bus.mqtt.parts import PartsIn
from mas.bus.mqtt.presence import Card, Cards
from mas.bus.mqtt.receiver import Desk
from mas.bus.mqtt.references import References
from mas.bus.mqtt.routes import Places
from mas.bus.mqtt.sender import Outbox
from mas.bus.mqtt.topics import Peer, Topics
from mas.bus.mqtt.url import Broker
from mas.bus.parts import PartStream
from mas.core.errors import Closed, Denied, Dropped, Expired, NoRoute, Unreachable
from mas.core.messages import Envelope
from mas.core.naming import did_you_mean

_LOOK_S = 0.05
_STILL_S = 0.5
_HEADER = 1024  # bytes that a packet may hold beside its frame: the topic and what MQTT adds


class Node:
    """Takes messages of this process to others, and those of others to the local bus.

    Args:
        local: the bus of what this process listens to.
        process: this process's name.
        store: holds payloads that travel by reference, None: none do.
        journal: what it comes back with when it dies; None: it has none, and does not come back.
        owns: whether a principal may listen at an address; cards that claim others are ignored.
    """

    def __init__(
        self,
        broker: Broker,
        *,
        local: MemoryBus,
        codec: Codec,
        options: MqttOptions,
        process: str,
        store: BlobStore | None,
        journal: Store | None,
        owns: Owns,
    ) -> None:
        self.me = Peer(broker.principal, process)
        self._local = local
        self._options = options
        self._codec = codec
        self.references = References(codec, store, options=options, clock=local.now)
        self._topics = topics = Topics(space=broker.space)
        self._shown = Card(since=time.time(), addresses={})
        self._store = journal
        self._away_s = 0.0 if journal is None else options.away_s
        secret = secrets.token_hex(12) if journal is None else journal.owner.client
        self.link = Link(
            broker,
            options,
            identity=f"mas-{secret}",  # who can guess it can end the connection
            hear=self._hear,
            connected=self._connected,
            will=topics.card(self.me),
        )
        self.admission = Admission(owns, most=options.max_cards, most_bytes=options.max_card_bytes)
        self.cards = Cards(
            clock=local.now,
            absent_s=options.absent_s,
            most_away=options.max_cards,
            gone=self._gone,
            back=lambda peer: self.desk.back(peer),
            forgotten=lambda peer: self.desk.forgotten(peer),
            changed=self._changed,
        )
        self.places = Places(
            self.link,
            topics=topics,
            password=broker.password,
            readers=self.cards.readers,
            changed=self._show_card,
        )
        self._speaker = Speaker(self.me, line=self.link, codec=codec, topics=topics, clock=local.now)
        self._room = asyncio.Semaphore(options.outbox)
        self.outbox = Outbox(
            self._speaker,
            cards=self.cards,
            options=options,
            clock=local.now,
            removed=self._room.release,
            store=journal,
        )
        self.desk = Desk(
            local,
            process=process,
            codec=codec,
            say=self._speaker.say,
            pass_on=self._speaker.pass_on,
            listens=self.places.__contains__,
            remembered=options.remembered,
            references=self.references,
            store=journal,
        )
        self.ear = Ear(
            topics=topics,
            codec=codec,
            cards=self.cards,
            admission=self.admission,
            desk=self.desk,
            outbox=self.outbox,
            speaker=self._speaker,
            clock=local.now,
            echoed=self._on_echo,
            parts=PartsIn(self.outbox.find, local.parts.counters).take,
            store=journal,
        )
        for peer, card in () if journal is None else journal.peers():
            self.cards.remember(peer, card)
        self._echoes: dict[str, asyncio.Future[bool]] = {}
        self._first_echo: str | None = None
        self._is_closed = False
        self._looking: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Connect and say that this process is there.

        Raises:
            Unreachable: no broker answers, or it refuses user or password.
            Denied: this principal may not listen to what is meant for it. JournalError: the disk has failed.
        """
        if self._store is not None:
            await self._store.journal.flush()
        await self.link.open()
        try:
            await self.link.subscribe(self._topics.inbox(self.me))
            await self.link.subscribe(self._topics.cards)
            self._show_card()
            async with asyncio.timeout(self._options.patience_s):
                await self.flush()
        except BaseException as error:
            is_up = self.link.is_up
            await self.link.close()
            if isinstance(error, TimeoutError) and not is_up:
                raise Unreachable("the broker took the connection and broke it again: see its log") from None
            if isinstance(error, TimeoutError):
                raise Denied(self._unheard()) from None
            raise
        self.outbox.resume()
        self._looking = asyncio.create_task(self._look(), name=f"mqtt outbox {self.me.process}")

    async def close(self) -> None:
        """Say what became of the messages here, take the card away, and disconnect. The local bus must be closed."""
        if self._is_closed:
            return
        self._is_closed = True
        self.references.close()
        self.places.close()
        self.outbox.close()
        await self.desk.close()
        for echo in self._echoes.values():
            _resolve(echo, False)
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.wait([self._looking])
        await self.ear.idle()
        self.ear.say_what_came()
        leaving = Card(since=self._shown.since, addresses={}, is_leaving=True, away_s=self._away_s)
        heard: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self.link.publish(self._topics.card(self.me), msgspec.json.encode(leaving))
        if self.link.publish(self._topics.card(self.me), b"", retain=True, acknowledge=lambda _: _resolve(heard, True)):
            await asyncio.wait([heard], timeout=self._options.ack_s)
        await self.link.close()
        if self._store is not None:
            self._store.close()
            await self._store.journal.flush()

    async def flush(self) -> None:
        """Wait until what this process sent is with the broker's subscribers, and what was sent to it before is heard.

        Raises:
            Closed: the bus was closed. Denied: the broker does not let this process speak to itself.
        """
        while not self._is_closed:
            token = secrets.token_hex(8)
            echo = self._echoes[token] = asyncio.get_running_loop().create_future()
            try:
                self._speaker.echo(token, partial(self._on_echo_taken, echo))
                if await echo:
                    return
            finally:
                del self._echoes[token]
        raise Closed("the bus is closed")

    async def carry(
        self, envelope: Envelope, mode: Mode, deadline: float | None, stream: PartStream | None = None
    ) -> Envelope | None:
        """Send a message and wait for what becomes of it: the answer to a request, None for one that goes one way.

        `stream` reads the parts of the answer, None: nobody does.

        Raises:
            As `Bus.publish` and `Bus.request`; Malformed: it cannot travel.
        """
        if self._is_closed:
            raise Closed(f"message {envelope.id!r}: the bus is closed")
        if self._store is not None:
            envelope = await self.references.stow(envelope, deadline)  # it is written down as it travels
            former = self._store.former(envelope, is_request=mode == "ask")
            if former is not None and former.is_settled:
                await asyncio.sleep(0)  # a program that repeats itself must not keep this process from hearing others
                outcome = self._store.outcome(former)
                return None if outcome is None else await self.references.redeem(outcome, deadline)
        await self._until_room(envelope, mode, deadline)
        try:
            signed = await self.references.stow(self.signed(envelope), deadline)
            if self._is_closed:
                raise Closed(f"message {envelope.id!r}: the bus is closed")
            post = self.outbox.add(signed, mode, deadline, stream)
        except BaseException:
            self._room.release()
            raise
        try:
            answer = await post.future
        except asyncio.CancelledError:
            self.outbox.cancel(post)
            raise
        if stream is not None:
            stream.sending = post.attempt
        return None if answer is None else await self.references.redeem(answer, deadline)

    def together(self) -> AbstractContextManager[None]:
        """What is written down inside is one transaction."""
        return nullcontext() if self._store is None else self._store.journal.together()

    def signed(self, envelope: Envelope) -> Envelope:
        """The envelope with this process's principal.

        Raises:
            Denied: it names another one.
        """
        if envelope.principal is None:
            return msgspec.structs.replace(envelope, principal=self.me.principal)
        if envelope.principal != self.me.principal:
            raise Denied(
                f"message {envelope.id!r} says that {envelope.principal!r} sends it; all that this bus sends is "
                f"{self.me.principal!r}'s, its user at the broker"
            )
        return envelope

    async def heard(self) -> None:
        """Wait until others have heard the answers of this process: as long as there is no connection or an answer is
        being stored, and then for twice `ack_s` at most."""
        looks = 2 * self._options.ack_s / _LOOK_S
        while looks > 0 and not self._is_closed and not self.desk.is_heard:
            looks -= self.link.is_up and not self.desk.is_stowing
            await asyncio.sleep(_LOOK_S)

    async def _until_room(self, envelope: Envelope, mode: Mode, deadline: float | None) -> None:
        """Wait for room in the outbox, and until it is sure whether somebody listens."""
        if mode == "try" and self._room.locked():
            raise Dropped(f"message {envelope.id!r}: the outbox is full; wait, or raise its size")
        remaining = None if deadline is None else max(0.0, deadline - self._local.now())
        try:
            async with asyncio.timeout(remaining):
                await self._room.acquire()
                try:
                    await self._until_known(envelope)
                except BaseException:
                    self._room.release()
                    raise
        except TimeoutError:
            raise Expired(f"message {envelope.id!r} to {envelope.target!r} could not be sent in time") from None

    async def _until_known(self, envelope: Envelope) -> None:
        if not self._is_closed and not self.cards.listeners(envelope.target):
            await self.flush()
        if self._is_closed:
            raise Closed(f"message {envelope.id!r}: the bus is closed")
        if not self.cards.listeners(envelope.target):
            raise NoRoute(
                f"message {envelope.id!r}: nobody listens at {envelope.target!r}. "
                + did_you_mean(envelope.target, self.cards.addresses())
            )

    def _hear(self, topic: str, payload: bytes) -> None:
        self.ear.hear(topic, payload)

    def _on_echo(self, token: str) -> None:
        if token == self._first_echo:
            self._first_echo = None
            self.outbox.reconnected()
        elif token in self._echoes:
            _resolve(self._echoes[token], True)

    def _on_echo_taken(self, echo: "asyncio.Future[bool]", code: int) -> None:
        if code >= REFUSED and not echo.done():
            echo.set_exception(Denied(self._unheard()))

    def _unheard(self) -> str:
        return (
            f"the broker does not let {self.me.principal!r} say something to itself: its access list must allow "
            f"writing and reading {self._topics.back(self.me, self.me.principal)!r}"
        )

    def _connected(self) -> None:
        """A new connection: who is there must show.

        What was on its way is looked after behind the first echo: by then every card has come, so that no process is
        forgotten that may have a message.
        """
        if self.link.longest is not None:
            self._codec.max_bytes = min(self._options.max_frame_bytes, max(0, self.link.longest - _HEADER))
        self.cards.suspect_all()
        self._show_card()
        self._first_echo = secrets.token_hex(8)
        self._speaker.echo(self._first_echo, lambda _: None)
        for echo in self._echoes.values():
            _resolve(echo, False)

    def _gone(self, peer: Peer, card: Card) -> None:
        self.outbox.gone(peer, card.addresses)
        if card.is_leaving or not card.away_s:
            self.desk.lost(peer)
        if card.away_s:
            self.desk.away(peer)

    def _changed(self, peer: Peer, card: Card | None) -> None:
        if card is None:
            self.admission.forget(peer)
        if self._store is not None and peer != self.me:
            self._store.know(peer, card)

    def show(self, card: Card) -> None:
        """Say of this process what the card says; what it listens at is added."""
        self._shown = card
        if not self._is_closed:
            self._show_card()

    def _show_card(self) -> None:
        card = msgspec.structs.replace(
            self._shown,
            addresses=self.places.addresses(),
            draining=self.places.draining(),
            away_s=self._away_s,
        )
        self.cards.take(self.me, card)
        self.link.publish(self._topics.card(self.me), msgspec.json.encode(card), retain=True)

    async def _look(self) -> None:
        looked = self._local.now()
        while True:
            await asyncio.sleep(_LOOK_S)
            gap_s, looked = self._local.now() - looked, self._local.now()
            if gap_s > _STILL_S:
                self.cards.stood_still(gap_s)
            if self.link.is_up and self._first_echo is None:
                self.cards.give_up()
                self.outbox.look()


def _resolve(future: "asyncio.Future[bool]", outcome: bool) -> None:
    if not future.done():
        future.set_result(outcome)
