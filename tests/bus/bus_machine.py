"""A bus under random operation, and an onlooker that notes what happened: for property tests."""

import asyncio
from contextlib import AsyncExitStack, suppress

from hypothesis import strategies as st

from mas.bus.counters import BusLimits
from mas.bus.journal import Journal
from mas.bus.memory import LocalSubscription, MemoryBus
from mas.bus.serve import EnvelopeFactory
from mas.core.errors import Closed
from mas.core.messages import Delivery, Envelope, Note
from mas.testing.bus_suite import LoopTurn, adds_up, answer_to

Step = tuple[str, int]
VERBS = (
    "publish", "publish keyed", "publish keyed", "offer", "request", "request keyed", "timed", "twice", "again",
    "cancel", "receive", "receive", "receive", "receiver", "done", "done", "reply", "fail", "join", "leave", "tick",
    "nack", "nack", "wait", "reject", "redrive", "run", "run",
)  # fmt: skip
BEST_EFFORT = 11
"""The number of a step whose message is sent with best effort."""
steps = st.lists(st.tuples(st.sampled_from(VERBS), st.integers(0, 11)), max_size=60)


class Machine:
    """A bus, a clock, its senders and receivers, and what a careful onlooker would write down."""

    def __init__(self, journal: Journal | None = None) -> None:
        self.time_s = 0.0
        self.bus = MemoryBus(clock=lambda: self.time_s, limits=BusLimits(max_attempts=3), journal=journal)
        self.sources = [EnvelopeFactory("a"), EnvelopeFactory("z")]
        self.leaving: dict[LocalSubscription, AsyncExitStack] = {}
        self.sent: list[Envelope] = []
        self.calls: dict[asyncio.Task[object], Envelope] = {}
        self.receivers: list[asyncio.Task[None]] = []
        self.violations: list[str] = []
        self.received: list[tuple[Envelope, LocalSubscription]] = []
        self.held: list[tuple[Envelope, LocalSubscription]] = []
        self.unanswered: set[str] = set()
        self.finished: list[str] = []

    async def start(self) -> None:
        await self.join(0)
        await self.join(0)

    async def join(self, number: int) -> None:
        stack = AsyncExitStack()
        inbox = await stack.enter_async_context(self.bus.subscribe("b", credit=1 + number % 3))
        self.leaving[inbox] = stack

    async def leave(self, inbox: LocalSubscription) -> None:
        await self.leaving.pop(inbox).aclose()
        self.held = [(envelope, holder) for envelope, holder in self.held if holder is not inbox]

    def send(
        self, number: int, *, key: str | None = None, kind: str = "publish", deadline: float | None = None
    ) -> None:
        delivery = (Delivery.EFFECTIVELY_ONCE, Delivery.EFFECTIVELY_ONCE, Delivery.AT_LEAST_ONCE)[number % 3]
        if number == BEST_EFFORT:
            delivery = Delivery.BEST_EFFORT
        source = self.sources[number % 2]
        note = Note(text=str(len(self.sent)))
        self.post(source.new("b", note, key=key, delivery=delivery, deadline=deadline), kind)

    def post(self, envelope: Envelope, kind: str) -> None:
        self.sent.append(envelope)
        call = self.bus.request(envelope) if kind == "request" else self.bus.publish(envelope, wait=kind != "offer")
        self.calls[asyncio.create_task(call)] = envelope

    def receive(self, inbox: LocalSubscription) -> None:
        self.receivers.append(asyncio.create_task(self.take(inbox)))

    async def take(self, inbox: LocalSubscription) -> None:
        """Receive one message; whatever of its lane is still held must be held by the same subscription."""
        with suppress(Closed):
            envelope = await inbox.receive()
            lane = (envelope.source, envelope.key)
            for other, holder in self.held:
                if envelope.key is not None and (other.source, other.key) == lane and holder is not inbox:
                    self.violations.append(f"{envelope.id} overtook {other.id}")
            self.received.append((envelope, inbox))
            self.held.append((envelope, inbox))
            if sum(holder is inbox for _, holder in self.held) > inbox.credit:
                self.violations.append(f"{envelope.id} was delivered without credit")

    async def settle(self) -> None:
        """Let every task run until it waits for another step."""
        for _ in range(6):
            await LoopTurn()
        self.receivers = [task for task in self.receivers if not task.done()]

    async def do(self, verb: str, number: int) -> None:
        inboxes = list(self.leaving)
        inbox = inboxes[number % len(inboxes)] if inboxes else None
        if verb in ("publish", "offer", "request"):
            self.send(number, kind=verb)
        elif verb.endswith("keyed"):
            self.send(number, key="kl"[number % 4 // 2], kind=verb.split()[0])
        elif verb == "timed":
            self.send(number, kind=("publish", "request")[number % 2], deadline=self.time_s + 1000.0)
        elif verb in ("twice", "again") and self.sent:
            self.post(self.sent[number % len(self.sent)], "publish" if verb == "twice" else "request")
        elif verb == "cancel" and self.calls:
            list(self.calls)[number % len(self.calls)].cancel()
        elif verb == "tick":
            self.time_s += 600.0
        elif verb == "run":
            await self.settle()
        else:
            await self.do_at_receiver(verb, number, inbox)

    async def do_at_receiver(self, verb: str, number: int, inbox: LocalSubscription | None) -> None:
        if verb == "join" and len(self.leaving) < 3:
            await self.join(number)
        elif verb == "leave" and inbox is not None:
            await self.settle()
            await self.leave(inbox)
        elif verb == "receiver" and self.receivers and number % 2:
            self.receivers[0].cancel()
        elif verb in ("receive", "receiver") and inbox is not None:
            self.receive(inbox)
        elif verb == "redrive":
            self.bus.redrive()
        elif verb in ("done", "reply", "fail", "nack", "wait", "reject"):
            await self.settle()
            await self.handle(verb, number)

    async def handle(self, verb: str, number: int) -> None:
        if not self.held:
            return
        envelope, inbox = self.held[number % len(self.held)]
        if verb in ("done", "nack", "wait", "reject"):
            self.held.remove((envelope, inbox))
        if verb == "done":
            self.unanswered.add(envelope.id)
            self.finished.append(envelope.id)
            inbox.done(envelope)
        elif verb in ("nack", "wait"):
            self.give_back(envelope, inbox, delay_s=0.0 if verb == "nack" else 5.0)
        elif verb == "reject":
            inbox.reject(envelope, cause="random")
        elif verb == "reply":
            await self.bus.reply(envelope, answer_to(envelope))
        else:
            await self.bus.fail(envelope, ValueError("random"))

    def give_back(self, envelope: Envelope, inbox: LocalSubscription, delay_s: float) -> None:
        """Give a message back, and with it what the same receiver has of its lane, as the contract asks for."""
        inbox.nack(envelope, delay_s=delay_s, cause="random")
        lane = (envelope.source, envelope.key)
        for other, holder in tuple(self.held):
            if envelope.key is not None and holder is inbox and (other.source, other.key) == lane:
                self.held.remove((other, holder))
                inbox.nack(other, is_tried=False)

    def check(self) -> None:
        counts = self.bus.statistics()
        assert self.violations == []
        assert adds_up(self.bus), counts
        assert counts.delivered == counts.processed + counts.held
        assert counts.held == len(self.held)
        assert counts.dead + counts.expired >= len(self.bus.dead_letters())
        waiting = sum(not call.done() for call in self.calls)
        assert counts.waiting <= waiting + len(self.sent)

    async def drain(self) -> None:
        """Join where nobody listens, then receive, answer and finish everything."""
        if not self.leaving:
            await self.join(2)
        for _ in range(len(self.sent) + 5):
            self.time_s += 6.0
            self.bus.statistics()
            for inbox in self.leaving:
                self.receive(inbox)
            await self.settle()
            for envelope, inbox in self.held:
                await self.bus.reply(envelope, answer_to(envelope))
                self.finished.append(envelope.id)
                inbox.done(envelope)
            self.held.clear()
        await self.settle()

    async def finish(self) -> None:
        await self.bus.close()
        await asyncio.gather(*self.calls, *self.receivers, return_exceptions=True)
        for inbox in list(self.leaving):
            await self.leave(inbox)


async def play(script: list[Step]) -> Machine:
    machine = Machine()
    await machine.start()
    for verb, number in script:
        await machine.do(verb, number)
        machine.check()
    await machine.settle()
    await machine.drain()
    machine.check()
    assert {envelope.id for call, envelope in machine.calls.items() if not call.done()} <= machine.unanswered
    await machine.finish()
    machine.check()
    assert machine.bus.statistics().waiting == 0
    assert machine.bus.statistics().subscriptions == 0
    return machine
