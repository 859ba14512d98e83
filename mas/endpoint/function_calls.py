"""Calling functions: how a prompt shows them to the model, and how its answer is read.

Calls are written as Hermes models, Qwen's and many others write them: `<tool_call>{"name": ..., "arguments": ...}
</tool_call>`. A chat template that shows functions in this form is used as it is; for any other, the functions stand in
the system message, and results in messages of the user.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

from mas.core.engine import Grammar, Tokenizer
from mas.endpoint.errors import Refused
from mas.endpoint.formats import SchemaFormat, TextFormat, schema_grammar
from mas.endpoint.function_tools import FunctionCall, FunctionChoice, FunctionTool
from mas.endpoint.stop_finder import StopFinder
from mas.endpoint.wire import ChatMessage, ChatRequest
from mas.endpoint.wire_base import read_json

OPEN, CLOSE = "<tool_call>", "</tool_call>"
Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Calling:
    """What one request says of functions.

    Attributes:
        tools: that the model is shown.
        must: those of which one must be called; empty: the model may answer with text.
        is_json: whether an answer is JSON by a grammar: a call, or of the `response_format`.
        is_parallel: whether an answer may call several.
    """

    tools: tuple[FunctionTool, ...] = ()
    must: tuple[FunctionTool, ...] = ()
    is_json: bool = False
    is_parallel: bool = True

    @classmethod
    def of(cls, request: ChatRequest) -> "Calling":
        """As the request has it.

        Raises:
            Refused: it must call a function that is none of its tools.
        """
        if not request.tools and request.tool_choice not in ("auto", "none"):
            raise Refused(400, "tool_choice needs tools to choose from", param="tool_choice")
        if not request.tools or request.tool_choice == "none":
            return cls()
        must: tuple[FunctionTool, ...] = request.tools if request.tool_choice == "required" else ()
        if isinstance(request.tool_choice, FunctionChoice):
            name = request.tool_choice.function.name
            must = tuple(tool for tool in request.tools if tool.function.name == name)
            if not must:
                raise Refused(400, f"tool_choice names {name!r}, which is none of the tools", param="tool_choice")
        has_format = request.response_format is not None and not isinstance(request.response_format, TextFormat)
        if request.structured_outputs is not None and (must or has_format):
            why = "structured_outputs does not go with a call that must be made, or with a response_format"
            raise Refused(400, f"{why}: leave one out", param="structured_outputs")
        return cls(request.tools, must, bool(must) or has_format, request.parallel_tool_calls and not must)

    @property
    def opening(self) -> str:
        """What the answer begins with and need not write."""
        return f"{OPEN}\n" if self.must else ""

    def grammar(self, request: ChatRequest) -> Grammar:
        """What the answer may be where it is JSON: a call that must be made, or a call or the response format."""
        calls = [_call_schema(tool, f"#/anyOf/{at}") for at, tool in enumerate(self.must or self.tools)]
        if self.must:
            return schema_grammar({"anyOf": calls}, "tools")
        wanted = request.response_format
        schema = wanted.json_schema.schema_ if isinstance(wanted, SchemaFormat) else {"type": "object"}
        return schema_grammar({"anyOf": [*calls, _moved(schema, f"#/anyOf/{len(calls)}")]}, "response_format")


def prompt_with_functions(
    tokenizer: Tokenizer, system: str, messages: Sequence[ChatMessage], tools: Sequence[FunctionTool]
) -> tuple[int, ...]:
    """The prompt of a conversation in which functions are shown, were called, or have answered.

    Args:
        system: put first unless the conversation has a system message; empty: nothing.
    """
    shown = [_plain_tool(tool) for tool in tools]
    given = [one if one.role != "developer" else one.model_copy(update={"role": "system"}) for one in messages]
    if system and all(one.role != "system" for one in given):
        given.insert(0, ChatMessage(role="system", content=system))
    if tokenizer.shows_functions:
        return tokenizer.chat_functions([_native(one) for one in given], shown)
    talk = [_hermes(one) for one in given]
    if shown:
        rest = talk[1:] if talk[0][0] == "system" else talk
        before = talk[0][1] + "\n\n" if talk[0][0] == "system" else ""
        talk = [("system", before + _shown_tools(shown)), *rest]
    return tokenizer.chat_messages(_joined(talk))


def _plain_tool(tool: FunctionTool) -> Json:
    """As chat templates expect it."""
    spec = tool.function
    parameters = spec.parameters or {"type": "object", "properties": {}}
    described = {"description": spec.description} if spec.description else {}
    return {"type": "function", "function": {"name": spec.name, **described, "parameters": parameters}}


def _native(message: ChatMessage) -> Json:
    said: Json = {"role": message.role, "content": message.content}
    if message.tool_calls:
        said["tool_calls"] = [
            {"type": "function", "function": {"name": one.name, "arguments": json.loads(one.arguments)}}
            for one in (call.function for call in message.tool_calls)
        ]
    return said


def _hermes(message: ChatMessage) -> tuple[str, str]:
    """A message as (role, text) for templates that know no functions."""
    if message.role == "tool":
        return "user", f"<tool_response>\n{message.content}\n</tool_response>"
    calls = [f"{OPEN}\n{_call_text(call)}\n{CLOSE}" for call in message.tool_calls]
    return message.role, "\n".join([*([message.content] if message.content or not calls else []), *calls])


def _call_text(call: FunctionCall) -> str:
    arguments = json.loads(call.function.arguments)
    return json.dumps({"name": call.function.name, "arguments": arguments}, ensure_ascii=False)


def _shown_tools(tools: Sequence[Json]) -> str:
    signatures = "\n".join(json.dumps(tool, ensure_ascii=False) for tool in tools)
    return (
        f"You can call these functions:\n<tools>\n{signatures}\n</tools>\nTo call one, write its name and arguments as "
        f'JSON, like this:\n{OPEN}\n{{"name": "NAME", "arguments": {{...}}}}\n{CLOSE}'
    )


def _joined(talk: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """The conversation with neighbouring messages of the user as one: several results, which templates may refuse."""
    found: list[tuple[str, str]] = []
    for role, text in talk:
        if role == "user" and found and found[-1][0] == "user":
            found[-1] = (role, f"{found[-1][1]}\n{text}")
        else:
            found.append((role, text))
    return found


def _call_schema(tool: FunctionTool, place: str) -> Json:
    """JSON Schema of a call of a function, which stands at a place of the whole schema."""
    arguments = tool.function.parameters or {"type": "object"}
    return {
        "type": "object",
        "properties": {
            "name": {"const": tool.function.name},
            "arguments": _moved(arguments, f"{place}/properties/arguments"),
        },
        "required": ["name", "arguments"],
        "additionalProperties": False,
    }


_DATA = ("const", "enum", "default", "examples")
"""Keywords of a schema whose values are no schemas."""


def _moved(schema: Any, place: str) -> Any:
    """A schema whose local references hold at its new place."""
    if isinstance(schema, list):
        return [_moved(one, place) for one in schema]
    if not isinstance(schema, dict):
        return schema
    moved = {name: value if name in _DATA else _moved(value, place) for name, value in schema.items()}
    reference = schema.get("$ref")
    if isinstance(reference, str) and (reference == "#" or reference.startswith("#/")):
        moved["$ref"] = place + reference[1:]
    return moved


@dataclass(slots=True)
class CallReader:
    """Reads the calls out of one answer while it comes. Blanks beside a call are no text.

    Attributes:
        calls: those that are complete, as OpenAI writes them.
    """

    calling: Calling
    calls: list[Json] = field(default_factory=list)
    _held: str = ""
    _blanks: str = ""
    _finder: StopFinder | None = None
    _is_call: bool = False

    def add(self, text: str, *, is_last: bool = False) -> str:
        """Read on; the text that is new and no part of a call. In answers that are JSON, all comes with the last."""
        if not self.calling.tools:
            return text
        if not self.calling.is_json:
            return self._tagged(text, is_last=is_last)
        self._held += text
        return self._held if is_last and not self._is_read(self._held) else ""

    def _tagged(self, text: str, *, is_last: bool) -> str:
        said = ""
        while True:
            if self._finder is None:
                self._finder = StopFinder((CLOSE if self._is_call else OPEN,))
            piece, found = self._finder.add(text)
            rest = self._finder.rest
            if self._is_call:
                self._held += piece
            else:
                said += self._said(piece)
            if found is None:
                return said + self._ended() if is_last else said
            self._finder, text = None, rest
            if self._is_call:
                said += self._closed(CLOSE)
            self._is_call = not self._is_call

    def _said(self, text: str) -> str:
        """A text without the blanks at its end, which wait for what follows."""
        whole = self._blanks + text
        told = whole.rstrip()
        self._blanks = whole[len(told) :]
        return told

    def _ended(self) -> str:
        """What is left at the end: a call may lack its closing tag, as where that is the model's stop."""
        assert self._finder is not None
        rest = self._finder.end()
        if self._is_call:
            self._held += rest
            told = self._closed("")
        else:
            told = self._said(rest)
        return told if self.calls else told + self._blanks

    def _closed(self, tag: str) -> str:
        """A call was read to its end; what is no call is text."""
        held, self._held = self._held, ""
        if not self._is_read(held):
            return self._said(f"{OPEN}{held}{tag}")
        self._blanks = ""
        return ""

    def _is_read(self, text: str) -> bool:
        """Whether a text is a call of one of the functions, which is then kept, unless it is one too many."""
        try:
            read = read_json(text)
        except ValueError:
            return False
        names = {tool.function.name for tool in self.calling.tools}
        if not isinstance(read, Mapping) or read.keys() != {"name", "arguments"}:
            return False
        if not isinstance(read["name"], str) or read["name"] not in names or not isinstance(read["arguments"], Mapping):
            return False
        if self.calling.is_parallel or not self.calls:
            arguments = json.dumps(read["arguments"], ensure_ascii=False)
            called = {"name": read["name"], "arguments": arguments}
            self.calls.append({"id": f"call_{uuid4().hex[:24]}", "type": "function", "function": called})
        return True
