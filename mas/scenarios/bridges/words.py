"""Actions of a game as text and back: games know their actions by number."""

from collections import Counter
from collections.abc import Iterable, Mapping

LONGEST_ACTION = 1000
"""Characters; no game has a longer action, and what is longer is not looked at."""


def named_actions(actions: Iterable[tuple[int, str]]) -> dict[str, int]:
    """Text -> number, from numbers with what the game calls them.

    White space is made single. Where a name is empty or two actions have the same, ` #NUMBER` is added to it; where
    that makes a name that another action has, to all.
    """
    named = [(number, _plain(name)) for number, name in actions]
    times = Counter(name for _, name in named)
    found = {name if name and times[name] == 1 else _numbered(number, name): number for number, name in named}
    return found if len(found) == len(named) else {_numbered(number, name): number for number, name in named}


def find_action(said: str, legal: Mapping[str, int]) -> int | None:
    """The legal action that was meant, None where none was.

    Tried in order: the text itself, with other white space, in other case where one action alone fits, `#NUMBER`, and
    the bare number where no action's text is itself a number.
    """
    if len(said) > LONGEST_ACTION:
        return None
    plain = _plain(said)
    if plain in legal:
        return legal[plain]
    alike = [number for text, number in legal.items() if text.casefold() == plain.casefold()]
    if alike:
        return alike[0] if len(alike) == 1 else None
    digits = plain.removeprefix("#")
    if not (digits.isascii() and digits.isdecimal()):
        return None
    if plain == digits and any(text.lstrip("+-").isdecimal() for text in legal):
        return None
    number = int(digits)
    return number if number in legal.values() else None


def _numbered(number: int, name: str) -> str:
    return f"{name} #{number}".strip()


def _plain(text: str) -> str:
    return " ".join(text.split())
