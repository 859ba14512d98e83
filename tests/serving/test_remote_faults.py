"""What a server can do wrong, and what is said and done about it."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from faulty_server import ASK, GOOD, MODELS, Server, check_refused
from loopback import served
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse

from mas.config.options import ModelOptions, TinyOptions
from mas.config.servers import PeerOptions, RemoteOptions
from mas.core.engine import AdapterRef, Request, Sampling
from mas.core.errors import ConfigError, EngineError, UnknownAdapter
from mas.serving.model import tiny_text
from mas.serving.model_text import ModelText
from mas.serving.remote_chat import ChatEngine
from mas.serving.remote_completions import OpenAIEngine

KEY = "sk-very-secret-0123456789"


def failing(status: int, said: str = "no", **headers: str) -> JSONResponse:
    return JSONResponse({"error": {"message": said, "type": "x"}}, status, {"retry-after-ms": "5", **headers})


@pytest.fixture
def text() -> ModelText:
    return tiny_text(ModelOptions(tiny=TinyOptions(context=64)))


async def test_failures_that_pass_are_tried_again(text: ModelText) -> None:
    server = Server(lambda number, body: failing(500) if number < 3 else GOOD)
    async with served(server.app) as url:
        engine = await OpenAIEngine.start(RemoteOptions(url=url), text)
        (made,) = await engine.generate(ASK)
        await engine.close()
    assert (made.token_ids, made.logprobs, made.finish) == ((8, 9), (-1.0, -2.0), "length")
    assert len(server.bodies) == 3


async def test_a_server_that_says_when_to_come_back_is_obeyed(text: ModelText) -> None:
    times = []

    def answer(number: int, body: dict[str, Any]) -> Any:
        times.append(time.perf_counter())
        return GOOD if number > 1 else JSONResponse({"error": {"message": "busy"}}, 429, {"Retry-After": "1"})

    async with served(Server(answer).app) as url:
        engine = await OpenAIEngine.start(RemoteOptions(url=url), text)
        await engine.generate(ASK)
        await engine.close()
    assert 1.0 <= times[1] - times[0] < 3


async def test_tries_end_and_the_error_says_where_what_and_how_often(text: ModelText) -> None:
    async with served(Server(lambda number, body: failing(503, "closing for today")).app) as url:
        engine = await OpenAIEngine.start(RemoteOptions(url=url, retries=2), text)
        with pytest.raises(EngineError, match=r"/v1/completions answers 503: closing for today \(tried 3 times\)"):
            await engine.generate(ASK)
        await engine.close()


async def test_requests_that_are_wrong_are_not_tried_again(text: ModelText) -> None:
    server = Server(lambda number, body: failing(400, "top_q is no option"))
    async with served(server.app) as url:
        engine = await OpenAIEngine.start(RemoteOptions(url=url), text)
        with pytest.raises(EngineError, match=r"400: top_q is no option \(tried once\)"):
            await engine.generate(ASK)
        await engine.close()
    assert len(server.bodies) == 1


async def test_a_server_that_never_answers_is_an_error_in_time(text: ModelText) -> None:
    server = Server(lambda number, body: asyncio.Event().wait())
    async with served(server.app) as url:
        engine = await OpenAIEngine.start(RemoteOptions(url=url, timeout_s=0.3), text)
        began = time.perf_counter()
        with pytest.raises(EngineError, match=r"no answer within 0.3 s.*raise engine.remote.timeout_s"):
            await engine.generate(ASK)
        assert time.perf_counter() - began < 5
        await engine.close()


async def test_a_wait_beyond_the_limit_is_an_error_in_time(text: ModelText) -> None:
    busy = Server(lambda number, body: JSONResponse({"error": {"message": "busy"}}, 429, {"Retry-After": "60"}))
    async with served(busy.app) as url:
        engine = await OpenAIEngine.start(RemoteOptions(url=url, timeout_s=0.3), text)
        with pytest.raises(EngineError, match=r"no answer within 0.3 s, retries included"):
            await engine.generate(ASK)
        await engine.close()


async def test_no_server_is_an_error_that_says_where_and_what_to_do(text: ModelText) -> None:
    async with served(Server(lambda number, body: GOOD).app) as url:
        pass
    with pytest.raises(
        EngineError, match=rf"no connection to {url}/models.*tried twice|tried 2 times.*Start it, or set"
    ):
        await OpenAIEngine.start(RemoteOptions(url=url, retries=1), text)


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (lambda: Response('{"choices": [', media_type="application/json"), "not JSON"),
        (lambda: PlainTextResponse("<html>hello</html>"), r"no JSON object: '<html>hello</html>'.*engine.remote.url"),
        (lambda: JSONResponse({"object": "x"}), "missing required field `choices`"),
        (lambda: JSONResponse({"choices": []}), "returned no token ids"),
        (lambda: JSONResponse({"choices": [{"text": "hello"}]}), "returned no token ids.*api=chat"),
        (lambda: JSONResponse({"choices": [{"token_ids": [8, 9]}]}), "0 log-probabilities for 2 tokens"),
        (
            lambda: JSONResponse({"choices": [{"token_ids": [8, 9], "logprobs": {"token_logprobs": [-1.0, None]}}]}),
            "1 log-probabilities for 2 tokens",
        ),
        (lambda: JSONResponse({"choices": [{"token_ids": ["a"]}]}), "Expected `int`, got `str`"),
    ],
)
async def test_answers_that_are_none_are_typed_errors(
    text: ModelText, answer: Callable[[], Response], message: str
) -> None:
    await check_refused(text, answer, message)


async def test_scores_that_are_missing_are_a_typed_error(text: ModelText) -> None:
    async with served(Server(lambda number, body: GOOD).app) as url:
        engine = await OpenAIEngine.start(RemoteOptions(url=url), text)
        with pytest.raises(EngineError, match="returned no prompt_logprobs"):
            await engine.score((5,), (6, 7))
        await engine.close()


async def test_a_wrong_key_is_an_error_that_names_the_variable_and_not_the_key(
    text: ModelText, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_KEY", KEY)
    server = Server(lambda number, body: failing(401, f"Incorrect API key provided: {KEY}"))
    async with served(server.app) as url:
        engine = await OpenAIEngine.start(RemoteOptions(url=url, key_env="MY_KEY"), text)
        with pytest.raises(EngineError, match=r"\(401\): Incorrect.*\*\*\*.*variable MY_KEY, which is set") as caught:
            await engine.generate(ASK)
        await engine.close()
    assert server.headers[0]["authorization"] == f"Bearer {KEY}"
    shown = [
        str(caught.value),
        repr(caught.value),
        repr(engine),
        repr(vars(engine)),
        repr(vars(engine._server)["options"]),
    ]
    assert not any(KEY in one for one in shown)
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__


async def test_without_a_key_none_is_sent_whatever_the_environment_holds(
    text: ModelText, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("OPENAI_API_KEY", "OPENAI_ADMIN_KEY", "OPENAI_ORG_ID", "OPENAI_PROJECT_ID"):
        monkeypatch.setenv(name, KEY)
    monkeypatch.setenv("OPENAI_CUSTOM_HEADERS", f"Authorization: Bearer {KEY}")
    server = Server(lambda number, body: failing(403))
    async with served(server.app) as url:
        engine = await OpenAIEngine.start(RemoteOptions(url=url), text)
        with pytest.raises(
            EngineError, match=r"No key was sent: name the environment variable .*engine.remote.key_env"
        ):
            await engine.generate(ASK)
        await engine.close()
    assert KEY not in json.dumps(server.headers)


async def test_a_key_that_is_not_set_is_refused_at_once(text: ModelText, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MY_KEY", raising=False)
    with pytest.raises(
        ConfigError, match=r"peers.judge.key_env names the environment variable MY_KEY, which is not set"
    ):
        await ChatEngine.start(PeerOptions(url="http://127.0.0.1:9/v1", key_env="MY_KEY"), "peers.judge")


async def test_a_model_that_the_server_does_not_have_is_an_error_that_lists_what_it_has(text: ModelText) -> None:
    async with served(Server(lambda number, body: GOOD).app) as url:
        with pytest.raises(ConfigError, match=r"engine.remote.model=tny: .* does not serve it. Did you mean 'tiny'"):
            await OpenAIEngine.start(RemoteOptions(url=url, model="tny"), text)


async def test_an_adapter_that_is_gone_is_an_unknown_adapter(text: ModelText) -> None:
    server = Server(lambda number, body: failing(404, "The model `planner` does not exist."))
    async with served(server.app) as url:
        engine = await OpenAIEngine.start(RemoteOptions(url=url), text)
        assert engine.adapters() == {"planner": AdapterRef("planner", 3)}
        server.models = {"data": [MODELS["data"][0]]}
        asked = Request(prompt_ids=(5,), sampling=Sampling(), seeds=(1,), adapter="planner")
        with pytest.raises(UnknownAdapter, match=r"The model `planner` does not exist.*[Pp]ossible.*tiny"):
            await engine.generate(asked)
        assert engine.adapters() == {}
        await engine.close()


async def test_an_adapter_that_came_later_is_found(text: ModelText) -> None:
    server = Server(lambda number, body: GOOD | {"adapter": {"name": body["model"], "version": 7}})
    async with served(server.app) as url:
        engine = await OpenAIEngine.start(RemoteOptions(url=url), text)
        server.models = {"data": [*MODELS["data"], {"id": "judge", "parent": "tiny", "version": 6}]}
        (made,) = await engine.generate(Request(prompt_ids=(5,), sampling=Sampling(), seeds=(1,), adapter="judge"))
        assert made.adapter == engine.adapters()["judge"] == AdapterRef("judge", 7)
        await engine.close()


async def test_a_path_that_does_not_exist_is_an_error_that_asks_for_the_right_address(text: ModelText) -> None:
    async with served(Server(lambda number, body: GOOD).app) as url:
        with pytest.raises(EngineError, match=r"does not exist \(404\). Does engine.remote.url end .*/v1"):
            await OpenAIEngine.start(RemoteOptions(url=url.removesuffix("/v1")), text)


def chunks(*events: Any, end: bool = True) -> StreamingResponse:
    async def body() -> AsyncIterator[str]:
        for event in events:
            yield f"data: {json.dumps(event)}\n\n"
        if end:
            yield "data: [DONE]\n\n"

    return StreamingResponse(body(), media_type="text/event-stream")


def piece(token: int, finish: str | None = None) -> dict[str, Any]:
    return {"choices": [{"token_ids": [token], "logprobs": {"token_logprobs": [-1.0]}, "finish_reason": finish}]}


@pytest.mark.parametrize("end", [True, False])
async def test_a_stream_that_ends_early_is_an_error_after_its_pieces(text: ModelText, end: bool) -> None:
    async with served(Server(lambda number, body: chunks(piece(8), end=end)).app) as url:
        engine = await OpenAIEngine.start(RemoteOptions(url=url), text)
        stream = engine.stream(ASK)
        assert (await anext(stream)).token_ids == (8,)
        with pytest.raises(EngineError, match="the stream ended before the completion did"):
            await anext(stream)
        await engine.close()


async def test_a_stream_whose_server_dies_is_an_error(text: ModelText) -> None:
    async def dying() -> AsyncIterator[str]:
        yield f"data: {json.dumps(piece(8))}\n\n"
        raise ConnectionAbortedError

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["path"] == "/v1/models":
            await JSONResponse(MODELS)(scope, receive, send)
            return
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/event-stream")]})
        await send(
            {"type": "http.response.body", "body": f"data: {json.dumps(piece(8))}\n\n".encode(), "more_body": True}
        )
        raise ConnectionAbortedError

    async with served(app) as url:
        engine = await OpenAIEngine.start(RemoteOptions(url=url), text)
        stream = engine.stream(ASK)
        assert (await anext(stream)).token_ids == (8,)
        with pytest.raises(EngineError, match=r"no connection to .*, or it broke \(RemoteProtocolError"):
            await anext(stream)
        await engine.close()


async def test_an_error_in_a_stream_is_an_error(text: ModelText) -> None:
    async with served(Server(lambda number, body: chunks(piece(8), {"error": {"message": "out of room"}})).app) as url:
        engine = await OpenAIEngine.start(RemoteOptions(url=url), text)
        stream = engine.stream(ASK)
        await anext(stream)
        with pytest.raises(EngineError, match=r"the server broke off: .*out of room"):
            await anext(stream)
        await engine.close()


async def test_a_stream_that_falls_silent_is_an_error_in_time(text: ModelText) -> None:
    async def body() -> AsyncIterator[str]:
        yield f"data: {json.dumps(piece(8))}\n\n"
        while True:
            yield ": still here\n\n"
            await asyncio.sleep(0.05)

    answer = StreamingResponse(body(), media_type="text/event-stream")
    async with served(Server(lambda number, body: answer).app) as url:
        engine = await OpenAIEngine.start(RemoteOptions(url=url, timeout_s=0.3), text)
        stream = engine.stream(ASK)
        await anext(stream)
        with pytest.raises(EngineError, match=r"no answer within 0.3 s"):
            await anext(stream)
        await engine.close()


@pytest.mark.parametrize("how", ["generate", "stream"])
async def test_what_nobody_waits_for_any_more_is_hung_up(text: ModelText, how: str) -> None:
    gone, asked = asyncio.Event(), asyncio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["path"] == "/v1/models":
            await JSONResponse(MODELS)(scope, receive, send)
            return
        asked.set()
        if how == "stream":
            await send(
                {"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/event-stream")]}
            )
            body = f"data: {json.dumps(piece(8))}\n\n".encode()
            await send({"type": "http.response.body", "body": body, "more_body": True})
        while (await receive())["type"] != "http.disconnect":
            pass
        gone.set()

    async with served(app) as url, asyncio.timeout(20):
        engine = await OpenAIEngine.start(RemoteOptions(url=url), text)
        if how == "stream":
            stream = engine.stream(ASK)
            await anext(stream)
            await stream.aclose()
        else:
            task = asyncio.create_task(engine.generate(ASK), name="generate")
            await asked.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        await gone.wait()
        await engine.close()


async def test_no_more_requests_are_under_way_than_allowed(text: ModelText) -> None:
    async def answer() -> Any:
        for _ in range(20):
            await asyncio.sleep(0)
        return GOOD

    for concurrency in (1, 3):
        server = Server(lambda number, body: answer())
        async with served(server.app) as url:
            engine = await OpenAIEngine.start(RemoteOptions(url=url, concurrency=concurrency), text)
            made = await engine.generate(Request(prompt_ids=(5,), sampling=Sampling(), seeds=tuple(range(12))))
            await engine.close()
        assert len(made) == 12
        assert server.most == concurrency


async def test_requests_per_minute_are_spaced_evenly(text: ModelText) -> None:
    times = []

    def answer(number: int, body: dict[str, Any]) -> Any:
        times.append(time.perf_counter())
        return GOOD

    async with served(Server(answer).app) as url:
        began = time.perf_counter()
        engine = await OpenAIEngine.start(RemoteOptions(url=url, requests_per_minute=600), text)
        await engine.generate(Request(prompt_ids=(5,), sampling=Sampling(), seeds=tuple(range(6))))
        await engine.close()
    # the list of models was the first of 7 requests, 0.1 s apart
    assert times[-1] - began >= 0.55
    assert times[-1] - times[0] >= 0.45


async def test_closing_does_not_wait_for_ever_and_nothing_is_taken_after_it(
    text: ModelText, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mas.serving.in_flight.InFlight.close.__defaults__", (0.2,))
    server = Server(lambda number, body: asyncio.Event().wait())
    async with served(server.app) as url:
        engine = await OpenAIEngine.start(RemoteOptions(url=url, retries=0), text)
        flying = asyncio.create_task(engine.generate(ASK), name="generate")
        await asyncio.sleep(0)
        async with asyncio.timeout(10):
            await engine.close()
        with pytest.raises(EngineError):
            await flying
        with pytest.raises(EngineError, match="closed"):
            await engine.generate(ASK)


async def test_the_shorter_context_counts_and_nothing_wrong_is_sent(text: ModelText) -> None:
    server = Server(lambda number, body: GOOD)
    server.models = {"data": [{"id": "tiny", "max_model_len": 20}]}
    async with served(server.app) as url:
        engine = await OpenAIEngine.start(RemoteOptions(url=url), text)
        for ids, message in (
            ((5,) * 19, "exceed the context of 20"),
            ((10**6,), "outside the vocabulary"),
            ((), "empty"),
        ):
            with pytest.raises(EngineError, match=message):
                await engine.generate(Request(prompt_ids=ids, sampling=Sampling(max_tokens=2), seeds=(1,)))
        await engine.close()
    assert server.bodies == []


async def test_what_is_asked_is_what_the_contract_says(text: ModelText) -> None:
    server = Server(lambda number, body: GOOD)
    async with served(server.app) as url:
        engine = await OpenAIEngine.start(RemoteOptions(url=url), text)
        sampling = Sampling(temperature=0.5, max_tokens=2, stop=(1, 9))
        (made,) = await engine.generate(
            Request(prompt_ids=(5, 6), sampling=sampling, seeds=(2**64 - 1,), adapter="planner")
        )
        await engine.close()
    assert (made.finish, made.adapter) == ("stop", AdapterRef("planner", 3))
    assert server.bodies == [
        {
            "model": "planner",
            "prompt": [5, 6],
            "max_tokens": 2,
            "temperature": 0.5,
            "top_p": 1.0,
            "seed": 2**63 - 1,
            "stop_token_ids": [1, 9],
            "ignore_eos": True,
            "logprobs": 0,
            "return_token_ids": True,
        }
    ]
