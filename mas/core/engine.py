"""The contract of every engine: token ids in, token ids and behaviour log-probabilities out.

Grammars are read by llguidance, which is imported when the first one is.
"""

import re
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any, Generic, Literal, Protocol, TypeVar, runtime_checkable

import msgspec

from mas.core.errors import RefusedRequest


class AdapterRef(msgspec.Struct, frozen=True):
    """One immutable version of one adapter, written `name@version`."""

    name: str
    version: int

    def __str__(self) -> str:
        return f"{self.name}@{self.version}"


class PinnedAdapter(msgspec.Struct, frozen=True):
    """A version by its content, written `name@version:digest`: what another run calls `name@version` is another one."""

    ref: AdapterRef
    digest: str

    def __str__(self) -> str:
        return f"{self.ref}:{self.digest}"

    @classmethod
    def parse(cls, text: str) -> "PinnedAdapter | None":
        """Read what `str` wrote; None: the text names an adapter in another way."""
        found = _PINNED.fullmatch(text)
        return None if found is None else cls(AdapterRef(found[1], int(found[2])), found[3])


_PINNED = re.compile(r"([^@:]+)@([0-9]{1,18}):([0-9a-f]{64})")


class Grammar(msgspec.Struct, frozen=True):
    """The texts that a completion may be: those that a regular expression matches as a whole, or the JSON of a schema.

    Attributes:
        text: a regular expression (no look-around, no back references), or a JSON Schema as JSON.
    """

    kind: Literal["regex", "schema"]
    text: str


class Sampling(msgspec.Struct, frozen=True, kw_only=True):
    """How tokens are drawn. Only what the loss can account for: no penalties.

    The limits below leave a part of the vocabulary, the token's support, each of what the one before it left: the
    grammar, then, of probabilities at `temperature` that add up to 1 over what is left, `min_p`, `top_k`, `top_p`.

    Attributes:
        temperature: 0 is greedy; the log-probabilities returned are those of the distribution sampled from
            (for greedy, of temperature 1, over what the grammar allows).
        max_tokens: completion length limit, at least 1.
        stop: token ids that end a completion; the stop token is part of it.
        top_k: only the so many most likely tokens; 0: no limit.
        top_p: only the most likely tokens, as few as have this probability together; 1: no limit.
        min_p: only tokens at least so many times as likely as the most likely one; 0: no limit.
        grammar: the completion is one of its texts, as far as `max_tokens` goes, and then ends; None: any text.
        alternatives: how many of the most likely tokens are told at each place; it changes no completion.
    """

    temperature: float = 1.0
    max_tokens: int = 16
    stop: tuple[int, ...] = ()
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    grammar: Grammar | None = None
    alternatives: int = 0

    @property
    def is_truncated(self) -> bool:
        """Whether unlikely tokens are left out; greedy decoding never draws one."""
        return self.temperature > 0 and (self.top_k > 0 or self.top_p < 1 or self.min_p > 0)

    @property
    def is_restricted(self) -> bool:
        """Whether a token's support may be less than the vocabulary."""
        return self.is_truncated or self.grammar is not None


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """One prompt to continue, once per seed. `adapter` None asks the bare base; a name asks its current version.

    `session`: the episode that it is part of, None: of none. It changes no completion; of several engines one answers
    all requests of a session, so that what their prompts begin with in common can be reused.
    """

    prompt_ids: tuple[int, ...]
    sampling: Sampling
    seeds: tuple[int, ...]
    adapter: str | None = None
    session: str | None = None


class Generation(msgspec.Struct, frozen=True, kw_only=True):
    """One completion, or a piece of one that is streamed.

    Attributes:
        token_ids: L completion tokens, the stop token included.
        logprobs: L log-probabilities under the sampled-from distribution, in nats; empty where an engine cannot know
            them, as of models that exchange text: such an engine cannot be trained on.
        finish: `stop` (a stop token came) or `length`; empty for a piece that is not the last.
        adapter: the exact version that made it, None for the bare base.
        supports: L supports (`mas.core.support`) of restricted sampling; empty where every token could be any.
        alternatives: at each of L places the most likely tokens with their log-probabilities, of the distribution that
            `logprobs` are of, the most likely first; empty where none were asked for.
    """

    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    finish: str
    adapter: AdapterRef | None = None
    supports: tuple[bytes, ...] = ()
    alternatives: tuple[tuple[tuple[int, float], ...], ...] = ()


class TokenScores(msgspec.Struct, frozen=True, kw_only=True):
    """What a model says of L tokens that are given, each after those before it.

    Attributes:
        logprobs: L log-probabilities at temperature 1, in nats.
        alternatives: as in `Generation`, of the same distribution; empty where none were asked for.
    """

    logprobs: tuple[float, ...]
    alternatives: tuple[tuple[tuple[int, float], ...], ...] = ()


@runtime_checkable
class Tokenizer(Protocol):
    """Text to ids and back. `begin`: ids that the model expects before every text, often none."""

    @property
    def begin(self) -> tuple[int, ...]: ...

    @property
    def has_chat(self) -> bool:
        """Whether the model was made for conversations: it has a chat template."""

    def encode(self, text: str) -> tuple[int, ...]:
        """Token ids of the text, no special tokens added."""

    def decode(self, token_ids: Sequence[int]) -> str:
        """Text of the ids, special tokens left out."""

    def chat(
        self, system: str, user: str, prefill: str = "", earlier: Sequence[tuple[str, str]] = ()
    ) -> tuple[int, ...]:
        """Token ids of a conversation ready to be continued by the assistant, whose answer begins with `prefill`.

        An empty system message is left out: the model's template may then add its own.

        Args:
            earlier: (user message, assistant's answer) of what was said between the system message and `user`.

        Raises:
            EngineError: the model has no chat template.
        """

    def chat_messages(self, messages: Sequence[tuple[str, str]]) -> tuple[int, ...]:
        """Token ids of a whole conversation, (role, content) each, ready to be continued by the assistant.

        Raises:
            EngineError: the model has no chat template. RefusedRequest: its template does not take these messages.
        """

    @property
    def shows_functions(self) -> bool:
        """Whether the chat template shows functions, and calls as `<tool_call>{"name": ..., "arguments": ...}`."""

    def chat_functions(
        self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]]
    ) -> tuple[int, ...]:
        """Token ids of a conversation with functions, for a template that shows them.

        Args:
            messages: as chat templates take them: `role`, `content`, of an assistant `tool_calls`.
            tools: functions with JSON Schemas of their parameters.

        Raises:
            As `chat_messages`.
        """


@runtime_checkable
class Engine(Protocol):
    """Generates and scores; holds adapter versions. Completions of all callers are drawn together."""

    @property
    def tokenizer(self) -> Tokenizer:
        """The base model's tokenizer."""

    @property
    def stop_ids(self) -> tuple[int, ...]:
        """Ids that end a text of the base model."""

    async def generate(self, request: Request) -> tuple[Generation, ...]:
        """One completion per seed. They depend on the request and the adapter version, on batch mates only by rounding.

        Raises:
            UnknownAdapter: no such adapter is published.
            RefusedRequest: no seed, an empty prompt, a token id outside the vocabulary, or no room for `max_tokens`.
            EngineError: the engine is closed, or failed.
        """

    def stream(self, request: Request) -> AsyncGenerator[Generation]:
        """The completion of a request's one seed in pieces as they are drawn; joined they are what `generate` gives.

        Closing the generator frees the request.

        Raises:
            UnknownAdapter: no such adapter is published.
            RefusedRequest: as `generate`, or more than one seed; before the first piece.
            EngineError: the engine is closed, or failed.
        """

    async def score(
        self, prompt_ids: Sequence[int], completion_ids: Sequence[int], adapter: str | None = None
    ) -> tuple[float, ...]:
        """Log-probabilities (temperature 1) of each completion token given the prompt; length L.

        Raises:
            UnknownAdapter: no such adapter is published.
            RefusedRequest: an empty text, a token id outside the vocabulary, or more than the context holds.
            EngineError: the engine is closed, failed, or cannot score.
        """

    def adapters(self) -> Mapping[str, AdapterRef]:
        """The current version of each published adapter."""

    async def close(self) -> None:
        """Finish what is in flight and free the engine; safe to call twice."""


@runtime_checkable
class AlternativesScorer(Protocol):
    """What an engine has beside `Engine` that also gives the most likely tokens at the places that it scores."""

    async def score_alternatives(
        self, prompt_ids: Sequence[int], completion_ids: Sequence[int], adapter: str | None = None, *, count: int
    ) -> TokenScores:
        """As `Engine.score`, with the `count` most likely tokens at every place of the completion.

        Raises:
            As `Engine.score`. RefusedRequest: `count` is more than an engine gives.
        """


EngineT = TypeVar("EngineT", bound=Engine)


class EngineWrapper(Generic[EngineT]):
    """What an engine around another one leaves to that one; a subclass generates, scores and lists adapters."""

    def __init__(self, engine: EngineT) -> None:
        self._engine = engine

    @property
    def tokenizer(self) -> Tokenizer:
        """The inner engine's."""
        return self._engine.tokenizer

    @property
    def stop_ids(self) -> tuple[int, ...]:
        """The inner engine's."""
        return self._engine.stop_ids

    @property
    def restricts(self) -> bool:
        """Whether the inner engine can restrict what is drawn."""
        return bool(getattr(self._engine, "restricts", False))

    async def close(self) -> None:
        """Close the inner engine."""
        await self._engine.close()


def as_llguidance(grammar: Grammar) -> str:
    """In llguidance's own form.

    Raises:
        RefusedRequest: a schema is no JSON object.
    """
    from llguidance import LLMatcher

    if grammar.kind == "regex":
        return str(LLMatcher.grammar_from_regex(grammar.text))
    try:
        return str(LLMatcher.grammar_from_json_schema(grammar.text))
    except ValueError as error:
        raise RefusedRequest(f"schema {grammar.text!r} is no JSON object: {error}") from error


def why_invalid_grammar(grammar: Grammar) -> str:
    """Why a grammar cannot be read, whatever the model; empty: it can."""
    from llguidance import LLMatcher

    try:
        return first_cause(str(LLMatcher.validate_grammar(as_llguidance(grammar))))
    except RefusedRequest as error:
        return str(error)


def first_cause(text: str) -> str:
    """The line of llguidance's error message that names the cause; empty if the message is empty."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    causes = [line.removeprefix("error: ") for line in lines if line.startswith("error: ")]
    return (causes or lines or [""])[0]
