"""How long a text may be before anybody counts its tokens, and where they are counted.

A tokenizer takes seconds and gigabytes for megabytes of text, all for one answer: too long. A token stands for no more
characters than the longest of the vocabulary, so a text with more than that for every token of the context is refused
unread. What is left and not short is tokenized in a thread, one text after the other, while the event loop goes on.
"""

import asyncio
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from mas.endpoint.errors import Refused
from mas.endpoint.models import Served

T = TypeVar("T")
MAX_BODY_BYTES = 8 * 2**20
_LEAST_BODY_BYTES = 256 * 2**10
_ESCAPED = 12
"""Bytes of a character in JSON, at most: two escapes of six."""
_SHORT = 2048
"""Characters that are tokenized at once: some ten milliseconds with the slowest tokenizer that was measured."""


class PromptReader:
    """Tokenizes the texts of one server's requests."""

    def __init__(self, served: Served) -> None:
        self._context = served.context
        self._encode = served.engine.tokenizer.encode
        self.longest = served.context * served.longest_token
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="mas-prompts")

    @property
    def max_body(self) -> int:
        """Bytes of a request's body that a text of the longest length fits in, within what any server takes."""
        return min(max(self.longest * _ESCAPED, _LEAST_BODY_BYTES), MAX_BODY_BYTES)

    async def read(self, texts: Iterable[str], make: Callable[[], T]) -> T:
        """What `make` makes of these texts.

        Raises:
            Refused: they are longer than any prompt. Otherwise as `make`.
        """
        length = sum(len(text) for text in texts)
        if length > self.longest:
            raise self._too_long(f"{length} characters")
        if length <= _SHORT:
            return make()
        return await asyncio.get_running_loop().run_in_executor(self._worker, make)

    async def check(self, text: str) -> None:
        """Refuse a text that is no part of any prompt.

        Raises:
            Refused: it is too long.
        """
        if (count := await self.read([text], lambda: len(self._encode(text)))) > self._context:
            raise self._too_long(f"{count} tokens")

    def _too_long(self, what: str) -> Refused:
        return Refused(
            400,
            f"{what} of text exceed the context of {self._context} tokens: shorten it",
            code="context_length_exceeded",
        )
