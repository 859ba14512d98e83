"""A server of OpenAI's dialect that answers completions as a test says."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from loopback import served
from starlette.applications import Starlette
from starlette.requests import Request as Call
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from mas.config.servers import RemoteOptions
from mas.core.engine import Request, Sampling
from mas.core.errors import EngineError
from mas.serving.model_text import ModelText
from mas.serving.remote_completions import OpenAIEngine

ASK = Request(prompt_ids=(5, 6, 7), sampling=Sampling(max_tokens=2), seeds=(1,))
MODELS = {
    "data": [
        {"id": "tiny", "object": "model", "parent": None, "max_model_len": 64},
        {"id": "planner", "object": "model", "parent": "tiny", "version": 3},
        {"id": "team:four", "object": "model", "parent": None, "kind": "team"},
    ]
}
GOOD = {"choices": [{"token_ids": [8, 9], "logprobs": {"token_logprobs": [-1.0, -2.0]}, "finish_reason": "length"}]}
Answer = Callable[[int, dict[str, Any]], Any]


class Server:
    """Lists `MODELS`, and answers completions as it is told: `answer(number of the call, its body)`."""

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        self.models: Any = MODELS
        self.bodies: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.under_way = self.most = 0
        self.left = asyncio.Event()
        complete = [
            Route(f"/v1/{path}", self.complete, methods=["POST"]) for path in ("completions", "chat/completions")
        ]
        self.app = Starlette(routes=[Route("/v1/models", self.list), *complete])

    async def list(self, call: Call) -> Response:
        return self.models if isinstance(self.models, Response) else JSONResponse(self.models)

    async def complete(self, call: Call) -> Response:
        self.bodies.append(await call.json())
        self.headers.append(dict(call.headers))
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        try:
            answer = self.answer(len(self.bodies), self.bodies[-1])
            answer = await answer if asyncio.iscoroutine(answer) else answer
        finally:
            self.under_way -= 1
        return answer if isinstance(answer, Response) else JSONResponse(answer)


async def check_refused(text: ModelText, answer: Callable[[], Response], message: str) -> None:
    """An engine whose server answers so raises one error with this message."""
    async with served(Server(lambda number, body: answer()).app) as url:
        engine = await OpenAIEngine.start(RemoteOptions(url=url), text)
        with pytest.raises(EngineError, match=message):
            await engine.generate(ASK)
        await engine.close()
