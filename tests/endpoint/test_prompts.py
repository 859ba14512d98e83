"""What a request may hold before anybody reads it: texts, messages, names, bodies, completions."""

import asyncio
import json
import threading
from typing import Any

import pytest
from clients import Stuck, client, offer, playing, problem

from mas.endpoint import Served, build_app
from mas.endpoint.errors import Refused
from mas.endpoint.limits import MAX_HELD_BYTES, ConnectionGate
from mas.testing.scripted import ScriptedEngine


def counting(longest: int = 2) -> tuple[Served, list[tuple[int, str]]]:
    """A server of 4096 tokens of so many characters, and the lengths of all texts that were tokenized, by thread."""
    engine, seen = ScriptedEngine(lambda *_: "x", ("a",)), []
    encode = engine.tokenizer.encode

    def noting(text: str) -> tuple[int, ...]:
        seen.append((len(text), threading.current_thread().name))
        return encode(text)

    engine.tokenizer.encode = noting
    return Served(engine=engine, base="b", context=4096, roles={}, teams=(), created=0, longest_token=longest), seen


@pytest.mark.parametrize("where", ["prompt", "messages", "stop"])
async def test_a_text_longer_than_any_prompt_is_refused_before_it_is_tokenized(where: str) -> None:
    served, seen = counting()
    text = "y" * 8193  # 4096 tokens of 2 characters, and one character
    bodies: dict[str, dict[str, Any]] = {
        "prompt": {"prompt": text},
        "messages": {"messages": [{"role": "user", "content": text[:5000]}, {"role": "user", "content": text[5000:]}]},
        "stop": {"prompt": "y", "stop": [f"{n:0256}" for n in range(33)]},
    }
    path = "/v1/chat/completions" if where == "messages" else "/v1/completions"
    async with client(build_app(served)) as asking:
        error = problem(await asking.post(path, json={"model": "a", **bodies[where]}), 400)
    assert error["code"] == "context_length_exceeded", error
    assert "4096 tokens" in error["message"]
    assert seen == []


async def test_a_long_text_is_tokenized_in_a_thread_and_a_short_one_at_once() -> None:
    served, seen = counting()
    async with client(build_app(served)) as asking:
        for length in (10, 4000):
            await asking.post("/v1/completions", json={"model": "a", "prompt": "y" * length, "max_tokens": 1})
    here = threading.current_thread().name
    assert [(length, name == here) for length, name in seen if length > 1] == [(10, True), (4000, False)]


async def test_a_team_is_not_asked_with_a_text_that_no_member_could_read() -> None:
    engine = ScriptedEngine(lambda *_: "x")
    async with playing(engine) as team:
        app = build_app(Served(engine=engine, base="b", context=50, roles={}, teams=(team,), created=0))
        fields = json.loads(team.example)
        wrong = {name: "y" * 60 if isinstance(value, str) else value for name, value in fields.items()}
        async with client(app) as asking:
            body = {"model": f"team:{team.name}", "prompt": json.dumps(wrong)}
            error = problem(await asking.post("/v1/completions", json=body), 400)
    assert error["code"] == "context_length_exceeded"
    assert engine.requests == []


@pytest.mark.parametrize(("longest", "limit"), [(1, 262_144), (20, 983_040), (500, 8 * 2**20)])
async def test_a_body_is_as_long_as_the_longest_prompt_may_need_within_bounds(longest: int, limit: int) -> None:
    served, _ = counting(longest)
    async with client(build_app(served)) as asking:
        for length, status in ((limit, 400), (limit + 1, 413)):
            headers = {"Content-Type": "application/json"}
            problem(await asking.post("/v1/completions", content=b"x" * length, headers=headers), status)


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ({"model": "m" * 5000, "prompt": "y"}, "at most 256"),
        ({"prompt": "y", "n" * 5000: 1}, "a name of 5000 characters"),
        ({f"n{n}": 1 for n in range(300)}, "301 options"),
        ({"messages": [{"role": "user", "content": "y"}] * 4097}, "4097 messages"),
        ({"prompt": "y", "stop_token_ids": [1] * 257}, "at most 256"),
        ({"prompt": "y", "stop_token_ids": [-1]}, "greater than or equal to 0"),
        ({"metadata": [[]] * 262_144}, "opening brackets"),
    ],
)
async def test_many_and_long_things_are_refused_in_a_short_answer(body: dict[str, Any], text: str) -> None:
    served, seen = counting(longest=500)
    path = "/v1/chat/completions" if "messages" in body else "/v1/completions"
    async with client(build_app(served)) as asking:
        error = problem(await asking.post(path, json={"model": "a"} | body), 400)
    assert text in error["message"]
    assert len(error["message"]) < 1000
    assert seen == []


async def test_completions_run_as_there_are_places_for_them_whatever_requests_they_are_of() -> None:
    engine = Stuck()
    app = build_app(offer(engine), max_running=4)
    body = {"model": "a", "prompt": "hello"}
    async with client(app) as asking:
        first = [asyncio.create_task(asking.post("/v1/completions", json=body | {"n": 2}), name="ask") for _ in "ab"]
        for _ in first:
            await engine.asked.acquire()
        more = [
            asyncio.create_task(asking.post("/v1/completions", json=body | {"n": n}), name="more") for n in (1, 128, 1)
        ]
        while app.state.gate.waiting != 3:  # noqa: ASYNC110 - only the counter tells
            await asyncio.sleep(0)
        assert app.state.gate.running == 2
        engine.released.set()
        answers = await asyncio.gather(*first, *more)
    assert [len(answer.json()["choices"]) for answer in answers] == [2, 2, 1, 128, 1]
    assert app.state.gate.running == 0


async def test_one_that_leaves_while_it_takes_places_gives_them_back() -> None:
    gate = ConnectionGate(running=3, waiting=9)
    async with gate.places(2):
        leaving = asyncio.create_task(_run(gate, 3), name="leaves")
        await asyncio.sleep(0)
        leaving.cancel()
        await asyncio.wait([leaving])
        await asyncio.wait_for(_run(gate, 1), 1)
    await asyncio.wait_for(_run(gate, 3), 1)


async def _run(gate: ConnectionGate, count: int) -> None:
    async with gate.places(count):
        pass


def test_bodies_of_all_requests_have_a_bound_together() -> None:
    gate = ConnectionGate(running=1, waiting=1)
    with gate.holding() as first, gate.holding() as second:
        first(MAX_HELD_BYTES - 10)
        second(10)
        with pytest.raises(Refused, match="memory") as refused:
            second(1)
        assert refused.value.status == 429
    with gate.holding() as third:
        third(MAX_HELD_BYTES)
