"""Environments behind an OpenEnv server, over its WebSocket: `openenv:http://127.0.0.1:8000`, needs `mas[openenv]`.

An episode is a session of its own: reset with the task's seed, steps, close. A copy begins another session and plays
the actions again. The package openenv is not needed, which takes web frameworks and an older MCP SDK along.

The server is not trusted: an answer has a time limit and a limit of bytes, what nobody asked for is an error, and
nothing is redirected. Whatever goes wrong fails the episode with one error that names the server.

Leaves out: MCP tools of a server (`/mcp`), pictures, and starting servers in containers.
"""

import json
import os
import weakref
from collections.abc import Mapping
from functools import lru_cache, partial
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from time import monotonic
from typing import Annotated, Any
from urllib.parse import urlsplit

from pydantic import Field, ValidationError

from mas.core.environment import EnvironmentSpec, Step, is_bounded
from mas.core.errors import ConfigError, EnvironmentFault
from mas.core.options import Options
from mas.scenarios.bridges.gymnasium_games import in_words
from mas.scenarios.bridges.packages import load_package, read_options
from mas.scenarios.game import TERM
from mas.scenarios.replay import ReplayedWorld, ReplayEnvironment

EXTRA, SEAT = "openenv", "player"
MOST_BYTES = 1 << 20
"""Of one answer."""
MOST_TEXT = 20_000
"""Characters of one observation in words."""
SEEDS = 2**31
"""Seeds that servers take are below."""
_BAD_ACTION = ("VALIDATION_ERROR", "INVALID_JSON")
_WHY = 300
"""Characters of a server's error that are repeated."""


class OpenEnvOptions(Options):
    """`timeout_s`: seconds that connecting, and each answer, may take. `max_turns`: actions after which an episode is
    over. `key_env`: name of the environment variable whose value is sent as a bearer token. `seat`: sent with each
    reset, for servers of `mas openenv`; None: nothing is."""

    timeout_s: Annotated[float, Field(gt=0, le=600)] = 30.0
    max_turns: Annotated[int, Field(ge=1, le=10_000)] = 20
    key_env: Annotated[str, Field(min_length=1)] | None = None
    seat: Annotated[str, Field(min_length=1)] | None = None


def open_environment(name: str) -> ReplayEnvironment:
    """The environment of a server: `http://HOST:PORT`, with options in brackets where wanted.

    Raises:
        ConfigError: no such options or no address, the variable of the key is not set, `websockets` is not installed,
            or the server does not describe its actions.
    """
    url, _, rest = name.partition("(")
    if urlsplit(url).scheme not in ("http", "https") or not urlsplit(url).hostname:
        raise ConfigError(f"openenv:{name}: write the server's address, as openenv:http://127.0.0.1:8000")
    try:
        options = OpenEnvOptions(**read_options(f"openenv:{name}", rest.removesuffix(")")))
    except ValidationError as error:
        problem = error.errors()[0]
        raise ConfigError(
            f"openenv:{name}: {problem['loc'][0]}: {problem['msg']}. Possible: {', '.join(OpenEnvOptions.model_fields)}"
        ) from error
    if options.key_env is not None and options.key_env not in os.environ:
        raise ConfigError(f"openenv:{name}: the environment variable {options.key_env} is not set")
    load_package("websockets.sync.client", EXTRA)
    schema = _schema(url.rstrip("/"), options)
    spec = EnvironmentSpec(
        name=f"openenv:{name}", seats=(SEAT,), views=(SEAT,), max_turns=options.max_turns, terms=(TERM,)
    )
    return ReplayEnvironment(spec, partial(OpenEnvPlay, url.rstrip("/"), options, schema), longest=MOST_TEXT)


def _headers(options: OpenEnvOptions) -> dict[str, str]:
    return {} if options.key_env is None else {"Authorization": f"Bearer {os.environ[options.key_env]}"}


@lru_cache(maxsize=64)
def _schema(url: str, options: OpenEnvOptions) -> str:
    """The JSON schema of the server's actions, as text.

    Raises:
        ConfigError: the server does not answer with one.
    """
    parts, limit = urlsplit(url), monotonic() + options.timeout_s
    kind = HTTPSConnection if parts.scheme == "https" else HTTPConnection
    connection = kind(parts.hostname or "", parts.port, timeout=options.timeout_s)
    body = b""
    try:
        connection.request("GET", f"{parts.path}/schema", headers=_headers(options))
        answer = connection.getresponse()
        while len(body) <= MOST_BYTES and monotonic() < limit and (chunk := answer.read1(65_536)):
            body += chunk
        found = json.loads(body) if answer.status == 200 and monotonic() < limit else None
        action = found.get("action") if isinstance(found, dict) else None
        if not isinstance(action, dict):
            raise ValueError(f"status {answer.status}, no schema of actions")
    except (OSError, HTTPException, ValueError, RecursionError) as error:
        raise ConfigError(
            f"the OpenEnv server {url} cannot be used: GET /schema: {str(error)[:_WHY] or type(error).__name__}. "
            "Check the address, and that the server runs"
        ) from error
    finally:
        connection.close()
    return json.dumps(action)


class OpenEnvSession:
    """One WebSocket, which is one episode.

    Raises:
        EnvironmentFault: the server cannot be reached, or whatever goes wrong later.
    """

    def __init__(self, url: str, options: OpenEnvOptions) -> None:
        client = load_package("websockets.sync.client", EXTRA)
        self._url, self._timeout_s = url, options.timeout_s
        address = "ws" + url.removeprefix("http") + "/ws"
        is_local = urlsplit(url).hostname in ("127.0.0.1", "localhost", "::1")
        try:
            self._socket = client.connect(
                address,
                open_timeout=options.timeout_s,
                close_timeout=1,
                ping_interval=None,
                max_size=MOST_BYTES,
                additional_headers=_headers(options),
                proxy=None if is_local else True,
            )
        except Exception as error:  # noqa: BLE001 - whatever a server and a network do
            raise self._fault(f"cannot be reached: {_plain(error)}") from None
        self.close = weakref.finalize(self, self._socket.close)

    def ask(self, kind: str, payload: Mapping[str, Any]) -> dict[str, Any]:
        """The data of the answer to a message; of one that says that the action is none, with the key `refused`.

        Raises:
            EnvironmentFault: no answer came in time, it is too long or no answer, or the server reports an error.
        """
        try:
            self._quiet()
            self._socket.send(json.dumps({"type": kind, "data": payload}))
            message = self._socket.recv(timeout=self._timeout_s)
            answer = json.loads(message)
        except TimeoutError:
            raise self._lost(f"did not answer within {self._timeout_s:g} s") from None
        except (ValueError, RecursionError):
            raise self._lost("sent something else than JSON") from None
        except EnvironmentFault:
            raise
        except Exception as error:  # noqa: BLE001 - the connection's end, with its cause
            raise self._lost(f"ended the session: {_plain(error)}") from None
        kinds = (answer.get("type"), answer.get("data")) if isinstance(answer, dict) else (None, None)
        match kinds:
            case ("observation", dict(data)):
                return data
            case ("error", dict(data)) if kind == "step" and data.get("code") in _BAD_ACTION:
                return {"refused": str(data.get("errors", data.get("message")))[:_WHY]}
            case ("error", dict(data)):
                raise self._reported(data)
        raise self._lost(f"sent an answer of another form: {str(answer)[:80]}")

    def _quiet(self) -> None:
        """Refuse what was sent unasked: the next answer could not be told from it."""
        try:
            message = json.loads(self._socket.recv(timeout=0))
        except TimeoutError:
            return
        if isinstance(message, dict) and message.get("type") == "error" and isinstance(message.get("data"), dict):
            raise self._reported(message["data"])
        raise self._lost("sent a message that nobody had asked for")

    def _reported(self, error: Mapping[str, Any]) -> EnvironmentFault:
        code = str(error.get("code"))[:40]
        hint = ". Start it with more sessions (max_concurrent_envs)" if code == "CAPACITY_REACHED" else ""
        return self._lost(f"reports {str(error.get('message'))[:_WHY]!r} ({code}){hint}")

    def _lost(self, why: str) -> EnvironmentFault:
        self.close()
        return self._fault(why)

    def _fault(self, why: str) -> EnvironmentFault:
        return EnvironmentFault(f"the OpenEnv server {self._url} {why}")


class OpenEnvPlay(ReplayedWorld):
    """One episode."""

    def __init__(self, url: str, options: OpenEnvOptions, schema: str, seed: int) -> None:
        self._schema, self._field = schema, text_field(json.loads(schema))
        self._total, self._note = 0.0, ""
        self._session = OpenEnvSession(url, options)
        self._url = url
        seat = {} if options.seat is None else {"seat": options.seat}
        self._take(self._session.ask("reset", {"seed": seed % SEEDS, **seat}))

    def to_move(self) -> str | None:
        return None if self._is_over else SEAT

    def act(self, action: str) -> Step:
        payload = self._payload(action)
        if payload is None:
            self._note = "This was no action."
            return Step(rewards={SEAT: {TERM: 0.0}}, illegal=(SEAT,) if action else ())
        answer = self._session.ask("step", payload)
        if "refused" in answer:
            self._note = f"This was no action: {_kept(answer['refused'])}"
            return Step(rewards={SEAT: {TERM: 0.0}}, illegal=(SEAT,))
        return Step(rewards={SEAT: {TERM: self._take(answer)}})

    def fields(self, view: str) -> Mapping[str, str]:
        form = "any text" if self._field is not None else f"a JSON object that fits this schema: {self._schema}"
        return {"seat": SEAT, "seen": self._seen, "legal": form, "note": self._note}

    def success(self) -> bool:
        return self._is_over and self._total > 0

    def render(self) -> str:
        return self._seen

    def _payload(self, action: str) -> dict[str, Any] | None:
        """What the server is sent; None: the text is no action."""
        if not action:
            return None
        try:
            read = json.loads(action)
        except (ValueError, RecursionError):
            read = None
        if isinstance(read, dict):
            return read
        return None if self._field is None else {self._field: action}

    def _take(self, answer: Mapping[str, Any]) -> float:
        """Note what an answer shows; returns what it pays."""
        reward, observation = answer.get("reward"), answer.get("observation")
        paid = 0.0 if reward is None else reward
        if not isinstance(paid, int | float) or not is_bounded(paid):
            raise EnvironmentFault(
                f"the OpenEnv server {self._url} paid {str(reward)[:40]!r}, which is no finite number"
            )
        if isinstance(observation, dict):
            observation = {key: value for key, value in observation.items() if value not in (None, {}, [], "")}
        try:
            seen = _kept(in_words(observation))
        except (ConfigError, RecursionError):
            seen = ""
        if (observation and not seen) or len(seen) > MOST_TEXT:
            raise EnvironmentFault(
                f"the OpenEnv server {self._url} shows an observation of more than {MOST_TEXT} characters"
            )
        self._seen, self._note = seen, ""
        self._is_over = bool(answer.get("done"))
        self._total += float(paid)
        if self._is_over:
            self._session.close()
        return float(paid)


def text_field(schema: Mapping[str, Any]) -> str | None:
    """The one field of an action that must be given, where that is a text; None: actions are JSON objects."""
    fields, required = schema.get("properties"), schema.get("required")
    if not isinstance(fields, dict) or not isinstance(required, list) or len(required) != 1:
        return None
    field = fields.get(required[0]) if isinstance(required[0], str) else None
    return required[0] if isinstance(field, dict) and field.get("type") == "string" and "enum" not in field else None


def _kept(text: str) -> str:
    return text.encode(errors="replace").decode()


def _plain(error: BaseException) -> str:
    return (" ".join(str(error).split()) or type(error).__name__)[:_WHY]
