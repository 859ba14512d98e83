"""The server as its clients and its operator meet it: keys, bounds, clients that leave, health, metrics, closing."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Callable

import httpx
import pytest
from clients import HELLO, Stuck, client, echo, offer, pieces, playing, problem
from prometheus_client.parser import text_string_to_metric_families

from mas.core.engine import Generation, Request
from mas.core.errors import ConfigError, EngineError
from mas.endpoint import Served, build_app, running
from mas.endpoint.address import bind
from mas.endpoint.client_keys import Entrance
from mas.testing.scripted import ScriptedEngine

RAW = {"model": "a", "prompt": "hello"}


class Failing(ScriptedEngine):
    """Fails while `is_broken`, in a stream behind its first piece."""

    is_broken = True

    async def generate(self, request: Request) -> tuple[Generation, ...]:
        if self.is_broken:
            raise EngineError("decoding failed: out of memory")
        return await super().generate(request)

    async def stream(self, request: Request) -> AsyncIterator[Generation]:
        yield Generation(token_ids=(ord("x") + 1,), logprobs=(0.0,), finish="")
        await self.generate(request)


async def measured(asking: httpx.AsyncClient) -> dict[str, float]:
    """All samples by name and labels, as they are scraped."""
    text = (await asking.get("/metrics")).text
    return {
        " ".join([sample.name.removeprefix("mas_"), *sample.labels.values()]): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


async def until_waiting(asking: httpx.AsyncClient, count: int) -> None:
    while (await measured(asking))["requests_waiting"] != count:  # noqa: ASYNC110 - only the counter tells
        await asyncio.sleep(0)


async def test_models_are_the_base_first_then_adapters_with_versions_then_teams() -> None:
    engine = echo()
    engine.publish("a")
    async with playing(engine) as team, client(build_app(offer(engine, teams=[team]))) as asking:
        listed = (await asking.get("/v1/models")).json()
        for card in listed["data"]:
            assert (await asking.get(f"/v1/models/{card['id']}")).json() == card
        problem(await asking.get("/v1/models/org/base:2"), 404)
    assert listed["object"] == "list"
    base, a, b, team_card = listed["data"]
    assert (base["id"], base["kind"], base["parent"], base["max_model_len"]) == ("org/base:1", "base", None, 4096)
    assert [(card["id"], card["version"], card["parent"]) for card in (a, b)] == [
        ("a", 1, base["id"]),
        ("b", 0, base["id"]),
    ]
    assert (team_card["id"], team_card["kind"]) == ("team:plan_path", "team")


def test_two_models_of_one_name_are_refused() -> None:
    with pytest.raises(ConfigError, match="two models are called 'a'"):
        Served(engine=echo(), base="a", context=9, roles={}, teams=(), created=0)


async def test_what_is_not_there_is_an_error_of_the_same_form() -> None:
    async with client(build_app(offer(echo()))) as asking:
        assert "GET /v1/models" in problem(await asking.get("/v1/embeddings"), 404)["message"]
        problem(await asking.get("/v1/completions"), 405)


async def test_everything_but_health_needs_the_key() -> None:
    app = build_app(offer(echo()), entrance=Entrance(key="sesame"))
    async with client(app) as asking:
        for headers in (
            {},
            {"Authorization": "Bearer sesam"},
            {"Authorization": "sesame"},
            {"Authorization": "Basic sesame"},
        ):
            for path in ("/v1/models", "/metrics", "/nowhere"):
                assert problem(await asking.get(path, headers=headers), 401)["code"] == "invalid_api_key"
            error = problem(await asking.post("/v1/completions", json=RAW, headers=headers), 401)
            assert "Authorization: Bearer" in error["message"]
        assert (await asking.get("/health")).status_code == 200
    async with client(app, Authorization="Bearer sesame") as asking:
        assert (await asking.post("/v1/completions", json=RAW)).status_code == 200
        assert (await measured(asking))["requests_total  401"] == 16


async def test_a_key_may_have_letters_of_any_language() -> None:
    async with client(build_app(offer(echo()), entrance=Entrance(key="sésame ✓"))) as asking:
        assert (
            await asking.get("/v1/models", headers={b"Authorization": "Bearer sésame ✓".encode()})
        ).status_code == 200
        problem(await asking.get("/v1/models", headers={b"Authorization": "Bearer sesame ✓".encode()}), 401)


async def test_who_comes_when_all_places_and_the_queue_are_taken_is_told_when_to_come_again() -> None:
    engine = Stuck()
    async with client(build_app(offer(engine), max_running=1, max_waiting=1)) as asking:
        first, second = [asyncio.create_task(asking.post("/v1/completions", json=RAW), name="ask") for _ in range(2)]
        await engine.asked.acquire()
        await until_waiting(asking, 1)
        assert (await measured(asking))["requests_running"] == 1
        refused = await asking.post("/v1/completions", json=RAW)
        assert problem(refused, 429)["type"] == "rate_limit_error"
        assert int(refused.headers["retry-after"]) >= 1
        engine.released.set()
        assert [(await task).status_code for task in (first, second)] == [200, 200]
        assert (await asking.post("/v1/completions", json=RAW)).status_code == 200
        after = await measured(asking)
    assert (after["requests_running"], after["requests_waiting"]) == (0, 0)


@pytest.mark.parametrize("stream", [False, True])
async def test_a_client_that_leaves_cancels_its_generation_and_no_other(stream: bool) -> None:
    engine = Stuck()
    app = build_app(offer(engine))
    async with running(app) as url, httpx.AsyncClient(base_url=url) as asking:
        staying = asyncio.create_task(asking.post("/v1/completions", json=RAW), name="stays")
        await engine.asked.acquire()
        async with httpx.AsyncClient(base_url=url) as leaver:
            leaving = asyncio.create_task(leaver.post("/v1/completions", json=RAW | {"stream": stream}), name="leaves")
            await engine.asked.acquire()
            leaving.cancel()
            await asyncio.wait([leaving])
        await engine.cancelled.acquire()
        assert engine.cancelled.locked(), "only one generation was cancelled"
        engine.released.set()
        assert (await staying).json()["choices"][0]["text"] == "xxxxx"
        counts = await measured(asking)
    assert (counts["requests_total a 499"], counts["requests_total a 200"]) == (1, 1)
    assert counts["requests_running"] == 0


async def test_a_client_that_leaves_the_queue_makes_room() -> None:
    engine = Stuck()
    app = build_app(offer(engine), max_running=1, max_waiting=1)
    async with running(app) as url, httpx.AsyncClient(base_url=url) as asking:
        first = asyncio.create_task(asking.post("/v1/completions", json=RAW), name="first")
        await engine.asked.acquire()
        async with httpx.AsyncClient(base_url=url) as leaver:
            leaving = asyncio.create_task(leaver.post("/v1/completions", json=RAW), name="leaves")
            await until_waiting(asking, 1)
            leaving.cancel()
            await asyncio.wait([leaving])
        await until_waiting(asking, 0)
        third = asyncio.create_task(asking.post("/v1/completions", json=RAW), name="third")
        engine.released.set()
        assert [(await task).status_code for task in (first, third)] == [200, 200]
    assert len(engine.requests) == 2, "nobody generated for the one who left"


async def test_a_failure_of_the_engine_is_a_500_and_shows_in_health_until_it_works_again() -> None:
    engine = Failing(lambda *_: "x", ("a",))
    async with client(build_app(offer(engine))) as asking:
        assert (await asking.get("/health")).status_code == 200
        assert "out of memory" in problem(await asking.post("/v1/completions", json=RAW), 500)["message"]
        assert problem(await asking.get("/health"), 503)["code"] == "engine_error"
        engine.is_broken = False
        assert (await asking.get("/health")).status_code == 200
        assert (await asking.post("/v1/completions", json=RAW)).status_code == 200


async def test_a_failure_in_the_middle_of_a_stream_is_its_last_event() -> None:
    async with client(build_app(offer(Failing(lambda *_: "x", ("a",))))) as asking:
        first, last = pieces(await asking.post("/v1/completions", json=RAW | {"stream": True}))
        assert first["choices"][0]["text"] == "x"
        assert "out of memory" in last["error"]["message"]
        assert (await measured(asking))["requests_total a 500"] == 1


async def test_an_error_that_nobody_foresaw_is_logged_and_not_shown(caplog: pytest.LogCaptureFixture) -> None:
    def broken(prompt: str, adapter: str | None, seed: int) -> str:
        if "hello" in prompt:
            raise ZeroDivisionError("the secret")
        return "fine"

    async with client(build_app(offer(ScriptedEngine(broken, ("a",))))) as asking:
        others = [asking.post("/v1/completions", json=RAW | {"prompt": "hi"}) for _ in range(3)]
        bad, *good = await asyncio.gather(asking.post("/v1/completions", json=RAW), *others)
    assert "secret" not in problem(bad, 500)["message"]
    assert "the secret" in caplog.text
    assert [answer.json()["choices"][0]["text"] for answer in good] == ["fine"] * 3


async def test_counters_add_up() -> None:
    engine = ScriptedEngine(lambda *_: "four", ("a", "b"))
    engine.publish("b")
    async with client(build_app(offer(engine))) as asking:
        for model, count in (("a", 3), ("b", 2), ("org/base:1", 1)):
            for _ in range(count):
                await asking.post("/v1/completions", json=RAW | {"model": model, "n": 2})
        await asking.post("/v1/chat/completions", json=HELLO | {"stream": True})
        for wrong in ({"model": "nobody"}, {"suffix": "end"}, {"max_tokens": 10_000}):
            await asking.post("/v1/completions", json=RAW | wrong)
        counts = await measured(asking)
    assert {name: value for name, value in counts.items() if name.startswith("requests_total")} == {
        "requests_total a 200": 4, "requests_total b 200": 2, "requests_total org/base:1 200": 1,
        "requests_total  404": 1, "requests_total  400": 1, "requests_total a 400": 1,
    }  # fmt: skip
    # 5 characters a prompt, and the chat's 7; 4 characters and the end token for each of two choices, 5 for the chat
    assert (counts["prompt_tokens_total a"], counts["generated_tokens_total a"]) == (3 * 5 + 7, 3 * 10 + 5)
    assert (counts["prompt_tokens_total b"], counts["generated_tokens_total b"]) == (2 * 5, 2 * 10)
    assert (counts["request_seconds_count a"], counts["request_seconds_count b"]) == (5, 2)
    assert counts["first_token_seconds_count a"] == 1
    assert "first_token_seconds_count b" not in counts
    assert (counts["adapter_version a"], counts["adapter_version b"]) == (0, 1)
    assert counts["uptime_seconds"] > 0


async def test_two_servers_in_one_process_count_apart() -> None:
    apps = [build_app(offer(echo())) for _ in range(2)]
    async with client(apps[0]) as one, client(apps[1]) as two:
        await one.post("/v1/completions", json=RAW)
        assert "requests_total a 200" in await measured(one)
        assert "requests_total a 200" not in await measured(two)


async def test_closing_lets_requests_in_flight_end_and_nobody_else_in() -> None:
    engine = Stuck()
    app = build_app(offer(engine))
    async with client(app) as asking:
        flying = asyncio.create_task(asking.post("/v1/completions", json=RAW), name="flying")
        await engine.asked.acquire()
        closing = asyncio.create_task(app.state.gate.drain(30), name="closing")
        await asyncio.sleep(0)
        refused = await asking.post("/v1/completions", json=RAW)
        assert problem(refused, 503)["code"] == "closing"
        problem(await asking.get("/health"), 503)
        assert not closing.done()
        engine.released.set()
        assert (await flying).status_code == 200
        await closing


@pytest.mark.parametrize("stream", [False, True])
async def test_closing_waits_a_limited_time_and_tells_those_who_are_cut_off(stream: bool) -> None:
    engine = Stuck()
    app = build_app(offer(engine))
    async with httpx.AsyncClient() as asking:
        async with running(app, drain_s=0.05) as url:
            body = RAW | {"stream": stream}
            flying = asyncio.create_task(asking.post(f"{url}/v1/completions", json=body), name="flying")
            await engine.asked.acquire()
        answer = await flying
        if stream:
            assert pieces(answer)[-1]["error"]["code"] == "closing"
        else:
            assert problem(answer, 503)["code"] == "closing"
        with pytest.raises(httpx.ConnectError):
            await asking.get(f"{url}/health")


async def test_a_client_that_does_not_read_cannot_keep_the_server_from_closing() -> None:
    engine = ScriptedEngine(lambda *_: "x" * 4000, ("a",))
    app = build_app(offer(engine))
    body = json.dumps(RAW | {"stream": True, "n": 128, "max_tokens": 4000, "return_token_ids": True}).encode()
    async with asyncio.timeout(20), running(app, drain_s=0.05) as url:
        reader, writer = await asyncio.open_connection("127.0.0.1", int(url.rpartition(":")[2]), limit=1024)
        head = "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        assert (await reader.readline()).startswith(b"HTTP/1.1 200")
    writer.close()


@pytest.mark.parametrize("host", ["0.0.0.0", "::", ""])
def test_other_machines_may_not_ask_without_a_key(host: str) -> None:
    with pytest.raises(ConfigError, match="MAS_API_KEY"):
        bind(host, 0, has_key=False)
    bind("127.0.0.1", 0, has_key=False).close()
    bind("localhost", 0, has_key=False).close()


def test_with_a_key_any_address_will_do() -> None:
    bind("0.0.0.0", 0, has_key=True).close()


@pytest.mark.parametrize(
    ("host", "text"), [("no.such.host.invalid", "no address"), ("203.0.113.7", "cannot be listened at")]
)
def test_an_address_that_is_not_here_is_one_clear_error(host: str, text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        bind(host, 0, has_key=True)


@pytest.mark.parametrize(
    "take", [lambda: socket.create_server(("127.0.0.1", 0)), lambda: bind("127.0.0.1", 0, has_key=False)]
)
def test_a_port_that_is_taken_is_one_clear_error(take: Callable[[], socket.socket]) -> None:
    with take() as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=f"127.0.0.1:{port} cannot be listened at: .*Choose another --port"):
            bind("127.0.0.1", port, has_key=False)


async def test_many_requests_at_once_are_all_answered_rightly() -> None:
    app = build_app(offer(echo()), max_running=8)
    async with running(app) as url, httpx.AsyncClient(base_url=url) as asking:
        bodies = [{"model": "ab"[n % 2], "prompt": f"{n}", "seed": n, "stream": n % 3 == 0} for n in range(60)]
        answers = await asyncio.gather(*[asking.post("/v1/completions", json=body) for body in bodies])
    for n, answer in enumerate(answers):
        choices = [part["choices"][0] for part in (pieces(answer) if n % 3 == 0 else [answer.json()])]
        assert "".join(choice["text"] for choice in choices) == f"{'ab'[n % 2]}{n % 10} «{str(n)[::-1]}» ✓"
