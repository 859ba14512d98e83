"""Prompts that come back with their log-probabilities, and several prompts in one request."""

import gc
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from clients import client, echo, offer, pieces, playing, problem
from conftest import BaseFor
from loud import loud_adapter
from plain import LogProbs, plain_logprobs

from mas.endpoint import RoleModel, build_app
from mas.serving.model import BaseModel
from mas.serving.transformers_engine import TransformersEngine
from mas.testing.scripted import ScriptedEngine

TEXTS = ("E0723;a>", "P01>", "E00-11;DR>U", "E")


@pytest.fixture(scope="module")
def base(base_for: BaseFor) -> BaseModel:
    return base_for("relay")


@pytest.fixture
async def engine(base: BaseModel) -> AsyncIterator[TransformersEngine]:
    engine = TransformersEngine(base)
    for number, name in enumerate("ab", start=1):
        await engine.store.publish(name, loud_adapter(base, number))
    yield engine
    await engine.close()


@pytest.fixture(scope="module")
def plain(base: BaseModel, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LogProbs]:
    adapters = {name: loud_adapter(base, number) for number, name in enumerate("ab", start=1)}
    yield plain_logprobs(base, adapters, tmp_path_factory.mktemp("peft"))
    gc.collect()


@pytest.mark.parametrize("adapter", ["a", "b"])
async def test_a_batch_of_prompts_has_the_log_probabilities_of_a_plain_model(
    engine: TransformersEngine, plain: LogProbs, adapter: str
) -> None:
    prompts = [list(engine.tokenizer.encode(text)) for text in TEXTS]
    body = {
        "model": adapter, "prompt": prompts, "temperature": 0, "max_tokens": 1, "logprobs": 1, "seed": 1234,
        "echo": True, "return_tokens_as_token_ids": True, "return_token_ids": True,
    }  # fmt: skip
    async with client(build_app(offer(engine))) as asking:
        answer = (await asking.post("/v1/completions", json=body)).json()
    assert [choice["index"] for choice in answer["choices"]] == [0, 1, 2, 3]
    assert answer["usage"] == {"prompt_tokens": sum(map(len, prompts)), "completion_tokens": 4, "total_tokens": 28}
    for text, ids, choice in zip(TEXTS, prompts, answer["choices"], strict=True):
        said = choice["logprobs"]
        (drawn,) = choice["token_ids"]
        assert choice["prompt_token_ids"] == ids
        assert choice["text"].startswith(text)
        assert said["tokens"] == [f"token_id:{token}" for token in (*ids, drawn)]
        right_LV = plain(adapter, [*ids, drawn])
        right = [float(right_LV[place, token]) for place, token in enumerate((*ids[1:], drawn))]
        assert said["token_logprobs"][0] is said["top_logprobs"][0] is None
        assert said["token_logprobs"][1:] == pytest.approx(right, abs=1e-4)
        for place, told in enumerate(said["top_logprobs"][1:]):
            best = int(right_LV[place].argmax())
            assert told[f"token_id:{best}"] == pytest.approx(float(right_LV[place].max()), abs=1e-4)
            is_greedy = said["token_logprobs"][place + 1] == max(told.values())  # as lm-evaluation-harness asks
            assert is_greedy == ((*ids[1:], drawn)[place] == best)


async def test_the_most_likely_token_is_told_beside_others_of_the_same_text(
    engine: TransformersEngine, plain: LogProbs
) -> None:
    special = [token for token in range(6) if engine.tokenizer.decode((token,)) == ""]
    assert len(special) > 2
    ids = [*engine.tokenizer.encode("E07"), *special, *special[::-1]]
    async with client(build_app(offer(engine))) as asking:
        body = {"model": "a", "prompt": ids, "max_tokens": 0, "logprobs": 20, "echo": True}
        (choice,) = (await asking.post("/v1/completions", json=body)).json()["choices"]
    right_LV = plain("a", ids)
    tops = [max(place.values()) for place in choice["logprobs"]["top_logprobs"][1:]]
    assert tops == pytest.approx(right_LV.max(-1).values.tolist(), abs=1e-4)


async def test_a_text_is_returned_as_it_was_sent_and_offsets_go_on_behind_it(engine: TransformersEngine) -> None:
    async with client(build_app(offer(engine, {"a": RoleModel(stop=(";",))}))) as asking:
        body = {"model": "a", "prompt": "E0723;a>", "seed": 3, "n": 2, "logprobs": 0, "max_tokens": 3}
        echoed = (await asking.post("/v1/completions", json=body | {"echo": True})).json()
        without = (await asking.post("/v1/completions", json=body)).json()
        alone = (await asking.post("/v1/completions", json=body | {"echo": True, "max_tokens": 0})).json()
        scored = (await asking.post("/v1/completions", json=body | {"prompt_logprobs": 0})).json()
    assert echoed["usage"] == without["usage"]
    for whole, completion in zip(echoed["choices"], without["choices"], strict=True):
        assert whole["text"] == "E0723;a>" + completion["text"]
        assert whole["finish_reason"] == completion["finish_reason"]
        offsets = [*range(8), *(8 + offset for offset in completion["logprobs"]["text_offset"])]
        assert whole["logprobs"]["text_offset"] == offsets
        assert whole["logprobs"]["token_logprobs"][8:] == pytest.approx(completion["logprobs"]["token_logprobs"])
    for choice in alone["choices"]:
        assert (choice["text"], choice["finish_reason"]) == ("E0723;a>", "length")
        values = [next(iter(entry.values()))["logprob"] for entry in scored["choices"][0]["prompt_logprobs"][1:]]
        assert choice["logprobs"]["token_logprobs"][1:] == pytest.approx(values, abs=1e-5)
        assert len(choice["logprobs"]["tokens"]) == 8
    assert alone["usage"] == {"prompt_tokens": 8, "completion_tokens": 0, "total_tokens": 8}
    assert alone["adapter"] == {"name": "a", "version": 0}


async def test_several_prompts_get_what_each_would_get_alone() -> None:
    engine = echo()
    async with client(build_app(offer(engine))) as asking:
        body = {"model": "a", "seed": 4, "n": 2, "max_tokens": 9}
        both = (await asking.post("/v1/completions", json=body | {"prompt": ["hi", "you"]})).json()
        alone = [(await asking.post("/v1/completions", json=body | {"prompt": text})).json() for text in ("hi", "you")]
        (single,) = (await asking.post("/v1/completions", json=body | {"prompt": ["hi"], "n": 1})).json()["choices"]
    assert [choice["text"] for choice in both["choices"]] == [
        choice["text"] for one in alone for choice in one["choices"]
    ]
    assert [choice["index"] for choice in both["choices"]] == [0, 1, 2, 3]
    assert both["usage"]["total_tokens"] == sum(one["usage"]["total_tokens"] for one in alone)
    assert single["text"] == both["choices"][0]["text"]


async def test_an_echo_needs_no_log_probabilities_and_any_engine_has_those_of_the_prompts_own_tokens() -> None:
    async with client(build_app(offer(echo()))) as asking:
        body = {"model": "a", "prompt": [ord("h") + 1, ord("i") + 1], "seed": 4, "echo": True, "max_tokens": 2}
        plain = (await asking.post("/v1/completions", json=body)).json()["choices"][0]
        own = (await asking.post("/v1/completions", json=body | {"logprobs": 0})).json()["choices"][0]
        error = problem(await asking.post("/v1/completions", json=body | {"logprobs": 1}), 400)
        first = (await asking.post("/v1/completions", json=body | {"prompt": "h", "logprobs": 0})).json()["choices"][0]
        assert problem(await asking.post("/v1/completions", json=body | {"prompt": "h", "logprobs": 3}), 400)
    assert (plain["text"], plain["logprobs"]) == ("hia4", None)
    assert own["logprobs"] == {
        "tokens": ["h", "i", "a", "4"],
        "token_logprobs": [None, 0.0, 0.0, 0.0],
        "top_logprobs": [None, {"i": 0.0}, {"a": 0.0}, {"4": 0.0}],
        "text_offset": [0, 1, 2, 3],
    }
    assert error["param"] == "logprobs"
    assert "engine=transformers and engine=vllm do" in error["message"]
    assert first["logprobs"]["token_logprobs"] == [None, 0.0, 0.0]


@pytest.mark.parametrize(
    ("more", "param", "text"),
    [
        ({"max_tokens": 0}, "max_tokens", "only possible with echo: true"),
        ({"echo": True, "stream": True}, "echo", "cannot be streamed"),
        ({"prompt": ["a", "b"], "stream": True}, "prompt", "several prompts cannot be streamed"),
        ({"prompt": ["a"] * 129}, "prompt", "129 prompts are too many: at most 128"),
        ({"prompt": ["a"] * 43, "n": 3}, "prompt", "43 prompts with n=3 are 129 completions: at most 128"),
        ({"prompt": ["a", [1, "b"]]}, "prompt", "a text, a list of token ids, or a list of several"),
        ({"prompt": ["a", 1]}, "prompt", "a text, a list of token ids, or a list of several"),
        ({"prompt": [[1], [True]]}, "prompt", "a text, a list of token ids, or a list of several"),
        ({"prompt": ["a", ""]}, "prompt", "the prompt is empty"),
        ({"prompt": ["a", []]}, "prompt", "the prompt is empty"),
        ({"prompt": [[5], [2_000_000]], "echo": True}, None, "outside the vocabulary"),
        ({"prompt": ["a", "b" * 5000]}, None, "exceed the context"),
        ({"prompt": "a", "echo": 1}, "echo", "boolean"),
        ({"prompt": "a", "echo": True, "logprobs": 21}, "logprobs", "less than or equal to 20"),
    ],
)
async def test_what_is_not_possible_is_refused(more: dict[str, Any], param: str | None, text: str) -> None:
    async with client(build_app(offer(echo()))) as asking:
        error = problem(await asking.post("/v1/completions", json={"model": "a", "prompt": "hi"} | more), 400)
        assert (await asking.get("/health")).status_code == 200
    assert text in error["message"]
    assert error["param"] == param


async def test_a_team_takes_one_text_and_echoes_nothing() -> None:
    engine = ScriptedEngine(lambda *_: "hop", ("planner", "executor"))
    async with playing(engine, chats=True) as team, client(build_app(offer(engine, teams=[team]))) as asking:
        body = {"model": "team:plan_path"}
        assert (await asking.post("/v1/completions", json=body | {"prompt": [team.example]})).status_code == 200
        for more, param in (
            ({"prompt": [team.example, team.example]}, "prompt"),
            ({"prompt": [5]}, "prompt"),
            ({"prompt": team.example, "echo": True}, "echo"),
        ):
            assert problem(await asking.post("/v1/completions", json=body | more), 400)["param"] == param


async def test_a_stream_of_one_prompt_in_a_list_is_that_of_the_prompt() -> None:
    async with client(build_app(offer(echo()))) as asking:
        body = {"model": "a", "prompt": ["hi"], "seed": 4, "stream": True}
        chunks = pieces(await asking.post("/v1/completions", json=body))
    assert "".join(chunk["choices"][0]["text"] for chunk in chunks).startswith("a4 «ih»")
