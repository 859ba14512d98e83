"""Chat with the roles and the team of a run that `mas serve` serves, and answers for the people in that team.

The studio forwards to one address of this machine, which the command line names, and to no other: it follows no
redirect and uses no proxy. Without that address there are no such pages. What may be sent comes from a page of this
studio, see `PageRequests`.
"""

import asyncio
import ipaddress
import os
from collections.abc import AsyncIterator
from typing import Any, Literal
from urllib.parse import quote, urlsplit

import msgspec
from openai import APIConnectionError, APIStatusError, AsyncOpenAI, DefaultAsyncHttpxClient, OpenAIError, Timeout
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from mas.core.errors import ConfigError
from mas.core.printable import printable
from mas.studio.page_requests import PageRequests
from mas.studio.site import Link, Studio

_MOST_TURNS = 200
_ANSWER = 1_000_000
"""Characters of an answer; what is behind them is not shown."""
_AT_ONCE = 4
_CONNECT_S, _ANSWER_S = 5.0, 600.0
_TEAM = "team:"
_KINDS = ("team", "adapter", "base")


class ChatTurn(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A message of a conversation."""

    role: Literal["user", "assistant"]
    content: str


class ChatQuestion(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A conversation whose next answer is wanted. `temperature` None: the role's own."""

    model: str
    messages: list[ChatTurn]
    temperature: float | None = None


class PersonAnswer(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a person says to a question that waits."""

    id: str
    text: str


def served_address(address: str) -> str:
    """The address of a `mas serve` on this machine, without a slash at its end.

    Raises:
        ConfigError: it is none, or one of another machine.
    """
    parts = urlsplit(address)
    try:
        host, port = parts.hostname or "", parts.port
        is_near = host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        port, is_near = None, False
    is_plain = parts.path in ("", "/") and not (parts.query or parts.fragment or parts.username or parts.password)
    if parts.scheme != "http" or not is_near or port is None or not is_plain:
        raise ConfigError(
            f"--serve {address!r} is no address of this machine: write what mas serve prints, such as "
            "http://127.0.0.1:8000"
        )
    return address.rstrip("/")


def routes(studio: Studio, served: str) -> list[Route]:
    """`/chat`, `/questions`, and what their pages send.

    Args:
        served: of `served_address`.
    """
    studio.links += [Link("Chat", "/chat"), Link("Questions", "/questions")]
    pages = _ChatPages(studio, served)
    return [
        Route("/chat", pages.chat, methods=["GET"]),
        Route("/chat/answer", pages.answer, methods=["POST"]),
        Route("/questions", pages.questions, methods=["GET"]),
        Route("/questions/open", pages.open_questions, methods=["GET"]),
        Route("/questions/answer", pages.answer_question, methods=["POST"]),
    ]


class _ChatPages:
    """The pages, with the token that they send back."""

    def __init__(self, studio: Studio, served: str) -> None:
        self._studio, self._served = studio, served
        self._requests = PageRequests()
        self._places = asyncio.Semaphore(_AT_ONCE)

    def _client(self) -> AsyncOpenAI:
        return AsyncOpenAI(
            base_url=f"{self._served}/v1",
            api_key=os.environ.get("MAS_API_KEY") or "none needed",
            max_retries=0,
            http_client=DefaultAsyncHttpxClient(
                follow_redirects=False, trust_env=False, timeout=Timeout(_ANSWER_S, connect=_CONNECT_S)
            ),
        )

    async def chat(self, request: Request) -> Response:
        """What is served, and the conversation, which the page alone keeps."""
        models, problem = [], None
        try:
            async with self._client() as client:
                listed = await client.models.list()
                models = [
                    {"id": one.id, "kind": str(extra.get("kind", "")), "example": str(extra.get("example", ""))}
                    for one in listed.data
                    if isinstance(extra := one.model_extra or {}, dict)
                ]
        except OpenAIError as error:
            problem = self._said(error)
        models.sort(key=lambda one: _KINDS.index(one["kind"]) if one["kind"] in _KINDS else len(_KINDS))
        return self._studio.page(
            request, "chat.html", models=models, problem=problem, served=self._served, token=self._requests.token
        )

    async def answer(self, request: Request) -> Response:
        """The next answer of a conversation, line by line in JSON: parts of it, what members say, or a problem."""
        question = await self._requests.read(request, ChatQuestion)
        if len(question.messages) > _MOST_TURNS:
            raise HTTPException(413, f"a conversation has {_MOST_TURNS} messages at most")
        if self._places.locked():
            raise HTTPException(429, f"{_AT_ONCE} answers are being given; wait for one of them")
        return StreamingResponse(self._lines(question), media_type="application/x-ndjson")

    async def _lines(self, question: ChatQuestion) -> AsyncIterator[bytes]:
        async with self._places:
            try:
                async with self._client() as client:
                    async for event in self._events(client, question):
                        yield msgspec.json.encode(event) + b"\n"
            except OpenAIError as error:
                yield msgspec.json.encode({"problem": self._said(error)}) + b"\n"

    async def _events(self, client: AsyncOpenAI, question: ChatQuestion) -> AsyncIterator[dict[str, Any]]:
        shows = question.model.startswith(_TEAM)
        asked: dict[str, Any] = {"model": question.model, "messages": msgspec.to_builtins(question.messages)}
        if question.temperature is not None:
            asked["temperature"] = question.temperature
        try:
            stream = await client.chat.completions.create(
                **asked, stream=True, extra_body={"return_messages": True} if shows else None
            )
        except APIStatusError as error:
            if not shows or error.status_code != 403:
                raise
            stream = await client.chat.completions.create(**asked, stream=True)
        length = 0
        async with stream:
            async for chunk in stream:
                member = (chunk.model_extra or {}).get("member")
                if isinstance(member, dict):
                    yield {"member": {key: member.get(key) for key in ("agent", "content", "restart")}}
                part = chunk.choices[0].delta.content if chunk.choices else None
                if part:
                    length += len(part)
                    yield {"part": part}
                if length > _ANSWER:
                    yield {"problem": f"the answer is longer than {_ANSWER:,} characters; the rest is not shown"}
                    return
        yield {"done": True}

    async def questions(self, request: Request) -> Response:
        """Questions that wait for a person, asked for again every few seconds by the page."""
        return self._studio.page(request, "questions.html", served=self._served, token=self._requests.token)

    async def open_questions(self, request: Request) -> Response:
        """The open questions, the oldest first."""
        try:
            async with self._client() as client:
                found = await client.get("/questions", cast_to=object)
        except OpenAIError as error:
            return JSONResponse({"problem": self._said(error), "questions": []})
        data = found.get("data") if isinstance(found, dict) else None
        keys = ("id", "team", "agent", "turn", "instructions", "text", "choices")
        return JSONResponse(
            {
                "problem": None,
                "questions": [{key: one.get(key) for key in keys} for one in data or [] if isinstance(one, dict)],
            }
        )

    async def answer_question(self, request: Request) -> Response:
        """A person's answer."""
        answer = await self._requests.read(request, PersonAnswer)
        try:
            async with self._client() as client:
                await client.post(f"/questions/{quote(answer.id, safe='')}", cast_to=object, body={"text": answer.text})
        except OpenAIError as error:
            return JSONResponse({"problem": self._said(error)})
        return JSONResponse({"problem": None})

    def _said(self, error: OpenAIError) -> str:
        """What went wrong, for the page: what the server says of it, and never a key."""
        if isinstance(error, APIStatusError):
            body = error.body
            said = body.get("message") if isinstance(body, dict) else None
            return printable(f"{error.status_code}: {said or 'the server says no more'}"[:1000])
        if isinstance(error, APIConnectionError):
            return f"the server at {self._served} does not answer; start it with mas serve RUN"
        return "the server's answer cannot be read"
