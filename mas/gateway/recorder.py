"""Calls of models as parts of episodes: which episode and role a request is of, and how it is answered.

An episode samples as its training says: the program's own temperature and seed are replaced, so that programs need not
be changed, and equal programs get equal answers. Whatever else the program asks for holds.
"""

import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from mas.core.errors import RefusedRequest
from mas.core.naming import did_you_mean
from mas.core.seeds import digest
from mas.endpoint.completions import Completion, Wanted
from mas.endpoint.errors import Refused
from mas.endpoint.request_lifecycle import Recording
from mas.endpoint.wire import ChatRequest, CompletionRequest
from mas.gateway.queue import EpisodeQueue, Leased
from mas.gateway.recorded import RecordedCall

EPISODE_HEADER = "x-mas-episode"
TASK_HEADER = "x-mas-task"
_PREFIX = "/episodes/"
_KEY = "mas.episode"
_RETRIES = "x-stainless-retry-count"
"""What OpenAI's client says of a request that it sends again."""
_MOST_NAME = 200
EPISODE_NAME = r"^[A-Za-z0-9_.-]{1,200}$"


class EpisodePaths:
    """An application that is also found below `/episodes/KEY`: such requests are of the episode KEY."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"].startswith(_PREFIX):
            key, slash, rest = scope["path"].removeprefix(_PREFIX).partition("/")
            scope = {**scope, "path": slash + rest, "raw_path": (slash + rest).encode(), _KEY: key}
        await self._app(scope, receive, send)


class GatewayRecorder:
    """Its `recording` satisfies `mas.endpoint.request_lifecycle.Recorder`.

    Args:
        temperatures: role -> its own.
        wait_s: how long the first call of an episode waits for a place.
    """

    def __init__(self, queue: EpisodeQueue, temperatures: Mapping[str, float], wait_s: float) -> None:
        self._queue, self._temperatures, self._wait_s = queue, temperatures, wait_s

    @asynccontextmanager
    async def recording(self, http: Request, request: CompletionRequest | ChatRequest) -> AsyncIterator[Recording]:
        """See `Recorder`.

        Raises:
            Refused: the model is no role, or no episode is named that is played now.
        """
        role = request.model
        if role not in self._temperatures:
            what = f"no role {role[:64]!r}: in an episode the model is a role. {did_you_mean(role, self._temperatures)}"
            raise Refused(404, what, param="model", code="model_not_found")
        if request.completions > 1:
            why = "in an episode every completion is a turn: ask once for each"
            raise Refused(400, f"{request.completions} completions of one request: {why}", param="n")
        leased = await self._leased(http)
        place, episode = leased.place, leased.episode
        asked = digest(request.model_dump_json())
        is_retry = http.headers.get(_RETRIES, "0") not in ("", "0")
        number = episode.number_of(role, asked, is_retry=is_retry)
        order, episode.order = episode.order, episode.order + 1
        temperature = place.group.temperature
        changed: dict[str, Any] = {
            "seed": place.seed_of(role, number),
            "temperature": self._temperatures[role] if temperature is None else temperature,
        }
        said: list[tuple[Wanted, Completion]] = []
        try:
            with episode.calling():
                yield Recording(request.model_copy(update=changed), lambda wanted, made: said.append((wanted, made[0])))
        except BaseException as error:
            episode.lose(role, asked, number)
            episode.cut += not isinstance(error, Refused | RefusedRequest)
            raise
        else:
            for wanted, completion in said:
                if wanted.is_echo_only:  # nothing was drawn, so that there is nothing to learn
                    continue
                call = RecordedCall(role=role, number=number, place=order, wanted=wanted, completion=completion)
                episode.calls.append(call)
        finally:
            self._queue.touch(leased)

    async def _leased(self, http: Request) -> Leased:
        """The episode that a request is of."""
        in_path: str | None = http.scope.get(_KEY)
        in_header = http.headers.get(EPISODE_HEADER)
        key, task = in_path or in_header, http.headers.get(TASK_HEADER)
        if key is None:
            raise Refused(
                400,
                "this call is of no episode: use the address of one, such as http://HOST/episodes/KEY/v1, or send the "
                "header X-Mas-Episode",
                code="no_episode",
            )
        if task is None or self._queue.has_tasks:
            return self._queue.find(key)
        if not re.fullmatch(EPISODE_NAME, key) or not 0 < len(task) <= _MOST_NAME:
            raise Refused(
                400,
                f"X-Mas-Episode is {key[:64]!r}, X-Mas-Task {task[:64]!r}: an episode's name has letters, digits, '_', "
                f"'.' and '-', and both have 1 to {_MOST_NAME} characters",
                code="wrong_name",
            )
        return await self._queue.begin(task, key, self._wait_s)
