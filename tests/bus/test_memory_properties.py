"""The memory bus under random operation: nothing lost, nothing twice, keys in order, counters that add up."""

import asyncio
from contextlib import AsyncExitStack, suppress

from hypothesis import given, settings
from hypothesis import strategies as st

from mas.bus.envelopes import EnvelopeFactory
from mas.bus.inbox import Inbox
from mas.bus.limits import Limits
from mas.bus.memory import MemoryBus
from mas.core.errors import BusError, Closed
from mas.core.messages import Delivery, Envelope, Note
from mas.testing.bus_suite import LoopTurn, adds_up, answer_to

Step = tuple[str, int]
VERBS = (
    "publish", "publish keyed", "publish keyed", "offer", "request", "request keyed", "timed", "twice", "again",
    "cancel", "receive", "receive", "receive", "receiver", "done", "done", "reply", "fail", "join", "leave", "tick",
    "nack", "nack", "wait", "reject", "redrive", "run", "run",
)  # fmt: skip
steps = st.lists(st.tuples(st.sampled_from(VERBS), st.integers(0, 11)), max_size=60)


class Machine:
    """A bus, a clock, its senders and receivers, and what a careful onlooker would write down."""

    def __init__(self) -> None:
        self.time_s = 0.0
        self.bus = MemoryBus(clock=lambda: self.time_s, limits=Limits(max_attempts=3))
        self.sources = [EnvelopeFactory("a"), EnvelopeFactory("z")]
        self.leaving: dict[Inbox, AsyncExitStack] = {}
        self.sent: list[Envelope] = []
        self.calls: dict[asyncio.Task[object], Envelope] = {}
        self.receivers: list[asyncio.Task[None]] = []
        self.violations: list[str] = []
        self.received: list[tuple[Envelope, Inbox]] = []
        self.held: list[tuple[Envelope, Inbox]] = []
        self.unanswered: set[str] = set()
        self.finished: list[str] = []

    async def start(self) -> None:
        await self.join(0)
        await self.join(0)

    async def join(self, number: int) -> None:
        stack = AsyncExitStack()
        inbox = await stack.enter_async_context(self.bus.subscribe("b", credit=1 + number % 3))
        self.leaving[inbox] = stack

    async def leave(self, inbox: Inbox) -> None:
        await self.leaving.pop(inbox).aclose()
        self.held = [(envelope, holder) for envelope, holder in self.held if holder is not inbox]

    def send(
        self, number: int, *, key: str | None = None, kind: str = "publish", deadline: float | None = None
    ) -> None:
        delivery = (Delivery.EFFECTIVELY_ONCE, Delivery.EFFECTIVELY_ONCE, Delivery.AT_LEAST_ONCE)[number % 3]
        if number == 11:
            delivery = Delivery.BEST_EFFORT
        source = self.sources[number % 2]
        note = Note(text=str(len(self.sent)))
        self.post(source.new("b", note, key=key, delivery=delivery, deadline=deadline), kind)

    def post(self, envelope: Envelope, kind: str) -> None:
        self.sent.append(envelope)
        call = self.bus.request(envelope) if kind == "request" else self.bus.publish(envelope, wait=kind != "offer")
        self.calls[asyncio.create_task(call)] = envelope

    def receive(self, inbox: Inbox) -> None:
        self.receivers.append(asyncio.create_task(self.take(inbox)))

    async def take(self, inbox: Inbox) -> None:
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

    async def do_at_receiver(self, verb: str, number: int, inbox: Inbox | None) -> None:
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

    def give_back(self, envelope: Envelope, inbox: Inbox, delay_s: float) -> None:
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


@settings(max_examples=150, deadline=None)
@given(steps)
def test_counters_add_up_after_every_step_and_nothing_waits_at_the_end(script):
    asyncio.run(play(script))


@settings(max_examples=100, deadline=None)
@given(steps)
def test_what_was_published_is_received_unless_it_was_cancelled_expired_or_its_listener_left(script):
    machine = asyncio.run(play([(verb, number) for verb, number in script if verb not in ("leave", "cancel", "tick")]))
    received = {envelope.id for envelope, _ in machine.received}
    for call, envelope in machine.calls.items():
        assert isinstance(call.exception(), BusError | None)
        if call.exception() is None and envelope.delivery is not Delivery.BEST_EFFORT:
            assert envelope.id in received


@settings(max_examples=100, deadline=None)
@given(steps)
def test_no_effectively_once_message_is_received_again_but_with_another_attempt_and_none_is_finished_twice(script):
    machine = asyncio.run(play(script))
    once = [envelope for envelope, _ in machine.received if envelope.delivery is Delivery.EFFECTIVELY_ONCE]
    assert len(once) == len({(envelope.id, envelope.attempt) for envelope in once})
    finished = [message_id for message_id in machine.finished if message_id in {envelope.id for envelope in once}]
    assert len(finished) == len(set(finished))


@settings(max_examples=150, deadline=None)
@given(steps)
def test_what_was_promised_is_finished_or_a_dead_letter(script):
    machine = asyncio.run(play([(verb, number) for verb, number in script if verb != "cancel"]))
    dead = {letter.envelope.id for letter in machine.bus.dead_letters()}
    for call, envelope in machine.calls.items():
        is_one_way = call.get_coro().__name__ == "publish"
        if is_one_way and call.exception() is None and envelope.delivery is not Delivery.BEST_EFFORT:
            assert envelope.id in machine.finished or envelope.id in dead


@settings(max_examples=100, deadline=None)
@given(steps)
def test_messages_of_one_lane_are_received_in_the_order_they_were_sent(script):
    """Without resends and departures; the number in the text is the order of sending."""
    machine = asyncio.run(
        play([(verb, number) for verb, number in script if verb not in ("leave", "twice", "again", "redrive")])
    )
    lanes: dict[tuple[str, str], list[int]] = {}
    for envelope, _ in machine.received:
        if envelope.key is not None:
            lanes.setdefault((envelope.source, envelope.key), []).append(int(envelope.payload.content))
    for numbers in lanes.values():
        assert numbers == sorted(numbers)


@settings(max_examples=60, deadline=None)
@given(steps)
def test_the_same_script_gives_the_same_deliveries(script):
    """Nothing but the order of calls decides."""
    runs = [asyncio.run(play(script)) for _ in range(2)]
    first, second = ([envelope.payload for envelope, _ in machine.received] for machine in runs)
    assert first == second


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 12), st.integers(1, 2))
def test_a_request_cancelled_at_any_point_leaves_the_bus_usable(steps_before_cancel, credit):
    async def run() -> None:
        bus = MemoryBus()
        sender = EnvelopeFactory("a")

        async def handle(inbox: Inbox) -> None:
            async for request in inbox:
                await LoopTurn()
                await bus.reply(request, answer_to(request))
                inbox.done(request)

        async with bus.subscribe("b", credit=credit) as inbox:
            handling = asyncio.create_task(handle(inbox))
            calls = [asyncio.create_task(bus.request(sender.new("b", Note(text=text)))) for text in "123"]
            for _ in range(steps_before_cancel):
                await LoopTurn()
            calls[1].cancel()
            outcomes = await asyncio.gather(*calls, return_exceptions=True)
            assert [outcomes[0].payload.content, outcomes[2].payload.content] == ["1", "3"]
            assert isinstance(outcomes[1], asyncio.CancelledError | Envelope)
            again = await bus.request(sender.new("b", Note(text="4")))
            assert again.payload.content == "4"
            await bus.close()
            await handling
            assert adds_up(bus)
            assert inbox.held == 0

    asyncio.run(run())
