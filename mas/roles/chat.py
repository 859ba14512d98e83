"""Texts of the instruct prompt that all prompted roles share."""

import re
from collections.abc import Iterable, Mapping, Sequence

from mas.core.messages import Failure, Payload
from mas.core.role import Message

_ANSWERS = {
    "note": "Answer with your message only.",
    "plan": "Answer with the plan only.",
    "action": "Answer with the action only.",
    "feedback": "Answer with the feedback only: say briefly what should change.",
}
_UNREADABLE = "could not be read"
NOTHING_SEEN = "What is your answer?"
"""The user message of an agent that sees nothing and whose answer has no form."""


_CALL = re.compile(r'\{\s*"name"\s*:')
_TAG, _END = "<tool_call>", "</tool_call>"


def tools_section(tools: Mapping[str, str]) -> tuple[str, ...]:
    """What the model is told about its tools; none where it has none."""
    lines = [f"- {name}: {text}" if text else f"- {name}" for name, text in tools.items()]
    head = 'To call a tool, answer with {"name": TOOL, "arguments": {NAME: VALUE}} and nothing else. The tools:'
    return ("\n".join([head, *lines]),) if lines else ()


def written_call(text: str) -> str | None:
    """The call in an answer: a text that begins as one, right or wrong, or is behind the tag `<tool_call>`; None: none
    is there."""
    _, tag, tagged = text.partition(_TAG)
    call = (tagged.partition(_END)[0] if tag else text).strip()
    return call if tag or _CALL.match(call) else None


def kind_rule(emits: str) -> str:
    """How an answer of this kind looks, for roles that have no instructions of their own."""
    return _ANSWERS.get(emits, f"Answer with the {emits} only.")


def choices_rule(choices: Sequence[str], is_spelled: bool) -> str:
    """Which answers are legal: a line each, which small models obey more often than one line of all.

    Args:
        is_spelled: an answer may be several one-character choices in a row.
    """
    if is_spelled:
        return f"Answer with these characters only, one or more in a row: {' '.join(choices)}"
    return "\n".join(["Answer with exactly one of these and nothing else:", *choices])


def list_rule(most: int, choices: Sequence[str]) -> str:
    """How a list must look; the choices are those of one item."""
    rule = f"Answer with a list and nothing else: one item per line, at most {most}; 'none' if there is nothing."
    return "\n".join([rule, "Each item is one of these:", *choices]) if choices else rule


def learned(experiences: Sequence[str]) -> tuple[str, ...]:
    """The section of what earlier attempts have taught, numbered as a library does; none where there is nothing."""
    lines = [f"[G{number}] {text}" for number, text in enumerate(experiences)]
    return ("\n".join(["What earlier attempts at such tasks have taught you:", *lines]),) if lines else ()


def seen_text(fields: Mapping[str, str], messages: Iterable[Message] = (), answered: Payload | None = None) -> str:
    """What the agent sees: observation and messages; what is empty is left out.

    Args:
        answered: its own answer right before this, which the text names only if it could not be read.
    """
    lines = [
        *([f"Your answer {_UNREADABLE}."] if isinstance(answered, Failure) else []),
        *(_line(f"{name}:", value) for name, value in fields.items()),
        *(_said(message) for message in messages),
    ]
    return "\n".join(line for line in lines if line)


def _said(message: Message) -> str:
    if isinstance(message.payload, Failure):
        return f"The answer of {message.sender} {_UNREADABLE}."
    return _line(f"{message.sender} says:", message.payload.content)


def _line(begin: str, text: str) -> str:
    if not text.strip():
        return ""
    return f"{begin}\n{text}" if "\n" in text else f"{begin} {text}"
