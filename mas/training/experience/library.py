"""A role's experiences: lines of text that are put into its prompts, in versions like those of an adapter."""

import json
from dataclasses import dataclass
from typing import Any

from mas.core.errors import CheckpointError


@dataclass(frozen=True, slots=True)
class Library:
    """What a role has learned, in the order in which it is shown. Nothing in it changes; a new version is a new one.

    Attributes:
        experiences: one line of text each; the first is called G0.
        version: 0 before anything was learned, one more with every change.
    """

    experiences: tuple[str, ...] = ()
    version: int = 0

    def named(self) -> dict[str, str]:
        """The experiences by what they are called: G0, G1, and so on."""
        return {name_of(number): text for number, text in enumerate(self.experiences)}

    def to_json(self) -> dict[str, Any]:
        """`{"version": 2, "experiences": {"G0": "...", ...}}`, which `library_of` reads."""
        return {"version": self.version, "experiences": self.named()}

    def to_text(self) -> str:
        """The same as the text of a file."""
        return json.dumps(self.to_json(), indent=1, ensure_ascii=False) + "\n"


def name_of(number: int) -> str:
    """What the experience at a place is called."""
    return f"G{number}"


def one_line(text: str) -> str:
    """A text as one line, every run of white space one space."""
    return " ".join(text.split())


def library_of(content: object, where: str) -> Library:
    """The library that `to_json` wrote.

    Args:
        where: whose content it is; errors name it.

    Raises:
        CheckpointError: it is no library.
    """
    match content:
        case {"version": int(version), "experiences": dict(named), **rest} if version >= 0 and not rest:
            texts = tuple(named.values())
            is_named = list(named) == [name_of(number) for number in range(len(texts))]
            if is_named and all(isinstance(text, str) and text and text == one_line(text) for text in texts):
                return Library(texts, version)
    raise CheckpointError(
        f'{where} is no library of experiences: expected {{"version": 1, "experiences": {{"G0": "one line", ...}}}} '
        f"with names in order, got {str(content)[:200]}"
    )


def read_library(text: str, where: str) -> Library:
    """The library in the text of a file.

    Raises:
        CheckpointError: it is none.
    """
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{where} is no library of experiences: {error}") from error
    return library_of(content, where)
