"""The receiving side forgets nothing too early and keeps nothing for ever."""

import asyncio
from collections import Counter

import pytest
from receivers import ALICE, CODEC, Heard

from mas.bus.mqtt.frames import AnswerFrame, Failed, Send, StateQuery, Status
from mas.bus.mqtt.presence import Presence
from mas.core.messages import Delivery
from mas.testing.bus_suite import LoopTurn, answer_to


async def test_an_attempt_that_was_given_up_is_never_taken_and_the_next_one_is():
    heard = Heard()
    async with heard.bus.subscribe("b") as inbox:
        heard.receiver.query(ALICE, StateQuery("p", [("t", 2)]))
        assert await heard.brief_states() == [("t", 2, "unknown")]
        for attempt in (1, 2):
            heard.send("t", attempt)
            assert await heard.brief_states() == [("t", attempt, "unknown")]
        heard.send("t", 3)
        assert await heard.brief_states() == [("t", 3, "queued")]
        inbox.done(await inbox.receive())
        assert await heard.brief_states() == [("t", 3, "done")]
        heard.send("t", 4)
        assert await heard.brief_states() == [("t", 4, "done")]
    assert heard.bus.statistics().delivered == 1


async def test_a_message_cancelled_in_the_moment_that_it_comes_is_not_handed_out_and_not_kept_for_ever():
    heard = Heard(remembered=1)
    async with heard.bus.subscribe("b"):
        for number in range(3):
            heard.send(str(number), mode="request")
            heard.receiver.cancel(ALICE, str(number))
            await heard.brief_states()
        assert heard.bus.statistics().accepted == 0
        assert len(heard.receiver._messages) == 1


async def test_a_cancellation_that_comes_before_its_message_holds():
    heard = Heard()
    async with heard.bus.subscribe("b"):
        heard.receiver.cancel(ALICE, "t")
        heard.send("t", 5)
        await heard.brief_states()
    assert heard.bus.statistics().accepted == 0


async def test_an_answer_is_said_again_until_its_sender_has_it():
    heard = Heard()
    async with heard.bus.subscribe("b") as inbox:
        heard.send("t", mode="request")
        request = await inbox.receive()
        await heard.bus.reply(request, answer_to(request))
        await heard.brief_states()
        heard.receiver.query(ALICE, StateQuery("p", [("t", 1)]))
        heard.send("t")
        assert Counter(type(frame) for frame in heard.said) == {AnswerFrame: 3}
        heard.receiver.confirm(ALICE, ["t"])
        heard.receiver.query(ALICE, StateQuery("p", [("t", 1)]))
        assert await heard.brief_states() == [("t", 1, "done")]
        assert len(heard.said) == 3


async def test_a_handler_that_is_quick_is_told_as_done_at_once():
    heard = Heard()
    async with heard.bus.subscribe("b") as inbox:
        taking = asyncio.create_task(inbox.receive(), name="taking")
        taking.add_done_callback(lambda task: inbox.done(task.result()))
        heard.send("t")
        assert (await heard.brief_states())[-1] == ("t", 1, "done")
        assert list(heard.receiver._finished) == [(ALICE, "t")]


async def test_of_two_messages_with_one_id_the_second_is_done_at_once():
    heard = Heard()
    async with heard.bus.subscribe("b") as inbox:
        envelope = heard.send("t")
        heard.receiver.take(ALICE, Send("p", "u", 1, "publish", None, False, envelope))
        assert await heard.brief_states() == [("t", 1, "queued"), ("u", 1, "done")]
        inbox.done(await inbox.receive())
        assert (await heard.brief_states())[-1] == ("t", 1, "done")


@pytest.mark.parametrize("delivery", [Delivery.EFFECTIVELY_ONCE, Delivery.AT_LEAST_ONCE])
async def test_what_was_handed_out_and_not_done_goes_elsewhere_as_what_was_not_handed_out(delivery):
    heard = Heard()
    async with heard.bus.subscribe("b") as inbox:
        heard.send("taken", delivery=delivery)
        heard.send("queued", delivery=delivery)
        await inbox.receive()
        await heard.brief_states()
        heard.addresses.clear()
    assert sorted(await heard.brief_states()) == [("queued", 1, "returned"), ("taken", 1, "returned")]


async def test_a_message_cancelled_while_it_waits_for_room_leaves_nothing_behind():
    heard = Heard()
    async with heard.bus.subscribe("b", credit=1):
        heard.send("first")
        heard.send("waits")
        await heard.brief_states()
        heard.receiver.peer_gone(ALICE, Presence(since=0.0, addresses={}))
        heard.receiver.query(ALICE, StateQuery("p", [("first", 1), ("waits", 1)]))
        await heard.brief_states()
        heard.receiver.query(ALICE, StateQuery("p", [("first", 1), ("waits", 1)]))
        assert await heard.brief_states() == [("first", 1, "queued"), ("waits", 1, "unknown")]


async def test_an_error_is_told_by_its_name():
    heard = Heard()
    async with heard.bus.subscribe("b", credit=1):
        heard.send("1")
        heard.send("2", mode="publish_nowait")
        await heard.brief_states()
    (failed,) = heard.said
    assert isinstance(failed, Failed)
    assert failed.error == "Dropped"


async def test_states_of_many_messages_go_in_frames_that_any_broker_takes():
    heard = Heard(remembered=2_000)
    heard.receiver.query(ALICE, StateQuery("p", [(f"{number:016}", 1) for number in range(1_100)]))
    await LoopTurn()
    await LoopTurn()
    frames = [frame for frame in heard.said if isinstance(frame, Status)]
    assert [len(frame.states) for frame in frames] == [500, 500, 100]
    assert all(len(CODEC.encode(frame)) < 20_000 for frame in frames)
