"""Programs that leave, break or ask oddly: what is learned of them, and what becomes of their episodes."""

import asyncio
import json
from collections.abc import AsyncGenerator, Callable
from typing import Any

import pytest
from clients import problem
from open_gateway import OpenGateway, open_gateway, until

from mas.core.engine import Generation, Request
from mas.endpoint import running
from mas.gateway.client import Gateway, GatewayEpisode, GatewayError
from mas.gateway.serving import GatewayLimits

LONG_WAIT = GatewayLimits(idle_s=10, wait_s=5, lease_s=30)


async def test_a_program_that_leaves_in_the_moment_in_which_it_gets_an_episode_takes_none_along() -> None:
    async with open_gateway(limits=LONG_WAIT, candidates=1) as gate:
        left, body = asyncio.Event(), [{"type": "http.request", "body": b"{}", "more_body": False}]

        async def receive() -> dict[str, Any]:
            if body:
                return body.pop()
            await left.wait()
            return {"type": "http.disconnect"}

        async def send(_: object) -> None: ...

        headers = [(b"host", b"localhost"), (b"content-type", b"application/json")]
        scope = {"type": "http", "method": "POST", "path": "/v1/episodes", "headers": headers, "query_string": b""}
        waiting = asyncio.create_task(gate.app(scope, receive, send))  # type: ignore[arg-type]
        await until(lambda: gate.queue.waiting == 1)
        playing = gate.play(0)
        left.set()
        await waiting
        assert gate.queue.counts == {"open": 1, "playing": 0, "played": 0}
        key = (await gate.lease())["id"]
        await gate.ask(key, "finder", "x")
        await gate.end(key, reward=1)
        (episode,) = await playing
    assert episode.attempts == ()


async def test_a_call_that_draws_nothing_is_no_turn() -> None:
    """Whoever learns from a turn without a token ends the training."""
    async with open_gateway(candidates=1) as gate:
        playing = gate.play(0)
        key = (await gate.lease())["id"]
        scored = {"model": "finder", "prompt": "abc", "echo": True, "max_tokens": 0, "logprobs": 0}
        answer = await gate.http.post(f"/episodes/{key}/v1/completions", json=scored)
        assert answer.json()["choices"][0]["text"] == "abc"
        assert problem(await gate.end(key, reward=1), 409)["code"] == "no_calls"
        await gate.ask(key, "finder", "x")
        assert (await gate.end(key, reward=1)).status_code == 200
        (episode,) = await playing
    assert [len(turn.completion_ids) > 0 for turn in episode.turns] == [True]


async def test_a_call_that_is_refused_is_none_that_was_cut() -> None:
    async with open_gateway(candidates=1) as gate:
        playing = gate.play(0)
        key = (await gate.lease())["id"]
        wrong = {"model": "finder", "prompt": [2 * 10**6]}
        problem(await gate.http.post(f"/episodes/{key}/v1/completions", json=wrong), 400)
        await gate.ask(key, "finder", "x")
        await gate.end(key, reward=1)
        (episode,) = await playing
    assert episode.measures == {"calls_cut": 0.0}


def _slow(gate: OpenGateway) -> None:
    """An engine that streams a character in 10 ms."""
    stream = gate.engine.stream

    async def slow(request: Request) -> AsyncGenerator[Generation]:
        async for piece in stream(request):
            await asyncio.sleep(0.01)
            yield piece

    gate.engine.stream = slow  # type: ignore[method-assign]


async def test_an_episode_can_end_at_once_when_its_program_leaves_a_stream() -> None:
    """The end comes before the server has seen that the stream's reader is gone."""
    async with open_gateway(candidates=1) as gate, running(gate.app) as url:
        _slow(gate)
        playing = gate.play(0)
        key = (await gate.lease())["id"]
        await gate.ask(key, "finder", "x")
        host, port = url.removeprefix("http://").split(":")

        def post(path: str, content: dict[str, Any]) -> bytes:
            body = json.dumps(content).encode()
            head = f"POST {path} HTTP/1.1\r\nHost: {host}:{port}\r\nContent-Type: application/json\r\n"
            return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body

        reading, leaving = await asyncio.open_connection(host, int(port))
        answers, ending = await asyncio.open_connection(host, int(port))
        ending.write(post("/v1/episodes/other/end", {"reward": 1}))
        assert b" 404 " in await answers.readuntil(b"}}")
        said = {"model": "reader", "stream": True, "messages": [{"role": "user", "content": "x" * 100}]}
        leaving.write(post(f"/episodes/{key}/v1/chat/completions", said))
        await reading.readuntil(b"data:")
        leaving.close()
        ending.write(post(f"/v1/episodes/{key}/end", {"reward": 1}))
        assert b" 200 " in await answers.readuntil(b"\r\n")
        (episode,) = await playing
        for writer in (leaving, ending):
            writer.close()
            await writer.wait_closed()
    assert ([turn.role for turn in episode.turns], episode.measures) == (["finder"], {"calls_cut": 1.0})


def _nan(episode: GatewayEpisode) -> None:
    episode.end(float("nan"))


def _no_json(episode: GatewayEpisode) -> None:
    episode.end(object())  # type: ignore[arg-type]


def _half_a_character(episode: GatewayEpisode) -> None:
    raise ValueError("a file called \udcff")


ENDS = [(_nan, GatewayError), (_no_json, TypeError), (_half_a_character, ValueError)]


@pytest.mark.parametrize(("broken", "raised"), ENDS)
async def test_an_episode_whose_end_is_refused_is_given_to_another_program(
    broken: Callable[[GatewayEpisode], None], raised: type[Exception]
) -> None:
    async with open_gateway(candidates=1) as gate, running(gate.app) as url:
        playing = gate.play(0)

        def program() -> None:
            episode = next(Gateway(url, retry_s=0).episodes())
            with episode:
                broken(episode)

        with pytest.raises(raised) as error:
            await asyncio.to_thread(program)
        assert getattr(error.value, "status", 400) == 400
        assert gate.queue.counts == {"open": 1, "playing": 0, "played": 0}
        playing.cancel()


async def test_what_ends_a_program_is_said_though_the_gateway_is_gone() -> None:
    async with open_gateway(candidates=1) as gate, running(gate.app) as url:
        playing = gate.play(0)
        episode = await asyncio.to_thread(next, Gateway(url, retry_s=0).episodes())
        playing.cancel()

    def program() -> None:
        with episode:
            raise ZeroDivisionError("of the program")

    with pytest.raises(ZeroDivisionError, match="of the program"):
        await asyncio.to_thread(program)
