"""A service answers the messages of an address, and turns the failures of its handler into errors at the requester."""

import asyncio

import pytest

from mas.bus.memory import MemoryBus
from mas.bus.serve import EnvelopeFactory, serve
from mas.core.errors import Closed, ConfigError, NoRoute, RemoteError
from mas.core.messages import Envelope, Note, Payload
from mas.testing.bus_suite import is_blocked, start


@pytest.fixture
def sender() -> EnvelopeFactory:
    return EnvelopeFactory("a")


async def shout(request: Envelope) -> Payload:
    return Note(text=request.payload.content.upper())


class Gate:
    """A handler that notes who came and lets nobody through before it is opened."""

    def __init__(self) -> None:
        self.came: list[str] = []
        self.arrival = asyncio.Event()
        self.opened = asyncio.Event()

    async def __call__(self, request: Envelope) -> Payload:
        self.came.append(request.payload.content)
        self.arrival.set()
        await self.opened.wait()
        return request.payload


async def test_a_request_is_answered_by_the_handler(sender):
    bus = MemoryBus()
    async with serve(bus, "b", shout):
        answer = await bus.request(sender.new("b", Note(text="hello")))
    assert answer.payload == Note(text="HELLO")
    assert (answer.source, answer.target) == ("b", "a")


async def test_nobody_listens_once_the_service_was_left(sender):
    bus = MemoryBus()
    async with serve(bus, "b", shout):
        pass
    with pytest.raises(NoRoute):
        await bus.request(sender.new("b", Note(text="hello")))


@pytest.mark.parametrize(
    ("raised", "seen", "text"),
    [(ConfigError("no key x"), ConfigError, "^no key x$"), (KeyError("x"), RemoteError, "KeyError: 'x'")],
)
async def test_an_exception_of_the_handler_reaches_the_requester_and_the_service_goes_on(sender, raised, seen, text):
    bus = MemoryBus()

    async def handle(request: Envelope) -> Payload:
        if request.payload.content == "bad":
            raise raised
        return request.payload

    async with serve(bus, "b", handle, concurrency=1):
        with pytest.raises(seen, match=text):
            await bus.request(sender.new("b", Note(text="bad")))
        assert (await bus.request(sender.new("b", Note(text="good")))).payload.content == "good"


async def test_a_handler_without_an_answer_fails_the_request_but_not_a_one_way_message(sender):
    bus = MemoryBus()
    handled: list[str] = []

    async def handle(request: Envelope) -> None:
        handled.append(request.payload.content)

    async with serve(bus, "b", handle) as service:
        with pytest.raises(RemoteError, match="returned no payload"):
            await bus.request(sender.new("b", Note(text="asked")))
        await bus.publish(sender.new("b", Note(text="told")))
        await bus.close()
        await service.ended()
    assert handled == ["asked", "told"]
    assert bus.statistics().dropped == 0


async def test_at_most_concurrency_messages_are_handled_at_once(sender):
    bus, gate = MemoryBus(), Gate()
    async with serve(bus, "b", gate, concurrency=2):
        calls = [start(bus.request(sender.new("b", Note(text=text)))) for text in "123"]
        assert await is_blocked(calls[2])
        assert gate.came == ["1", "2"]
        gate.opened.set()
        await asyncio.gather(*calls)
    assert gate.came == ["1", "2", "3"]


async def test_messages_of_one_key_are_handled_one_after_the_other_and_other_keys_beside_them(sender):
    bus, gate = MemoryBus(), Gate()
    async with serve(bus, "b", gate) as service:
        calls = [
            start(bus.request(sender.new("b", Note(text=text), key=key)))
            for text, key in (("k1", "k"), ("k2", "k"), ("l1", "l"), ("free", None))
        ]
        assert await is_blocked(calls[0])
        assert gate.came == ["k1", "l1", "free"]
        gate.opened.set()
        await asyncio.gather(*calls)
        await bus.close()
        await service.ended()
        assert service._lanes == {}, "a key that nobody uses must not be kept"
    assert gate.came[-1] == "k2"


async def test_leaving_cancels_the_handlers_and_tells_their_requesters(sender):
    bus, gate = MemoryBus(), Gate()
    async with serve(bus, "b", gate):
        asked = start(bus.request(sender.new("b", Note(text="x"))))
        await gate.arrival.wait()
    with pytest.raises(Closed):
        await asked


async def test_a_handler_that_cancels_itself_fails_its_request_and_gives_its_credit_back(sender):
    bus = MemoryBus()

    async def handle(request: Envelope) -> Payload:
        if request.payload.content == "cancel":
            raise asyncio.CancelledError
        return request.payload

    async with serve(bus, "b", handle, concurrency=1):
        with pytest.raises(Closed, match="cancelled"):
            await bus.request(sender.new("b", Note(text="cancel")))
        assert (await bus.request(sender.new("b", Note(text="next")))).payload.content == "next"


async def test_an_error_of_the_body_comes_out_as_it_is(sender):
    bus = MemoryBus()
    with pytest.raises(ZeroDivisionError):
        async with serve(bus, "b", shout):
            raise ZeroDivisionError


async def test_the_answer_to_a_private_request_is_private():
    bus = MemoryBus()
    seen: list[str] = []
    bus.tap(lambda envelope: seen.append(envelope.payload.content))
    sender = EnvelopeFactory("a", principal="alice")
    async with serve(bus, "b", shout, principal="bob"):
        answer = await bus.request(sender.new("b", Note(text="secret"), visibility=frozenset({"bob"})))
    assert answer.visibility == {"alice", "bob"}
    assert seen == ["[private]", "[private]"]


def test_two_factories_of_one_source_never_make_the_same_id():
    factories = [EnvelopeFactory("a"), EnvelopeFactory("a"), EnvelopeFactory("a", process="p")]
    ids = [factory.new("b", Note(text="x")).id for factory in factories for _ in range(3)]
    assert len(set(ids)) == 9


def test_an_answer_names_its_request_and_stays_in_its_episode():
    asking = EnvelopeFactory("a", run="r", episode="e", role="planner")
    request = asking.new("b", Note(text="x"), key="k", group="g", turn=2)
    answer = EnvelopeFactory("b", role="solver").answer(request, Note(text="y"))
    assert (answer.correlation, answer.causation) == (request.id, request.id)
    assert (answer.run, answer.episode, answer.group, answer.turn, answer.role) == ("r", "e", "g", 2, "solver")
