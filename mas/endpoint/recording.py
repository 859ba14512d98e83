"""What a request is answered as, and who notes the answer: the contract of `mas.gateway`."""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Protocol

from starlette.requests import Request

from mas.endpoint.completions import Made
from mas.endpoint.wire import ChatRequest, CompletionRequest


@dataclass(frozen=True, slots=True)
class Recording:
    """One request.

    Attributes:
        request: as it is answered. on_made: told what the model said.
    """

    request: CompletionRequest | ChatRequest
    on_made: Made = lambda wanted, made: None


class Recorder(Protocol):
    """Notes what models said."""

    def recording(
        self, http: Request, request: CompletionRequest | ChatRequest
    ) -> AbstractAsyncContextManager[Recording]:
        """The request is answered within the block; an error leaves it where the client did not get the whole answer.

        Raises:
            Refused: it is not answered.
        """


@asynccontextmanager
async def unrecorded(http: Request, request: CompletionRequest | ChatRequest) -> AsyncIterator[Recording]:
    """Nobody notes anything."""
    yield Recording(request)
