"""How a model reads text: its tokenizer, what it can take, and what ends a text. Free of torch.

Every engine checks a request against `ModelLimits` before it reaches the model: a wrong request must fail alone. Where
a model's own tokenizer is not at hand, a text is one token per character.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any

from jinja2 import TemplateError

from mas.core.engine import Request, Sampling
from mas.core.errors import EngineError, RefusedRequest

COLDEST = 1e-4
"""Below this temperature but for 0, logits divided by it leave the numbers that a computer has."""
MOST_ALTERNATIVES = 20
"""Alternatives of a token, at most, as OpenAI has it."""
_REMEMBERED = 65_536
_SHORT = 256
"""Longest text in characters, or completion in tokens, that is remembered: many of them stay below 100 MB."""
END = 0
"""The token that ends a text."""
CHARACTERS = 0x110001
"""How many ids there are: every Unicode character, and the end."""
_ROLES = ("system", "user", "assistant")
_FUNCTIONS = ("tools", "<tool_call>", "arguments")
"""What a chat template has that shows functions and reads calls as JSON in tags."""


class HubTokenizer:
    """Wraps a transformers tokenizer. Short texts are remembered: small agents repeat themselves."""

    def __init__(self, tokenizer: Any) -> None:
        self.inner = tokenizer
        self.begin: tuple[int, ...] = _begin(tokenizer)
        self._encode_cached = lru_cache(maxsize=_REMEMBERED)(self._encode)
        self._decode_cached = lru_cache(maxsize=_REMEMBERED)(self._decode)

    def encode(self, text: str) -> tuple[int, ...]:
        return self._encode_cached(text) if len(text) <= _SHORT else self._encode(text)

    def _encode(self, text: str) -> tuple[int, ...]:
        return tuple(self.inner.encode(text, add_special_tokens=False))

    def _decode(self, token_ids: tuple[int, ...]) -> str:
        return str(self.inner.decode(list(token_ids), skip_special_tokens=True))

    def decode(self, token_ids: Sequence[int]) -> str:
        ids = tuple(token_ids)
        return self._decode_cached(ids) if len(ids) <= _SHORT else self._decode(ids)

    @cached_property
    def longest_token(self) -> int:
        """Characters that a token stands for, at most; those of the tokens for unknown characters count as one."""
        return max(len(token) for token in self.inner.get_vocab())

    @property
    def has_chat(self) -> bool:
        """Whether the model was made for conversations."""
        return bool(getattr(self.inner, "chat_template", None))

    def chat(
        self, system: str, user: str, prefill: str = "", earlier: Sequence[tuple[str, str]] = ()
    ) -> tuple[int, ...]:
        return self.encode(self.written(_conversation(system, user, earlier)) + prefill)

    def chat_messages(self, messages: Sequence[tuple[str, str]]) -> tuple[int, ...]:
        return self.encode(self.written(messages))

    def written(self, messages: Sequence[tuple[str, str]]) -> str:
        """A conversation, as (role, text), as the chat template writes it, up to where the model's answer begins.

        Raises:
            EngineError: the model has no chat template. RefusedRequest: it does not take these messages.
        """
        if not self.has_chat:
            raise EngineError("this model has no chat template: use prompts=compact, or a model made for conversations")
        return self._templated([{"role": role, "content": content} for role, content in messages])

    def _templated(self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]] = ()) -> str:
        try:
            text = self.inner.apply_chat_template(
                messages, tools=tools or None, tokenize=False, add_generation_prompt=True, enable_thinking=False
            )
        except TemplateError as error:
            roles = [message["role"] for message in messages]
            raise RefusedRequest(f"the model's chat template does not take messages of {roles}: {error}") from error
        return str(text)

    @property
    def shows_functions(self) -> bool:
        template = str(getattr(self.inner, "chat_template", None) or "")
        return all(part in template for part in _FUNCTIONS) and "<function=" not in template

    def chat_functions(
        self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]]
    ) -> tuple[int, ...]:
        return self.encode(self._templated(messages, tools))


def _conversation(system: str, user: str, earlier: Sequence[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    """The messages as (role, text); an empty system message is left out."""
    told = (("system", system),) if system else ()
    said = [pair for asked, answer in earlier for pair in (("user", asked), ("assistant", answer))]
    return (*told, *said, ("user", user))


def _begin(tokenizer: Any) -> tuple[int, ...]:
    """What the model's own tokenizer puts before every text, such as a begin-of-text token."""
    marked, plain = (tokenizer.encode("a", add_special_tokens=special) for special in (True, False))
    return tuple(marked[: len(marked) - len(plain)]) if marked[-len(plain) :] == plain else ()


def check_unrestricted(sampling: Sampling) -> None:
    """Refuse restricted sampling, for engines that cannot say which tokens were possible.

    Raises:
        RefusedRequest: the request limits tokens, has a grammar, or wants alternatives.
    """
    if sampling.alternatives:
        raise RefusedRequest(
            f"alternatives={sampling.alternatives}: this engine tells none; engine=transformers and engine=vllm can"
        )
    if sampling.is_restricted:
        raise RefusedRequest(
            f"top_k={sampling.top_k}, top_p={sampling.top_p}, min_p={sampling.min_p}, grammar={sampling.grammar}: this "
            "engine cannot say which tokens were possible; engine=transformers and engine=vllm can"
        )


def check_alternatives(count: int) -> None:
    """Refuse more alternatives of a token than engines give.

    Raises:
        RefusedRequest: says how many are possible.
    """
    if not 0 <= count <= MOST_ALTERNATIVES:
        raise RefusedRequest(f"alternatives is {count}; it must be from 0 to {MOST_ALTERNATIVES}")


@dataclass(frozen=True, slots=True)
class ModelLimits:
    """What a model can take: token ids below `vocabulary`, and `context` tokens in all."""

    vocabulary: int
    context: int

    def within(self, context: int | None) -> "ModelLimits":
        """With a context no longer than another; None: that one is not known."""
        return self if context is None else replace(self, context=min(self.context, context))

    def check_request(self, request: Request) -> None:
        """Refuse a request that cannot be served.

        Raises:
            RefusedRequest: says which value is wrong and what was possible.
        """
        sampling = request.sampling
        if not request.seeds:
            raise RefusedRequest("no seed, nothing to generate: give one seed per completion wanted")
        wrong = next((seed for seed in request.seeds if not 0 <= seed < 2**64), None)
        if wrong is not None:
            raise RefusedRequest(f"seed {wrong} is outside 0 to 2^64 - 1")
        if sampling.max_tokens < 1:
            raise RefusedRequest(f"max_tokens is {sampling.max_tokens}; at least one token must be wanted")
        if not (math.isfinite(sampling.temperature) and sampling.temperature >= 0):
            raise RefusedRequest(f"temperature {sampling.temperature} is impossible: it must be finite and at least 0")
        if 0 < sampling.temperature < COLDEST:
            raise RefusedRequest(f"temperature {sampling.temperature} is neither 0 (greedy) nor at least {COLDEST}")
        if sampling.top_k < 0:
            raise RefusedRequest(f"top_k is {sampling.top_k}; it must be 0 (no limit) or more")
        if not 0 < sampling.top_p <= 1:
            raise RefusedRequest(f"top_p is {sampling.top_p}; it must be above 0 and at most 1 (no limit)")
        if not 0 <= sampling.min_p <= 1:
            raise RefusedRequest(f"min_p is {sampling.min_p}; it must be from 0 (no limit) to 1")
        check_alternatives(sampling.alternatives)
        self.check_tokens(request.prompt_ids, sampling.max_tokens)

    def check_stream(self, request: Request) -> None:
        """Refuse a stream that cannot be served.

        Raises:
            RefusedRequest: as `check_request`, or there is more than one seed.
        """
        self.check_request(request)
        if len(request.seeds) > 1:
            raise RefusedRequest(f"a stream is one completion; {len(request.seeds)} seeds were given")

    def check_score(self, prompt_ids: Sequence[int], completion_ids: Sequence[int], alternatives: int = 0) -> None:
        """Refuse what cannot be scored.

        Raises:
            RefusedRequest: says which value is wrong and what was possible.
        """
        check_alternatives(alternatives)
        if not completion_ids:
            raise RefusedRequest("nothing to score: completion_ids is empty")
        self.check_tokens(prompt_ids, len(completion_ids))
        self.check_tokens(completion_ids, 0)

    def check_tokens(self, ids: Sequence[int], room: int) -> None:
        """Refuse an empty prompt, ids outside the vocabulary, and more than the context holds.

        Raises:
            RefusedRequest: says which.
        """
        if not ids:
            raise RefusedRequest("the prompt is empty: give at least one token id")
        outside = next((token for token in ids if not 0 <= token < self.vocabulary), None)
        if outside is not None:
            raise RefusedRequest(f"token id {outside} is outside the vocabulary of {self.vocabulary}")
        if len(ids) + room > self.context:
            raise RefusedRequest(
                f"{len(ids)} prompt tokens and {room} new ones exceed the context of {self.context}: "
                "shorten the prompt (a role's history is part of it) or lower max_tokens"
            )


@dataclass(frozen=True, slots=True)
class ModelText:
    """How a model reads text, and what ends one: all that is needed of a model that is served elsewhere.

    `prompts`: as in `ModelOptions`.
    """

    tokenizer: HubTokenizer
    limits: ModelLimits
    stop_ids: tuple[int, ...]
    prompts: str

    @property
    def chats(self) -> bool:
        """Whether roles speak through the chat template (True) or compact prompts."""
        return self.tokenizer.has_chat if self.prompts == "auto" else self.prompts == "chat"


class CharacterTokenizer:
    """One token per Unicode character: its code point + 1; 0 ends a text.

    Args:
        has_chat: whether it pretends to have a chat template, which puts an empty line behind every message.
    """

    begin: tuple[int, ...] = ()

    def __init__(self, *, has_chat: bool = True) -> None:
        self.has_chat = has_chat

    def encode(self, text: str) -> tuple[int, ...]:
        return tuple([ord(character) + 1 for character in text])

    def decode(self, token_ids: Sequence[int]) -> str:
        return "".join([chr(token - 1) for token in token_ids if END < token < CHARACTERS])

    def chat(
        self, system: str, user: str, prefill: str = "", earlier: Sequence[tuple[str, str]] = ()
    ) -> tuple[int, ...]:
        return self.chat_messages(_conversation(system, user, earlier)) + self.encode(prefill)

    def chat_messages(self, messages: Sequence[tuple[str, str]]) -> tuple[int, ...]:
        if not self.has_chat:
            raise EngineError("this tokenizer was made without a chat template")
        return self.encode("".join(f"{content}\n\n" for _, content in messages))

    shows_functions = False

    def chat_functions(
        self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]]
    ) -> tuple[int, ...]:
        raise EngineError("this tokenizer has no template that shows functions")


class MessageTokenizer(CharacterTokenizer):
    """Keeps the messages of a conversation apart, for models that are sent messages and answer with text.

    Before every message stands a token of its own for the role that speaks.
    """

    size = CHARACTERS + len(_ROLES)
    """How many ids there are."""

    def chat(
        self, system: str, user: str, prefill: str = "", earlier: Sequence[tuple[str, str]] = ()
    ) -> tuple[int, ...]:
        begun = (("assistant", prefill),) if prefill else ()
        told = _conversation(system, user, earlier)
        return self.chat_messages((*told, *begun) if system else (("system", ""), *told, *begun))

    def chat_messages(self, messages: Sequence[tuple[str, str]]) -> tuple[int, ...]:
        ids: list[int] = []
        for role, content in messages:
            if role not in _ROLES:
                raise RefusedRequest(f"no role {role!r} in a conversation; there are: {', '.join(_ROLES)}")
            ids += (CHARACTERS + _ROLES.index(role), *self.encode(content))
        return tuple(ids)

    def messages(self, token_ids: Sequence[int]) -> list[dict[str, str]]:
        """What `chat_messages` encoded, an empty system message left out; a plain text is one message of the user."""
        ids = tuple(token_ids)
        starts = [place for place, token in enumerate(ids) if token >= CHARACTERS]
        if not starts or starts[0] != 0:
            return [{"role": "user", "content": self.decode(ids)}]
        said = [
            (_ROLES[ids[start] - CHARACTERS], self.decode(ids[start:stop]))
            for start, stop in zip(starts, [*starts[1:], len(ids)], strict=True)
        ]
        return [{"role": role, "content": text} for role, text in said if text or role != "system"]
