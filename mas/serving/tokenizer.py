"""The model's own tokenizer behind the `Tokenizer` contract, with the texts of a run remembered."""

from collections.abc import Sequence
from functools import cached_property, lru_cache
from typing import Any

from jinja2 import TemplateError

from mas.core.errors import EngineError, RefusedRequest

_REMEMBERED = 65_536
_SHORT = 256
"""Longest text in characters, or completion in tokens, that is remembered: many of them stay below 100 MB."""


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

    def chat(self, system: str, user: str, prefill: str = "") -> tuple[int, ...]:
        told = (("system", system),) if system else ()
        return self.encode(self.written((*told, ("user", user))) + prefill)

    def chat_messages(self, messages: Sequence[tuple[str, str]]) -> tuple[int, ...]:
        return self.encode(self.written(messages))

    def written(self, messages: Sequence[tuple[str, str]]) -> str:
        """A conversation, as (role, text), as the chat template writes it, up to where the model's answer begins.

        Raises:
            EngineError: the model has no chat template. RefusedRequest: it does not take these messages.
        """
        if not self.has_chat:
            raise EngineError("this model has no chat template: use prompts=compact, or a model made for conversations")
        conversation = [{"role": role, "content": content} for role, content in messages]
        try:
            text = self.inner.apply_chat_template(
                conversation, tokenize=False, add_generation_prompt=True, enable_thinking=False
            )
        except TemplateError as error:
            roles = [role for role, _ in messages]
            raise RefusedRequest(f"the model's chat template does not take messages of {roles}: {error}") from error
        return str(text)


def _begin(tokenizer: Any) -> tuple[int, ...]:
    """What the model's own tokenizer puts before every text, such as a begin-of-text token."""
    marked, plain = (tokenizer.encode("a", add_special_tokens=special) for special in (True, False))
    return tuple(marked[: len(marked) - len(plain)]) if marked[-len(plain) :] == plain else ()
