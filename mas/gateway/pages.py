"""What programs ask the gateway beside calls of models: for an episode, to take its reward, and how it stands."""

from collections.abc import Sequence
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from mas.endpoint.errors import Refused
from mas.endpoint.limits import ConnectionGate, Disconnected
from mas.endpoint.request_lifecycle import GONE, read_body
from mas.gateway.queue import EpisodeQueue, Leased
from mas.gateway.recorded import EpisodeEnd
from mas.gateway.recorder import EPISODE_NAME

REWARD_HEADER = "x-mas-reward"
LEASE_WAIT_S = 20.0
"""How long a program waits for an episode before it is told to ask again."""
_MOST_BODY = 65_536
Name = Annotated[str, Field(min_length=1, max_length=200)]
Body = TypeVar("Body", bound=BaseModel)


class EpisodeBegin(BaseModel):
    """What a program says of an episode that it begins, where it has tasks of its own. `task`: a name that is equal for
    equal tasks; `id`: how it calls the episode."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    task: Name | None = None
    id: Annotated[str, Field(pattern=EPISODE_NAME)] | None = None


class EpisodePages:
    """The routes below `/v1/episodes`.

    Args:
        gate: of the endpoint.
        wait_s: how long the beginning of a task of a program's own waits for a place; lease_s: how long a program waits
            for one that is given to it.
    """

    def __init__(self, queue: EpisodeQueue, gate: ConnectionGate, wait_s: float, lease_s: float = LEASE_WAIT_S) -> None:
        self._queue, self._gate, self._wait_s, self._lease_s = queue, gate, wait_s, lease_s

    def routes(self) -> Sequence[Route]:
        """All of them."""
        return (
            Route("/v1/episodes", self.counts, methods=["GET"]),
            Route("/v1/episodes", self.begin, methods=["POST"]),
            Route("/v1/episodes/{key}/end", self.end, methods=["POST"]),
        )

    async def counts(self, request: Request) -> Response:
        """How many episodes are wanted now, and what has become of them."""
        return JSONResponse({"object": "episodes", **self._queue.counts, "over": self._queue.over or None})

    async def begin(self, request: Request) -> Response:
        """An episode to play; or that there is none now, or no more."""
        asked = await _read(request, EpisodeBegin, "an episode is begun")
        leased = None
        try:
            async with self._gate.connected(request.receive):  # who leaves while it waits takes no episode along
                leased = await self._begun(asked)
        except Disconnected:
            if leased is not None and self._queue.has_tasks:  # it came in the moment in which the program left
                await self._queue.give_back(leased)
            return Response(status_code=GONE)
        if leased is not None:
            return JSONResponse(self._shown(request, leased))
        if self._queue.over:
            return JSONResponse({"object": "over", "reason": self._queue.over})
        return JSONResponse({"object": "wait"})

    async def _begun(self, asked: EpisodeBegin) -> Leased | None:
        """The episode that a program plays now, None: there is none."""
        if self._queue.has_tasks:
            if asked.task is not None or asked.id is not None:
                raise Refused(400, "the tasks are given out here: send {}", param="task")
            return await self._queue.lease(self._lease_s)
        if asked.task is None or asked.id is None:
            raise Refused(400, 'the program has tasks of its own here: send {"task": NAME, "id": NAME}', param="task")
        return await self._queue.begin(asked.task, asked.id, self._wait_s)

    async def end(self, request: Request) -> Response:
        """The episode's reward, or why it could not be played."""
        header = request.headers.get(REWARD_HEADER)
        if header is None:
            end = await _read(request, EpisodeEnd, "an episode is ended")
        else:
            end = _rewarded(header)
        await self._queue.end(request.path_params["key"], end)
        return JSONResponse({"object": "ended"})

    def _shown(self, request: Request, leased: Leased) -> dict[str, Any]:
        group, key = leased.place.group, leased.episode.key
        return {
            "object": "episode",
            "id": key,
            "task": group.task if group.row is None else group.row,
            "kind": group.kind,
            "base_url": f"{request.url.scheme}://{request.url.netloc}/episodes/{key}/v1",
        }


async def _read(request: Request, kind: type[Body], what: str) -> Body:
    body = await read_body(request, _MOST_BODY)
    try:
        return kind.model_validate_json(body)
    except ValidationError as error:
        detail = error.errors()[0]
        place = ".".join(map(str, detail["loc"]))
        said = detail["msg"].removeprefix("Value error, ")
        fields = ", ".join(kind.model_fields)
        raise Refused(
            400, f"{what} with {fields}: {place + ': ' if place else ''}{said}", param=place or None
        ) from None


def _rewarded(header: str) -> EpisodeEnd:
    try:
        return EpisodeEnd(reward=float(header))
    except ValueError:  # pydantic's, too
        raise Refused(400, f"X-Mas-Reward is {header[:40]!r}; a finite number was expected") from None
