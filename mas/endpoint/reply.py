"""The one answer of a request: whole as JSON, or in events as they come; an error fits in both."""

import asyncio
import json
from collections.abc import Mapping
from typing import Any

from starlette.types import Send

from mas.endpoint.errors import Refused

_WHOLE = (b"content-type", b"application/json")
_EVENTS = ((b"content-type", b"text/event-stream; charset=utf-8"), (b"cache-control", b"no-cache"))


class EndpointReply:
    """Nothing is sent before the first piece, so that an error until then has its own status.

    Attributes:
        status: what the request ended with: that of the answer, or of the error behind its first events.
    """

    def __init__(self, send: Send) -> None:
        self._send = send
        self._is_begun = False
        self._order = asyncio.Lock()
        self.status = 200

    async def whole(self, answer: Mapping[str, Any]) -> None:
        """The answer in one piece."""
        await self._json(200, answer, {})

    async def event(self, answer: Mapping[str, Any]) -> None:
        """A piece of a streamed answer."""
        await self._event(_text(answer))

    async def done(self) -> None:
        """The end of a streamed answer."""
        await self._event(b"[DONE]")
        await self._send({"type": "http.response.body", "body": b"", "more_body": False})

    async def fail(self, error: Refused) -> None:
        """The error, as the answer or as the last event of one."""
        self.status = error.status
        if self._is_begun:
            await self._event(_text(error.body()))
            await self.done()
        else:
            await self._json(error.status, error.body(), error.headers)

    async def _event(self, text: bytes) -> None:
        async with self._order:
            if not self._is_begun:
                self._is_begun = True
                await self._send({"type": "http.response.start", "status": 200, "headers": _EVENTS})
            await self._send({"type": "http.response.body", "body": b"data: " + text + b"\n\n", "more_body": True})

    async def _json(self, status: int, content: Mapping[str, Any], headers: Mapping[str, str]) -> None:
        body = _text(content)
        more = [(name.encode(), value.encode()) for name, value in headers.items()]
        length = (b"content-length", str(len(body)).encode())
        self._is_begun = True
        await self._send({"type": "http.response.start", "status": status, "headers": [_WHOLE, length, *more]})
        await self._send({"type": "http.response.body", "body": body, "more_body": False})


def _text(content: Mapping[str, Any]) -> bytes:
    return json.dumps(content, ensure_ascii=False, allow_nan=False).encode()
