"""Functions: what the model is shown, what it must answer, and what the client gets; with the official client."""

import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import openai
import pytest
from clients import HELLO, client, offer, playing, problem
from hypothesis import given
from hypothesis import strategies as st

from mas.endpoint import RoleModel, build_app, running
from mas.endpoint.function_calls import Calling, CallReader
from mas.endpoint.function_tools import FunctionSpec, FunctionTool
from mas.serving.model import tiny_tokenizer
from mas.serving.model_text import HubTokenizer
from mas.testing.scripted import ScriptedEngine

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": name,
            "description": f"{name} of a city",
            "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
        },
    }
    for name in ("weather", "time")
]
CALL = '<tool_call>\n{"name": "weather", "arguments": {"city": "Rome"}}\n</tool_call>'
SECOND = '<tool_call>{"name": "time", "arguments": {}}</tool_call>'
QUESTION = [{"role": "user", "content": "hi"}]


@asynccontextmanager
async def saying(*texts: str) -> AsyncIterator[tuple[ScriptedEngine, openai.AsyncOpenAI]]:
    """The client of a model that says these texts, one after the other."""
    left = iter(texts)
    engine = ScriptedEngine(lambda *_: next(left), ("a",))
    async with (
        running(build_app(offer(engine, {"a": RoleModel(system="Be brief.", chats=True, stop=("\n",))}))) as url,
        openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as asking,
    ):
        yield engine, asking


async def test_a_call_and_its_result_go_there_and_back() -> None:
    async with saying(f"Let me see. {CALL}{SECOND}", "It is sunny.") as (engine, asking):
        first = await asking.chat.completions.create(model="a", messages=QUESTION, tools=TOOLS)
        message = first.choices[0].message
        assert first.choices[0].finish_reason == "tool_calls"
        assert message.content == "Let me see."
        assert [(call.function.name, json.loads(call.function.arguments)) for call in message.tool_calls] == [
            ("weather", {"city": "Rome"}),
            ("time", {}),
        ]
        results = [
            {"role": "tool", "tool_call_id": call.id, "content": f"result of {call.function.name}"}
            for call in message.tool_calls
        ]
        talk = [*QUESTION, message.model_dump(), *results]
        second = await asking.chat.completions.create(model="a", messages=talk, tools=TOOLS)
    assert (second.choices[0].message.content, second.choices[0].finish_reason) == ("It is sunny.", "stop")
    assert second.choices[0].message.tool_calls is None
    shown, told = (engine.tokenizer.decode(request.prompt_ids) for request in engine.requests)
    assert shown.startswith("Be brief.\n\nYou can call these functions:\n<tools>\n")
    assert all(json.dumps(tool) in shown for tool in TOOLS)
    assert told.startswith(shown)
    calls = f'Let me see.\n{CALL}\n<tool_call>\n{{"name": "time", "arguments": {{}}}}\n</tool_call>\n\n'
    answered = "\n".join(f"<tool_response>\nresult of {name}\n</tool_response>" for name in ("weather", "time"))
    assert told.removeprefix(shown) == f"{calls}{answered}\n\n"
    assert engine.requests[0].sampling.grammar is None
    assert engine.requests[0].sampling.stop == engine.stop_ids, "a stop of the role's own would cut the call"


async def test_a_streamed_answer_has_the_same_text_and_calls() -> None:
    async with saying(f"Well <tool {CALL} so {SECOND}.") as (_, asking):
        stream = await asking.chat.completions.create(model="a", messages=QUESTION, tools=TOOLS, stream=True)
        chunks = [chunk.choices[0] async for chunk in stream]
    assert "".join(chunk.delta.content or "" for chunk in chunks) == "Well <tool so."
    calls = [call for chunk in chunks for call in chunk.delta.tool_calls or []]
    assert [(call.index, call.function.name, call.function.arguments) for call in calls] == [
        (0, "weather", '{"city": "Rome"}'),
        (1, "time", "{}"),
    ]
    assert len({call.id for call in calls}) == 2
    assert [chunk.finish_reason for chunk in chunks if chunk.finish_reason] == ["tool_calls"]


@pytest.mark.parametrize(
    ("choice", "names"),
    [("required", ["weather", "time"]), ({"type": "function", "function": {"name": "time"}}, ["time"])],
)
async def test_a_call_that_must_be_made_is_begun_for_the_model_and_kept_to_its_schema(
    choice: Any, names: list[str]
) -> None:
    async with saying('{"name": "time", "arguments": {"city": "Oslo"}}') as (engine, asking):
        answer = await asking.chat.completions.create(model="a", messages=QUESTION, tools=TOOLS, tool_choice=choice)
    (call,) = answer.choices[0].message.tool_calls
    assert (call.function.name, call.function.arguments) == ("time", '{"city": "Oslo"}')
    assert answer.choices[0].message.content is None
    (request,) = engine.requests
    assert engine.tokenizer.decode(request.prompt_ids).endswith("<tool_call>\n")
    schema = json.loads(request.sampling.grammar.text)
    assert [one["properties"]["name"]["const"] for one in schema["anyOf"]] == names
    assert schema["anyOf"][-1]["properties"]["arguments"] == TOOLS[1]["function"]["parameters"]


async def test_a_response_format_beside_functions_allows_both() -> None:
    wanted = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"$ref": "#/$defs/y", "$defs": {"y": {}}}}}
    texts = ('{"name": "time", "arguments": {}}', '{"answer": 3}')
    async with saying(*texts) as (engine, asking):
        called, said = [
            (await asking.chat.completions.create(model="a", messages=QUESTION, tools=TOOLS, response_format=wanted))
            for _ in texts
        ]
    assert called.choices[0].message.tool_calls[0].function.name == "time"
    assert (said.choices[0].message.content, said.choices[0].message.tool_calls) == ('{"answer": 3}', None)
    last = json.loads(engine.requests[0].sampling.grammar.text)["anyOf"][-1]
    assert last["$ref"] == "#/anyOf/2/$defs/y", "a reference holds where the schema stands now"


async def test_without_a_choice_functions_are_not_shown() -> None:
    async with saying("No.") as (engine, asking):
        await asking.chat.completions.create(model="a", messages=QUESTION, tools=TOOLS, tool_choice="none")
    assert engine.tokenizer.decode(engine.requests[0].prompt_ids) == "Be brief.\n\nhi\n\n"


async def test_lines_between_calls_are_no_text() -> None:
    async with saying(f"{CALL}\n{SECOND}\n", " It has no call. \n") as (_, asking):
        called, said = [await asking.chat.completions.create(model="a", messages=QUESTION, tools=TOOLS) for _ in "ab"]
    assert (called.choices[0].message.content, len(called.choices[0].message.tool_calls)) == (None, 2)
    assert said.choices[0].message.content == " It has no call. \n"


async def test_one_call_at_a_time() -> None:
    async with saying(CALL + SECOND) as (_, asking):
        answer = await asking.chat.completions.create(
            model="a", messages=QUESTION, tools=TOOLS, parallel_tool_calls=False
        )
    assert [call.function.name for call in answer.choices[0].message.tool_calls] == ["weather"]


@pytest.mark.parametrize(
    "text",
    [
        "<tool_call>no JSON</tool_call>",
        '<tool_call>{"name": "other", "arguments": {}}</tool_call>',
        '<tool_call>{"name": ["time"], "arguments": {}}</tool_call>',
        '<tool_call>{"name": "time", "arguments": "x"}</tool_call>',
        '<tool_call>{"name": "time"}</tool_call>',
        ' <tool_call>{"name": "time", "arguments": {"x": "\\ud83d"}}</tool_call> \n',
        "<tool_call>" + "[" * 100_000,
        "</tool_call> and <tool",
    ],
)
async def test_what_is_no_call_is_text(text: str) -> None:
    assert read(text) == (text, [])


def test_a_call_without_its_closing_tag_counts() -> None:
    assert read('<tool_call>{"name": "time", "arguments": {}}') == ("", ["time"])


def read(text: str, cut: Callable[[str], Sequence[str]] = lambda text: [text]) -> tuple[str, list[str]]:
    tools = tuple(FunctionTool(type="function", function=FunctionSpec(name=name)) for name in ("weather", "time"))
    reader = CallReader(Calling(tools))
    said = "".join(reader.add(piece) for piece in cut(text)) + reader.add("", is_last=True)
    return said, [call["function"]["name"] for call in reader.calls]


@given(
    st.lists(st.sampled_from([CALL, SECOND, "a ", "<tool_call>", "</tool_call>", "<", "tool"]), max_size=6), st.data()
)
def test_pieces_do_not_matter(parts: list[str], data: st.DataObject) -> None:
    text = "".join(parts)
    places = sorted(data.draw(st.sets(st.integers(0, len(text)), max_size=5)))
    bounds = list(zip([0, *places], [*places, len(text)], strict=True))
    assert read(text, lambda text: [text[start:stop] for start, stop in bounds]) == read(text)


@pytest.mark.parametrize(
    ("more", "param", "message"),
    [
        ({"tool_choice": "required"}, "tool_choice", "needs tools"),
        ({"tools": TOOLS, "tool_choice": {"type": "function", "function": {"name": "x"}}}, "tool_choice", "is none of"),
        ({"tools": [{"type": "function", "function": {"name": "a b"}}]}, "tools.0.function.name", "pattern"),
        ({"tools": [{"type": "web_search"}]}, "tools.0.type", "'function'"),
        ({"tools": TOOLS * 65}, "tools", "at most 128"),
        ({"messages": [{"role": "assistant", "tool_calls": [{"id": "", "function": {"name": "a", "arguments": "3"}}]}]},
         "messages.0.tool_calls.0.function.arguments", "JSON object"),
        ({"messages": [{"role": "assistant", "tool_calls": [{"id": "", "function": {"name": "a", "arguments":
            '{"a": "\\ud800"}'}}]}]}, "messages.0.tool_calls.0.function.arguments", "JSON object"),
        ({"tools": TOOLS, "tool_choice": "required", "structured_outputs": {"regex": "a"}}, "structured_outputs",
         "leave one out"),
        ({"tools": [{"type": "function", "function": {"name": "a", "parameters": {"type": "no"}}}],
          "tool_choice": "required"}, "tools", "is not possible"),
    ],
)  # fmt: skip
async def test_what_cannot_be_called_is_refused(more: dict[str, Any], param: str, message: str) -> None:
    engine = ScriptedEngine(lambda *_: "x", ("a",))
    async with client(build_app(offer(engine))) as asking:
        error = problem(await asking.post("/v1/chat/completions", json=HELLO | more), 400)
    assert message in error["message"]
    assert error["param"] == param
    assert not engine.requests


async def test_functions_need_a_model_that_chats_and_are_none_of_a_teams() -> None:
    engine = ScriptedEngine(lambda *_: "x", ("a",), has_chat=False)
    async with playing(engine) as team, client(build_app(offer(engine, teams=[team]))) as asking:
        error = problem(await asking.post("/v1/chat/completions", json=HELLO | {"tools": TOOLS}), 400)
        assert "chat template" in error["message"]
        body = HELLO | {"model": "team:plan_path", "tools": TOOLS}
        assert (
            "not possible with a team" in problem(await asking.post("/v1/chat/completions", json=body), 400)["message"]
        )


async def test_a_template_that_shows_functions_is_used_as_it_is() -> None:
    inner = tiny_tokenizer()
    inner.chat_template = (
        "{% for t in tools or [] %}[{{ t.function.name }}]{% endfor %}"
        "{% for m in messages %}<{{ m.role }}>{{ m.content }}"
        "{% for c in m.tool_calls or [] %}<tool_call>{{ c.function.arguments.city }}{% endfor %}{% endfor %}"
    )
    engine = ScriptedEngine(lambda *_: CALL, ("a",))
    engine.tokenizer = HubTokenizer(inner)
    call = {"id": "1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Rome"}'}}
    talk = [*QUESTION, {"role": "assistant", "content": None, "tool_calls": [call]}, {"role": "tool", "content": "sun"}]
    async with client(build_app(offer(engine, {"a": RoleModel(system="S", chats=True)}))) as asking:
        body = {"model": "a", "messages": talk, "tools": TOOLS}
        await asking.post("/v1/chat/completions", json=body)
    written = "[weather][time]<system>S<user>hi<assistant><tool_call>Rome<tool>sun"
    assert engine.requests[0].prompt_ids == engine.tokenizer.encode(written)
