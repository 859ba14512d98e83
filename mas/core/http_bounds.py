"""A bound of what an HTTP server that is not trusted may send: a hook of an `httpx` client for its responses."""

from collections.abc import AsyncIterator
from typing import Any

MAX_BYTES = 16 * 2**20
"""Bytes of one response; of a program, those that it may send during a call."""


class UnusableResponse(ValueError):
    """A response that is not read, or not to its end."""


async def bounded_response(response: Any, most: int = MAX_BYTES) -> None:
    """Let a response be read to so many bytes alone, and only as it is: what is compressed could be of any length.

    Raises:
        UnusableResponse: it is compressed; when it is read: it is longer.
    """
    if response.headers.get("content-encoding", "identity") != "identity":
        raise UnusableResponse("the server compresses what it sends, and was asked not to")
    whole = response.stream

    class Bounded(type(whole)):  # type: ignore[misc]
        def __init__(self) -> None:
            pass

        async def __aiter__(self) -> AsyncIterator[bytes]:
            left = most
            async for part in whole:
                left -= len(part)
                if left < 0:
                    raise UnusableResponse(f"a response of the server has more than {most} bytes")
                yield part

        async def aclose(self) -> None:
            await whole.aclose()

    response.stream = Bounded()
