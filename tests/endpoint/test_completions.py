"""Raw completions: over HTTP they are what the engine says, token by token, whole or streamed."""

import math
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
from clients import client, echo, offer, pieces, problem
from conftest import BaseFor
from loud import loud_adapter

from mas.core.engine import Request, Sampling
from mas.endpoint import RoleModel, build_app
from mas.serving.transformers_engine import TransformersEngine
from mas.testing.scripted import END, ScriptedEngine

PROMPTS = ("P01>", "E00-11;>", "E34U12;DR>")
EXACT = {"ignore_eos": True, "return_token_ids": True, "logprobs": 0, "return_tokens_as_token_ids": True}


@pytest.fixture
async def engine(base_for: BaseFor) -> AsyncIterator[TransformersEngine]:
    base = base_for("plan_path")
    engine = TransformersEngine(base)
    for number, name in enumerate("ab", start=1):
        await engine.store.publish(name, loud_adapter(base, number))
    yield engine
    await engine.close()


def total(choice: dict[str, Any], parts: list[dict[str, Any]]) -> dict[str, Any]:
    """The parts of a streamed choice put together in the form of a whole one."""
    joined = dict(choice) | {"text": "".join(part["text"] for part in parts)}
    joined |= {name: parts[-1][name] for name in ("finish_reason", "stop_reason")}
    joined["token_ids"] = [token for part in parts for token in part["token_ids"]]
    joined["logprobs"] = {
        name: [value for part in parts for value in part["logprobs"][name]] for name in parts[0]["logprobs"]
    }
    return joined


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("temperature", [0.0, 0.7, 1.0])
async def test_completions_are_the_engines_token_by_token(
    engine: TransformersEngine, temperature: float, stream: bool
) -> None:
    async with client(build_app(offer(engine))) as asking:
        for prompt in PROMPTS:
            for adapter in (None, "a", "b"):
                ids = engine.tokenizer.encode(prompt)
                sampling = Sampling(temperature=temperature, max_tokens=6)
                wanted = Request(prompt_ids=ids, sampling=sampling, seeds=(7,), adapter=adapter)
                (generation,) = await engine.generate(wanted)
                body = {"model": adapter or "org/base:1", "prompt": list(ids), "max_tokens": 6, "seed": 7, **EXACT}
                answer = await asking.post(
                    "/v1/completions", json=body | {"temperature": temperature, "stream": stream}
                )
                if stream:
                    chunks = pieces(answer)
                    (choice,) = [total(chunks[0]["choices"][0], [chunk["choices"][0] for chunk in chunks])]
                    said_by = chunks[-1]["adapter"]
                else:
                    choice, said_by = answer.json()["choices"][0], answer.json()["adapter"]
                    usage = {"prompt_tokens": len(ids), "completion_tokens": 6, "total_tokens": len(ids) + 6}
                    assert answer.json()["usage"] == usage
                assert tuple(choice["token_ids"]) == generation.token_ids
                assert choice["logprobs"]["token_logprobs"] == pytest.approx(generation.logprobs, abs=1e-5)
                assert choice["logprobs"]["tokens"] == [f"token_id:{token}" for token in generation.token_ids]
                assert choice["text"] == engine.tokenizer.decode(generation.token_ids)
                assert choice["finish_reason"] == generation.finish == "length"
                assert said_by == (None if adapter is None else {"name": adapter, "version": 0})


async def test_prompt_logprobs_are_the_scores_of_the_prompt(engine: TransformersEngine) -> None:
    ids = engine.tokenizer.encode(PROMPTS[2])
    async with client(build_app(offer(engine))) as asking:
        body = {"model": "b", "prompt": list(ids), "max_tokens": 1, "prompt_logprobs": 0}
        answer = await asking.post("/v1/completions", json=body)
        first, *others = answer.json()["choices"][0]["prompt_logprobs"]
        single = await asking.post("/v1/completions", json=body | {"prompt": [5]})
    assert first is None
    assert [entry[str(token)]["logprob"] for entry, token in zip(others, ids[1:], strict=True)] == pytest.approx(
        await engine.score(ids[:1], ids[1:], "b"), abs=1e-5
    )
    assert others[0] == {str(ids[1]): others[0][str(ids[1])] | {"decoded_token": "3", "rank": None}}
    assert single.json()["choices"][0]["prompt_logprobs"] == [None]


async def test_a_new_version_is_served_and_named_at_once(engine: TransformersEngine) -> None:
    async with client(build_app(offer(engine))) as asking:
        body = {"model": "a", "prompt": "P01>", "temperature": 0}
        assert (await asking.post("/v1/completions", json=body)).json()["adapter"]["version"] == 0
        await engine.store.publish("a", loud_adapter(engine.base, 9))
        assert (await asking.post("/v1/completions", json=body)).json()["adapter"]["version"] == 1
        assert (await asking.get("/v1/models/a")).json()["version"] == 1
        await engine.store.publish("c", loud_adapter(engine.base, 9))
        assert (await asking.post("/v1/completions", json=body | {"model": "c"})).status_code == 200


async def test_several_choices_are_drawn_with_the_seed_and_those_after_it() -> None:
    engine = echo()
    async with client(build_app(offer(engine))) as asking:
        body = {"model": "a", "prompt": "hi", "n": 3, "seed": 4, "max_tokens": 2}
        whole = (await asking.post("/v1/completions", json=body)).json()
        chunks = pieces(await asking.post("/v1/completions", json=body | {"stream": True}))
    assert [choice["text"] for choice in whole["choices"]] == ["a4", "a5", "a6"]
    assert len(engine.requests) == 4, "one request drew all three; a stream is one for each"
    for choice in whole["choices"]:
        mine = [chunk["choices"][0] for chunk in chunks if chunk["choices"][0]["index"] == choice["index"]]
        assert "".join(part["text"] for part in mine) == choice["text"]
    assert whole["usage"] == {"prompt_tokens": 2, "completion_tokens": 6, "total_tokens": 8}


@pytest.mark.parametrize(("seed", "wanted"), [(-1, 2**64 - 1), (2**64 - 1, 2**64 - 1), (0, 0)])
async def test_every_seed_is_one_of_the_engines(seed: int, wanted: int) -> None:
    engine = echo()
    async with client(build_app(offer(engine))) as asking:
        await asking.post("/v1/completions", json={"model": "a", "prompt": "hi", "seed": seed, "n": 2})
    assert engine.requests[0].seeds == (wanted, (wanted + 1) % 2**64)


async def test_without_a_seed_every_answer_is_drawn_anew() -> None:
    engine = echo()
    async with client(build_app(offer(engine))) as asking:
        for _ in range(2):
            await asking.post("/v1/completions", json={"model": "a", "prompt": "hi"})
    assert engine.requests[0].seeds != engine.requests[1].seeds


SAID = "one two\n\nthree"


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("stop", "text", "tokens", "reason"),
    [
        (None, SAID, len(SAID) + 1, None),
        ("zzz", SAID, len(SAID) + 1, None),
        ("\n\n", "one two", len("one two\n\n"), "\n\n"),
        (["three", "two"], "one ", len("one two"), "two"),
        ("w", "one t", len("one tw"), "w"),
        (["w", "one t"], "", len("one t"), "one t"),
    ],
)
async def test_a_stop_string_ends_the_answer_and_is_no_part_of_it(
    stop: Any, text: str, tokens: int, reason: str | None, stream: bool
) -> None:
    engine = ScriptedEngine(lambda *_: SAID, ("a",))
    body = {
        "model": "a",
        "prompt": "hi",
        "stop": stop,
        "max_tokens": 50,
        "stream": stream,
        **EXACT,
        "ignore_eos": False,
    }
    async with client(build_app(offer(engine))) as asking:
        answer = await asking.post("/v1/completions", json=body)
    if stream:
        chunks = pieces(answer)
        choice = total(chunks[0]["choices"][0], [chunk["choices"][0] for chunk in chunks])
    else:
        choice = answer.json()["choices"][0]
        assert answer.json()["usage"]["completion_tokens"] == tokens
    assert (choice["text"], choice["finish_reason"], choice["stop_reason"]) == (text, "stop", reason)
    assert len(choice["token_ids"]) == tokens


async def test_a_stop_token_ends_the_answer_and_is_among_its_ids_alone() -> None:
    engine = ScriptedEngine(lambda *_: "abc", ("a",))
    stop = ord("b") + 1
    async with client(build_app(offer(engine))) as asking:
        body = {"model": "a", "prompt": "hi", "stop_token_ids": [stop], **EXACT}
        choice = (await asking.post("/v1/completions", json=body)).json()["choices"][0]
    assert (choice["text"], choice["stop_reason"], choice["finish_reason"]) == ("a", stop, "stop")
    assert choice["token_ids"] == [ord("a") + 1, stop]
    assert engine.requests[0].sampling.stop == (stop,)


async def test_a_stop_string_that_the_vocabulary_does_not_have_is_not_taken_for_the_unknown_token(
    engine: TransformersEngine,
) -> None:
    async with client(build_app(offer(engine))) as asking:
        body = {"model": "a", "prompt": "P01>", "max_tokens": 30, "temperature": 5, "seed": 1, "return_token_ids": True}
        plain, stopped = [
            (await asking.post("/v1/completions", json=body | more)).json()["choices"][0]
            for more in ({}, {"stop": "é"})
        ]
    assert plain == stopped


async def test_defaults_come_from_the_role_that_speaks_and_give_way_to_the_client() -> None:
    engine = echo()
    role = RoleModel(max_tokens=5, temperature=0.3, stop=("!",))
    own, ends = (ord("!") + 1), (END,)
    async with client(build_app(offer(engine, {"a": role}))) as asking:
        for more in (
            {},
            {"max_tokens": 3, "temperature": 0.0, "stop": "?"},
            {"stop_token_ids": [9]},
            {"ignore_eos": True},
            {"model": "b"},
            {"max_tokens": None, "temperature": None, "stop": None},
        ):
            answer = await asking.post("/v1/completions", json={"model": "a", "prompt": "hi"} | more)
            assert answer.status_code == 200
    plain, client_says, stops, exact, other, empty = [request.sampling for request in engine.requests]
    assert plain == empty == Sampling(temperature=0.3, max_tokens=5, stop=(*ends, own))
    assert client_says == Sampling(temperature=0.0, max_tokens=3, stop=(*ends, ord("?") + 1))
    assert stops == Sampling(temperature=0.3, max_tokens=5, stop=(*ends, 9))
    assert exact == Sampling(temperature=0.3, max_tokens=5, stop=())
    assert other == Sampling(temperature=1.0, max_tokens=16, stop=ends)


async def test_a_text_begins_as_the_model_expects_unless_the_client_says_not() -> None:
    engine = echo()
    engine.tokenizer.begin = (7, 8)
    async with client(build_app(offer(engine))) as asking:
        for more in ({}, {"add_special_tokens": False}, {"prompt": [5, 6]}):
            await asking.post("/v1/completions", json={"model": "a", "prompt": "h"} | more)
    assert [request.prompt_ids for request in engine.requests] == [(7, 8, 105), (105,), (5, 6)]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("more", "status", "text"),
    [
        ({"model": "c"}, 404, "no model 'c'"),
        ({"prompt": ""}, 400, "prompt is empty"),
        ({"prompt": [2_000_000]}, 400, "outside the vocabulary"),
        ({"prompt": [5] * 4096}, 400, "exceed the context"),
        ({"max_tokens": 5000}, 400, "exceed the context"),
    ],
)
async def test_what_no_engine_could_do_is_the_clients_mistake(
    more: dict[str, Any], status: int, text: str, stream: bool
) -> None:
    async with client(build_app(offer(echo()))) as asking:
        body = {"model": "a", "prompt": "hi", "stream": stream} | more
        assert text in problem(await asking.post("/v1/completions", json=body), status)["message"]
        assert (await asking.get("/health")).status_code == 200


async def test_text_offsets_and_streamed_usage_add_up() -> None:
    engine = ScriptedEngine(lambda *_: "héllo", ("a",))
    body = {"model": "a", "prompt": "hi", "logprobs": 0, "stream": True, "stream_options": {"include_usage": True}}
    async with client(build_app(offer(engine))) as asking:
        *chunks, last = pieces(await asking.post("/v1/completions", json=body))
    offsets = [offset for chunk in chunks for offset in chunk["choices"][0]["logprobs"]["text_offset"]]
    assert offsets == [0, 1, 2, 3, 4, 5]
    assert all(chunk["usage"] is None for chunk in chunks)
    assert (last["choices"], last["usage"]["completion_tokens"]) == ([], 6)


async def test_a_log_probability_that_json_cannot_write_is_a_very_small_one() -> None:
    class Sure(ScriptedEngine):
        def _generation(self, *args: Any) -> Any:
            made = super()._generation(*args)
            return msgspec.structs.replace(made, logprobs=(-math.inf,) * len(made.token_ids))

    async with client(build_app(offer(Sure(lambda *_: "x", ("a",))))) as asking:
        answer = await asking.post("/v1/completions", json={"model": "a", "prompt": "hi", "logprobs": 0})
    assert answer.json()["choices"][0]["logprobs"]["token_logprobs"] == [-9999.0, -9999.0]


async def test_the_most_likely_tokens_are_told_whole_and_streamed(engine: TransformersEngine) -> None:
    ids = engine.tokenizer.encode("E0723;a>")
    async with client(build_app(offer(engine))) as asking:
        body = {"model": "b", "prompt": list(ids), "max_tokens": 4, "seed": 3, "logprobs": 3, "ignore_eos": True}
        (choice,) = (await asking.post("/v1/completions", json=body)).json()["choices"]
        chunks = pieces(await asking.post("/v1/completions", json=body | {"stream": True}))
        chat = {"model": "b", "messages": [{"role": "user", "content": "E0723;a>"}], "max_tokens": 4, "seed": 3}
        talk = chat | {"logprobs": True, "top_logprobs": 2}
        (said,) = (await asking.post("/v1/chat/completions", json=talk)).json()["choices"]
        error = problem(await asking.post("/v1/chat/completions", json=chat | {"top_logprobs": 2}), 400)
    told = choice["logprobs"]
    assert [len(place) in (3, 4) for place in told["top_logprobs"]] == [True] * 4, "the chosen one may be a fourth"
    for word, value, place in zip(told["tokens"], told["token_logprobs"], told["top_logprobs"], strict=True):
        assert place[word] == value
    joined = [place for chunk in chunks for place in (chunk["choices"][0]["logprobs"] or {}).get("top_logprobs", ())]
    assert joined == [pytest.approx(place, abs=1e-5) for place in told["top_logprobs"]]
    for entry in said["logprobs"]["content"]:
        first, second = entry["top_logprobs"]
        assert first["logprob"] >= second["logprob"]
    assert "logprobs: true" in error["message"]
