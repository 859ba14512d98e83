"""What a role may do with one of its tools, as data: how often it may call it, with which arguments, and what the role
is answered instead (Progent, arXiv 2504.11703: deterministic rules on tool calls, with a fallback).

Arguments are hostile, so patterns are not matched by Python's `re`, whose time can be exponential in the length of a
text, but by llguidance, whose time is linear: a denial is quick, and the same on every machine.

Leaves out on purpose: which tools a role may call at all, which its `tools` say.
"""

import json
from collections.abc import Mapping
from functools import cache, lru_cache
from typing import Annotated, Any, Self

from pydantic import Field, model_validator

from mas.core.engine import Grammar, as_llguidance, why_invalid_grammar
from mas.core.options import Options

_SHOWN = 60
"""Characters of an argument that a denial repeats."""


class Privilege(Options):
    """The rule for one tool of a role.

    Attributes:
        most: calls that an agent may make in one episode, in the branch that it is in; None: any number.
        arguments: name -> regular expression that the argument must match whole (no look-around, no back references;
            what is no text is matched as JSON), or JSON Schema, without objects, that it must fit. A call without the
            argument is denied. Arguments that are not named here may be anything.
        instead: what the caller is answered in place of a result when a call is denied; None: a sentence that says why.
    """

    most: Annotated[int, Field(ge=0)] | None = None
    arguments: dict[str, str | dict[str, Any]] = Field(default_factory=dict)
    instead: Annotated[str, Field(min_length=1)] | None = None

    @model_validator(mode="after")
    def _rules(self) -> Self:
        for name, wanted in self.arguments.items():
            kind = "regular expression" if isinstance(wanted, str) else "JSON Schema"
            if why := why_invalid_grammar(_grammar(wanted)):
                raise ValueError(f"arguments.{name}: {wanted!r} is not a {kind} that can be used here: {why}")
            if not isinstance(wanted, str) and _has_objects(wanted):
                raise ValueError(
                    f"arguments.{name}: a JSON Schema of objects cannot be used here, as their keys have no order: "
                    "write a regular expression, which the JSON of the argument must match"
                )
        if self.most is None and not self.arguments:
            raise ValueError("it denies nothing: give most or arguments, or leave it out")
        return self

    def problem(self, arguments: Mapping[str, Any]) -> str | None:
        """What is wrong with the arguments of a call; None: nothing."""
        for name, wanted in self.arguments.items():
            must = f"match {wanted}" if isinstance(wanted, str) else f"fit {json.dumps(wanted, ensure_ascii=False)}"
            if name not in arguments:
                return f"the argument {name!r} must be given, and {must}"
            value = arguments[name]
            is_plain = isinstance(wanted, str) and isinstance(value, str)
            text = value if is_plain else json.dumps(value, ensure_ascii=False)
            if not _is_text_of(_grammar(wanted), text):
                shown = value if isinstance(value, str) else text
                return f"the argument {name!r} is {shown[:_SHOWN]!r} and must {must}"
        return None


def _grammar(wanted: str | Mapping[str, Any]) -> Grammar:
    return Grammar("regex", wanted) if isinstance(wanted, str) else Grammar("schema", json.dumps(wanted))


def _has_objects(schema: Any) -> bool:
    """Whether a part of a schema is one of objects."""
    if isinstance(schema, list):
        return any(map(_has_objects, schema))
    if not isinstance(schema, Mapping):
        return False
    kind = schema.get("type", "")
    return "properties" in schema or kind == "object" or "object" in kind or any(map(_has_objects, schema.values()))


@cache
def _byte_tokenizer() -> Any:
    from llguidance import LLTokenizer

    return LLTokenizer("byte")


@lru_cache(maxsize=256)
def _matcher(grammar: Grammar) -> Any:
    from llguidance import LLMatcher

    return LLMatcher(_byte_tokenizer(), as_llguidance(grammar), log_level=0)


def _is_text_of(grammar: Grammar, text: str) -> bool:
    """Whether a grammar has the whole text; not, where llguidance finds it too complex."""
    matcher, octets = _matcher(grammar).deep_copy(), list(text.encode(errors="surrogatepass"))
    return bool(matcher.try_consume_tokens(octets) == len(octets) and matcher.is_accepting())
