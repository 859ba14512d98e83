"""The memory bus under random operation: nothing lost, nothing twice, keys in order, counters that add up."""

import asyncio

from bus_machine import play, steps
from hypothesis import example, given, settings
from hypothesis import strategies as st

from mas.bus.memory import LocalSubscription, MemoryBus
from mas.bus.serve import EnvelopeFactory
from mas.core.errors import BusError
from mas.core.messages import Delivery, Envelope, Note
from mas.testing.bus_suite import LoopTurn, adds_up, answer_to


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
    asked = {envelope.id for call, envelope in machine.calls.items() if call.get_coro().__name__ == "request"}
    for call, envelope in machine.calls.items():
        is_one_way = envelope.id not in asked  # the id of a request that failed says nothing of its copies
        if is_one_way and call.exception() is None and envelope.delivery is not Delivery.BEST_EFFORT:
            assert envelope.id in machine.finished or envelope.id in dead


GIVEN_BACK = [*[("publish keyed", 0)] * 2, ("join", 1), *[("receive", 2)] * 2, ("nack", 0)]
"""A receiver has two messages of a lane, and gives both back: they are received as 0, 1, 0, 1."""


@settings(max_examples=100, deadline=None)
@given(steps)
@example(GIVEN_BACK)
def test_messages_of_one_lane_are_received_in_the_order_they_were_sent(script):
    """Without resends and departures; the number in the text is the order of sending. What is given back is received
    again, and whatever came after it behind it."""
    machine = asyncio.run(
        play([(verb, number) for verb, number in script if verb not in ("leave", "twice", "again", "redrive")])
    )
    lanes: dict[tuple[str, str], list[int]] = {}
    for envelope, _ in machine.received:
        if envelope.key is not None:
            lanes.setdefault((envelope.source, envelope.key), []).append(int(envelope.payload.content))
    for numbers in lanes.values():
        first, last = [*dict.fromkeys(numbers)], [*dict.fromkeys(reversed(numbers))]
        assert first == sorted(first)
        assert last == sorted(first, reverse=True)


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

        async def handle(inbox: LocalSubscription) -> None:
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
