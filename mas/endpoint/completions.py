"""Completions of one model: what a request asks of the engine (prompt ids, sampling, seeds; defaults from the role
that is asked), and what comes back, token by token.

One request to the engine draws all completions, unless somebody waits for the pieces or a stop string is several
tokens: then every completion is a stream of its own, closed as soon as its text is complete. Text is cut where a stop
string begins: what may be the beginning of one is held back while tokens come.
"""

import secrets
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace

from mas.core.concurrency import together
from mas.core.engine import AdapterRef, AlternativesScorer, Engine, Generation, Grammar, Request, Sampling, Tokenizer
from mas.endpoint.errors import Refused
from mas.endpoint.formats import format_of
from mas.endpoint.function_calls import Calling, prompt_with_functions
from mas.endpoint.models import RoleModel, Served
from mas.endpoint.stop_finder import StopFinder
from mas.endpoint.wire import ChatMessage, ChatRequest, CompletionRequest, Prompt, Sampled
from mas.serving.detokenizer import Detokenizer

COMPLETION_TOKENS = 16
"""`max_tokens` of a raw completion where neither the client nor a role says it, as OpenAI has it."""
StopReason = str | int | None
Alternatives = Sequence[Sequence[tuple[int, float]]]
"""Of each token, the most likely ones at its place with their log-probabilities; empty: they were not asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Completions that are asked for, one per seed.

    Attributes:
        stops: texts that end a completion; those of one token end it in the engine already.
        echo: the prompt's text, where choices begin with it; is_echo_only: where they are nothing else.
        scored: how many of the most likely tokens are wanted beside each of the prompt's; None: it is not scored.
        reasons: stop token id -> what the answer gives as the reason, for those that the request named.
    """

    prompt_ids: tuple[int, ...]
    seeds: tuple[int, ...]
    sampling: Sampling
    stops: tuple[str, ...]
    reasons: Mapping[int, str | int]
    adapter: str | None
    echo: str | None = None
    is_echo_only: bool = False
    scored: int | None = None

    @property
    def has_long_stops(self) -> bool:
        """Whether the text must be watched while it comes: some stop string is several tokens."""
        return any(stop not in self.reasons.values() for stop in self.stops)

    def request(self, seeds: tuple[int, ...]) -> Request:
        return Request(prompt_ids=self.prompt_ids, sampling=self.sampling, seeds=seeds, adapter=self.adapter)


@dataclass(frozen=True, slots=True, kw_only=True)
class Delta:
    """What is new in one completion. `finish`: `stop` or `length` in the last one, else empty."""

    index: int
    text: str
    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    alternatives: Alternatives
    finish: str
    stop_reason: StopReason
    adapter: AdapterRef | None


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
    supports: list[bytes] = field(default_factory=list)
    alternatives: list[tuple[tuple[int, float], ...]] = field(default_factory=list)
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
            self.supports += piece.supports[position : position + 1]
            self.alternatives += piece.alternatives[position : position + 1]
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
            alternatives=tuple(self.alternatives[known:]),
            finish=self.finish,
            stop_reason=self.stop_reason,
            adapter=self.adapter,
        )

    def drop(self) -> None:
        """Leave out what was generated, for a request that wants nothing but its prompt."""
        self.text, self.finish, self.stop_reason = "", "length", None
        self.token_ids, self.logprobs, self.alternatives = [], [], []

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


Tell = Callable[[Delta], Awaitable[None]]
Made = Callable[[Wanted, Sequence[Completion]], None]
"""Told the completions of a request, once all of them are complete."""


def wanted_completion(served: Served, adapter: str | None, request: CompletionRequest, prompt: Prompt) -> Wanted:
    """What one of the request's prompts asks for."""
    tokenizer = served.engine.tokenizer
    if isinstance(prompt, str):
        begin = tokenizer.begin if request.add_special_tokens else ()
        prompt_ids = begin + tokenizer.encode(prompt)
    else:
        prompt_ids = prompt
    wanted = _wanted(served, adapter, request, prompt_ids)
    scored = None if request.prompt_logprobs is None else 0
    if not request.echo:
        return replace(wanted, scored=scored)
    echo = prompt if isinstance(prompt, str) else tokenizer.decode(prompt_ids)
    scored = scored if request.logprobs is None else request.logprobs
    return replace(wanted, echo=echo, is_echo_only=request.max_tokens == 0, scored=scored)


def wanted_chat(served: Served, adapter: str | None, request: ChatRequest) -> Wanted:
    """What a conversation asks for."""
    tokenizer, role, calling = served.engine.tokenizer, served.role(adapter), Calling.of(request)
    if not calling.tools and not any(one.tool_calls or one.role == "tool" for one in request.messages):
        return _wanted(served, adapter, request, chat_prompt(tokenizer, role, request.messages))
    if not role.chats:
        raise Refused(400, "tools are possible only with a model that has a chat template", param="tools")
    prompt_ids = prompt_with_functions(tokenizer, role.system, request.messages, calling.tools)
    grammar = calling.grammar(request) if calling.is_json else None
    prompt_ids += tokenizer.encode(calling.opening)
    return _wanted(served, adapter, request, prompt_ids, grammar, is_free=bool(calling.tools))


def texts_of(served: Served, adapter: str | None, request: Sampled, prompt: Prompt | None) -> list[str]:
    """All that must be tokenized for a request, or for one prompt of it."""
    texts = [*(request.stop or ())]
    if isinstance(request, ChatRequest):
        texts += [message.content for message in request.messages]
        texts += [call.function.arguments for message in request.messages for call in message.tool_calls]
        texts += [text for tool in request.tools for text in tool.function.texts]
        texts.append(served.role(adapter).system)
    elif isinstance(prompt, str):
        texts.append(prompt)
    return texts


def has_grammar(request: Sampled) -> bool:
    """Whether an answer may have to follow a grammar."""
    has_tools = isinstance(request, ChatRequest) and bool(request.tools)
    return has_tools or request.response_format is not None or request.structured_outputs is not None


def chat_prompt(tokenizer: Tokenizer, role: RoleModel, messages: Sequence[ChatMessage]) -> tuple[int, ...]:
    """The conversation through the chat template, with the role's own system message where there is none; or, for
    roles that do not chat, the contents line by line.

    Raises:
        RefusedRequest: the chat template does not take these messages.
    """
    if not role.chats:
        return tokenizer.begin + tokenizer.encode("\n".join(message.content for message in messages))
    turns = [("system" if one.role == "developer" else one.role, one.content) for one in messages]
    if role.system and all(author != "system" for author, _ in turns):
        turns.insert(0, ("system", role.system))
    return tokenizer.chat_messages(turns)


def seeds_of(request: Sampled) -> tuple[int, ...]:
    """One seed per completion: that of the request and those after it, or a random one."""
    first = secrets.randbits(63) if request.seed is None else request.seed
    return seeds_from(first, request.n)


def seeds_from(first: int, count: int) -> tuple[int, ...]:
    """A seed and those after it."""
    return tuple((first + index) % 2**64 for index in range(count))


def _wanted(
    served: Served,
    adapter: str | None,
    request: Sampled,
    prompt_ids: tuple[int, ...],
    grammar: Grammar | None = None,
    *,
    is_free: bool = False,
) -> Wanted:
    """What a prompt asks for.

    Args:
        grammar: of functions; None: that of the request, if it has one.
        is_free: the role's own limits do not apply, nor do they with a grammar: they suit its own form of answers.
    """
    grammar = grammar or format_of(request.response_format, request.structured_outputs)
    role, tokenizer = served.role(adapter), served.engine.tokenizer
    if not prompt_ids:
        raise Refused(400, "the prompt is empty: give at least one token", param="prompt")
    is_free = is_free or grammar is not None
    says_nothing = request.stop is None and not request.stop_token_ids and not request.ignore_eos
    stops = role.stop if says_nothing and not is_free else request.stop or ()
    single = _single_tokens(tokenizer, stops)
    own = () if request.ignore_eos else served.engine.stop_ids
    usual = COMPLETION_TOKENS if isinstance(request, CompletionRequest) else None
    usual, room = None if is_free else role.max_tokens or usual, served.context - len(prompt_ids)
    # what is usual, or less where the context has less room; at least 1, so that the engine says what is too long
    usual = room if usual is None else min(usual, room)
    tokens = max(1, usual if request.max_tokens is None else request.max_tokens)
    sampling = Sampling(
        temperature=role.temperature if request.temperature is None else request.temperature,
        max_tokens=tokens if role.most_tokens is None else min(tokens, role.most_tokens),
        stop=tuple(dict.fromkeys((*own, *request.stop_token_ids, *single))),
        top_k=max(request.top_k, 0),
        top_p=request.top_p,
        min_p=request.min_p,
        grammar=grammar,
        alternatives=_alternatives(request),
    )
    return Wanted(
        prompt_ids=prompt_ids,
        seeds=seeds_of(request),
        sampling=sampling,
        stops=stops,
        reasons={**{token: token for token in request.stop_token_ids}, **single},
        adapter=adapter,
    )


def _alternatives(request: Sampled) -> int:
    """How many of the most likely tokens are wanted at each place."""
    if isinstance(request, ChatRequest):
        return request.top_logprobs
    return (request.logprobs or 0) if isinstance(request, CompletionRequest) else 0


def _single_tokens(tokenizer: Tokenizer, texts: Sequence[str]) -> dict[int, str]:
    """Token id -> text, for the texts that are exactly one token; one for unknown characters is none."""
    encoded = {text: tokenizer.encode(text) for text in texts}
    return {ids[0]: text for text, ids in encoded.items() if len(ids) == 1 and tokenizer.decode(ids) == text}


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


@dataclass(frozen=True, slots=True)
class PromptScores:
    """Of every prompt token its log-probability (temperature 1) given those before it; the first has none.

    Attributes:
        logprobs: None: it was not scored.
        alternatives: of every token, none of the first; empty: they were not asked for.
    """

    logprobs: Sequence[float | None] | None = None
    alternatives: Alternatives = ()


async def score_prompt(engine: Engine, wanted: Wanted) -> PromptScores:
    """What the model says of the prompt, as far as it is wanted.

    Raises:
        Refused: the engine does not give the most likely tokens. Otherwise as `Engine.score`.
    """
    first, others, count = wanted.prompt_ids[:1], wanted.prompt_ids[1:], wanted.scored
    if count is None:
        return PromptScores()
    if count and not isinstance(engine, AlternativesScorer):
        why = "this engine does not give the most likely tokens of a prompt; engine=transformers and engine=vllm do"
        raise Refused(400, f"echo with logprobs={count} is not possible: {why}. logprobs=0 is", param="logprobs")
    if not others:
        return PromptScores([None], [()] if count else ())
    if not count or not isinstance(engine, AlternativesScorer):
        return PromptScores([None, *await engine.score(first, others, wanted.adapter)])
    scores = await engine.score_alternatives(first, others, wanted.adapter, count=count)
    return PromptScores([None, *scores.logprobs], [(), *scores.alternatives])


@dataclass(frozen=True, slots=True)
class AnsweredPrompt:
    """One prompt with what the model says of it, and its completions."""

    wanted: Wanted
    scores: PromptScores
    completions: Sequence[Completion]


async def answer_prompt(engine: Engine, wanted: Wanted) -> AnsweredPrompt:
    """Score a prompt, as far as that is wanted, and complete it.

    Raises:
        As `score_prompt` and `Engine.generate`.
    """
    scores, completions = await score_prompt(engine, wanted), await complete(engine, wanted)
    if wanted.is_echo_only:
        for one in completions:
            one.drop()
    return AnsweredPrompt(wanted, scores, completions)
