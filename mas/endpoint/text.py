"""From tokens to text while they come: nothing leaves that a later token could still change or cut off.

Text is held back for two reasons: the last tokens are part of a character only (they decode to a replacement
character), or the end of the text may be the beginning of a stop string.
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
        if len(now) <= len(before) or not now.startswith(before) or now.endswith(BROKEN):
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


class StopFinder:
    """Cuts a text before the first stop string that is complete, whatever pieces it comes in.

    Of two that end together the longer one counts.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = tuple(stops)
        self._held = ""

    def add(self, text: str) -> tuple[str, str | None]:
        """The text that is safe to tell, and the stop string that was found, None while there is none."""
        self._held += text
        found = [(start + len(stop), start, stop) for stop in self._stops if (start := self._held.find(stop)) >= 0]
        if found:
            _, start, stop = min(found)
            return self._held[:start], stop
        keep = max((_overlap(self._held, stop) for stop in self._stops), default=0)
        safe = len(self._held) - keep
        told, self._held = self._held[:safe], self._held[safe:]
        return told, None

    def end(self) -> str:
        """What was held back and is no stop string."""
        held, self._held = self._held, ""
        return held


def _overlap(text: str, stop: str) -> int:
    """Length of the longest end of the text that the stop string, longer than it, begins with."""
    return next((n for n in range(min(len(text), len(stop) - 1), 0, -1) if text.endswith(stop[:n])), 0)
