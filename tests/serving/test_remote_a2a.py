"""An agent elsewhere as an engine, asked over loopback by the SDK's client: agents of the SDK's server and bad ones."""

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

pytest.importorskip("a2a", reason="needs the extra a2a")

from a2a.server.tasks import TaskUpdater
from remote_agents import CARD, Answer, Script, agent, begin, card, events, hangs, hostile, says, works
from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse, RedirectResponse, Response

from mas.core.engine import Engine, Request, Sampling
from mas.core.errors import ConfigError, EngineError, RemoteError
from mas.core.remote_agent import RemoteAgent
from mas.serving.remote_a2a import A2aEngine

STREAMS = [pytest.param({"streaming": True}, id="streams"), pytest.param({"streaming": False}, id="polled")]


async def told(engine: A2aEngine, *conversation: str, seeds: tuple[int, ...] = (1,)) -> list[tuple[str, str]]:
    """Texts and ends of the answers to a system message and a question."""
    ids = engine.tokenizer.chat(*(conversation or ("Judge it.", "2 + 2 = 5")))
    generations = await engine.generate(Request(prompt_ids=ids, sampling=Sampling(), seeds=seeds))
    return [(engine.tokenizer.decode(one.token_ids), one.finish) for one in generations]


async def answer_of(url: str, **options: Any) -> tuple[str, str]:
    engine = await A2aEngine.start(RemoteAgent(url=url, **options), "critic")
    try:
        return (await told(engine))[0]
    finally:
        await engine.close()


GOOD = {
    "message": (lambda: says("wrong"), "wrong"),
    "message of parts": (lambda: says("wrong", {"line": 3}, b"\x89PNG"), 'wrong\n{"line": 3.0}\n[file]'),
    "artifact in pieces": (lambda: works("wr", "ong"), "wr\nong"),
    "status alone": (lambda: works(said="wrong"), "wrong"),
    "nothing": (lambda: works(), ""),
}


@pytest.mark.parametrize("capabilities", STREAMS)
@pytest.mark.parametrize("name", GOOD)
async def test_an_answer_is_the_text_of_what_comes(name: str, capabilities: dict[str, bool]) -> None:
    script, wanted = GOOD[name]
    async with agent(script(), capabilities=capabilities) as url:
        assert await answer_of(url) == (wanted, "stop")


@pytest.mark.parametrize("capabilities", STREAMS)
@pytest.mark.parametrize("end", ["failed", "reject", "requires_input", "requires_auth"])
async def test_a_task_with_a_bad_end_is_an_error_with_what_the_agent_says(
    end: str, capabilities: dict[str, bool]
) -> None:
    state = {"reject": "rejected", "requires_input": "input required", "requires_auth": "auth required"}.get(end, end)
    async with agent(works("half", end=end, said="no \x1b[1m idea"), capabilities=capabilities) as url:
        with pytest.raises(RemoteError, match=rf"plays 'critic' .*: its task ended as '{state}': no .* idea"):
            await answer_of(url)


@pytest.mark.parametrize(("binding", "version"), [("JSONRPC", "1.0"), ("JSONRPC", "0.3"), ("HTTP+JSON", "1.0")])
async def test_every_candidate_is_a_message_of_its_own_with_all_that_the_role_is_told(
    binding: str, version: str
) -> None:
    script = works("wrong")
    async with agent(script, binding=binding, version=version) as url:
        engine = await A2aEngine.start(RemoteAgent(url=f"{url}{CARD}"), "critic")
        assert isinstance(engine, Engine)
        assert await told(engine, seeds=(1, 2, 3)) == [("wrong", "stop")] * 3
        piece = [one async for one in engine.stream(Request(prompt_ids=(1,), sampling=Sampling(), seeds=(1,)))]
        assert engine.tokenizer.decode(piece[0].token_ids) == "wrong"
        with pytest.raises(EngineError, match="cannot score"):
            await engine.score((1,), (1,))
        await engine.close()
        with pytest.raises(EngineError, match="closed"):
            await told(engine)
    assert script.asked[:3] == ["Judge it.\n\n2 + 2 = 5"] * 3


async def test_earlier_answers_of_the_role_are_marked() -> None:
    script = says("wrong")
    async with agent(script) as url:
        engine = await A2aEngine.start(RemoteAgent(url=url), "critic")
        ids = engine.tokenizer.chat("Judge.", "two", earlier=[("one", "right")])
        await engine.generate(Request(prompt_ids=ids, sampling=Sampling(), seeds=(1,)))
        await engine.close()
    assert script.asked == ["system: Judge.\n\nuser: one\n\nassistant: right\n\nuser: two"]


@pytest.mark.parametrize("capabilities", STREAMS)
async def test_an_agent_that_never_answers_is_told_that_nobody_waits(capabilities: dict[str, bool]) -> None:
    script = hangs()
    async with agent(script, capabilities=capabilities) as url:
        with pytest.raises(RemoteError, match=r"no answer within 0\.5 s"):
            await answer_of(url, timeout_s=0.5)
        assert script.cancelled.get_nowait()


async def test_who_gives_up_an_answer_cancels_its_task() -> None:
    script = hangs()
    async with agent(script) as url:
        engine = await A2aEngine.start(RemoteAgent(url=url), "critic")
        asking = asyncio.create_task(told(engine))
        while not script.asked:  # noqa: ASYNC110 - the agent is asked over a socket
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.1)  # until its first event has come
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        async with asyncio.timeout(10):
            assert await script.cancelled.get()
        await engine.close()


async def test_a_huge_answer_is_cut_off_and_recorded_as_cut_off() -> None:
    async with agent(says("x" * 1_000_000)) as url:
        assert await answer_of(url, max_chars=100) == ("x" * 100, "length")


async def test_the_key_is_sent_and_shown_nowhere(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("CRITIC_KEY", "sesame")
    caplog.set_level(logging.DEBUG)

    async def parrot(text: str, updater: TaskUpdater, queue: Any) -> None:
        await begin(updater, queue)
        await updater.complete(updater.new_agent_message([*says_key]))

    from a2a.types import Part

    says_key = [Part(text="the key is sesame")]
    script = Script(parrot)
    async with agent(script) as url:
        assert await answer_of(url, key_env="CRITIC_KEY") == ("the key is [CRITIC_KEY]", "stop")
        assert script.headers[0]["authorization"] == "Bearer sesame"
        await answer_of(url, key_env="CRITIC_KEY", header="X-Api-Key")
        assert script.headers[1]["x-api-key"] == "sesame"
        assert "authorization" not in script.headers[1]

    async def refuse(request: HttpRequest) -> Response:
        name = (await request.json())["id"]
        return JSONResponse({"jsonrpc": "2.0", "id": name, "error": {"code": -32000, "message": "bad key sesame"}})

    async with hostile(refuse) as url:
        with pytest.raises(RemoteError, match=r"bad key \[CRITIC_KEY\]") as caught:
            await answer_of(url, key_env="CRITIC_KEY")
    assert "sesame" not in str(caught.value)
    mine = [record.getMessage() for record in caplog.records if record.name.startswith(("mas", "a2a.client", "httpx"))]
    assert "sesame" not in "\n".join(mine)
    monkeypatch.delenv("CRITIC_KEY")
    with pytest.raises(ConfigError, match="to be sent CRITIC_KEY: set this environment variable"):
        await answer_of("http://127.0.0.1:9", key_env="CRITIC_KEY")


def answering(content: bytes | str, status: int = 200, kind: str = "application/json", **headers: str) -> Answer:
    async def answer(request: HttpRequest) -> Response:
        return Response(content, status, headers, kind)

    return answer


async def silent(request: HttpRequest) -> Response:
    await asyncio.sleep(2)
    return Response("late")


def message(text: str) -> dict[str, Any]:
    return {"message": {"messageId": "1", "role": "ROLE_AGENT", "parts": [{"text": text}]}}


def status(state: str) -> dict[str, Any]:
    return {"statusUpdate": {"taskId": "t", "contextId": "c", "status": {"state": f"TASK_STATE_{state}"}}}


BAD_ANSWERS = {
    "no JSON": (answering("<html>", kind="text/html"), "."),
    "a list": (answering("[]"), "expected an object"),
    "an error page": (answering("no", 500), "HTTP Error 500"),
    "another place": (answering("", 307, location="http://127.0.0.1:9/"), "HTTP Error 307|Redirect"),
    "too much": (answering(b" " * 17 * 2**20), "more than 16777216 bytes"),
    "compressed": (answering("x", **{"content-encoding": "gzip"}), "compresses what it sends"),
    "deeply nested": (answering("[" * 100_000), "."),
    "no event": (events(), "neither a message nor a task"),
    "an end without an answer": (events(status("WORKING")), "JSON Decode Error"),
    "a result that is none": (events({"surprise": 1}), "."),
    "silence": (silent, "no answer within 1 s"),
}


@pytest.mark.parametrize("name", BAD_ANSWERS)
async def test_a_bad_answer_is_an_error_that_names_the_role(name: str) -> None:
    answer, why = BAD_ANSWERS[name]
    async with hostile(answer) as url:
        with pytest.raises(RemoteError, match=why) as caught:
            await answer_of(url, timeout_s=1.0 if name == "silence" else 60.0)
    assert str(caught.value).startswith("the A2A agent that plays 'critic' (http://127.0.0.1:")
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize(
    "twice",
    [
        events(message("first"), message("second")),
        events(
            status("WORKING"),
            {"artifactUpdate": {"taskId": "t", "artifact": {"artifactId": "a", "parts": [{"text": "first"}]}}},
            status("COMPLETED"),
            {"artifactUpdate": {"taskId": "t", "artifact": {"artifactId": "a", "parts": [{"text": "second"}]}}},
            status("FAILED"),
        ),
    ],
)
async def test_of_two_answers_the_first_counts(twice: Answer) -> None:
    async with hostile(twice) as url:
        assert await answer_of(url) == ("first", "stop")


def shows(change: Callable[[str], dict[str, Any]]) -> Callable[[HttpRequest], Awaitable[Response]]:
    async def shown(request: HttpRequest) -> Response:
        address = str(request.base_url).rstrip("/")
        return JSONResponse(card(address) | change(address))

    return shown


def offers(url: str, binding: str = "JSONRPC", version: str = "1.0") -> dict[str, Any]:
    return {"supportedInterfaces": [{"url": url, "protocolBinding": binding, "protocolVersion": version}]}


async def elsewhere(request: HttpRequest) -> Response:
    return RedirectResponse("http://127.0.0.1:9/card.json")


BAD_CARDS = {
    "none": (answering("Not Found", 404), "HTTP 404"),
    "no JSON": (answering("<html>", kind="text/html"), "JSON"),
    "a list": (answering("[]"), "must be a JSON object"),
    "wrong types": (answering(json.dumps({"capabilities": 3})), "AgentCardResolutionError"),
    "huge": (answering(b" " * 17 * 2**20), "more than 16777216 bytes"),
    "elsewhere": (elsewhere, "HTTP 307"),
    "late": (silent, "no answer within 1 s"),
    "empty": (answering("{}"), "offers no interface, and mas speaks JSONRPC or HTTP.JSON of version 1.0 or 0.3"),
    "gRPC": (shows(lambda url: offers(url, "GRPC")), "offers GRPC 1.0"),
    "another version": (shows(lambda url: offers(url, version="2.0")), "offers JSONRPC 2.0"),
    "a version that is none": (shows(lambda url: offers(url, version="new")), "offers JSONRPC new"),
    "another server": (shows(lambda url: offers("https://evil.example/rpc")), "leads to another server"),
    "another port": (shows(lambda url: offers("http://127.0.0.1:1/rpc")), "leads to another server"),
    "no address": (shows(lambda url: offers("http://127.0.0.1:port")), "leads to another server"),
    "pictures": (shows(lambda url: {"defaultOutputModes": ["image/png"]}), "answers with image/png"),
    "an extension": (
        shows(lambda url: {"capabilities": {"extensions": [{"uri": "urn:pay", "required": True}]}}),
        "needs the extension 'urn:pay'",
    ),
}


@pytest.mark.parametrize("name", BAD_CARDS)
async def test_a_bad_card_is_one_error_when_the_team_starts(name: str) -> None:
    shown, why = BAD_CARDS[name]
    async with hostile(shown=shown) as url:
        with pytest.raises(ConfigError, match=why) as caught:
            await answer_of(url, timeout_s=1.0 if name == "late" else 60.0)
    text = str(caught.value)
    assert text.startswith(f"the A2A agent that plays 'critic' cannot be used: {url}{CARD}: ")
    assert text.endswith("Start it, or correct roles.critic.a2a")


async def test_without_a_server_the_address_is_named() -> None:
    with pytest.raises(ConfigError, match=r"http://127.0.0.1:9/.well-known/agent-card.json: .*connection"):
        await answer_of("http://127.0.0.1:9")
