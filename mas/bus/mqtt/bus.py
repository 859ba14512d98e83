"""A bus that processes on one or more machines share through an MQTT 5 broker, such as mosquitto.

    async with MqttBus.connect("mqtt://solver@127.0.0.1:1883/lab") as bus, serve(bus, "solver", solve) as service:
        await service.ended()

Each process has a memory bus of its own for what it listens to: credit, order, deadlines and duplicates are its work.
Here is what is between processes.
"""

import os
import secrets
import socket
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Self

import msgspec

from mas.bus.counters import BusLimits, DetailedStatistics
from mas.bus.journal import Journal
from mas.bus.memory import LocalSubscription, MemoryBus
from mas.bus.mqtt.blobs import BlobStore
from mas.bus.mqtt.frames import Codec
from mas.bus.mqtt.journal import ProcessJournal, take_ownership
from mas.bus.mqtt.node import MqttNode
from mas.bus.mqtt.options import MqttOptions, parse_broker
from mas.bus.mqtt.presence import Owns, Presence, any_address
from mas.bus.mqtt.topics import Peer
from mas.bus.parts import PartStream
from mas.bus.undelivered import DeadLetter
from mas.core.messages import PAYLOADS, Envelope, Payload


class MqttStatistics(DetailedStatistics, frozen=True, kw_only=True):
    """What this process received, as `DetailedStatistics`, and what passed between processes.

    Attributes:
        outbox: messages sent that are not done.
        resent: attempts after the first, because a process vanished or left, or nothing had arrived.
        repeated: messages that came again and were not handed out again.
        lost: one-way messages that a process had accepted and that were not done when this bus, their
            sender, closed; or that waited for a subscription with too many others.
        given_up: one-way messages sent from here that were accepted and became dead letters, here or elsewhere.
        malformed: frames that were none.
        forged: frames whose envelope names another principal than sent them, or another address than they were sent to.
        ignored_presences: that claimed an address of another principal, or too many or too long; see `MqttOptions`.
        reconnects: connections after the first.
        stored: payloads put into the store, to travel by reference; fetched: those taken from it.
    """

    outbox: int
    resent: int
    repeated: int
    lost: int
    given_up: int
    malformed: int
    forged: int
    ignored_presences: int
    reconnects: int
    stored: int
    fetched: int


class MqttBus:
    """The `Bus` contract over MQTT. Made by `connect`, opened by entering it.

    What it sends, it sends as one principal, its user at the broker: envelopes that name another one are Denied, those
    that name none arrive with it. A message that a process had accepted and not done when it vanished is given to
    another listener, unless it is best effort. A tap sees what this process receives and answers.

    With a journal the process comes back as itself when it is killed: what an earlier life sent under an id is not sent
    again under it, and a request gets the answer of its first asking; see docs/bus.md.

    Attributes:
        me: this process, in all its lives.
        life: how often the process has begun, this time included; 1 without a journal.
    """

    def __init__(self, node: MqttNode) -> None:
        self.me = node.me
        self.life = 1 if node.journal is None else node.journal.owner.life
        self._node = node
        self._local = node.local

    @classmethod
    def connect(
        cls,
        url: str,
        *,
        payloads: Mapping[str, type[Payload]] = PAYLOADS,
        process: str | None = None,
        ca_file: Path | None = None,
        store: str | None = None,
        options: MqttOptions | None = None,
        journal: Journal | None = None,
        owns: Owns = any_address,
    ) -> "MqttBus":
        """The bus at `mqtt://USER@HOST:PORT/SPACE` (`mqtts://`: with TLS), connected while it is entered.

        The password, if the broker wants one, is in the environment, in `MAS_BUS_PASSWORD`.

        Args:
            payloads: kind -> class of all that may travel; a team's are `mas.runtime.payloads.TEAM_PAYLOADS`.
            process: this process's name, never used by two that live; None: the journal's, or made of host, process id
                and chance.
            ca_file: certificates that vouch for the broker; None: those that the system trusts.
            store: URL of a place that every process of the bus reaches, for payloads longer than `inline_bytes`:
                `file:///shared/payloads`, or any other that fsspec opens. None: they are Malformed where they are
                longer than a message may be.
            options: None: the defaults.
            journal: what the process comes back with as itself when it was killed; the caller closes it, after the bus.
                None: what it sent and was not done is lost with it.
            owns: whether a principal may listen at an address; presences of processes that claim others are ignored
                and counted. A team's is `mas.runtime.processes.team_owns`.

        Raises:
            ConfigError: the URL, `ca_file`, `store` or `payloads` are wrong.
            JournalError: the journal is that of another process, or of a bus in memory, or cannot be used.
            Malformed: it holds a message whose payload's class was not imported.
            On entry: Unreachable: no broker answers, or it refuses user or password. Denied: it refuses to let this
            principal listen to what is meant for it.
        """
        options = options or MqttOptions()
        broker = parse_broker(url, ca_file=ca_file)
        name = process or f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}"
        codec = Codec(payloads, max_bytes=options.max_frame_bytes)
        blobs = None if store is None else BlobStore(store, keep_s=options.keep_s)
        books = None
        if journal is not None:
            owner = take_ownership(journal, principal=broker.principal, space=broker.space, process=process, new=name)
            name, books = owner.process, ProcessJournal(journal, owner, payloads)
        local = MemoryBus(limits=limits_of(options), journal=journal)
        node = MqttNode(
            broker, local=local, codec=codec, options=options, process=name, store=blobs, journal=books, owns=owns
        )
        return cls(node)

    async def __aenter__(self) -> Self:
        await self._node.open()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    def now(self) -> float:
        """Seconds on the clock that deadlines refer to: this process's own."""
        return self._local.now()

    async def publish(self, envelope: Envelope, *, wait: bool = True) -> None:
        """Deliver one way; see `Bus.publish`.

        Returns when a process has it in its queue; until it is done there, this bus can give it to another one.

        Raises:
            As `Bus.publish`; Malformed: it cannot travel; RemoteError: the processes that may have had it died with it,
            as often as it may be tried; JournalError: the journal cannot be written, or an earlier life sent the id
            with another payload.
        """
        await self._node.carry(envelope, "publish" if wait else "publish_nowait", envelope.deadline)

    async def request(self, envelope: Envelope, *, timeout_s: float | None = None) -> Envelope:
        """Deliver and wait for the answer; see `Bus.request`. Malformed: it, or its answer, cannot travel.

        JournalError: as `publish`.
        """
        return await self._ask(envelope, timeout_s, None)

    def stream(self, envelope: Envelope, *, timeout_s: float | None = None, queue: int = 256) -> PartStream:
        """Deliver a request and read its answer in parts; see `Bus.stream`."""

        async def ask(stream: PartStream) -> Envelope:
            return await self._ask(envelope, timeout_s, stream)

        return PartStream(envelope, ask, queue=queue, counters=self._local.part_counters)

    def part(self, request: Envelope, payload: Payload) -> bool:
        return self._local.part(request, payload)

    async def reply(self, request: Envelope, answer: Envelope) -> None:
        await self._local.reply(request, self._node.signed(answer))

    async def fail(self, request: Envelope, error: Exception) -> None:
        """Answer a request with an error; see `Bus.fail`. Errors not of `mas.core.errors` become RemoteError."""
        await self._local.fail(request, error)

    def subscribe(self, address: str, *, principal: str | None = None, credit: int = 64) -> "MqttSubscription":
        """Listen at an address; see `Bus.subscribe`. Listeners in other processes share its messages, too.

        Raises:
            ValueError: credit is below 1, or the address is empty.
            On entry: Closed; Denied: the broker does not let this principal listen there, or another one reads there.
        """
        if not address:
            raise ValueError("the address to listen at is empty; a topic needs a name")
        return MqttSubscription(self._local, address, principal=principal, credit=credit, node=self._node)

    def tap(self, watch: Callable[[Envelope], None], *, principal: str | None = None) -> Callable[[], None]:
        """Call `watch` for every message that this process receives, and every answer that it gives; see `Bus.tap`."""
        return self._local.tap(watch, principal=principal)

    def statistics(self) -> MqttStatistics:
        """Counters so far."""
        node = self._node
        local = self._local.statistics()
        forgotten = local.forgotten + node.sender.dead.forgotten
        return MqttStatistics(
            **msgspec.structs.asdict(msgspec.structs.replace(local, forgotten=forgotten)),
            outbox=len(node.sender),
            resent=node.sender.resent,
            repeated=node.receiver.repeated,
            lost=node.sender.lost,
            given_up=node.sender.given_up,
            malformed=node.dispatcher.malformed,
            forged=node.dispatcher.forged,
            ignored_presences=node.peers.filter.refused,
            reconnects=node.connection.reconnects,
            stored=node.references.stored,
            fetched=node.references.fetched,
        )

    def dead_letters(self) -> tuple[DeadLetter, ...]:
        """What this process took and gave up on, then what it sent in this life and only it still has."""
        return self._local.dead_letters() + self._node.sender.dead.all()

    def redrive(self, message_id: str | None = None) -> int:
        """Deliver dead letters of this process again: what it took is delivered here, what it sent to any listener.

        See `MemoryBus.redrive`.
        """
        return self._local.redrive(message_id) + self._node.sender.redrive(message_id)

    def on_connection(self, call: Callable[[bool], object]) -> None:
        """Call with False when the connection to the broker is lost, and with True when it is there again, once each.

        For one watcher: the last one that asked.
        """
        self._node.connection.noticed = call

    def presence(self) -> Presence:
        """What this process says of itself to all others."""
        return self._node.peers.of(self.me)

    def announce(self, presence: Presence) -> None:
        """Say something else of this process, now and after every reconnection; its addresses stay as they are."""
        self._node.routes.announcer.announce(presence)

    def processes(self) -> dict[Peer, Presence]:
        """Who is on the bus, this process included; who vanished a moment ago may still be among them."""
        return dict(self._node.peers)

    def vanished(self) -> tuple[Peer, ...]:
        """The latest processes that were given up without having said that they leave; they may have come back."""
        return tuple(self._node.peers.vanished)

    async def flush(self) -> None:
        """Wait until what this process sent is with the broker's subscribers, and what was sent to it before is heard.

        Raises:
            Closed: the bus was closed.
        """
        await self._node.writer.echoes.round_trip()

    async def _ask(self, envelope: Envelope, timeout_s: float | None, stream: PartStream | None) -> Envelope:
        deadline = envelope.deadline
        if timeout_s is not None:
            timeout = self.now() + timeout_s
            deadline = timeout if deadline is None else min(deadline, timeout)
        answer = await self._node.carry(envelope, "request", deadline, stream)
        assert answer is not None
        return answer

    async def close(self) -> None:
        """Stop accepting; see `Bus.close`. Removes the presence, so that others do not wait for this process."""
        try:
            await self._local.close()
        finally:
            await self._node.close()


class MqttSubscription(LocalSubscription):
    """A subscription; an async context manager that listens while it is entered.

    What it gives back is delivered again in this process. After as many attempts as the bus allows, those in other
    processes among them, it is a dead letter here.

    Args:
        local: the local bus.
        node: announces it to the other processes.
    """

    def __init__(self, local: MemoryBus, address: str, *, principal: str | None, credit: int, node: MqttNode) -> None:
        super().__init__(local, address, principal=principal, credit=credit)
        self._node = node
        self._has_withdrawn = False

    async def __aenter__(self) -> Self:
        await super().__aenter__()
        try:
            await self._node.routes.listen(self.address, self.principal)
        except BaseException as error:  # a cancelled entry, too, must not leave the local subscription open
            await super().__aexit__(type(error), error, error.__traceback__)
            raise
        return self

    async def __aexit__(self, *error: object) -> None:
        try:
            if not self._has_withdrawn:
                await self._node.routes.leave(self.address)
        finally:
            if self._has_withdrawn:
                self._node.routes.drained(self.address)
            await super().__aexit__(*error)

    def done(self, envelope: Envelope, *, effect: bytes | None = None) -> None:
        """Handled; see `LocalSubscription.done`. Its sender hears of it after its effect is written."""
        with self._node.together():
            super().done(envelope, effect=effect)

    async def withdraw(self) -> None:
        """Take nothing new; see `Subscription.withdraw`. Queries for what is in flight still find it here."""
        if self._has_withdrawn:
            return
        self._has_withdrawn = True
        try:
            await self._node.routes.withdraw(self.address)
        finally:
            await super().withdraw()

    async def heard(self) -> None:
        """Wait until answers were confirmed; see `Subscription.heard`."""
        await self._node.until_confirmed()


def limits_of(options: MqttOptions) -> BusLimits:
    """The bounds of the memory bus of a process."""
    return BusLimits(
        remembered=options.remembered, max_attempts=options.max_attempts, dead_letters=options.dead_letters
    )
