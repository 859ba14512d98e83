"""Pieces of text from an agent while it works on an answer, for whoever asks.

    with streamed_to(print):
        candidates = await runtime.ask(point, seeds, episode=episode)

They are parts on the bus, to the listener of the question. The listener is a context variable of the task that asks,
whatever retries, stand-ins and records are between. The answer is the same as without a listener.
"""

from collections.abc import Awaitable, Callable, Iterator
from contextlib import aclosing, contextmanager
from contextvars import ContextVar
from functools import partial

import msgspec

from mas.bus.traced import TracedSender
from mas.core.bus import Bus, Gap, Restart
from mas.core.concurrency import together
from mas.core.engine import Engine, Generation, Request
from mas.core.messages import Envelope
from mas.runtime.payloads import Piece
from mas.serving.detokenizer import Detokenizer

OnPart = Callable[[Piece | Gap | Restart], object]
"""Called with each piece as it comes, `Gap` where pieces are lost, and `Restart` where all that came is void."""
Tell = Callable[[int, str], object]
"""Given the number of a candidate and its next piece of text."""


class _Listener:
    """The listener of one question. `is_begun`: it got a part."""

    __slots__ = ("_on_part", "is_begun")

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
