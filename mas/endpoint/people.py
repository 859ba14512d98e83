"""Questions to people over HTTP: those that are open, and answers to them."""

from dataclasses import dataclass
from typing import Annotated

import msgspec
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from mas.core.errors import RefusedRequest
from mas.endpoint.errors import Refused
from mas.endpoint.exchange import read_body
from mas.runtime.human import HumanDesk


class AnswerRequest(BaseModel):
    """What a person says."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)
    text: Annotated[str, Field(max_length=65_536)]


@dataclass(frozen=True, slots=True)
class PeoplePages:
    """The pages of one desk. `max_body`: bytes."""

    desk: HumanDesk
    max_body: int

    async def questions(self, request: Request) -> Response:
        """All open questions, the oldest first."""
        return JSONResponse({"object": "list", "data": msgspec.to_builtins(self.desk.questions())})

    async def answer(self, request: Request) -> Response:
        """Answer one.

        Raises:
            Refused: the body is not `{"text": ...}`, no such question is open, or its role cannot read the text.
        """
        name, body = request.path_params["name"], await read_body(request, self.max_body)
        try:
            answer = AnswerRequest.model_validate_json(body)
        except ValidationError as error:
            said = error.errors()[0]["msg"]
            raise Refused(400, f'an answer is {{"text": "..."}}: {said[:1].lower()}{said[1:]}', param="text") from None
        if all(name != question.id for question in self.desk.questions()):
            raise Refused(
                404, f"no question {name!r} is open; GET /v1/questions lists those that are", code="no_question"
            )
        try:
            self.desk.answer(name, answer.text)
        except RefusedRequest as error:
            raise Refused(400, str(error), param="text") from error
        await self.desk.kept()
        return JSONResponse({"id": name, "object": "answer"})
