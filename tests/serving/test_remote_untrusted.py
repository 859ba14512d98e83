"""A server elsewhere that nobody trusts: what it answers is bounded, and could have been drawn, and leads nowhere."""

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from faulty_server import ASK, GOOD, Server, check_refused
from loopback import served
from starlette.responses import RedirectResponse, Response, StreamingResponse

from mas.config.options import ModelOptions, TinyOptions
from mas.config.servers import RemoteOptions
from mas.core.errors import EngineError
from mas.serving import remote_answers
from mas.serving.model import tiny_text
from mas.serving.model_text import ModelText
from mas.serving.remote_chat import ChatEngine
from mas.serving.remote_completions import OpenAIEngine


@pytest.fixture
def text() -> ModelText:
    return tiny_text(ModelOptions(tiny=TinyOptions(context=64)))


def drawn(ids: list[Any], logprobs: list[float], **more: Any) -> Response:
    """As any server may write it: JSON of Python has NaN."""
    choice = {"token_ids": ids, "logprobs": {"token_logprobs": logprobs}, "finish_reason": "length"}
    return Response(json.dumps({"choices": [choice], **more}), media_type="application/json")


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (lambda: drawn([8, 9], [float("nan"), -1.0]), "the log-probability nan"),
        (lambda: drawn([8, 9], [-1.0, float("-inf")]), "the log-probability -inf"),
        (lambda: drawn([8, 9], [-1.0, float("inf")]), "the log-probability inf"),
        (lambda: drawn([8, 9], [-1.0, 0.7]), "the log-probability 0.7"),
        (lambda: drawn([8, 87], [-1.0, -1.0]), "token 87, outside the vocabulary of 87: does it serve this base"),
        (lambda: drawn([-1, 8], [-1.0, -1.0]), "token -1, outside the vocabulary"),
        (lambda: drawn([10**30, 8], [-1.0, -1.0]), f"token {10**30}, outside the vocabulary"),
        (lambda: drawn([8] * 3, [-1.0] * 3), "returned 3 tokens, and 2 at most were asked for"),
        (
            lambda: drawn([8], [-1.0], adapter={"name": "planner", "version": 3}),
            "for 'tiny' and answers as 'planner@3'",
        ),
        (lambda: Response('{"choices":' + "[" * 100_000, media_type="application/json"), "not read: maximum recursion"),
        (lambda: Response(b"{}", headers={"content-encoding": "gzip"}), "not read: the server compresses"),
    ],
)
async def test_answers_that_nobody_drew_are_typed_errors(
    text: ModelText, answer: Callable[[], Response], message: str
) -> None:
    await check_refused(text, answer, message)


@pytest.mark.parametrize("api", ["completions", "chat"])
async def test_nothing_is_sent_where_a_server_leads_to(text: ModelText, api: str) -> None:
    elsewhere = Server(lambda number, body: GOOD)
    async with served(elsewhere.app) as other:
        moved = RedirectResponse(f"{other}/completions", 307)
        async with served(Server(lambda number, body: moved).app) as url:
            options = RemoteOptions(url=url, api=api)
            engine = await (OpenAIEngine.start(options, text) if api == "completions" else chat(options))
            with pytest.raises(EngineError, match=rf"leads to another address \(307\), '{other}/completions', where"):
                await engine.generate(ASK)
            await engine.close()
    assert elsewhere.bodies == []


def chat(options: RemoteOptions) -> Awaitable[ChatEngine]:
    return ChatEngine.start(options, "engine.remote")


@pytest.mark.parametrize("is_streamed", [False, True])
async def test_an_answer_without_end_is_not_read_to_its_end(
    text: ModelText, monkeypatch: pytest.MonkeyPatch, is_streamed: bool
) -> None:
    monkeypatch.setattr(remote_answers, "MOST_BYTES", 2**20)
    piece = b": " + b"x" * 65_536 + (b"\n\n" if is_streamed else b"")

    async def parts() -> AsyncIterator[bytes]:
        for _ in range(32):
            yield piece

    kind = "text/event-stream" if is_streamed else "application/json"
    async with served(Server(lambda number, body: StreamingResponse(parts(), media_type=kind)).app) as url:
        engine = await OpenAIEngine.start(RemoteOptions(url=url, retries=0), text)
        with pytest.raises(EngineError, match="not read: a response of the server has more than 1048576 bytes"):
            await (streamed(engine) if is_streamed else engine.generate(ASK))
        await engine.close()


async def streamed(engine: OpenAIEngine) -> list[Any]:
    return [piece async for piece in engine.stream(ASK)]


async def test_pieces_are_no_more_tokens_than_were_asked_for(text: ModelText) -> None:
    one = {"choices": [{"token_ids": [8], "logprobs": {"token_logprobs": [-1.0]}}]}
    body = f"data: {json.dumps(one)}\n\n" * 3
    async with served(Server(lambda number, _: Response(body, media_type="text/event-stream")).app) as url:
        engine = await OpenAIEngine.start(RemoteOptions(url=url, retries=0), text)
        with pytest.raises(EngineError, match="returned 3 tokens, and 2 at most"):
            await streamed(engine)
        await engine.close()


async def test_scores_that_are_no_numbers_are_a_typed_error(text: ModelText) -> None:
    scored = [None, *({str(token): {"logprob": float("nan")}} for token in (6, 7))]
    choice = {"token_ids": [8], "logprobs": None, "prompt_logprobs": scored}
    body = json.dumps({"choices": [choice]})
    async with served(Server(lambda number, _: Response(body, media_type="application/json")).app) as url:
        engine = await OpenAIEngine.start(RemoteOptions(url=url), text)
        with pytest.raises(EngineError, match="the log-probability nan"):
            await engine.score((5,), (6, 7))
        await engine.close()


async def test_half_a_character_in_a_text_is_a_question_mark() -> None:
    body = json.dumps({"choices": [{"message": {"content": "a\ud800b"}, "finish_reason": "stop"}]})
    async with served(Server(lambda number, _: Response(body, media_type="application/json")).app) as url:
        engine = await chat(RemoteOptions(url=url, api="chat"))
        (made,) = await engine.generate(ASK)
        await engine.close()
    assert engine.tokenizer.decode(made.token_ids) == "a?b"
