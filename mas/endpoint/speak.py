"""Completions of one model: what a request asks of the engine, and what comes back, token by token.

One request to the engine draws all completions, unless somebody waits for the pieces or a stop string is several
tokens: then every completion is a stream of its own, closed as soon as its text is complete.
"""

from collections.abc import Awaitable, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field

from mas.core.concurrency import together
from mas.core.engine import AdapterRef, Engine, Generation, Request, Sampling
from mas.endpoint.text import StopFinder
from mas.serving.model_text import Detokenizer

StopReason = str | int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Completions that are asked for, one per seed.

    Attributes:
        stops: texts that end a completion; those of one token end it in the engine already.
        reasons: stop token id -> what the answer gives as the reason, for those that the request named.
    """

    prompt_ids: tuple[int, ...]
    seeds: tuple[int, ...]
    sampling: Sampling
    stops: tuple[str, ...]
    reasons: Mapping[int, str | int]
    adapter: str | None

    @property
    def has_long_stops(self) -> bool:
        """Whether the text must be watched while it comes: some stop string is several tokens."""
        return any(stop not in self.reasons.values() for stop in self.stops)

    def request(self, seeds: tuple[int, ...]) -> Request:
        """The engine's request for some of them."""
        return Request(prompt_ids=self.prompt_ids, sampling=self.sampling, seeds=seeds, adapter=self.adapter)


@dataclass(frozen=True, slots=True, kw_only=True)
class Delta:
    """What is new in one completion. `finish`: `stop` or `length` in the last one, else empty."""

    index: int
    text: str
    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    finish: str
    stop_reason: StopReason
    adapter: AdapterRef | None


Tell = Callable[[Delta], Awaitable[None]]


@dataclass(slots=True)
class Completion:
    """One completion while it comes."""

    wanted: Wanted
    index: int
    words: Detokenizer
    finder: StopFinder
    text: str = ""
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    finish: str = ""
    stop_reason: StopReason = None
    adapter: AdapterRef | None = None

    def take(self, piece: Generation) -> Delta:
        """Add a piece; its tokens behind a stop string are left out."""
        known, before = len(self.token_ids), len(self.text)
        self.adapter = piece.adapter
        is_stopped = piece.finish == "stop"
        last = len(piece.token_ids) - 1
        for position, (token, logprob) in enumerate(zip(piece.token_ids, piece.logprobs, strict=True)):
            self.token_ids.append(token)
            self.logprobs.append(logprob)
            if is_stopped and position == last:
                self.stop_reason = self.wanted.reasons.get(token)
            elif self._say(self.words.add(token)):
                break
        if piece.finish and not self.finish:
            self._end(piece.finish)
        return Delta(
            index=self.index,
            text=self.text[before:],
            token_ids=tuple(self.token_ids[known:]),
            logprobs=tuple(self.logprobs[known:]),
            finish=self.finish,
            stop_reason=self.stop_reason,
            adapter=self.adapter,
        )

    def _say(self, text: str) -> bool:
        """Add certain text; True when a stop string has ended the completion."""
        safe, found = self.finder.add(text)
        self.text += safe
        if found is not None:
            self.finish, self.stop_reason = "stop", found
        return found is not None

    def _end(self, finish: str) -> None:
        if not self._say(self.words.end()):
            self.text += self.finder.end()
            self.finish = finish


async def complete(engine: Engine, wanted: Wanted, tell: Tell | None = None) -> list[Completion]:
    """All completions. `tell` is given each piece as it comes; None: nobody waits for pieces.

    Raises:
        As `Engine.generate`.
    """
    decode = engine.tokenizer.decode
    made = [
        Completion(wanted, index, Detokenizer(decode), StopFinder(wanted.stops)) for index in range(len(wanted.seeds))
    ]
    if tell is None and not wanted.has_long_stops:
        for one, generation in zip(made, await engine.generate(wanted.request(wanted.seeds)), strict=True):
            one.take(generation)
        return made
    await together([_stream(engine, wanted, one, tell) for one in made], "completion")
    return made


async def _stream(engine: Engine, wanted: Wanted, one: Completion, tell: Tell | None) -> None:
    async with aclosing(engine.stream(wanted.request((wanted.seeds[one.index],)))) as pieces:
        async for piece in pieces:
            delta = one.take(piece)
            if tell is not None:
                await tell(delta)
            if delta.finish:
                return


async def score_prompt(engine: Engine, wanted: Wanted) -> list[float | None]:
    """Log-probability (temperature 1) of every prompt token given those before it; the first has none."""
    if len(wanted.prompt_ids) == 1:
        return [None]
    return [None, *await engine.score(wanted.prompt_ids[:1], wanted.prompt_ids[1:], wanted.adapter)]
