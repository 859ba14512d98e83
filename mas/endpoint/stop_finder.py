"""Finds stop strings in a text that comes in pieces."""

from collections.abc import Sequence


class StopFinder:
    """Cuts a text before the first stop string that is complete, whatever pieces it comes in.

    Of two that end together the longer one counts.

    Attributes:
        rest: what came behind the stop string that was found.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = tuple(stops)
        self._held = self.rest = ""

    def add(self, text: str) -> tuple[str, str | None]:
        """The text that is safe to tell, and the stop string that was found, None while there is none."""
        self._held += text
        found = [(start + len(stop), start, stop) for stop in self._stops if (start := self._held.find(stop)) >= 0]
        if found:
            end, start, stop = min(found)
            self.rest = self._held[end:]
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
