"""An OpenEnv server: a WebSocket at `/ws` for each session, and pages that say what it serves.

Environments step in the event loop, one after the other. Whatever a client sends wrong is one error, and its session
goes on; what it may take is bounded: sessions, bytes of a message, seconds without a message.
"""

import asyncio
import json
import logging
import socket
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass
from http import HTTPStatus
from secrets import randbelow
from typing import Any

from starlette.requests import Request as HttpRequest
from websockets.asyncio.server import ServerConnection, serve
from websockets.datastructures import Headers
from websockets.exceptions import ConnectionClosed
from websockets.http11 import Request, Response

from mas.core.errors import MasError
from mas.core.version import VERSION
from mas.endpoint.address import bind, check_host
from mas.endpoint.client_keys import ClientKeys, Entrance
from mas.endpoint.errors import Refused
from mas.openenv.game import OfferedWorld, SeatGame
from mas.openenv.wire import (
    BadMessage,
    ResetData,
    read_action,
    read_message,
    read_reset,
    schemas,
    written,
    written_error,
)

MOST_BYTES = 1 << 16
"""Of a client's message."""
_SEEDS = 2**31
"""Seeds that are drawn are below."""
_log = logging.getLogger(__name__)
_handshakes = logging.getLogger(f"{__name__}.handshakes")
_handshakes.setLevel(logging.CRITICAL)


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenEnvLimits:
    """`sessions`: at the same time. `turn_s`: seconds in which another seat must move. `idle_s`: seconds without a
    message, after which a session ends."""

    sessions: int = 64
    turn_s: float = 50.0
    idle_s: float = 600.0


class OpenEnvServer:
    """All sessions of one server, and the matches that they may join."""

    def __init__(self, offered: OfferedWorld, entrance: Entrance, limits: OpenEnvLimits) -> None:
        self.offered, self.limits = offered, limits
        self._entrance = entrance
        self._keys = ClientKeys(entrance.key)
        self._sessions = 0
        self._matches: dict[str, SeatGame] = {}
        spec = offered.world.open().spec
        self.seats = spec.seats
        self._pages: dict[str, Any] = {
            "/health": {"status": "healthy"},
            "/schema": schemas(),
            "/metadata": {"name": spec.name, "description": offered.about, "version": VERSION},
        }

    def page(self, connection: ServerConnection, request: Request) -> Response | None:
        """What a request is answered with that begins no session; None: it begins one."""
        path = request.path.partition("?")[0]
        headers = [(_bytes(name.lower()), _bytes(value)) for name, value in request.headers.raw_items()]
        asked = HttpRequest({"type": "http", "headers": headers, "server": connection.local_address[:2]})
        try:
            if len(asked.headers.getlist("host")) > 1:
                raise Refused(400, "a request names one host")
            check_host(asked, self._entrance.hosts | self._entrance.origins)
            if path != "/health":
                self._keys.client(asked.headers.get("authorization", ""))
            if path == "/ws":
                return None
            if path not in self._pages:
                raise Refused(404, f"there is no {path[:60]!r}. Possible: /ws, {', '.join(self._pages)}")
        except Refused as error:
            return _json(error.status, error.body(), dict(error.headers))
        return _json(200, self._pages[path], {})

    async def handle(self, connection: ServerConnection) -> None:
        """A session from its first message to its end."""
        try:
            if self._sessions >= self.limits.sessions:
                why = f"{self._sessions} of {self.limits.sessions} sessions are open: close one, or raise --sessions"
                await connection.send(written_error("CAPACITY_REACHED", why))
                return
            self._sessions += 1
            try:
                await self._converse(connection)
            finally:
                self._sessions -= 1
        except ConnectionClosed:
            pass

    async def _converse(self, connection: ServerConnection) -> None:
        session = SeatSession(self)
        try:
            while True:
                try:
                    async with asyncio.timeout(self.limits.idle_s):
                        message = await connection.recv()
                except TimeoutError:
                    why = f"no message for {self.limits.idle_s:g} s: the session has ended"
                    await connection.send(written_error("SESSION_ERROR", why))
                    return
                answer = await _while_connected(connection, session.answer(message))
                if answer is None:
                    return
                await connection.send(answer)
        finally:
            await session.leave()

    def game(self, asked: ResetData) -> tuple[SeatGame, str]:
        """The episode that a session begins or joins, and its seat.

        Raises:
            BadMessage: it cannot. MasError: the environment cannot begin.
        """
        seat = asked.seat or self.seats[0]
        if asked.match is None:
            if len(self.seats) > 1 and self.offered.others is None:
                raise BadMessage(
                    "VALIDATION_ERROR",
                    f"nobody plays the other seats of {', '.join(self.seats)}: reset with match=NAME and one session "
                    "in each seat, or start the server with --others random",
                )
            game = self._begin(asked, is_match=False)
            game.take(seat)
            return game, seat
        if asked.seat is None:
            raise BadMessage("VALIDATION_ERROR", f"a match needs seat=NAME. Possible: {', '.join(self.seats)}")
        found = self._matches.get(asked.match)
        if found is None or found.fault is not None:
            found = self._begin(asked, is_match=True)
        elif asked.seed is not None and self.offered.task(asked.split, asked.seed) != found.task:
            raise BadMessage(
                "VALIDATION_ERROR", f"match {asked.match[:60]!r} has begun with another task: leave seed and split out"
            )
        found.take(seat)
        self._matches[asked.match] = found
        if found.is_full:  # the name is free for the next game
            del self._matches[asked.match]
        return found, seat

    def forget(self, game: SeatGame) -> None:
        """Nobody joins this game any more."""
        self._matches = {name: other for name, other in self._matches.items() if other is not game}

    def _begin(self, asked: ResetData, *, is_match: bool) -> SeatGame:
        task = self.offered.task(asked.split, randbelow(_SEEDS) if asked.seed is None else asked.seed)
        policy = None if is_match or len(self.seats) == 1 else self.offered.others
        return SeatGame(self.offered.world.open(), task, policy, asked.episode_id)


class SeatSession:
    """One client: a seat of one game after the other."""

    def __init__(self, server: OpenEnvServer) -> None:
        self._server = server
        self._game: SeatGame | None = None
        self._seat, self._waits = "", True

    async def answer(self, message: str | bytes) -> str | None:
        """What a message is answered with; None: it ends the session."""
        try:
            kind, data = read_message(message)
            match kind:
                case "reset":
                    return await self._reset(read_reset(data))
                case "step":
                    return await self._step(read_action(data))
                case "state":
                    return written("state", self._playing().state(self._seat).model_dump())
            return None
        except BadMessage as error:
            return written_error(error.code, str(error))
        except MasError as error:
            return written_error("EXECUTION_ERROR", str(error))
        except Exception:  # noqa: BLE001 - the session goes on
            _log.exception("a message could not be answered")
            return written_error("EXECUTION_ERROR", "the server failed; its log says why")

    async def leave(self) -> None:
        """Give the seat up."""
        game, self._game = self._game, None
        if game is not None:
            self._server.forget(game)
            await game.leave(self._seat)

    async def _reset(self, asked: ResetData) -> str:
        await self.leave()
        self._game, self._seat = self._server.game(asked)
        self._waits = asked.wait
        await self._game.begin()
        return await self._observed(self._game, is_first=True)

    async def _step(self, action: str) -> str:
        game = self._playing()
        await game.act(self._seat, action)
        return await self._observed(game, is_first=False)

    async def _observed(self, game: SeatGame, *, is_first: bool) -> str:
        if self._waits:
            await game.turn(self._seat, self._server.limits.turn_s)
        paid = game.pay(self._seat)
        seen = game.observation(self._seat).model_dump()
        return written(
            "observation",
            {"observation": seen, "reward": None if is_first and not paid else paid, "done": game.is_over},
        )

    def _playing(self) -> SeatGame:
        if self._game is None:
            raise BadMessage("EXECUTION_ERROR", "no episode has begun in this session: reset begins one")
        return self._game


@asynccontextmanager
async def openenv_server(
    offered: OfferedWorld,
    listener: socket.socket | None = None,
    *,
    entrance: Entrance | None = None,
    limits: OpenEnvLimits | None = None,
) -> AsyncIterator[str]:
    """Serve while the block runs; gives the address.

    Args:
        listener: of `mas.endpoint.address.bind`; None: a free port of this machine.
    """
    listener = listener or bind("127.0.0.1", 0, has_key=False)
    host, port = listener.getsockname()[:2]
    server = OpenEnvServer(offered, entrance or Entrance(), limits or OpenEnvLimits())
    async with serve(
        server.handle,
        sock=listener,
        process_request=server.page,
        max_size=MOST_BYTES,
        max_queue=2,
        compression=None,
        server_header=None,
        close_timeout=1,
        logger=_handshakes,
    ):
        yield f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


async def _while_connected(connection: ServerConnection, work: Coroutine[Any, Any, str | None]) -> str | None:
    """The work's result; None: the client has gone, and the work has ended."""
    task = asyncio.create_task(work, name="openenv-answer")
    gone = asyncio.create_task(connection.wait_closed(), name="openenv-connection")
    try:
        await asyncio.wait((task, gone), return_when=asyncio.FIRST_COMPLETED)
        return task.result() if task.done() else None
    finally:
        for one in (task, gone):
            one.cancel()
        await asyncio.wait((task, gone))


def _bytes(header: str) -> bytes:
    """As it was sent: `websockets` reads what is not ASCII as surrogates."""
    return header.encode("ascii", "surrogateescape")


def _json(status: int, content: Any, headers: dict[str, str]) -> Response:
    body = json.dumps(content).encode()
    sent = Headers(
        {
            "Content-Type": "application/json",
            "Content-Length": str(len(body)),
            "Connection": "close",
            **headers,
        }
    )
    return Response(status, HTTPStatus(status).phrase, sent, body)
