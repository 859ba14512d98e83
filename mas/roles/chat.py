"""Texts of the instruct prompt that all prompted roles share."""

from collections.abc import Iterable, Mapping, Sequence

from mas.core.messages import Payload
from mas.core.role import Message

_ASKS = {
    "note": "Answer with your message only.",
    "plan": "Answer with the plan only: no greeting and no explanation.",
    "action": "Answer with the action only: no explanation and no quotation marks.",
    "feedback": "Answer with the feedback only: say briefly what should change.",
}


ASKED = "Your answer:"
"""The last line of a user message."""


def answer_rule(emits: str, choices: Sequence[str], is_spelled: bool, pattern: str | None) -> str:
    """How an answer must look.

    Args:
        is_spelled: an answer may be several one-character choices in a row.
        pattern: regular expression that the whole answer must match, None for no such rule.
    """
    rules = []
    if choices and is_spelled:
        rules.append(f"Answer with these characters only, one or more in a row: {' '.join(choices)}")
    elif choices:
        rules.append("Answer with exactly one of these and nothing else:\n" + "\n".join(choices))
    else:
        rules.append(_ASKS.get(emits, f"Answer with the {emits} only."))
    if pattern is not None:
        rules.append(f"The whole answer must match this regular expression: {pattern}")
    return "\n".join(rules)


def list_rule(most: int, choices: Sequence[str], pattern: str | None) -> str:
    """How a list must look; `choices` and `pattern` as in `answer_rule`, the choices those of one item."""
    rules = [f"Answer with a list and nothing else: one item per line, at most {most}; 'none' if there is nothing."]
    if choices:
        rules.append("Each item is one of these:\n" + "\n".join(choices))
    if pattern is not None:
        rules.append(f"The whole answer must match this regular expression: {pattern}")
    return "\n".join(rules)


def learned(experiences: Sequence[str]) -> tuple[str, ...]:
    """The section of what earlier attempts have taught, numbered as a library does; none where there is nothing."""
    lines = [f"[G{number}] {text}" for number, text in enumerate(experiences)]
    return ("\n".join(["What earlier attempts at such tasks have taught you:", *lines]),) if lines else ()


def user_text(fields: Mapping[str, str], messages: Iterable[Message], own: Sequence[Payload]) -> str:
    """What the agent sees, and that it is asked."""
    seen = seen_text(fields, messages, own)
    return f"{seen}\n\n{ASKED}" if seen else ASKED


def seen_text(fields: Mapping[str, str], messages: Iterable[Message], own: Sequence[Payload]) -> str:
    """What the agent sees: observation, messages, its own earlier outputs; sections without content are left out."""
    received = [_line(f"{message.sender} ({message.payload.kind})", message.payload.content) for message in messages]
    sections = [
        ("Situation:", [_line(name, value) for name, value in fields.items()]),
        ("Messages from your team:", received),
        ("Your earlier answers in this turn:" if len(own) > 1 else "Your earlier answer:", [p.content for p in own]),
    ]
    written = ["\n".join([title, *lines]) for title, lines in sections if lines]
    return "\n\n".join(written)


def _line(name: str, value: str) -> str:
    return f"{name}:\n{value}" if "\n" in value else f"{name}: {value}"
