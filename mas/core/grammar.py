"""Grammars as llguidance reads them, and whether it does. llguidance is imported when the first one is read."""

from mas.core.engine import Grammar
from mas.core.errors import RefusedRequest


def as_llguidance(grammar: Grammar) -> str:
    """In llguidance's own form.

    Raises:
        RefusedRequest: a schema is no JSON object.
    """
    from llguidance import LLMatcher

    if grammar.kind == "regex":
        return str(LLMatcher.grammar_from_regex(grammar.text))
    try:
        return str(LLMatcher.grammar_from_json_schema(grammar.text))
    except ValueError as error:
        raise RefusedRequest(f"schema {grammar.text!r} is no JSON object: {error}") from error


def invalid_reason(grammar: Grammar) -> str:
    """Why a grammar cannot be read, whatever the model; empty: it can."""
    from llguidance import LLMatcher

    try:
        return first_cause(str(LLMatcher.validate_grammar(as_llguidance(grammar))))
    except RefusedRequest as error:
        return str(error)


def first_cause(text: str) -> str:
    """The line of llguidance's error message that names the cause; empty if the message is empty."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    causes = [line.removeprefix("error: ") for line in lines if line.startswith("error: ")]
    return (causes or lines or [""])[0]
