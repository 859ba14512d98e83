"""What a program needs to be trained: which episode to play, where to call the models, and how to say how it went.

    from mas.gateway.client import Gateway

    for episode in Gateway("http://127.0.0.1:8000").episodes():
        with episode:
            client = OpenAI(base_url=episode.base_url, api_key="none")
            answer = my_agent(client, episode.task)
            episode.end(float(answer == episode.task["answer"]))

Any number of processes may do so at the same time. Nothing is needed but the standard library.
"""

import json
import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from http.client import HTTPException
from types import TracebackType
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import quote
from urllib.request import ProxyHandler, Request, build_opener

RETRY_S = 60.0
"""How long a gateway that does not answer is asked again, say while it is started again."""
_PAUSE_S = 0.5
_ANSWER_S = 600.0
_OPENER = build_opener(ProxyHandler({}))


class GatewayError(Exception):
    """The gateway refused something, or does not answer. `status`: of HTTP; 0: it does not answer. It is no error of
    `mas.core.errors`, since this module stands alone."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


@dataclass(slots=True)
class GatewayEpisode:
    """An episode to be played.

    Attributes:
        task: the row of the tasks' file; or the name of a task of your own.
        kind: `train`; or `greedy` or `sampled`, which are evaluations, played in the same way.
        base_url: where its calls go, for clients of OpenAI's API; the model is the name of a role.
    """

    gateway: "Gateway"
    id: str
    task: Any
    kind: str
    base_url: str
    is_over: bool = field(default=False, init=False)

    @property
    def headers(self) -> dict[str, str]:
        """What to send instead to the gateway's own address, for programs whose address cannot change."""
        return {"X-Mas-Episode": self.id}

    def end(self, reward: float, *, rewards: Mapping[str, float] | None = None, success: bool | None = None) -> None:
        """The episode is over.

        Args:
            reward: of the whole team. rewards: role -> what it alone is paid besides.
            success: whether the task is solved; None: if the reward is 1 or more.
        """
        said: dict[str, Any] = {"reward": reward, "rewards": dict(rewards or {}), "success": success}
        self._end(said)

    def fail(self, cause: str) -> None:
        """It could not be played, for a reason that is not the models': it is played again, and not learned from."""
        text = cause[:4096].encode(errors="replace").decode()  # JSON has no half of a character
        self._end({"failed": text or "no cause was given"})

    def _end(self, said: Mapping[str, Any]) -> None:
        try:
            self.gateway.post(f"/v1/episodes/{quote(self.id, safe='')}/end", said)
        except GatewayError as error:
            if error.status not in (404, 410):  # it was given up meanwhile: somebody else plays it
                raise
        self.is_over = True

    def __enter__(self) -> "GatewayEpisode":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.is_over or (isinstance(error, GatewayError) and error.status == 0):  # which was asked long enough
            return
        try:
            self.fail(f"{kind.__name__}: {error}" if kind is not None else "the program did not say how it went")
        except GatewayError:
            if kind is None:  # else what ended the block is said, not that the gateway did not hear of it
                raise


class Gateway:
    """A gateway of `mas gateway`.

    Args:
        url: its address, as `http://127.0.0.1:8000`.
        key: None: the variable MAS_API_KEY, if there is one.
        retry_s: how long it is asked again when it does not answer.
    """

    def __init__(self, url: str = "http://127.0.0.1:8000", *, key: str | None = None, retry_s: float = RETRY_S) -> None:
        self.url = url.rstrip("/").removesuffix("/v1")
        self._key = os.environ.get("MAS_API_KEY") if key is None else key
        self._retry_s = retry_s

    def episodes(self) -> Iterator[GatewayEpisode]:
        """One episode after the other, until training is over; waits while a step is learned from.

        Raises:
            GatewayError: it refuses, or has not answered for `retry_s`.
        """
        while True:
            found = self.post("/v1/episodes", {})
            if found["object"] == "over":
                return
            if found["object"] == "episode":
                yield self._episode(found)

    def begin(self, task: str, id: str) -> GatewayEpisode:
        """An episode of a task of your own; waits while a step is learned from.

        Args:
            task: a name that is equal for equal tasks. id: a name for this episode, of letters, digits, `_`, `.`, `-`.

        Raises:
            GatewayError: it refuses; with status 410 training is over.
        """
        return self._episode(self.post("/v1/episodes", {"task": task, "id": id}))

    def post(self, path: str, content: Mapping[str, Any]) -> dict[str, Any]:
        """Ask the gateway something.

        Raises:
            GatewayError: see `episodes`.
        """
        headers = {"Content-Type": "application/json"}
        if self._key:
            headers["Authorization"] = f"Bearer {self._key}"
        body, until = json.dumps(content).encode(), None
        while True:
            request = Request(self.url + path, body, headers, method="POST")
            try:
                with _OPENER.open(request, timeout=_ANSWER_S) as answer:
                    found: dict[str, Any] = json.load(answer)
                    return found
            except HTTPError as error:
                refused = GatewayError(error.code, _text_of(error))
                if error.code not in (429, 503):
                    raise refused from None
            except (URLError, HTTPException, OSError, ValueError) as error:
                refused = GatewayError(0, f"{self.url} does not answer: {error}. Is mas gateway running?")
            until = until or time.monotonic() + self._retry_s  # from the first failure on: an answer may take long
            if time.monotonic() >= until:
                raise refused
            time.sleep(_PAUSE_S)

    def _episode(self, found: Mapping[str, Any]) -> GatewayEpisode:
        name = quote(found["id"], safe="")
        return GatewayEpisode(self, found["id"], found["task"], found["kind"], f"{self.url}/episodes/{name}/v1")


def _text_of(error: HTTPError) -> str:
    try:
        return str(json.load(error)["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return f"status {error.code}"
    finally:
        error.close()
