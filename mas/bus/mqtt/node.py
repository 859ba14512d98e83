"""One process on the broker: its parts, how they are built, and the life of its connection."""

import asyncio
import secrets
from contextlib import AbstractContextManager, nullcontext

import msgspec

from mas.bus.memory import MemoryBus
from mas.bus.mqtt.blobs import BlobStore
from mas.bus.mqtt.connection import Connection
from mas.bus.mqtt.dispatcher import Dispatcher
from mas.bus.mqtt.frame_writer import FrameWriter
from mas.bus.mqtt.frames import Codec, Mode
from mas.bus.mqtt.journal import ProcessJournal
from mas.bus.mqtt.options import Broker, MqttOptions
from mas.bus.mqtt.presence import Owns, Peers
from mas.bus.mqtt.receiver import Receiver
from mas.bus.mqtt.references import References
from mas.bus.mqtt.routes import Routes
from mas.bus.mqtt.sender import Sender
from mas.bus.mqtt.topics import Peer, Topics
from mas.bus.parts import PartStream
from mas.bus.undelivered import bus_closed, no_listener
from mas.core.errors import Denied, Dropped, Expired, Unreachable
from mas.core.messages import Envelope

_CHECK_S = 0.05
_STILL_S = 0.5
_HEADER = 1024  # bytes that a packet may hold beside its frame: the topic and what MQTT adds


class MqttNode:
    """Takes messages of this process to others, and those of others to the local bus.

    Args:
        local: the bus of what this process listens to; its clock is that of the parts.
        process: this process's name.
        store: holds payloads that travel by reference, None: none do.
        journal: what it comes back with when it dies; None: it has none, and does not come back.
        owns: whether a principal may listen at an address; presences that claim others are ignored.
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
        journal: ProcessJournal | None,
        owns: Owns,
    ) -> None:
        self.local, self.codec, self.options, self.journal = local, codec, options, journal
        self._is_closed = False
        self._checking: asyncio.Task[None] | None = None
        me, clock = Peer(broker.principal, process), local.now
        topics = self.topics = Topics(space=broker.space)
        client = secrets.token_hex(12) if journal is None else journal.owner.client
        identity = f"mas-{client}"  # who can guess it can end the connection
        self.connection = Connection(broker, options, identity=identity, will=topics.presence(me))
        peers = self.peers = Peers(clock=clock, options=options, owns=owns)
        away_s = 0.0 if journal is None else options.away_s
        self.routes = Routes(me, self.connection, topics=topics, password=broker.password, peers=peers, away_s=away_s)
        self.references = References(codec, store, options=options, clock=clock)
        writer = self.writer = FrameWriter(me, transport=self.connection, codec=codec, topics=topics, clock=clock)
        self.sender = Sender(writer, peers=peers, options=options, clock=clock, journal=journal)
        self.receiver = Receiver(
            local,
            codec=codec,
            writer=writer,
            routes=self.routes,
            options=options,
            references=self.references,
            journal=journal,
        )
        self.dispatcher = Dispatcher(
            self.sender,
            self.receiver,
            writer=writer,
            peers=peers,
            topics=topics,
            codec=codec,
            local=local,
            journal=journal,
        )
        peers.observers = (*(() if journal is None else (journal,)), self.sender, self.receiver)
        for peer, presence in () if journal is None else journal.peers():
            peers.remember(peer, presence)

    @property
    def me(self) -> Peer:
        """This process."""
        return self.writer.me

    async def open(self) -> None:
        """Connect and announce this process.

        Raises:
            Unreachable: no broker answers, or it refuses user or password.
            Denied: this principal may not listen to what is meant for it. JournalError: the disk has failed.
        """
        if self.journal is not None:
            await self.journal.journal.flush()
        await self.connection.open(self.dispatcher.take, self.connected)
        try:
            await self.connection.subscribe(self.topics.replies(self.me))
            await self.connection.subscribe(self.topics.presences)
            self.routes.announcer.publish()
            async with asyncio.timeout(self.options.patience_s):
                await self.writer.echoes.round_trip()
        except BaseException as error:  # a cancelled start, too, must not leave a connection open
            is_up = self.connection.is_up
            await self.connection.close()
            if isinstance(error, TimeoutError) and not is_up:
                raise Unreachable("the broker took the connection and broke it again: see its log") from None
            if isinstance(error, TimeoutError):
                raise self.writer.denied_echo() from None
            raise
        self.sender.resume()
        self._checking = asyncio.create_task(self._check(), name=f"mqtt sender {self.me.process}")

    async def close(self) -> None:
        """Tell the states of the messages here, remove the presence, and disconnect. The local bus must be closed."""
        if self._is_closed:
            return
        self._is_closed = True
        self.references.close()
        self.routes.close()
        self.sender.close()
        await self.receiver.close()
        self.writer.echoes.close()
        if self._checking is not None:
            self._checking.cancel()
            await asyncio.wait([self._checking])
        await self.dispatcher.idle()
        self.dispatcher.confirm_answers()
        await self.routes.announcer.leave(self.options.ack_s)
        await self.connection.close()
        if self.journal is not None:
            self.journal.close()
            await self.journal.journal.flush()

    async def carry(
        self, envelope: Envelope, mode: Mode, deadline: float | None, stream: PartStream | None = None
    ) -> Envelope | None:
        """Send a message and wait for its outcome: the answer to a request, None for one that goes one way.

        `stream` reads the parts of the answer, None: they are not read.

        Raises:
            As `Bus.publish` and `Bus.request`; Malformed: it cannot travel.
        """
        self._check_open(envelope)
        if self.journal is not None:
            envelope = await self.references.stow(envelope, deadline)  # it is written down as it travels
            earlier = self.journal.earlier(envelope, is_request=mode == "request")
            if earlier is not None and earlier.is_settled:
                await asyncio.sleep(0)  # a program that repeats itself must not keep this process from hearing others
                outcome = self.journal.outcome(earlier)
                return None if outcome is None else await self.references.redeem(outcome, deadline)
        await self._until_room(envelope, mode, deadline)
        try:
            signed = await self.references.stow(self.signed(envelope), deadline)
            self._check_open(envelope)
            message = self.sender.add(signed, mode, deadline, stream)
        except BaseException:  # a cancelled call, too, gives its room back
            self.sender.room.release()
            raise
        try:
            answer = await message.wait()
        except asyncio.CancelledError:
            self.sender.cancel(message)
            raise
        if stream is not None:
            stream.sending = message.attempt
        return None if answer is None else await self.references.redeem(answer, deadline)

    def together(self) -> AbstractContextManager[None]:
        """What is written down inside is one transaction."""
        return nullcontext() if self.journal is None else self.journal.journal.together()

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

    async def until_confirmed(self) -> None:
        """Wait until others have the answers of this process: as long as there is no connection or an answer is being
        stored, and then for twice `ack_s` at most."""
        checks = 2 * self.options.ack_s / _CHECK_S
        while checks > 0 and not self._is_closed and not self.receiver.is_confirmed:
            checks -= self.connection.is_up and not self.receiver.is_storing
            await asyncio.sleep(_CHECK_S)

    def connected(self) -> None:
        """A new connection: every process that is there must announce itself again.

        What was on its way is checked behind the first echo: by then every presence has come, so that no process is
        forgotten that may have a message.
        """
        if self.connection.longest is not None:
            self.codec.max_bytes = min(self.options.max_frame_bytes, max(0, self.connection.longest - _HEADER))
        self.peers.suspect_all()
        self.routes.announcer.publish()
        self.writer.echoes.connected()

    async def _until_room(self, envelope: Envelope, mode: Mode, deadline: float | None) -> None:
        """Wait for room among the messages in flight, and until it is known whether there is a listener."""
        if mode == "publish_nowait" and self.sender.room.locked():
            raise Dropped(f"message {envelope.id!r}: the outbox is full; wait, or raise its size")
        remaining = None if deadline is None else max(0.0, deadline - self.local.now())
        try:
            async with asyncio.timeout(remaining):
                await self.sender.room.acquire()
                try:
                    await self._until_route(envelope)
                except BaseException:  # a cancelled call, too, gives its room back
                    self.sender.room.release()
                    raise
        except TimeoutError:
            raise Expired(f"message {envelope.id!r} to {envelope.target!r} could not be sent in time") from None

    async def _until_route(self, envelope: Envelope) -> None:
        if not self._is_closed and not self.peers.listeners(envelope.target):
            await self.writer.echoes.round_trip()
        self._check_open(envelope)
        if not self.peers.listeners(envelope.target):
            raise no_listener(envelope, self.peers.addresses())

    def _check_open(self, envelope: Envelope) -> None:
        if self._is_closed:
            raise bus_closed(envelope)

    async def _check(self) -> None:
        """Notice what is due: processes that are gone, and messages of which nothing was heard."""
        checked = self.local.now()
        while True:
            await asyncio.sleep(_CHECK_S)
            gap_s, checked = self.local.now() - checked, self.local.now()
            if gap_s > _STILL_S:
                self.peers.stood_still(gap_s)
            if self.connection.is_up and self.writer.echoes.has_caught_up:
                self.peers.give_up()
                self.sender.check_due()
