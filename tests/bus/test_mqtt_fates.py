"""What the receiving side tells a sender of a message that is given back, left, or given up."""

from receivers import ALICE, Heard

from mas.bus.mqtt.frames import MessageState, Send, StateQuery
from mas.core.messages import Delivery
from mas.testing.bus_suite import next_text


async def test_what_expires_in_a_queue_or_is_rejected_is_told_as_dead_and_kept_no_longer():
    heard = Heard()
    async with heard.bus.subscribe("b") as inbox:
        heard.send("expires", remaining_s=5.0)
        heard.send("rejected")
        await heard.brief_states()
        heard.time_s += 5.0
        inbox.reject(await inbox.receive(), cause="no use")
        assert sorted(await heard.brief_states()) == [("expires", 1, "dead"), ("rejected", 1, "dead")]
        assert set(heard.receiver._finished) == {(ALICE, "expires"), (ALICE, "rejected")}
    assert await heard.brief_states() == []
    assert len(heard.bus.dead_letters()) == 2


async def test_a_later_copy_of_a_message_that_expired_is_settled_by_its_own_fate():
    heard = Heard()
    async with heard.bus.subscribe("b") as inbox:
        envelope = heard.send("first", delivery=Delivery.AT_LEAST_ONCE, remaining_s=5.0)
        await heard.brief_states()
        heard.time_s += 5.0
        heard.receiver.take(ALICE, Send("p", "second", 1, "publish", None, False, envelope))
        await heard.brief_states()
        inbox.done(await inbox.receive())
        assert await heard.brief_states() == [("first", 1, "dead"), ("second", 1, "done")]


async def test_the_sender_hears_how_often_it_was_tried_and_when_a_receiver_has_it():
    heard = Heard()
    async with heard.bus.subscribe("b") as inbox:
        heard.send("t", tries=1)
        assert await heard.states() == [MessageState("t", 1, "queued", 1)]
        assert (await inbox.receive()).attempt == 2
        assert await heard.states() == [MessageState("t", 1, "delivered", 1)]
        heard.receiver.query(ALICE, StateQuery("p", [("t", 1)]))
        assert await heard.states() == [MessageState("t", 1, "delivered", 1)]


async def test_the_last_attempt_that_is_given_back_is_a_dead_letter_here_and_told():
    heard = Heard()
    async with heard.bus.subscribe("b") as inbox:
        heard.send("t", tries=1)  # of three
        assert inbox.nack(await inbox.receive(), cause="one")
        await heard.states()
        assert not inbox.nack(await inbox.receive(), cause="two")
        assert (await heard.states())[-1] == MessageState("t", 1, "dead", 3)
    assert [(letter.cause, letter.attempts) for letter in heard.bus.dead_letters()] == [("two", 3)]


async def test_what_the_last_listener_leaves_in_its_last_attempt_is_its_senders_to_give_up():
    heard = Heard()
    async with heard.bus.subscribe("b") as inbox:
        heard.send("t", tries=2)
        await inbox.receive()
    assert (await heard.states())[-1] == MessageState("t", 1, "returned", 3)
    assert heard.bus.dead_letters() == ()


async def test_what_one_of_two_listeners_leaves_in_its_last_attempt_is_a_dead_letter_here_and_told():
    heard = Heard()
    async with heard.bus.subscribe("b"):
        async with heard.bus.subscribe("b") as second:
            for ticket in "tu":
                heard.send(ticket, tries=2)
            left = await second.receive()
        assert MessageState(left.payload.content, 1, "dead", 3) in await heard.states()
        assert [letter.attempts for letter in heard.bus.dead_letters()] == [3]


async def test_the_rest_of_a_delay_goes_with_what_is_left():
    heard = Heard()
    async with heard.bus.subscribe("b") as inbox:
        heard.send("t")
        inbox.nack(await inbox.receive(), delay_s=50.0)
        heard.time_s += 30.0
    word = (await heard.states())[-1]
    assert (word.state, word.tries) == ("returned", 1)
    assert word.delay_s == 20.0


async def test_a_bus_that_closes_leaves_what_is_in_hand_or_was_given_back_to_others():
    heard = Heard()
    async with heard.bus.subscribe("b") as inbox:
        for ticket in ("given back", "in hand", "queued"):
            heard.send(ticket)
        inbox.nack(await inbox.receive(), delay_s=50.0)
        await inbox.receive()
        await heard.states()
        await heard.bus.close()
        await heard.receiver.close()
        assert sorted((word.ticket, word.state, word.tries) for word in await heard.states()) == [
            ("given back", "returned", 1),
            ("in hand", "returned", 1),
            ("queued", "done", 0),
        ]
        assert await next_text(inbox) == "queued"
    assert await heard.states() == []


async def test_what_waits_behind_a_message_given_back_leaves_with_it_when_the_bus_closes():
    heard = Heard()
    async with heard.bus.subscribe("b") as inbox:
        for ticket in ("given back", "behind"):
            heard.send(ticket, key="k")
        inbox.nack(await inbox.receive(), delay_s=50.0)
        await heard.states()
        await heard.bus.close()
        await heard.receiver.close()
        assert sorted(await heard.brief_states()) == [("behind", 1, "returned"), ("given back", 1, "returned")]


async def test_a_copy_that_never_came_into_the_queue_does_not_open_the_door_for_a_third_one():
    heard = Heard()
    async with heard.bus.subscribe("b", credit=1) as inbox:
        heard.send("before")
        envelope = heard.send("once")
        await heard.brief_states()
        heard.send("between")
        heard.receiver.take(ALICE, Send("p", "copy", 1, "publish", None, False, envelope))
        for _ in "12":
            await heard.brief_states()
            inbox.done(await inbox.receive())
        await heard.brief_states()
        heard.addresses.clear()
    assert sorted(await heard.brief_states()) == [("between", 1, "returned"), ("copy", 1, "done")]
    heard.addresses.add("b")
    async with heard.bus.subscribe("b"):
        heard.receiver.take(ALICE, Send("p", "third", 1, "publish", None, False, envelope))
        assert await heard.brief_states() == [("third", 1, "done")]
        assert heard.bus.statistics().waiting == 0


async def test_a_letter_that_was_redriven_here_is_kept_here_when_its_listener_leaves():
    heard = Heard()
    async with heard.bus.subscribe("b") as inbox:
        heard.send("t")
        inbox.reject(await inbox.receive(), cause="no use")
        assert heard.bus.redrive() == 1
    assert heard.bus.statistics().waiting == 1
    async with heard.bus.subscribe("b") as inbox:
        assert await next_text(inbox) == "t"
