"""Constrained decoding with llguidance: which tokens a grammar allows next.

A grammar is compiled once per engine and text; every completion follows it with a matcher of its own. A completion that
is a whole text of the grammar may end with the model's end token, and with no other.
"""

import json
import threading
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mas.core.engine import Grammar, as_llguidance, first_cause
from mas.core.errors import ModelError, RefusedRequest
from mas.serving.model_text import ModelText

_REMEMBERED = 1024
"""Compiled grammars of one engine; those of choices that differ from state to state are many."""


class GrammarFailed(ValueError):
    """A completion cannot continue in its grammar."""


class Matcher:
    """Follows one completion through its grammar. `end`: the token that ends it, where it may end."""

    def __init__(self, inner: Any, vocabulary: int, end: int, special: Sequence[int]) -> None:
        self._inner = inner
        self._unsaid = [token for token in special if token != end and token < vocabulary]
        self._words_1W: NDArray[np.int32] = np.zeros((1, -(-vocabulary // 32)), dtype=np.int32)
        self._vocabulary = vocabulary
        self.end = end

    @property
    def is_over(self) -> bool:
        """Whether nothing but the end can follow.

        Raises:
            GrammarFailed: llguidance gave up, as at a text that is too complex.
        """
        self._check()
        return bool(self._inner.is_stopped())

    def mask(self) -> NDArray[np.bool_]:
        """Which tokens may come next, [vocabulary].

        Raises:
            GrammarFailed: llguidance gave up, or no token of the model can spell what must follow.
        """
        from llguidance.numpy import fill_next_token_bitmask

        if self.is_over:
            mask_V = np.zeros(self._vocabulary, dtype=np.bool_)
            mask_V[self.end] = True
            return mask_V
        fill_next_token_bitmask(self._inner, self._words_1W, 0)
        self._check()
        words = self._words_1W.view(np.uint8)[0]
        mask_V = np.unpackbits(words, count=self._vocabulary, bitorder="little").view(np.bool_)
        mask_V[self._unsaid] = False
        if not mask_V.any():
            raise GrammarFailed("no token of this model can spell what has to follow here")
        return mask_V

    def follow(self, token: int) -> None:
        """The token that came.

        Raises:
            GrammarFailed: the grammar does not allow it.
        """
        if not self._inner.consume_token(token):
            raise GrammarFailed(first_cause(self._inner.get_error()) or f"token {token} is not possible there")

    def _check(self) -> None:
        if self._inner.is_error():
            raise GrammarFailed(first_cause(self._inner.get_error()))


class Grammars:
    """The compiled grammars of one model. Nothing is loaded before the first."""

    def __init__(self, text: ModelText) -> None:
        self._text = text
        self._tokenizer: Any = None
        self._lock = threading.Lock()
        self._reading = threading.Lock()
        self._compiled: dict[Grammar, Any] = {}

    @property
    def end(self) -> int:
        """The token that ends a constrained completion: the tokenizer's own, if it is among the model's stop ids."""
        ends, own = self._text.stop_ids, self._text.tokenizer.inner.eos_token_id
        if not ends:
            raise ModelError("constrained decoding needs a token that ends a text, and this model names none")
        return own if own in ends else ends[0]

    @cached_property
    def _is_plain(self) -> bool:
        return _is_plain(self._text.tokenizer.inner)

    def check_vllm(self) -> None:
        """Refuse what vLLM cannot constrain.

        Raises:
            RefusedRequest: the tiny base's tokenizer.
        """
        if self._is_plain:
            raise RefusedRequest(
                "vLLM cannot constrain a tokenizer of single characters, as the tiny base has: use engine=transformers"
            )

    def knows(self, grammar: Grammar) -> bool:
        """Whether it is compiled."""
        return grammar in self._compiled

    def matcher(self, grammar: Grammar) -> Matcher:
        """At the beginning of a completion.

        Raises:
            RefusedRequest: it is no grammar. ModelError: the model's tokenizer cannot be constrained.
        """
        with self._lock:  # several threads may ask; none waits here until another has compiled
            compiled = self._compiled.pop(grammar, None)
            if compiled is not None:
                self._compiled[grammar] = compiled  # the one used last is last
        if compiled is None:
            compiled = self._compile(grammar)
            with self._lock:
                self._compiled[grammar] = compiled
                if len(self._compiled) > _REMEMBERED:
                    del self._compiled[next(iter(self._compiled))]
        return self._begun(compiled)

    def _begun(self, compiled: Any) -> Matcher:
        special = self._text.tokenizer.inner.all_special_ids
        return Matcher(compiled.deep_copy(), self._text.limits.vocabulary, self.end, special)

    def _compile(self, grammar: Grammar) -> Any:
        from llguidance import LLMatcher

        with self._reading:
            if self._tokenizer is None:
                self._tokenizer = _tokenizer(self._text, self.end)
        found = LLMatcher(self._tokenizer, as_llguidance(grammar), log_level=0)
        if found.is_error():
            raise RefusedRequest(
                f"{grammar.kind} {grammar.text!r} cannot be a grammar: {first_cause(found.get_error())}"
            )
        try:
            self._begun(found).mask()
        except GrammarFailed as error:
            raise RefusedRequest(f"{grammar.kind} {grammar.text!r} cannot begin: {error}") from error
        return found


def _tokenizer(text: ModelText, end: int) -> Any:
    from llguidance import LLTokenizer, TokenizerWrapper
    from llguidance.hf import from_tokenizer

    inner, vocabulary = text.tokenizer.inner, text.limits.vocabulary
    try:
        if _is_plain(inner):
            return LLTokenizer(TokenizerWrapper(_Plain(inner, end)), n_vocab=vocabulary)
        return from_tokenizer(inner, n_vocab=vocabulary, eos_token=end)
    except ValueError as error:
        raise ModelError(
            f"a {type(inner).__name__} cannot be constrained to a grammar: {error}. Take the constraint out of the "
            "roles, or use a model with a byte-level tokenizer"
        ) from error


def _is_plain(tokenizer: Any) -> bool:
    """Whether a token stands for its own characters, as in the tiny base."""
    backend: Mapping[str, Any] = json.loads(tokenizer.backend_tokenizer.to_str())
    return (backend.get("decoder") or {}).get("type") == "Fuse" and backend["model"]["type"] == "WordLevel"


class _Plain:
    """A tokenizer whose tokens are their own characters, as llguidance wants to see it."""

    def __init__(self, tokenizer: Any, end: int) -> None:
        self.eos_token_id = end
        self.bos_token_id = None
        self.special_token_ids = sorted(tokenizer.all_special_ids)
        by_id = sorted((number, token) for token, number in tokenizer.get_vocab().items())
        self.tokens = [token.encode() for _, token in by_id]
        self._encode = tokenizer.encode

    def __call__(self, text: str) -> list[int]:
        return [*self._encode(text, add_special_tokens=False)]
