"""Clients with keys of their own: who may ask, how much, for how long, and from which web pages."""

import asyncio
import hashlib
import json
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from clients import HELLO, Stuck, client, echo, offer, pieces, playing, problem

from mas.core.errors import ConfigError, EngineError
from mas.endpoint import build_app, running
from mas.endpoint.address import known_origins
from mas.endpoint.client_keys import ApiClient, ClientLimits, Entrance, read_keys
from mas.endpoint.errors import Refused
from mas.testing.scripted import ScriptedEngine

CHAT = "/v1/chat/completions"


def limited(name: str, **limits: Any) -> ClientLimits:
    """A client whose key is its name."""
    return ClientLimits(name=name, sha256=hashlib.sha256(name.encode()).hexdigest(), **limits)


def as_client(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


async def test_every_client_has_its_own_key_and_the_owner_another() -> None:
    app = build_app(offer(echo()), entrance=Entrance(key="sesame", clients=[limited("alice"), limited("bob")]))
    async with client(app) as asking:
        for key, status in (("alice", 200), ("bob", 200), ("sesame", 200), ("carol", 401), ("", 401)):
            assert (await asking.post(CHAT, json=HELLO, headers=as_client(key))).status_code == status
        assert (await asking.get("/health")).status_code == 200
        assert (await asking.get("/v1/models")).status_code == 401
    async with client(build_app(offer(echo()), entrance=Entrance(clients=[limited("alice")]))) as asking:
        assert (await asking.get("/v1/models")).status_code == 401, "with clients nobody is let in without a key"


async def test_requests_a_minute() -> None:
    async with client(
        build_app(offer(echo()), entrance=Entrance(clients=[limited("a", requests_per_minute=2), limited("b")]))
    ) as asking:
        answers = [await asking.post(CHAT, json=HELLO, headers=as_client("a")) for _ in range(3)]
        assert [answer.status_code for answer in answers] == [200, 200, 429]
        assert "2 requests a minute" in problem(answers[2], 429)["message"]
        assert 50 < int(answers[2].headers["Retry-After"]) <= 60
        assert (await asking.post(CHAT, json=HELLO, headers=as_client("b"))).status_code == 200


async def test_tokens_a_day_count_prompts_and_completions_whole_and_streamed() -> None:
    async with client(
        build_app(offer(echo()), entrance=Entrance(clients=[limited("a", tokens_per_day=100)]))
    ) as asking:
        used = 0
        for stream in (False, True):
            body = HELLO | {"stream": stream, "stream_options": {"include_usage": True} if stream else None}
            answer = await asking.post(CHAT, json=body, headers=as_client("a"))
            used += (pieces(answer)[-1] if stream else answer.json())["usage"]["total_tokens"]
        assert 40 < used < 100
        while used < 100:
            answer = await asking.post(CHAT, json=HELLO, headers=as_client("a"))
            used += answer.json()["usage"]["total_tokens"]
        refused = await asking.post(CHAT, json=HELLO, headers=as_client("a"))
    assert "100 tokens a day" in problem(refused, 429)["message"]
    assert problem(refused, 429)["code"] == "quota_exceeded"
    assert 0 < int(refused.headers["Retry-After"]) <= 86_400


async def test_the_tokens_of_a_team_turn_that_fails_count() -> None:
    def broken(prompt: str, adapter: str | None, seed: int) -> str:
        if prompt[0] == "V":
            raise EngineError("out of memory")
        return {"P": "23", "E": "D"}[prompt[0]]

    situation = json.dumps({"goal": "23", "cell": "00", "last": "-", "around": "#.#."})
    body = {"model": "team:plan_path", "messages": [{"role": "user", "content": situation}]}
    async with playing(engine := ScriptedEngine(broken)) as team:
        app = build_app(offer(engine, teams=[team]), entrance=Entrance(clients=[limited("a", tokens_per_day=1)]))
        async with client(app) as asking:
            problem(await asking.post(CHAT, json=body, headers=as_client("a")), 500)
            problem(await asking.post(CHAT, json=body, headers=as_client("a")), 429)


def test_used_quotas_come_back_with_time() -> None:
    clock = [86_400.0 * 5 + 10]
    asking = ApiClient(limited("a", requests_per_minute=1, tokens_per_day=5), lambda: clock[0])
    asking.enter()
    with pytest.raises(Refused, match="1 requests a minute") as caught:
        asking.enter()
    assert caught.value.headers == {"Retry-After": "60"}
    clock[0] += 60
    asking.enter()
    asking.spend(5)
    clock[0] += 60
    with pytest.raises(Refused, match="5 tokens a day") as caught:
        asking.enter()
    assert caught.value.headers == {"Retry-After": str(86_400 - 130)}
    clock[0] = 86_400.0 * 6
    asking.enter()


WRONG = [
    ("keys: []", "keys: Tuple should have at least 1 item"),
    ("keys: [{name: a, sha256: abc}]", "keys.0.sha256: String should match pattern"),
    (f"keys: [{{name: a b, sha256: {'0' * 64}}}]", "keys.0.name"),
    (f"keys: [{{name: a, sha256: '{'0' * 64}', tokens: 3}}]", "keys.0.tokens: Extra inputs"),
    (f"keys: [{{name: a, sha256: '{'0' * 64}'}}, {{name: a, sha256: '{'1' * 64}'}}]", "the name 'a' twice"),
    (f"keys: [{{name: a, sha256: '{'0' * 64}'}}, {{name: b, sha256: '{'0' * 64}'}}]", "the sha256 '000"),
    ("keys: [", "is no plain value"),
    ("- a", "valid dictionary"),
]


@pytest.mark.parametrize(("text", "message"), WRONG)
def test_a_wrong_file_is_refused_with_the_place(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "keys.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=message):
        read_keys(path)


def test_a_file_of_clients(tmp_path: Path) -> None:
    path = tmp_path / "keys.yaml"
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        read_keys(path)
    path.write_text(f"keys:\n- {{name: alice, sha256: '{limited('alice').sha256}', requests_per_minute: 3}}\n")
    assert read_keys(path) == (limited("alice", requests_per_minute=3),)


async def test_a_request_that_takes_too_long_ends() -> None:
    engine = Stuck()
    async with client(build_app(offer(engine), max_seconds=0.05)) as asking:
        error = problem(await asking.post(CHAT, json=HELLO), 504)
        assert error["message"] == "a request may take 0.05 s here"
        await asyncio.wait_for(engine.cancelled.acquire(), 5)
        *_, last = pieces(await asking.post(CHAT, json=HELLO | {"stream": True}))
    assert last["error"]["code"] == "time_limit"


async def test_web_pages_of_an_allowed_origin_may_ask() -> None:
    app = build_app(offer(echo()), entrance=Entrance(key="sesame", origins=known_origins(["https://app.example"])))
    page = {"Origin": "https://app.example"}
    names = "authorization,content-type,x-stainless-lang,idempotency-key"
    asks = page | {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": names}
    async with running(app) as url, httpx.AsyncClient(base_url=url) as asking:
        before = await asking.options(CHAT, headers=asks)
        assert (before.status_code, before.headers["access-control-allow-origin"]) == (200, "https://app.example")
        answer = await asking.post(CHAT, json=HELLO, headers=page | as_client("sesame"))
        assert (answer.status_code, answer.headers["access-control-allow-origin"]) == (200, "https://app.example")
        assert (await asking.post(CHAT, json=HELLO, headers=page)).status_code == 401
        for other in ("https://app.example.evil", "http://app.example", "https://evil.example"):
            answer = await asking.post(CHAT, json=HELLO, headers=as_client("sesame") | {"Origin": other})
            assert answer.status_code == 403
            assert "access-control-allow-origin" not in answer.headers
            assert (await asking.options(CHAT, headers=asks | {"Origin": other})).status_code == 400


@pytest.mark.parametrize("origin", ["app.example", "https://app.example/", "*", "https://*.example", "null"])
def test_what_is_no_origin_is_refused(origin: str) -> None:
    with pytest.raises(ConfigError, match=r"write https://app\.example"):
        known_origins([origin])


async def test_the_clients_library_waits_as_it_is_told() -> None:
    app = build_app(offer(echo()), entrance=Entrance(clients=[limited("a", requests_per_minute=1)]))
    async with running(app) as url, openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="a", max_retries=0) as asking:
        await asking.chat.completions.create(**HELLO)
        with pytest.raises(openai.RateLimitError, match="requests a minute"):
            await asking.chat.completions.create(**HELLO)
