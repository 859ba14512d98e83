"""The Responses API: `POST /v1/responses` is a chat in another form, of one answer, whole or in events.

Leaves out on purpose what a server would have to keep: `previous_response_id`, `conversation`, `store`, `background`.
Clients send the items of a conversation again, as `store=False` asks of them anyway.
"""

import time
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal
from uuid import uuid4

from pydantic import BaseModel, BeforeValidator, Field, field_validator
from starlette.types import Send

from mas.endpoint.errors import Refused
from mas.endpoint.formats import JsonFormat, JsonObject, TextFormat
from mas.endpoint.function_tools import FunctionName, NamedFunction
from mas.endpoint.response_format import EndpointReply, Json, encoded
from mas.endpoint.wire import LONGEST_NAME, MOST_MESSAGES, MOST_TOOLS, ChatRequest, joined_parts, read_fields
from mas.endpoint.wire_base import Wire

_NAMES = {"max_tokens": "max_output_tokens", "response_format": "text.format", "messages": "input"}
"""Field of a chat -> what a client of this API calls it; for errors."""


def _text(value: object) -> object:
    """A text in parts as one, line by line. What parts have beside their texts, such as annotations, is not used."""
    return joined_parts(value, ("input_text", "output_text", "text"))


ItemText = Annotated[str, BeforeValidator(_text)]


class MessageItem(BaseModel):
    """A message of the conversation; `id` and `status`, as answers have them, are not used."""

    type: Literal["message"]
    role: Literal["user", "assistant", "system", "developer"]
    content: ItemText

    def chat(self) -> Json:
        return {"role": self.role, "content": self.content}


class CallItem(BaseModel):
    """A call that an earlier answer made."""

    type: Literal["function_call"]
    call_id: str
    name: str
    arguments: str = "{}"

    def chat(self) -> Json:
        called = {"name": self.name, "arguments": self.arguments}
        return {"role": "assistant", "tool_calls": [{"id": self.call_id, "type": "function", "function": called}]}


class ResultItem(BaseModel):
    """What a function answered."""

    type: Literal["function_call_output"]
    call_id: str
    output: ItemText

    def chat(self) -> Json:
        return {"role": "tool", "tool_call_id": self.call_id, "content": self.output}


Item = Annotated[MessageItem | CallItem | ResultItem, Field(discriminator="type")]


class FlatTool(Wire):
    """A function as this API writes it. `strict` is taken and not used, as in chats."""

    type: Literal["function"]
    name: FunctionName
    description: str | None = None
    parameters: JsonObject | None = None
    strict: bool | None = None


class FlatChoice(NamedFunction):
    """The one function that must be called."""

    type: Literal["function"]


class FlatSchema(Wire):
    """JSON of a schema."""

    type: Literal["json_schema"]
    name: Annotated[str, Field(max_length=LONGEST_NAME)] = ""
    description: str | None = None
    strict: bool | None = None
    schema_: Annotated[JsonObject, Field(alias="schema")]


class TextOptions(Wire):
    """The form of the answer's text. `verbosity`: medium, which changes nothing."""

    format: Annotated[TextFormat | JsonFormat | FlatSchema, Field(discriminator="type")] | None = None
    verbosity: Literal["medium"] | None = None


class ResponsesRequest(Wire):
    """A conversation to be continued.

    Attributes:
        instructions: the system message.
        include: taken and not used: nothing that could be included is made here.
    """

    model: Annotated[str, Field(max_length=LONGEST_NAME)]
    input: Annotated[list[Item], Field(min_length=1, max_length=MOST_MESSAGES)]
    instructions: str = ""
    tools: Annotated[list[FlatTool], Field(max_length=MOST_TOOLS)] = Field(default_factory=list)
    tool_choice: Literal["none", "auto", "required"] | FlatChoice = "auto"
    parallel_tool_calls: bool = True
    text: TextOptions = TextOptions()
    max_output_tokens: Annotated[int, Field(ge=1)] | None = None
    temperature: float | None = None
    top_p: float = 1.0
    stream: bool = False
    include: list[str] = Field(default_factory=list)

    @field_validator("input", mode="before")
    @classmethod
    def _items(cls, value: object) -> object:
        """A text is a message of the user; an item without a type is a message."""
        items = [{"role": "user", "content": value}] if isinstance(value, str) else value
        if not isinstance(items, list):
            return items
        return [{"type": "message", **item} if isinstance(item, dict) else item for item in items]

    def chat(self) -> ChatRequest:
        """The chat that asks the same.

        Raises:
            Refused: a value is not possible in a chat.
        """
        fields: Json = {
            "model": self.model,
            "messages": _merged([item.chat() for item in self.input]),
            "max_tokens": self.max_output_tokens,
            "temperature": self.temperature,
            "top_p": self.top_p,
            "stream": self.stream,
            "response_format": self._format(),
        }
        if self.instructions:
            fields["messages"].insert(0, {"role": "system", "content": self.instructions})
        if self.stream:
            fields["stream_options"] = {"include_usage": True}
        if self.tools:
            fields |= {
                "tools": [_nested(tool) for tool in self.tools],
                "tool_choice": _nested(self.tool_choice)
                if isinstance(self.tool_choice, FlatChoice)
                else self.tool_choice,
                "parallel_tool_calls": self.parallel_tool_calls,
            }
        elif self.tool_choice not in ("auto", "none"):
            raise Refused(400, "tool_choice needs tools to choose from", param="tool_choice")
        return read_fields(fields, ChatRequest)

    def repeated(self) -> Json:
        """What a response repeats of it. Schemas stay as they are, however deeply they nest."""
        wanted = self.text.format
        shown = {} if wanted is None else {name.removesuffix("_"): value for name, value in wanted}
        return self.model_dump(exclude={"input", "stream", "include", "tools", "text"}) | {
            "tools": [dict(tool) for tool in self.tools],
            "text": {"format": shown or {"type": "text"}},
        }

    def _format(self) -> Json | None:
        wanted = self.text.format
        if isinstance(wanted, FlatSchema):
            return {"type": "json_schema", "json_schema": {"name": wanted.name, "schema": wanted.schema_}}
        return None if wanted is None else {"type": wanted.type}


def _nested(flat: FlatTool | FlatChoice) -> Json:
    """A function as chats write it."""
    return {"type": "function", "function": {k: v for k, v in flat if k != "type" and v is not None}}


def _merged(messages: Sequence[Json]) -> list[Json]:
    """The texts and calls that one answer has are one message."""
    found: list[Json] = []
    for message in messages:
        if found and found[-1]["role"] == message["role"] == "assistant":
            both = (found[-1], message)
            texts = [one["content"] for one in both if one.get("content")]
            calls = [call for one in both for call in one.get("tool_calls", ())]
            found[-1] = {"role": "assistant", "content": "\n".join(texts), "tool_calls": calls}
        else:
            found.append(message)
    return found


class ResponsesReply(EndpointReply):
    """Sends the answer of a chat as a response, or as the events of one."""

    def __init__(self, send: Send) -> None:
        super().__init__(send)
        self._request: ResponsesRequest | None = None
        self._id, self._created = f"resp_{uuid4().hex}", int(time.time())
        self._number = 0
        self._items: list[Json] = []
        self._said = ""
        self._finish, self._more = "", dict[str, Any]()
        self._usage: Json | None = None

    def begin(self, request: Wire) -> Wire:
        assert isinstance(request, ResponsesRequest)
        self._request = request
        return request.chat()

    async def whole(self, answer: Mapping[str, Any]) -> None:
        (choice,) = answer["choices"]
        message = choice["message"]
        self._note(answer)
        if message["content"]:
            self._items.append(_message(message["content"], self._status))
        self._items += [_call(call) for call in message.get("tool_calls", ())]
        await super().whole(self._response(self._status))

    async def event(self, answer: Mapping[str, Any]) -> None:
        if not self._number:
            await self._tell("response.created", response=self._response("in_progress"))
            await self._tell("response.in_progress", response=self._response("in_progress"))
        self._note(answer)
        for choice in answer["choices"]:
            delta = choice["delta"]
            if text := delta.get("content"):
                await self._text(text)
            for call in delta.get("tool_calls", ()):
                await self._end_text()
                await self._call(_call(call))

    async def done(self) -> None:
        await self._end_text()
        status = self._status
        await self._tell(f"response.{status}", response=self._response(status))
        await self.close()

    async def fail(self, error: Refused) -> None:
        error = _renamed(error)
        if not self._number:
            await super().fail(error)
            return
        self.status = error.status
        if self._said:
            self._items[-1] |= {"status": "incomplete", "content": [_part(self._said)]}
        told = {"code": "rate_limit_exceeded" if error.status == 429 else "server_error", "message": str(error)}
        await self._tell("response.failed", response=self._response("failed") | {"error": told})
        await self.close()

    @property
    def _status(self) -> str:
        return "incomplete" if self._finish == "length" else "completed"

    def _note(self, answer: Mapping[str, Any]) -> None:
        """Keep what the response says beside its items."""
        self._usage = answer.get("usage") or self._usage
        self._more["adapter"] = answer["adapter"]
        for choice in answer["choices"]:
            self._finish = choice.get("finish_reason") or self._finish
            if "passed" in choice:
                self._more["passed"] = choice["passed"]

    async def _text(self, text: str) -> None:
        """More of a message, which may have to begin first."""
        if not self._said:
            item = _message("", "in_progress") | {"content": []}
            self._items.append(item)
            await self._tell("response.output_item.added", output_index=self._last, item=item)
            await self._tell("response.content_part.added", **self._place, part=_part(""))
        self._said += text
        await self._tell("response.output_text.delta", **self._place, delta=text, logprobs=[])

    async def _end_text(self) -> None:
        """End the message that is told, if there is one."""
        if not self._said:
            return
        text, place = self._said, self._place
        self._said = ""
        self._items[-1] |= _message(text, self._status) | {"id": place["item_id"]}
        await self._tell("response.output_text.done", **place, text=text, logprobs=[])
        await self._tell("response.content_part.done", **place, part=_part(text))
        await self._tell("response.output_item.done", output_index=self._last, item=self._items[-1])

    async def _call(self, item: Json) -> None:
        """A call of a function, whole."""
        self._items.append(item)
        begun = item | {"status": "in_progress", "arguments": ""}
        place = {"item_id": item["id"], "output_index": self._last}
        kind = "response.function_call_arguments"
        await self._tell("response.output_item.added", output_index=self._last, item=begun)
        await self._tell(f"{kind}.delta", **place, delta=item["arguments"])
        await self._tell(f"{kind}.done", **place, name=item["name"], arguments=item["arguments"])
        await self._tell("response.output_item.done", output_index=self._last, item=item)

    @property
    def _last(self) -> int:
        return len(self._items) - 1

    @property
    def _place(self) -> Json:
        return {"item_id": self._items[-1]["id"], "output_index": self._last, "content_index": 0}

    async def _tell(self, kind: str, **fields: object) -> None:
        event = {"type": kind, "sequence_number": self._number, **fields}
        self._number += 1
        await self.send_event(b"event: %b\ndata: %b\n\n" % (kind.encode(), encoded(event)))

    def _response(self, status: str) -> Json:
        request = self._request
        assert request is not None
        usage = self._usage and {
            "input_tokens": self._usage["prompt_tokens"],
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens": self._usage["completion_tokens"],
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": self._usage["total_tokens"],
        }
        return request.repeated() | {
            "id": self._id,
            "object": "response",
            "created_at": self._created,
            "status": status,
            "error": None,
            "incomplete_details": {"reason": "max_output_tokens"} if status == "incomplete" else None,
            "instructions": request.instructions or None,
            "output": list(self._items),
            "usage": usage,
            "metadata": {},
            "previous_response_id": None,
            "store": False,
            "truncation": "disabled",
            **self._more,
        }


def _renamed(error: Refused) -> Refused:
    """With the name that this API has for what is wrong."""
    field, dot, rest = (error.param or "").partition(".")
    if field not in _NAMES:
        return error
    message = str(error).replace(field, _NAMES[field], 1)
    return Refused(error.status, message, param=_NAMES[field] + dot + rest, code=error.code)


def _message(text: str, status: str) -> Json:
    content = [_part(text)]
    return {"id": f"msg_{uuid4().hex}", "type": "message", "role": "assistant", "status": status, "content": content}


def _part(text: str) -> Json:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def _call(call: Mapping[str, Any]) -> Json:
    called = call["function"]
    return {
        "id": f"fc_{uuid4().hex}",
        "type": "function_call",
        "call_id": call["id"],
        "name": called["name"],
        "arguments": called["arguments"],
        "status": "completed",
    }
