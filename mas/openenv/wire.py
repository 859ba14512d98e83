"""The messages of OpenEnv's WebSocket, as `openenv` 0.10.0 writes and reads them, and the schemas at `/schema`.

    {"type": "reset", "data": {"seed": 7, "seat": "0"}}  ->  {"type": "observation", "data": {...}}
    {"type": "step", "data": {"action": "Bet"}}          ->  the same, or {"type": "error", "data": {...}}
    {"type": "state"}                                    ->  {"type": "state", "data": {...}}
    {"type": "close"}

Leaves out: messages of type `mcp`, and the stateless `POST /reset` and `/step`, which have no episode.
"""

import json
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from mas.core.errors import MasError
from mas.core.printable import quoted

Code = Literal[
    "INVALID_JSON", "UNKNOWN_TYPE", "VALIDATION_ERROR", "EXECUTION_ERROR", "CAPACITY_REACHED", "SESSION_ERROR"
]
TYPES = ("reset", "step", "state", "close")
_SHOWN = 60
"""Characters of a foreign text that an error repeats."""
_Name = Annotated[str, Field(min_length=1, max_length=255)]


class BadMessage(MasError):
    """A message that is answered with an error; the session goes on. `code`: one of OpenEnv's."""

    def __init__(self, code: Code, message: str) -> None:
        super().__init__(message)
        self.code = code


class ResetData(BaseModel):
    """`seed`: number of the task, drawn if left out. `split`: which tasks. `seat`: the seat of this session; the first
    one if left out. `match`: name of a game that sessions share, one in each seat. `wait`: answer when this seat must
    move or the game is over, not at once."""

    model_config = ConfigDict(extra="forbid", strict=True)

    seed: Annotated[int, Field(ge=0, lt=2**63)] | None = None
    episode_id: _Name | None = None
    split: Literal["train", "eval"] = "train"
    seat: _Name | None = None
    match: _Name | None = None
    wait: bool = True


class ActionData(BaseModel):
    """`action`: what the seat does, as text; an empty one passes. `metadata` is OpenEnv's, and read by nobody."""

    model_config = ConfigDict(extra="forbid", strict=True)

    action: str
    metadata: dict[str, Any] = {}


class SeatObservation(BaseModel):
    """What a seat sees: `seen` in words, `legal` its actions where they can be listed, `to_move` the seats that must
    act now, `illegal` whether its last action was none."""

    seat: str
    seen: str
    legal: list[str] | None
    to_move: list[str]
    illegal: bool


class SeatState(BaseModel):
    """Where the game stands for a seat: `fields` of its view, `terms` that it was paid by name, `success` at the
    end where there is one seat."""

    episode_id: str | None
    step_count: int
    seat: str | None
    seats: list[str]
    to_move: list[str]
    fields: dict[str, str]
    legal: list[str] | None
    terms: dict[str, float]
    done: bool
    success: bool | None


def schemas() -> dict[str, Any]:
    """What `GET /schema` answers."""
    return {
        "action": ActionData.model_json_schema(),
        "observation": SeatObservation.model_json_schema(),
        "state": SeatState.model_json_schema(),
    }


def read_message(text: str | bytes) -> tuple[str, Mapping[str, Any]]:
    """Type and data of a client's message.

    Raises:
        BadMessage: it is no JSON, or of another form.
    """
    try:
        message = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadMessage("INVALID_JSON", f"the message is no JSON: {str(error)[:_SHOWN]}") from None
    if not isinstance(message, dict):
        raise BadMessage("VALIDATION_ERROR", 'a message is a JSON object such as {"type": "reset", "data": {}}')
    kind, data = message.get("type"), message.get("data", {})
    if kind not in TYPES:
        raise BadMessage("UNKNOWN_TYPE", f"no message of type {shown(kind)}. Possible: {', '.join(TYPES)}")
    if not isinstance(data, dict):
        raise BadMessage("VALIDATION_ERROR", f"data of {kind} is {shown(data)}; write a JSON object")
    return kind, data


def read_reset(data: Mapping[str, Any]) -> ResetData:
    """Arguments of `reset`.

    Raises:
        BadMessage: one is unknown or wrong.
    """
    try:
        return ResetData.model_validate(data)
    except ValidationError as error:
        raise _wrong("reset", error, ResetData) from None


def read_action(data: Mapping[str, Any]) -> str:
    """The text of a step's action; what no encoding has is `?`.

    Raises:
        BadMessage: it is no action.
    """
    try:
        return ActionData.model_validate(data).action.encode(errors="replace").decode()
    except ValidationError as error:
        raise _wrong("step", error, ActionData) from None


def written(kind: Literal["observation", "state"], data: Mapping[str, Any]) -> str:
    """An answer as text."""
    return json.dumps({"type": kind, "data": data})


def written_error(code: Code, message: str) -> str:
    """An error as text."""
    return json.dumps({"type": "error", "data": {"message": message, "code": code}})


def shown(value: object) -> str:
    """A foreign value in an error."""
    text = value if isinstance(value, str) else json.dumps(value)
    return quoted(text if len(text) <= _SHOWN else f"{text[:_SHOWN]}...")


def _wrong(kind: str, error: ValidationError, model: type[BaseModel]) -> BadMessage:
    problem = error.errors()[0]
    key = ".".join(map(str, problem["loc"])) or "data"
    value = "" if problem["type"] in ("missing", "extra_forbidden") else f" is {shown(problem['input'])}"
    return BadMessage(
        "VALIDATION_ERROR",
        f"{kind}: {key}{value}: {problem['msg']}. Possible: {', '.join(model.model_fields)}",
    )
