"""What comes from an agent while it works on an answer: pieces of text, and heartbeats.

A caller receives text while it is generated:

    with streamed_to(print):
        candidates = await runtime.ask(point, seeds, episode=episode)

They are parts on the bus, to the listener of the question. The listener is a context variable of the task that asks,
whatever retries, stand-ins and records are between. The answer is the same as without a listener.

A requester that wants heartbeats says so in its `Ask` (`beat_s`) and listens at its own address. The server publishes a
one-way, best-effort `Beat` there at once and then every `beat_s` seconds, with the request's id as correlation, private
to the requester. Nothing of this depends on both being in one process.
"""

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Iterator
from contextlib import aclosing, contextmanager, suppress
from contextvars import ContextVar
from functools import partial
from typing import TypeVar

import msgspec

from mas.bus.serve import Handler
from mas.bus.traced import TracedSender
from mas.core.bus import Bus, Gap, Restart
from mas.core.concurrency import together
from mas.core.engine import Engine, Generation, Request
from mas.core.errors import BusError, Expired
from mas.core.messages import Beat, Delivery, Envelope, Payload
from mas.runtime.payloads import Ask, Piece
from mas.serving.detokenizer import Detokenizer

OnPart = Callable[[Piece | Gap | Restart], object]
"""Called with each piece as it comes, `Gap` where pieces are lost, and `Restart` where all that came is void."""
Tell = Callable[[int, str], object]
"""Given the number of a candidate and its next piece of text."""


class _Listener:
    """The listener of one question. `is_begun`: it got a part."""

    def __init__(self, on_part: OnPart) -> None:
        self._on_part = on_part
        self.is_begun = False

    def tell(self, told: Piece | Gap | Restart) -> None:
        self.is_begun = not isinstance(told, Restart)
        self._on_part(told)


_listener: ContextVar[_Listener | None] = ContextVar("listener", default=None)


@contextmanager
def streamed_to(on_part: OnPart | None) -> Iterator[None]:
    """Call `on_part` with the parts of the answer to the question that is asked within. None: as outside."""
    if on_part is None:
        yield
        return
    token = _listener.set(_Listener(on_part))
    try:
        yield
    finally:
        _listener.reset(token)


def is_streamed() -> bool:
    """Whether what this task asks has a listener."""
    return _listener.get() is not None


def ask_streaming(bus: Bus | TracedSender, question: Envelope, timeout_s: float | None) -> Awaitable[Envelope]:
    """The answer to a request; a listener is given its parts.

    Raises:
        As `Bus.request`, when it is awaited.
    """
    listener = _listener.get()
    if listener is None:
        return bus.request(question, timeout_s=timeout_s)
    return _stream_to(listener, bus, question, timeout_s)


async def _stream_to(
    listener: _Listener, bus: Bus | TracedSender, question: Envelope, timeout_s: float | None
) -> Envelope:
    if listener.is_begun:  # by an attempt before
        listener.tell(Restart())
    async with bus.stream(question, timeout_s=timeout_s) as stream:
        async for part in stream:
            listener.tell(_told(part))
        return await stream.answer()


def _told(part: Envelope | Gap | Restart) -> Piece | Gap | Restart:
    """A part that is no piece of text is as good as lost."""
    if not isinstance(part, Envelope):
        return part
    return part.payload if isinstance(part.payload, Piece) else Gap(part.sequence, part.sequence)


async def generate_streaming(engine: Engine, request: Request, tell: Tell) -> tuple[Generation, ...]:
    """What `engine.generate` gives; `tell` is given the text while it is drawn.

    Raises:
        As `Engine.generate`.
    """
    streams = [
        _generate_one(engine, msgspec.structs.replace(request, seeds=(seed,)), partial(tell, candidate))
        for candidate, seed in enumerate(request.seeds)
    ]
    return tuple(await together(streams, "candidate"))


async def _generate_one(engine: Engine, request: Request, tell: Callable[[str], object]) -> Generation:
    words = Detokenizer(engine.tokenizer.decode)
    pieces: list[Generation] = []
    async with aclosing(engine.stream(request)) as stream:
        async for piece in stream:
            pieces.append(piece)
            spoken = piece.token_ids[:-1] if piece.finish == "stop" else piece.token_ids
            text = "".join([words.add(token) for token in spoken])
            if piece.finish:
                text += words.end()
            if text:
                tell(text)
    return Generation(
        token_ids=tuple(token for piece in pieces for token in piece.token_ids),
        logprobs=tuple(logprob for piece in pieces for logprob in piece.logprobs),
        finish=pieces[-1].finish,
        adapter=pieces[-1].adapter,
        supports=tuple(support for piece in pieces for support in piece.supports),
        alternatives=tuple(place for piece in pieces for place in piece.alternatives),
    )


T = TypeVar("T")
BEATS_PER_SILENCE = 3
"""Beats in the longest silence allowed: one or two may be lost."""


class Heartbeat:
    """The requester's side: waits for answers as long as beats come.

    Args:
        is_vouched: the bus says who sent a beat, and an agent sends as the principal of its address: no other beat
            counts, whatever source it names. False: the agents are in this process, and the source is believed.
    """

    def __init__(self, *, is_vouched: bool = False) -> None:
        self._is_vouched = is_vouched
        self._watched: dict[str, tuple[str, asyncio.Timeout, float]] = {}

    async def handle(self, envelope: Envelope) -> None:
        """Take a beat; beats for what is not awaited, or from elsewhere, are ignored."""
        target, limit, idle_s = self._watched.get(envelope.correlation or "", ("", None, 0.0))
        sender = envelope.principal if self._is_vouched else envelope.source
        if limit is not None and sender == target and not limit.expired():
            limit.reschedule(asyncio.get_running_loop().time() + idle_s)

    async def watch(self, request: Envelope, idle_s: float, answer: Awaitable[T]) -> T:
        """The answer to a request.

        Raises:
            Expired: for `idle_s` seconds there was neither a beat nor the answer.
        """
        limit = asyncio.timeout(idle_s)
        try:
            async with limit:
                self._watched[request.id] = (request.target, limit, idle_s)
                return await answer
        except TimeoutError:
            if not limit.expired():
                raise
            raise Expired(f"{request.target!r} sent no heartbeat for {idle_s:g} s") from None
        finally:
            self._watched.pop(request.id, None)


def with_heartbeat(bus: Bus, handler: Handler) -> Handler:
    """The server's side: the handler, with beats while it works on an `Ask` that wants them."""

    async def handle(envelope: Envelope) -> Payload | None:
        payload = envelope.payload
        if not isinstance(payload, Ask) or payload.beat_s is None:
            return await handler(envelope)
        beats = asyncio.create_task(_beat(bus, envelope, payload.beat_s), name=f"beats for {envelope.id}")
        try:
            return await handler(envelope)
        finally:
            beats.cancel()
            await asyncio.wait([beats])

    return handle


async def _beat(bus: Bus, request: Envelope, beat_s: float) -> None:
    for number in itertools.count():
        beat = Envelope(
            id=f"{request.id}/beat/{number}",
            kind=Beat.kind,
            source=request.target,
            target=request.source,
            payload=Beat(number=number),
            correlation=request.id,
            delivery=Delivery.BEST_EFFORT,
            visibility=frozenset((request.principal or request.source,)),
            episode=request.episode,
            turn=request.turn,
        )
        with suppress(BusError):  # a lost beat is made up for by the next
            await bus.publish(beat, wait=False)
        await asyncio.sleep(beat_s)
