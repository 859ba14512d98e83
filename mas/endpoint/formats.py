"""The form that a client wants answers to have: OpenAI's `response_format`, vLLM's `structured_outputs`; as a grammar.

A JSON Schema is a grammar of compact JSON as `json.dumps` writes it, so that no tokens are spent on spaces.
"""

import json
import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from mas.core.engine import Grammar, why_invalid_grammar
from mas.endpoint.errors import Refused
from mas.endpoint.wire_base import Wire

LONGEST_GRAMMAR = 65_536
"""Characters of a schema or a regular expression."""
_SHOWN = 300
"""Characters of what is wrong with a grammar that an error repeats."""
JsonObject = dict[str, Any]
_SPACING = {"x-guidance": {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}}


class TextFormat(Wire):
    """Any text."""

    type: Literal["text"]


class JsonFormat(Wire):
    """A JSON object."""

    type: Literal["json_object"]


class NamedSchema(Wire):
    """A JSON Schema. `strict` and the texts are taken and not used: every answer keeps to the schema."""

    name: Annotated[str, Field(max_length=256)] = ""
    description: str = ""
    strict: bool | None = None
    schema_: Annotated[JsonObject, Field(alias="schema")]


class SchemaFormat(Wire):
    """JSON of a schema."""

    type: Literal["json_schema"]
    json_schema: NamedSchema


ResponseFormat = Annotated[TextFormat | JsonFormat | SchemaFormat, Field(discriminator="type")]


class StructuredOutputs(Wire):
    """vLLM's dialect: exactly one of a regular expression, choices, and a JSON Schema."""

    regex: str | None = None
    choice: Annotated[tuple[str, ...], Field(strict=False, min_length=1, max_length=1024)] | None = None
    json_: Annotated[JsonObject | None, Field(alias="json")] = None

    @model_validator(mode="after")
    def _one(self) -> "StructuredOutputs":
        given = [name for name in ("regex", "choice", "json_") if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError("give exactly one of regex, choice and json")
        return self


def format_of(
    wanted: TextFormat | JsonFormat | SchemaFormat | None, structured: StructuredOutputs | None
) -> Grammar | None:
    """What an answer may be, by `response_format` and `structured_outputs`; None: any text.

    Raises:
        Refused: it is no grammar, or two of them.
    """
    if structured is None:
        schema = wanted.json_schema.schema_ if isinstance(wanted, SchemaFormat) else {"type": "object"}
        is_any = wanted is None or isinstance(wanted, TextFormat)
        return None if is_any else schema_grammar(schema, "response_format")
    if wanted is not None and not isinstance(wanted, TextFormat):
        raise Refused(400, "response_format and structured_outputs: give one of them", param="structured_outputs")
    if structured.json_ is not None:
        return schema_grammar(structured.json_, "structured_outputs")
    pattern = structured.regex or "|".join(re.escape(text) for text in structured.choice or ())
    return _checked(Grammar("regex", pattern), "structured_outputs")


def schema_grammar(schema: Mapping[str, Any], option: str) -> Grammar:
    """JSON of a schema, written compactly.

    Args:
        option: what the client gave it as.

    Raises:
        Refused: it is no schema, or one that constrained decoding cannot follow.
    """
    return _checked(Grammar("schema", json.dumps({**_SPACING, **schema}, ensure_ascii=False)), option)


def _checked(grammar: Grammar, option: str) -> Grammar:
    if len(grammar.text) > LONGEST_GRAMMAR:
        what = f"{len(grammar.text)} characters of {option} are too many: at most {LONGEST_GRAMMAR}"
        raise Refused(400, what, param=option)
    if problem := why_invalid_grammar(grammar):
        raise Refused(400, f"{option} is not possible: {problem[:_SHOWN]}", param=option)
    return grammar
