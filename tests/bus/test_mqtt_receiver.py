"""The receiving side forgets nothing too early and keeps nothing for ever."""

import asyncio
from collections import Counter

import pytest
from receivers import ALICE, CODEC, Heard

from mas.bus.mqtt.frames import Answer, Failed, Find, Send, Status
from mas.core.messages import Delivery
from mas.testing.bus_suite import LoopTurn, answer_to


async def test_an_attempt_that_was_given_up_is_never_taken_and_the_next_one_is():
    heard = Heard()
    async with heard.bus.subscribe("b") as inbox:
        heard.desk.find(ALICE, Find("p", [("t", 2)]))
        assert await heard.standings() == [("t", 2, "unknown")]
        for attempt in (1, 2):
            heard.send("t", attempt)
            assert await heard.standings() == [("t", attempt, "unknown")]
        heard.send("t", 3)
        assert await heard.standings() == [("t", 3, "accepted")]
        inbox.done(await inbox.receive())
        assert await heard.standings() == [("t", 3, "done")]
        heard.send("t", 4)
        assert await heard.standings() == [("t", 4, "done")]
    assert heard.bus.statistics().delivered == 1


async def test_a_message_cancelled_in_the_moment_that_it_comes_is_not_handed_out_and_not_kept_for_ever():
    heard = Heard(remembered=1)
    async with heard.bus.subscribe("b"):
        for number in range(3):
            heard.send(str(number), mode="ask")
            heard.desk.cancel(ALICE, str(number))
            await heard.standings()
        assert heard.bus.statistics().accepted == 0
        assert len(heard.desk._cases) == 1


async def test_a_cancellation_that_comes_before_its_message_holds():
    heard = Heard()
    async with heard.bus.subscribe("b"):
        heard.desk.cancel(ALICE, "t")
        heard.send("t", 5)
        await heard.standings()
    assert heard.bus.statistics().accepted == 0


async def test_an_answer_is_said_again_until_its_sender_has_it():
    heard = Heard()
    async with heard.bus.subscribe("b") as inbox:
        heard.send("t", mode="ask")
        request = await inbox.receive()
        await heard.bus.reply(request, answer_to(request))
        await heard.standings()
        heard.desk.find(ALICE, Find("p", [("t", 1)]))
        heard.send("t")
        assert Counter(type(frame) for frame in heard.said) == {Answer: 3}
        heard.desk.got(ALICE, ["t"])
        heard.desk.find(ALICE, Find("p", [("t", 1)]))
        assert await heard.standings() == [("t", 1, "done")]
        assert len(heard.said) == 3


async def test_a_handler_that_is_quick_is_told_as_done_at_once():
    heard = Heard()
    async with heard.bus.subscribe("b") as inbox:
        taking = asyncio.create_task(inbox.receive(), name="taking")
        taking.add_done_callback(lambda task: inbox.done(task.result()))
        heard.send("t")
        assert (await heard.standings())[-1] == ("t", 1, "done")
        assert list(heard.desk._over) == [(ALICE, "t")]


async def test_of_two_messages_with_one_id_the_second_is_done_at_once():
    heard = Heard()
    async with heard.bus.subscribe("b") as inbox:
        envelope = heard.send("t")
        heard.desk.send(ALICE, Send("p", "u", 1, "tell", None, False, envelope))
        assert await heard.standings() == [("t", 1, "accepted"), ("u", 1, "done")]
        inbox.done(await inbox.receive())
        assert (await heard.standings())[-1] == ("t", 1, "done")


@pytest.mark.parametrize("delivery", [Delivery.EFFECTIVELY_ONCE, Delivery.AT_LEAST_ONCE])
async def test_what_was_handed_out_and_not_done_goes_elsewhere_as_what_was_not_handed_out(delivery):
    heard = Heard()
    async with heard.bus.subscribe("b") as inbox:
        heard.send("taken", delivery=delivery)
        heard.send("queued", delivery=delivery)
        await inbox.receive()
        await heard.standings()
        heard.addresses.clear()
    assert sorted(await heard.standings()) == [("queued", 1, "left"), ("taken", 1, "left")]


async def test_a_message_cancelled_while_it_waits_for_room_leaves_nothing_behind():
    heard = Heard()
    async with heard.bus.subscribe("b", credit=1):
        heard.send("first")
        heard.send("waits")
        await heard.standings()
        heard.desk.lost(ALICE)
        heard.desk.find(ALICE, Find("p", [("first", 1), ("waits", 1)]))
        await heard.standings()
        heard.desk.find(ALICE, Find("p", [("first", 1), ("waits", 1)]))
        assert await heard.standings() == [("first", 1, "accepted"), ("waits", 1, "unknown")]


async def test_an_error_is_told_by_its_name():
    heard = Heard()
    async with heard.bus.subscribe("b", credit=1):
        heard.send("1")
        heard.send("2", mode="try")
        await heard.standings()
    (failed,) = heard.said
    assert isinstance(failed, Failed)
    assert failed.error == "Dropped"


async def test_words_on_many_messages_go_in_frames_that_any_broker_takes():
    heard = Heard(remembered=2_000)
    heard.desk.find(ALICE, Find("p", [(f"{number:016}", 1) for number in range(1_100)]))
    await LoopTurn()
    await LoopTurn()
    frames = [frame for frame in heard.said if isinstance(frame, Status)]
    assert [len(frame.words) for frame in frames] == [500, 500, 100]
    assert all(len(CODEC.encode(frame)) < 20_000 for frame in frames)
