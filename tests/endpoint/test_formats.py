"""The form of answers: what a request asks of the engine, and what cannot be asked."""

import json
from typing import Any

import pytest
from clients import HELLO, client, echo, offer, playing, problem

from mas.core.engine import Grammar
from mas.endpoint import RoleModel, build_app

SCHEMA = {"type": "object", "properties": {"animal": {"enum": ["dog", "cat"]}}, "required": ["animal"]}
SPACING = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}


def spaced(schema: dict[str, Any]) -> Grammar:
    return Grammar("schema", json.dumps({"x-guidance": SPACING, **schema}))


@pytest.mark.parametrize(
    ("more", "grammar"),
    [
        ({}, None),
        ({"response_format": {"type": "text"}}, None),
        ({"response_format": {"type": "json_object"}}, spaced({"type": "object"})),
        (
            {
                "response_format": {
                    "type": "json_schema",
                    "json_schema": {"name": "x", "strict": True, "schema": SCHEMA},
                }
            },
            spaced(SCHEMA),
        ),
        ({"structured_outputs": {"json": SCHEMA}}, spaced(SCHEMA)),
        ({"structured_outputs": {"regex": "a+b"}}, Grammar("regex", "a+b")),
        ({"structured_outputs": {"choice": ["yes", "no.", ""]}}, Grammar("regex", r"yes|no\.|")),
    ],
)
async def test_the_form_of_an_answer_is_a_grammar_for_the_engine(more: dict[str, Any], grammar: Grammar | None) -> None:
    engine = echo()
    async with client(build_app(offer(engine))) as asking:
        for path, body in (("chat/completions", HELLO), ("completions", {"model": "a", "prompt": "hello"})):
            assert (await asking.post(f"/v1/{path}", json=body | more)).status_code == 200
    assert [request.sampling.grammar for request in engine.requests] == [grammar, grammar]


async def test_limits_of_sampling_reach_the_engine() -> None:
    engine = echo()
    async with client(build_app(offer(engine))) as asking:
        await asking.post("/v1/chat/completions", json=HELLO | {"top_p": 0.9, "top_k": 5, "min_p": 0.25})
        await asking.post("/v1/chat/completions", json=HELLO | {"top_p": 1, "top_k": -1, "min_p": 0})
    limited, free = (request.sampling for request in engine.requests)
    assert (limited.top_p, limited.top_k, limited.min_p) == (0.9, 5, 0.25)
    assert not free.is_restricted


async def test_a_roles_own_limits_do_not_cut_an_answer_with_a_form() -> None:
    engine = echo()
    role = RoleModel(chats=True, max_tokens=7, stop=("\n",), temperature=0.5)
    async with client(build_app(offer(engine, {"a": role}))) as asking:
        await asking.post("/v1/chat/completions", json=HELLO | {"response_format": {"type": "json_object"}})
    (request,) = engine.requests
    assert (request.sampling.max_tokens, request.sampling.stop) == (4096 - len("hello\n\n"), engine.stop_ids)
    assert request.sampling.temperature == 0.5


@pytest.mark.parametrize(
    ("more", "param", "message"),
    [
        (
            {"response_format": {"type": "json_object"}, "structured_outputs": {"regex": "a"}},
            "structured_outputs",
            "give one of them",
        ),
        ({"structured_outputs": {"regex": "(a"}}, "structured_outputs", "is not possible: "),
        ({"structured_outputs": {"json": {"type": "nothing"}}}, "structured_outputs", "is not possible: "),
        ({"structured_outputs": {"regex": "a" * 65_537}}, "structured_outputs", "at most 65536"),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"schema": {"$ref": "http://a.b/c"}}}},
            "response_format",
            "is not possible: ",
        ),
    ],
)
async def test_what_is_no_form_is_refused_before_the_engine_is_asked(
    more: dict[str, Any], param: str, message: str
) -> None:
    engine = echo()
    async with client(build_app(offer(engine))) as asking:
        error = problem(await asking.post("/v1/chat/completions", json=HELLO | more), 400)
    assert message in error["message"]
    assert error["param"] == param
    assert not engine.requests


@pytest.mark.parametrize("depth", [50, 300, 500, 700, 950, 5_000])
async def test_a_schema_that_nests_deeply_harms_nobody(depth: int) -> None:
    engine = echo()
    text = '{"items": ' * depth + "{}" + "}" * depth
    tool = {"type": "function", "function": {"name": "f", "parameters": "SCHEMA"}}
    bodies = (
        HELLO | {"structured_outputs": {"json": "SCHEMA"}},
        HELLO | {"tools": [tool], "tool_choice": "required"},
    )
    flat = {"type": "function", "name": "f", "parameters": "SCHEMA"}
    wanted = {"format": {"type": "json_schema", "name": "x", "schema": "SCHEMA"}}
    headers = {"Content-Type": "application/json"}
    async with client(build_app(offer(engine))) as asking:
        for path, body in (
            *(("chat/completions", body) for body in bodies),
            ("responses", {"model": "a", "input": "hi", "tools": [flat]}),
            ("responses", {"model": "a", "input": "hi", "text": wanted}),
        ):
            content = json.dumps(body).replace('"SCHEMA"', text)
            answer = await asking.post(f"/v1/{path}", content=content, headers=headers)
            assert answer.status_code in (200, 400), answer.text
        assert (await asking.post("/v1/chat/completions", json=HELLO)).status_code == 200


async def test_a_team_has_no_form_of_its_own() -> None:
    engine = echo()
    async with playing(engine, chats=True) as team, client(build_app(offer(engine, teams=[team]))) as asking:
        for more in ({"top_p": 0.5}, {"response_format": {"type": "json_object"}}):
            answer = await asking.post("/v1/chat/completions", json=HELLO | {"model": "team:plan_path"} | more)
            assert next(iter(more)) in problem(answer, 400)["message"]
