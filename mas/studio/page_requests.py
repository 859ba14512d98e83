"""What pages of the studio send, as JSON, beside the `Origin` that `Guard` checks: with the page's token, and from the
same site."""

import secrets
from typing import TypeVar

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request

_BODY = 256 * 1024
T = TypeVar("T")


class PageRequests:
    """Reads requests of the pages that have its token. `token`: another one at each start of the studio."""

    def __init__(self) -> None:
        self.token = secrets.token_urlsafe(24)

    async def read(self, request: Request, kind: type[T]) -> T:
        """The body of a request that a page of this studio sent.

        Raises:
            HTTPException: 403, another page sent it; 400, 413 or 415, it is no such question.
        """
        token = request.headers.get("x-studio-token", "")
        if not secrets.compare_digest(token.encode(), self.token.encode()):
            raise HTTPException(403, "the page is of another start of the studio: load it again")
        if request.headers.get("sec-fetch-site", "same-origin") != "same-origin":
            raise HTTPException(403, "this is only for pages of this studio")
        if request.headers.get("content-type", "").partition(";")[0] != "application/json":
            raise HTTPException(415, "a question is sent as JSON")
        body = b""
        async for part in request.stream():
            body += part
            if len(body) > _BODY:
                raise HTTPException(413, f"the question is longer than {_BODY:,} bytes")
        try:
            return msgspec.json.decode(body, type=kind)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise HTTPException(400, f"this is no question: {str(error)[:200]}") from None
