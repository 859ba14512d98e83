"""Operations on a library: ADD, UPDATE, DELETE. What cannot be done is recorded, and the others are done.

Source: Training-Free GRPO, arXiv 2510.08191. In its published code an operation without content is skipped, so that a
DELETE never deletes; here it needs none.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from mas.training.experience.library import Library, name_of, one_line

Kind = Literal["ADD", "UPDATE", "DELETE"]


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
