"""What may be asked: neutral values pass, everything that cannot be honoured is a 400 that names it."""

import json
from typing import Any

import pytest
from clients import HELLO, client, echo, offer, problem

from mas.endpoint import build_app
from mas.endpoint.errors import Refused
from mas.endpoint.wire import NEUTRAL, ChatRequest, CompletionRequest, read_request

RAW = {"model": "a", "prompt": "hello"}

UNSUPPORTED: dict[str, Any] = {
    "background": True, "truncation": "auto", "previous_response_id": "resp_1", "conversation": "c",
    "max_tool_calls": 2, "reasoning": {"effort": "high"}, "presence_penalty": 1, "frequency_penalty": -1,
    "repetition_penalty": 1.1,
    "length_penalty": 2, "logit_bias": {"5": 1}, "best_of": 3, "use_beam_search": True,
    "min_tokens": 3, "bad_words": ["no"], "allowed_token_ids": [1], "skip_special_tokens": False,
    "spaces_between_special_tokens": False, "include_stop_str_in_output": True, "echo": True, "suffix": "end",
    "priority": 1, "store": True, "functions": [{}], "function_call": {"name": "f"},
    "modalities": ["audio"], "reasoning_effort": "high", "add_generation_prompt": False, "continue_final_message": True,
}  # fmt: skip


def test_every_neutral_option_is_tested() -> None:
    assert UNSUPPORTED.keys() == NEUTRAL.keys()


@pytest.mark.parametrize("name", UNSUPPORTED)
def test_an_unsupported_option_is_refused_by_name_and_its_neutral_values_pass(name: str) -> None:
    kinds: list[tuple[dict[str, Any], type[CompletionRequest] | type[ChatRequest]]]
    kinds = [(RAW, CompletionRequest), (HELLO, ChatRequest)]
    for base, kind in [(base, kind) for base, kind in kinds if name not in kind.model_fields]:
        with pytest.raises(Refused, match=name) as caught:
            read_request(json.dumps({**base, name: UNSUPPORTED[name]}).encode(), kind)
        assert (caught.value.status, caught.value.param) == (400, name)
        plain = read_request(json.dumps(base).encode(), kind)
        for value in (None, *NEUTRAL[name]):
            assert read_request(json.dumps({**base, name: value}).encode(), kind) == plain


WRONG: list[tuple[dict[str, Any], str, str]] = [
    ({"temprature": 1}, "temprature", "Did you mean 'temperature'"),
    ({"model": None}, "model", "missing"),
    ({"model": 3}, "model", "string"),
    ({"temperature": "1"}, "temperature", "number"),
    ({"temperature": -0.1}, "temperature", "greater than or equal to 0"),
    ({"max_tokens": -1}, "max_tokens", "greater than or equal to"),
    ({"max_tokens": 1.5}, "max_tokens", "integer"),
    ({"max_tokens": 5, "max_completion_tokens": 5}, "max_tokens", "give one"),
    ({"top_p": 0}, "top_p", "greater than 0"),
    ({"top_p": 1.1}, "top_p", "less than or equal to 1"),
    ({"top_k": -2}, "top_k", "greater than or equal to -1"),
    ({"min_p": -0.1}, "min_p", "greater than or equal to 0"),
    ({"response_format": {"type": "xml"}}, "response_format", "text', 'json_object', 'json_schema"),
    ({"structured_outputs": {"regex": "a", "json": {}}}, "structured_outputs", "exactly one of regex, choice and json"),
    ({"structured_outputs": {}}, "structured_outputs", "exactly one"),
    ({"n": 0}, "n", "greater"),
    ({"n": 129}, "n", "less than or equal to 128"),
    ({"seed": 2**64}, "seed", "less than"),
    ({"stop": ""}, "stop.0", "at least 1 character"),
    ({"stop": ["a"] * 65}, "stop", "at most 64"),
    ({"stop_token_ids": ["a"]}, "stop_token_ids.0", "integer"),
    ({"stream": "yes"}, "stream", "boolean"),
    ({"stream_options": {"include_usage": True}}, "stream_options", "only possible with stream"),
    ({"stream": True, "stream_options": {"often": True}}, "stream_options.often", "not permitted"),
]


@pytest.mark.parametrize(("more", "param", "message"), WRONG, ids=[json.dumps(more)[:40] for more, _, _ in WRONG])
def test_a_wrong_value_is_refused_with_its_place(more: dict[str, Any], param: str, message: str) -> None:
    for base, kind in ((RAW, CompletionRequest), (HELLO, ChatRequest)):
        with pytest.raises(Refused, match=message) as caught:
            read_request(json.dumps(base | more).encode(), kind)
        assert (caught.value.status, caught.value.param) == (400, param)


@pytest.mark.parametrize(
    ("more", "param", "message"),
    [
        ({"prompt": ["a", 1]}, "prompt", "a list of several of these"),
        ({"prompt": [1, True]}, "prompt", "list of token ids"),
        ({"prompt": None}, "prompt", "missing"),
        ({"logprobs": 21}, "logprobs", "less than or equal to 20"),
        ({"prompt_logprobs": 1}, "prompt_logprobs", "should be 0"),
        ({"prompt_logprobs": 0, "stream": True}, "prompt_logprobs", "cannot be streamed"),
    ],
)
def test_a_completion_that_cannot_be_made_is_refused(more: dict[str, Any], param: str, message: str) -> None:
    with pytest.raises(Refused, match=message) as caught:
        read_request(json.dumps(RAW | more).encode(), CompletionRequest)
    assert caught.value.param == param


@pytest.mark.parametrize(
    ("messages", "param", "message"),
    [
        ([], "messages", "at least 1"),
        ("hello", "messages", "valid tuple"),
        ([{"role": "function", "content": "4"}], "messages.0.role", "'system'"),
        ([{"role": "user", "content": "hi", "age": 3}], "messages.0.age", "not permitted"),
        ([{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}], "messages.0.content", "parts"),
        ([{"role": "assistant", "tool_calls": [{"id": "1"}]}], "messages.0.tool_calls.0.function", "missing"),
    ],
)
def test_messages_that_cannot_be_read_are_refused(messages: object, param: str, message: str) -> None:
    with pytest.raises(Refused, match=message) as caught:
        read_request(json.dumps(HELLO | {"messages": messages}).encode(), ChatRequest)
    assert caught.value.param == param


def test_messages_in_parts_and_with_the_empty_fields_that_answers_have_are_read() -> None:
    parts = [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]
    answered = {"role": "assistant", "content": "yes", "refusal": None, "tool_calls": [], "annotations": []}
    body = {"model": "a", "user": "eve", "messages": [{"role": "user", "content": parts}, answered]}
    request = read_request(json.dumps(body).encode(), ChatRequest)
    assert [message.content for message in request.messages] == ["one\ntwo", "yes"]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"\xff",
        b'"a"',
        b'{"a":' * 100_000,
        b'{"model": "a", "prompt": "\\ud83d"}',
        b'{"model": "a", "prompt": "hello", "temperature": NaN}',
        b'{"model": "a", "prompt": "hello", "top_p": 1e999}',
    ],
)
async def test_a_body_that_is_no_request_is_refused(body: bytes) -> None:
    async with client(build_app(offer(echo()))) as asking:
        headers = {"content-type": "application/json"}
        problem(await asking.post("/v1/completions", content=body, headers=headers), 400)


async def test_only_json_is_taken_so_that_no_web_page_can_ask_without_permission() -> None:
    async with client(build_app(offer(echo()))) as asking:
        for kind in ("text/plain", "application/x-www-form-urlencoded"):
            headers = {"content-type": kind}
            error = problem(await asking.post("/v1/completions", content=json.dumps(RAW), headers=headers), 400)
            assert "Content-Type" in error["message"]


async def test_a_body_that_is_too_large_is_refused_whether_it_says_so_or_not() -> None:
    async def chunks() -> Any:
        for _ in range(10):
            yield b" " * 100

    async with client(build_app(offer(echo()), max_body=500)) as asking:
        headers = {"content-type": "application/json"}
        problem(await asking.post("/v1/completions", content=b" " * 501, headers=headers), 413)
        problem(await asking.post("/v1/completions", content=chunks(), headers=headers), 413)
        assert (await asking.post("/v1/completions", json=RAW)).status_code == 200
