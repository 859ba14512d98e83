"""A role's experiences: lines of text that are put into its prompts, in versions like those of an adapter.

Editors change a library by operations: ADD, UPDATE, DELETE. What cannot be done is recorded, and the others are done.
Source: Training-Free GRPO, arXiv 2510.08191. In its published code an operation without content is skipped, so that a
DELETE never deletes; here it needs none.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from mas.core.errors import CheckpointError

Kind = Literal["ADD", "UPDATE", "DELETE"]


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


@dataclass(frozen=True, slots=True)
class Operation:
    """One change. `target`: the experience that UPDATE and DELETE mean, by the name that it has before all of them,
    such as G0; None for ADD. `text`: what ADD and UPDATE write; nothing for DELETE."""

    kind: Kind
    target: str | None = None
    text: str = ""


@dataclass(frozen=True, slots=True)
class Limits:
    """How large a library may become: `most` experiences of `characters` each."""

    most: int = 32
    characters: int = 400


@dataclass(frozen=True, slots=True)
class Refusal:
    """Something that an editor wanted and that was not done. `what`: the operation, or the text that is none."""

    what: str
    cause: str


@dataclass(frozen=True, slots=True)
class Edited:
    """A library after operations: the same object where nothing came of them. `done`: those that changed it."""

    library: Library
    done: tuple[Operation, ...]
    refused: tuple[Refusal, ...]


def apply_operations(library: Library, operations: Iterable[Operation], limits: Limits = Limits()) -> Edited:
    """Do the operations one after the other; then number what is left from G0 on.

    Experiences keep their order and new ones stand last. Names mean the library as it was before all operations, so an
    experience that was deleted is known no more. An experience that another one says already is refused.
    {G0 x, G1 y} with ADD n, UPDATE G1 y2, DELETE G0 becomes {G0 y2, G1 n}.
    """
    texts: dict[str, str] = library.named()
    added: list[str] = []
    done: list[Operation] = []
    refused: list[Refusal] = []
    for operation in operations:
        text = one_line(operation.text)
        cause = _cause(operation, text, texts, added, limits)
        if cause is not None:
            refused.append(Refusal(described(operation), cause))
            continue
        done.append(operation)
        if operation.kind == "DELETE":
            del texts[operation.target or ""]
        elif operation.kind == "UPDATE":
            texts[operation.target or ""] = text
        else:
            added.append(text)
    after = (*texts.values(), *added)
    changed = library if after == library.experiences else Library(after, library.version + 1)
    return Edited(changed, tuple(done), tuple(refused))


def described(operation: Operation) -> str:
    """The operation as one line for people."""
    return " ".join(part for part in (operation.kind, operation.target, one_line(operation.text)[:80]) if part)


def _cause(operation: Operation, text: str, texts: dict[str, str], added: Sequence[str], limits: Limits) -> str | None:
    """Why an operation cannot be done; None: it can."""
    if operation.kind != "ADD" and operation.target not in texts:
        known = f"{name_of(0)} to {list(texts)[-1]}" if texts else "the library is empty"
        return f"there is no experience {operation.target!r} (any more); there are: {known}"
    if operation.kind == "DELETE":
        return None
    if not text:
        return "it has no text"
    if len(text) > limits.characters:
        return f"its text has {len(text)} characters, at most {limits.characters} are allowed"
    if text in added or text in texts.values():
        return "another experience says the same"
    if operation.kind == "ADD" and len(texts) + len(added) >= limits.most:
        return f"the library is full: {limits.most} experiences"
    return None
