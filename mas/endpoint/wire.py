"""Requests as they come over the wire: OpenAI's fields, those of vLLM's dialect, and a clear no to everything else.

Fields that are null count as left out. An option that engines cannot honour is refused unless it has its neutral
value, which changes nothing.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Annotated, Literal, TypeVar

from pydantic import AliasChoices, BaseModel, Field, ValidationError, field_validator

from mas.core.naming import did_you_mean
from mas.endpoint.errors import Refused
from mas.endpoint.formats import ResponseFormat, StructuredOutputs
from mas.endpoint.function_tools import FunctionCall, FunctionChoice, FunctionTool
from mas.endpoint.wire_base import Wire, read_json
from mas.serving.model_text import MOST_ALTERNATIVES

LONGEST_STOP = 256
"""Characters. Every piece of a streamed text is compared with every beginning of a stop."""
LONGEST_NAME = 256
"""Characters of a name that an error repeats and compares with those that are possible."""
MOST_MESSAGES = 4096
MOST_TOOLS = 128
MOST_FIELDS = 256
MOST_COMPLETIONS = 128
"""Of one request, all its prompts together."""
StopIds = Annotated[tuple[Annotated[int, Field(ge=0, lt=2**31)], ...], Field(strict=False, max_length=256)]
StopText = Annotated[str, Field(min_length=1, max_length=LONGEST_STOP)]
StopTexts = Annotated[tuple[StopText, ...], Field(strict=False, max_length=64)]


class StreamOptions(Wire):
    """`include_usage`: one more chunk at the end, with the tokens used."""

    include_usage: bool = False


class Sampled(Wire):
    """What completions and chats have in common.

    Attributes:
        max_tokens, temperature, stop: None: as the role that is asked has them.
        top_p, top_k, min_p: see `mas.core.engine.Sampling`; `top_k` may also be -1 for no limit.
        n: how many completions; the i-th is drawn with `seed` + i.
        seed: None: a random one.
        stop: texts that end a completion and are no part of it.
        stop_token_ids: ids that end a completion; `ignore_eos` leaves out the model's own.
        return_token_ids: whether prompt and completion come as ids, too.
        return_tokens_as_token_ids: whether tokens beside log-probabilities are written `token_id:7`.
        return_messages: whether a team's answer says what its members said, too.
        response_format, structured_outputs: what form a completion has; at most one of them.
    """

    model: Annotated[str, Field(max_length=LONGEST_NAME)]
    max_tokens: Annotated[int, Field(ge=1)] | None = Field(
        default=None, validation_alias=AliasChoices("max_completion_tokens", "max_tokens")
    )
    temperature: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None
    top_p: Annotated[float, Field(gt=0, le=1)] = 1.0
    top_k: Annotated[int, Field(ge=-1, lt=2**31)] = 0
    min_p: Annotated[float, Field(ge=0, le=1)] = 0.0
    n: Annotated[int, Field(ge=1, le=MOST_COMPLETIONS)] = 1
    seed: Annotated[int, Field(ge=-(2**63), lt=2**64)] | None = None
    stop: StopTexts | None = None
    stop_token_ids: StopIds = ()
    ignore_eos: bool = False
    stream: bool = False
    stream_options: StreamOptions | None = None
    return_token_ids: bool = False
    return_tokens_as_token_ids: bool = False
    return_messages: bool = False
    response_format: ResponseFormat | None = None
    structured_outputs: StructuredOutputs | None = None

    @property
    def completions(self) -> int:
        return self.n

    @field_validator("stop", mode="before")
    @classmethod
    def _one_stop(cls, value: object) -> object:
        return (value,) if isinstance(value, str) else value


Prompt = str | tuple[int, ...]


class CompletionRequest(Sampled):
    """A raw prompt, as text or token ids, or several of them.

    Attributes:
        prompt: each of several is continued `n` times, with the same seeds as if it were alone.
        max_tokens: 0 only with `echo`: nothing but the prompt is returned.
        echo: whether choices begin with the prompt, and `logprobs` with those of its tokens, of temperature 1.
        logprobs: those of the chosen tokens, and of so many of the most likely ones; None: none.
        prompt_logprobs: 0: those of the prompt's own tokens; None: none.
        add_special_tokens: whether a text begins with what the model expects before every text.
    """

    prompt: Prompt | tuple[Prompt, ...]
    max_tokens: Annotated[int, Field(ge=0)] | None = Field(
        default=None, validation_alias=AliasChoices("max_completion_tokens", "max_tokens")
    )
    echo: bool = False
    logprobs: Annotated[int, Field(ge=0, le=MOST_ALTERNATIVES)] | None = None
    prompt_logprobs: Literal[0] | None = None
    add_special_tokens: bool = True

    @field_validator("prompt", mode="before")
    @classmethod
    def _read_prompt(cls, value: object) -> object:
        if isinstance(value, list) and value and all(isinstance(one, str | list) for one in value):
            if len(value) > MOST_COMPLETIONS:
                raise ValueError(f"{len(value)} prompts are too many: at most {MOST_COMPLETIONS} in one request")
            return tuple([_one_prompt(one) for one in value])
        return _one_prompt(value)

    @property
    def prompts(self) -> tuple[Prompt, ...]:
        """All prompts, also a single one."""
        if isinstance(self.prompt, str):
            return (self.prompt,)
        texts = tuple([one for one in self.prompt if not isinstance(one, int)])
        return texts or (tuple([token for token in self.prompt if isinstance(token, int)]),)

    @property
    def completions(self) -> int:
        return self.n * len(self.prompts)


def _one_prompt(value: object) -> Prompt:
    if isinstance(value, str):
        return value
    if isinstance(value, list) and all(type(token) is int for token in value):
        return tuple(value)
    raise ValueError("a text, a list of token ids, or a list of several of these was expected")


def joined_parts(value: object, kinds: Sequence[str]) -> object:
    """A content in parts of these kinds as one text, line by line; anything but a list stays as it is.

    Raises:
        ValueError: a part is of another kind, or has no text.
    """
    if not isinstance(value, list):
        return value
    texts = [part.get("text") for part in value if isinstance(part, dict) and part.get("type") in kinds]
    if len(texts) < len(value) or not all(isinstance(text, str) for text in texts):
        raise ValueError(f'a text was expected, or parts of {{"type": "{kinds[0]}", "text": ...}} only')
    return "\n".join(map(str, texts))


class ChatMessage(Wire):
    """One message of a conversation; a content in parts is read as their texts, line by line.

    Attributes:
        tool_calls: of an assistant's message, the functions that it called.
        tool_call_id: of a tool's message, the call that it is the result of.
        name: of who speaks; taken and not used.
    """

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str = ""
    tool_calls: Annotated[tuple[FunctionCall, ...], Field(strict=False, max_length=MOST_TOOLS)] = ()
    tool_call_id: Annotated[str, Field(max_length=LONGEST_NAME)] = ""
    name: Annotated[str, Field(max_length=LONGEST_NAME)] = ""

    @field_validator("content", mode="before")
    @classmethod
    def _text(cls, value: object) -> object:
        return joined_parts(value, ("text",))


class ChatRequest(Sampled):
    """A conversation to be continued.

    Attributes:
        top_logprobs: how many of the most likely tokens are told beside each chosen one; needs `logprobs`.
        tools: functions that the client can call for the model.
        tool_choice: whether one must be called, and which.
        parallel_tool_calls: whether an answer may call several.
    """

    messages: Annotated[tuple[ChatMessage, ...], Field(strict=False, min_length=1)]
    logprobs: bool = False
    top_logprobs: Annotated[int, Field(ge=0, le=MOST_ALTERNATIVES)] = 0
    tools: Annotated[tuple[FunctionTool, ...], Field(strict=False, max_length=MOST_TOOLS)] = ()
    tool_choice: Literal["none", "auto", "required"] | FunctionChoice = "auto"
    parallel_tool_calls: bool = True


Request = TypeVar("Request", bound=Wire)

LABELS = frozenset({"user", "metadata", "safety_identifier", "prompt_cache_key", "service_tier"})
"""For a provider's book-keeping: taken and not used."""

NEUTRAL: Mapping[str, Sequence[object]] = {
    "presence_penalty": (0,),
    "frequency_penalty": (0,),
    "repetition_penalty": (1,),
    "length_penalty": (1,),
    "logit_bias": ({},),
    "best_of": (1,),
    "use_beam_search": (False,),
    "min_tokens": (0,),
    "bad_words": ([],),
    "allowed_token_ids": ([],),
    "skip_special_tokens": (True,),
    "spaces_between_special_tokens": (True,),
    "include_stop_str_in_output": (False,),
    "echo": (False,),
    "suffix": ("",),
    "priority": (0,),
    "store": (False,),
    "background": (False,),
    "truncation": ("disabled",),
    "previous_response_id": (),
    "conversation": (),
    "max_tool_calls": (),
    "reasoning": ({"effort": "none"},),
    "functions": ([],),
    "function_call": ("none", "auto"),
    "modalities": (["text"],),
    "reasoning_effort": ("none",),
    "add_generation_prompt": (True,),
    "continue_final_message": (False,),
}
"""Option -> the values that change nothing; every other value is refused."""


def read_request(body: bytes, kind: type[Request]) -> Request:
    """The request in a body.

    Raises:
        Refused: it is no JSON object, or a field is unknown, missing, wrong or cannot be honoured; says which.
    """
    try:
        read = read_json(body)
    except ValueError as error:
        raise Refused(400, f"the body is not JSON: {error}") from None
    if not isinstance(read, dict):
        raise Refused(400, f"the body is a JSON {type(read).__name__}, but an object was expected")
    return read_fields(read, kind)


def read_fields(given: Mapping[str, object], kind: type[Request]) -> Request:
    """The request that these fields make.

    Raises:
        Refused: as `read_request`.
    """
    fields = {name: value for name, value in given.items() if value is not None and name not in LABELS}
    if len(fields) > MOST_FIELDS:
        raise Refused(400, f"{len(fields)} options are too many: there are fewer than {MOST_FIELDS}")
    for name in [name for name in fields if name in NEUTRAL and name not in kind.model_fields]:
        _check_neutral(name, fields.pop(name))
    if {"max_tokens", "max_completion_tokens"} <= fields.keys():
        raise Refused(400, "max_tokens and max_completion_tokens mean the same: give one of them", param="max_tokens")
    if "messages" in fields:
        fields["messages"] = _messages(fields["messages"])
    try:
        request = kind.model_validate(fields)
    except ValidationError as error:
        raise _problem(error, kind) from None
    if isinstance(request, Sampled) and request.stream_options is not None and not request.stream:
        raise Refused(400, "stream_options is only possible with stream: true", param="stream_options")
    if isinstance(request, CompletionRequest):
        _check_completion(request)
    if isinstance(request, ChatRequest) and request.top_logprobs and not request.logprobs:
        raise Refused(400, "top_logprobs is only possible with logprobs: true", param="top_logprobs")
    return request


def _check_completion(request: CompletionRequest) -> None:
    if request.completions > MOST_COMPLETIONS:
        many = f"{len(request.prompts)} prompts with n={request.n} are {request.completions} completions"
        raise Refused(400, f"{many}: at most {MOST_COMPLETIONS} are possible in one request", param="prompt")
    if request.max_tokens == 0 and not request.echo:
        raise Refused(400, "max_tokens=0 is only possible with echo: true; give at least 1", param="max_tokens")
    if not request.stream:
        return
    if request.prompt_logprobs is not None or request.echo:
        name = "echo" if request.echo else "prompt_logprobs"
        raise Refused(400, f"{name} cannot be streamed: leave out stream", param=name)
    if len(request.prompts) > 1:
        raise Refused(400, "several prompts cannot be streamed: leave out stream, or send one prompt", param="prompt")


def _check_neutral(name: str, value: object) -> None:
    neutral = NEUTRAL[name]
    if value not in neutral:
        possible = " or ".join(json.dumps(one) for one in (*neutral, *([] if neutral else [None])))
        raise Refused(
            400,
            f"{name}={_shown(value)} is not supported. Leave it out, or set it to {possible}, which changes nothing",
            param=name,
            code="unsupported_option",
        )


def _messages(messages: object) -> object:
    """The messages without their empty fields: clients send back what they got, such as `tool_calls: []`."""
    if not isinstance(messages, list):
        return messages
    if len(messages) > MOST_MESSAGES:
        raise Refused(400, f"{len(messages)} messages are too many: at most {MOST_MESSAGES}", param="messages")
    empty: tuple[object, ...] = (None, [], {})
    return [
        {name: value for name, value in message.items() if value not in empty} if isinstance(message, dict) else message
        for message in messages
    ]


def _problem(error: ValidationError, kind: type[BaseModel]) -> Refused:
    """The first thing that is wrong."""
    detail = error.errors()[0]
    place = [str(part) for part in detail["loc"]]
    name = ".".join(place) or "the request"
    if len(name) > LONGEST_NAME:
        return Refused(400, f"no option has a name of {len(name)} characters", code="unsupported_option")
    if detail["type"] == "extra_forbidden" and len(place) == 1:
        message = f"no option {name!r} here. {did_you_mean(name, kind.model_fields)}"
        return Refused(400, message, param=name, code="unsupported_option")
    if detail["type"] == "missing":
        return Refused(400, f"{name} is missing", param=name)
    said = detail["msg"].removeprefix("Value error, ")
    return Refused(400, f"{name}={_shown(detail['input'])} is not possible: {said[:1].lower()}{said[1:]}", param=name)


def _shown(value: object) -> str:
    text = json.dumps(value[:80] if isinstance(value, str | list | tuple) else value, default=str)
    return text if len(text) <= 80 else f"{text[:77]}..."
