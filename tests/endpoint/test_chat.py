"""Chats: through the chat template with the role's own system message, or line by line where roles do not chat."""

from typing import Any

import pytest
from clients import HELLO, client, echo, offer, pieces, problem

from mas.core.errors import EngineError, RefusedRequest
from mas.endpoint import RoleModel, build_app
from mas.serving.model import tiny_tokenizer
from mas.serving.model_text import HubTokenizer
from mas.testing.scripted import ScriptedEngine

ROLE = {"a": RoleModel(system="You are a.", chats=True)}
TALK = [
    {"role": "user", "content": "one"},
    {"role": "assistant", "content": "two"},
    {"role": "user", "content": "three"},
]


@pytest.mark.parametrize(
    ("model", "messages", "prompt"),
    [
        ("a", TALK, "You are a.\n\none\n\ntwo\n\nthree\n\n"),
        ("a", [{"role": "system", "content": "S"}, *TALK], "S\n\none\n\ntwo\n\nthree\n\n"),
        ("a", [{"role": "developer", "content": "D"}, *TALK], "D\n\none\n\ntwo\n\nthree\n\n"),
        ("b", TALK, "one\n\ntwo\n\nthree\n\n"),
        ("org/base:1", TALK, "one\n\ntwo\n\nthree\n\n"),
    ],
)
async def test_the_role_speaks_under_its_own_system_message_unless_the_client_has_one(
    model: str, messages: list[Any], prompt: str
) -> None:
    engine = echo()
    async with client(build_app(offer(engine, ROLE))) as asking:
        answer = await asking.post("/v1/chat/completions", json={"model": model, "messages": messages})
    assert answer.status_code == 200
    assert engine.tokenizer.decode(engine.requests[0].prompt_ids) == prompt


@pytest.mark.parametrize("roles", [{}, {"a": RoleModel(max_tokens=9)}])
async def test_without_a_chat_template_the_contents_line_by_line_are_the_prompt(roles: dict[str, RoleModel]) -> None:
    engine = echo(has_chat=False)
    engine.tokenizer.begin = (7,)
    async with client(build_app(offer(engine, roles))) as asking:
        await asking.post("/v1/chat/completions", json={"model": "a", "messages": TALK})
    assert engine.requests[0].prompt_ids == (7, *engine.tokenizer.encode("one\ntwo\nthree"))


async def test_a_role_that_was_trained_on_raw_prompts_gets_one_though_the_base_chats() -> None:
    engine = echo()
    async with client(build_app(offer(engine, {"a": RoleModel(system="S", chats=False)}))) as asking:
        await asking.post("/v1/chat/completions", json=HELLO)
    assert engine.tokenizer.decode(engine.requests[0].prompt_ids) == "hello"


async def test_a_chat_has_the_room_of_the_context_unless_its_role_or_client_says_less() -> None:
    engine = echo()
    async with client(build_app(offer(engine, {"b": RoleModel(chats=True, max_tokens=7)}))) as asking:
        for body in (HELLO, HELLO | {"model": "b"}, HELLO | {"max_completion_tokens": 3}, HELLO | {"max_tokens": 4}):
            assert (await asking.post("/v1/chat/completions", json=body)).status_code == 200
    assert [request.sampling.max_tokens for request in engine.requests] == [4096 - len("hello\n\n"), 7, 3, 4]


async def test_a_streamed_chat_opens_with_the_role_and_joins_to_the_whole_answer() -> None:
    body = HELLO | {"seed": 4, "logprobs": True, "return_token_ids": True}
    async with client(build_app(offer(echo()))) as asking:
        whole = (await asking.post("/v1/chat/completions", json=body)).json()
        chunks = pieces(await asking.post("/v1/chat/completions", json=body | {"stream": True}))
    (choice,) = whole["choices"]
    parts = [chunk["choices"][0] for chunk in chunks]
    assert parts[0]["delta"] == {"role": "assistant", "content": ""}
    assert "".join(part["delta"].get("content", "") for part in parts) == choice["message"]["content"]
    assert choice["message"] == {"role": "assistant", "content": "a4 «\n\nolleh» ✓"}
    content = [entry for part in parts[1:] for entry in part["logprobs"]["content"]]
    assert content == choice["logprobs"]["content"]
    assert content[3] == {"token": "«", "logprob": 0.0, "bytes": [0xC2, 0xAB], "top_logprobs": []}
    assert [token for part in parts[1:] for token in part["token_ids"]] == choice["token_ids"]
    assert (parts[-1]["finish_reason"], choice["finish_reason"]) == ("stop", "stop")
    assert {chunk["object"] for chunk in chunks} == {"chat.completion.chunk"}
    assert {chunk["id"] for chunk in chunks} == {chunks[0]["id"]} != {whole["id"]}
    assert all(chunk["adapter"] == {"name": "a", "version": 0} for chunk in (*chunks, whole))


async def test_a_stream_tells_nothing_that_was_not_asked_for() -> None:
    engine = ScriptedEngine(lambda *_: "ab\n", ("a",))
    async with client(build_app(offer(engine))) as asking:
        chunks = pieces(await asking.post("/v1/chat/completions", json=HELLO | {"stream": True, "stop": "\n\n"}))
    said = [chunk["choices"][0]["delta"].get("content") for chunk in chunks]
    assert said == ["", "a", "b", "\n"], "the held back line end makes no chunk of its own"
    assert not any("token_ids" in chunk["choices"][0] or "usage" in chunk for chunk in chunks)


def with_template(template: str | None) -> HubTokenizer:
    inner = tiny_tokenizer()
    inner.chat_template = template
    return HubTokenizer(inner)


def test_a_conversation_goes_through_the_models_own_template() -> None:
    tokenizer = with_template("{% for m in messages %}<{{ m.role }}>{{ m.content }}\n{% endfor %}<assistant>")
    assert tokenizer.has_chat
    talk = (("system", "S"), ("user", "one"), ("assistant", "two"), ("user", "three"))
    text = "<system>S\n<user>one\n<assistant>two\n<user>three\n<assistant>"
    assert tokenizer.chat_messages(talk) == tokenizer.encode(text)
    assert tokenizer.chat("S", "one") == tokenizer.chat_messages(talk[:2])


def test_messages_that_a_template_does_not_take_are_the_askers_mistake() -> None:
    tokenizer = with_template("{{ raise_exception('no system message, please') }}")
    with pytest.raises(RefusedRequest, match="no system message, please"):
        tokenizer.chat("S", "one")
    with pytest.raises(EngineError, match="no chat template"):
        with_template(None).chat_messages((("user", "one"),))


async def test_a_template_that_refuses_the_messages_is_a_400_with_its_reason() -> None:
    engine = echo()
    engine.tokenizer = with_template("{{ raise_exception('roles must alternate') }}")
    async with client(build_app(offer(engine))) as asking:
        error = problem(await asking.post("/v1/chat/completions", json=HELLO), 400)
    assert "roles must alternate" in error["message"]
