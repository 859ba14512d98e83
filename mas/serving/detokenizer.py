"""From tokens to text while they come: nothing leaves that a later token could still change.

Text is held back while the last tokens are part of a character only: they decode to a replacement character. Tokenizers
that spell characters as bytes one after the other may decode such a row otherwise once a wrong byte follows; what has
left stays as it is then.
"""

from collections.abc import Callable, Sequence

BROKEN = "\ufffd"
"""What tokenizers make of bytes that are no whole character."""


class Detokenizer:
    """Text of tokens that come one after the other; joined it is the text of them all.

    Only the last tokens are decoded again, together with those before them, on which their spaces may depend.
    """

    def __init__(self, decode: Callable[[Sequence[int]], str]) -> None:
        self._decode = decode
        self._ids: list[int] = []
        self._known = 0

    def add(self, token: int) -> str:
        """The text that is certain now; empty while a character is incomplete."""
        self._ids.append(token)
        before, now = self._texts()
        if len(now) <= len(before) or now.endswith(BROKEN):
            return ""
        self._ids, self._known = self._ids[self._known :], len(self._ids) - self._known
        return now[len(before) :]

    def end(self) -> str:
        """What was held back: no token will come that could complete it."""
        before, now = self._texts()
        self._ids, self._known = [], 0
        return now[len(before) :]

    def _texts(self) -> tuple[str, str]:
        """The tokens told last, and the same with those that are not told yet behind them."""
        return self._decode(self._ids[: self._known]), self._decode(self._ids)
