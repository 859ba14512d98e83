"""The model's own tokenizer behind the `Tokenizer` contract, with the texts of a run remembered."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from mas.core.errors import EngineError


class HubTokenizer:
    """Wraps a transformers tokenizer. Encoding and decoding are remembered: agents repeat themselves."""

    def __init__(self, tokenizer: Any) -> None:
        self.inner = tokenizer
        self.encode = lru_cache(maxsize=65536)(self._encode)
        self._decode_cached = lru_cache(maxsize=65536)(self._decode)

    def _encode(self, text: str) -> tuple[int, ...]:
        return tuple(self.inner.encode(text, add_special_tokens=False))

    def _decode(self, token_ids: tuple[int, ...]) -> str:
        return str(self.inner.decode(list(token_ids), skip_special_tokens=True))

    def decode(self, token_ids: Sequence[int]) -> str:
        return self._decode_cached(tuple(token_ids))

    @property
    def has_chat(self) -> bool:
        """Whether the model was made for conversations."""
        return bool(getattr(self.inner, "chat_template", None))

    def chat(self, system: str, user: str) -> tuple[int, ...]:
        if not self.has_chat:
            raise EngineError("this model has no chat template: use prompts=compact, or a model made for conversations")
        messages = [{"role": "system", "content": system}, {"role": "user", "content": user}]
        text = self.inner.apply_chat_template(
            messages, tokenize=False, add_generation_prompt=True, enable_thinking=False
        )
        return self.encode(text)
