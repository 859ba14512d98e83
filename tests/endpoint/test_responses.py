"""The Responses API, asked by the official client."""

import json
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import openai
import pytest
from clients import client, offer, playing, problem
from pydantic import BaseModel

from mas.core.engine import Generation, Request
from mas.core.errors import EngineError
from mas.endpoint import RoleModel, build_app, running
from mas.testing.scripted import ScriptedEngine

TOOL = {"type": "function", "name": "weather", "parameters": {"type": "object"}, "strict": True}
CALL = '<tool_call>{"name": "weather", "arguments": {"city": "Rome"}}</tool_call>'


@asynccontextmanager
async def saying(*texts: str) -> AsyncIterator[tuple[ScriptedEngine, openai.AsyncOpenAI]]:
    """The client of a model that says these texts, one after the other."""
    left = iter(texts)
    engine = ScriptedEngine(lambda *_: next(left), ("a",))
    async with (
        playing(ScriptedEngine(lambda *_: "hop", ("planner", "executor")), chats=True) as team,
        running(build_app(offer(engine, {"a": RoleModel(system="Be brief.", chats=True)}, [team]))) as url,
        openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as asking,
    ):
        yield engine, asking


async def test_a_text_is_answered() -> None:
    async with saying("Hello.", "Bye.") as (engine, asking):
        made = await asking.responses.create(
            model="a", input="hi", max_output_tokens=50, temperature=0, top_p=0.5, store=False, user="eve"
        )
        assert made.output_text == "Hello."
        assert (made.status, made.object, made.model, made.error) == ("completed", "response", "a", None)
        assert made.usage.output_tokens == len("Hello.") + 1
        assert made.usage.input_tokens == len(engine.requests[0].prompt_ids)
        assert made.model_extra["adapter"] == {"name": "a", "version": 0}
        await asking.responses.create(model="a", instructions="Be kind.", input=[{"role": "user", "content": "hi"}])
    first, second = (engine.tokenizer.decode(request.prompt_ids) for request in engine.requests)
    assert (first, second) == ("Be brief.\n\nhi\n\n", "Be kind.\n\nhi\n\n")
    assert (engine.requests[0].sampling.max_tokens, engine.requests[0].sampling.top_p) == (50, 0.5)


async def test_output_that_is_cut_is_incomplete() -> None:
    async with saying("Hello.") as (_, asking):
        made = await asking.responses.create(model="a", input="hi", max_output_tokens=3)
    assert (made.status, made.incomplete_details.reason, made.output_text) == ("incomplete", "max_output_tokens", "Hel")


async def test_a_call_and_its_result_go_there_and_back() -> None:
    async with saying(f"Wait.{CALL}{CALL}", "Sunny.") as (engine, asking):
        first = await asking.responses.create(model="a", input="hi", tools=[TOOL])
        text, *calls = first.output
        assert (text.content[0].text, [call.name for call in calls]) == ("Wait.", ["weather"] * 2)
        results = [
            {"type": "function_call_output", "call_id": call.call_id, "output": json.loads(call.arguments)["city"]}
            for call in calls
        ]
        talk: Any = [{"role": "user", "content": "hi"}, *first.output, *results]
        second = await asking.responses.create(model="a", input=talk, tools=[TOOL])
    assert second.output_text == "Sunny."
    prompt = engine.tokenizer.decode(engine.requests[1].prompt_ids)
    assert prompt.count("<tool_response>\nRome\n</tool_response>") == 2
    assert prompt.count('{"name": "weather", "arguments": {"city": "Rome"}}') == 2


async def test_the_client_reads_a_streamed_response() -> None:
    async with (
        saying(f"Wait. {CALL} So.") as (_, asking),
        asking.responses.stream(model="a", input="hi", tools=[TOOL]) as stream,
    ):
        events = [event async for event in stream]
        final = await stream.get_final_response()
    assert [event.type for event in events[:2]] == ["response.created", "response.in_progress"]
    assert events[-1].type == "response.completed"
    assert "".join(event.delta for event in events if event.type == "response.output_text.delta") == "Wait. So."
    assert [event.sequence_number for event in events if hasattr(event, "sequence_number")]
    assert [(item.type, item.status) for item in final.output] == [
        ("message", "completed"),
        ("function_call", "completed"),
        ("message", "completed"),
    ]
    assert json.loads(final.output[1].arguments) == {"city": "Rome"}
    assert final.usage.total_tokens > 0
    done = [event.item for event in events if event.type == "response.output_item.done"]
    assert [item.id for item in done] == [item.id for item in final.output]


class Weather(BaseModel):
    city: str


async def test_an_answer_of_a_schema_is_parsed() -> None:
    async with saying('{"city": "Rome"}') as (engine, asking):
        made = await asking.responses.parse(model="a", input="hi", text_format=Weather)
    assert made.output_parsed == Weather(city="Rome")
    assert json.loads(engine.requests[0].sampling.grammar.text)["properties"]["city"]["type"] == "string"


async def test_a_team_answers() -> None:
    async with saying() as (_, asking):
        made = await asking.responses.create(model="team:plan_path", input="anything", stream=False)
        assert made.model_extra["passed"] is True
        stream = await asking.responses.create(model="team:plan_path", input="anything", stream=True)
        events = [event async for event in stream]
    assert made.output == events[-1].response.output == []
    assert events[-1].type == "response.completed"


@pytest.mark.parametrize(
    ("more", "param", "message"),
    [
        ({"previous_response_id": "resp_1"}, "previous_response_id", "or set it to null"),
        ({"background": True}, "background", "or set it to false"),
        ({"store": True}, "store", "or set it to false"),
        ({"temperature": -1}, "temperature", "greater than or equal to 0"),
        ({"max_output_tokens": 0}, "max_output_tokens", "greater"),
        ({"tools": [{"type": "web_search"}]}, "tools.0.type", "'function'"),
        ({"tool_choice": "required"}, "tool_choice", "needs tools"),
        (
            {"text": {"format": {"type": "json_schema", "name": "x", "schema": {"type": 3}}}},
            "text.format",
            "not possible",
        ),
        ({"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}]}, "input", "input_text"),
        ({"input": []}, "input", "at least 1"),
        ({"inptu": "x"}, "inptu", "Did you mean 'input'"),
    ],
)
async def test_what_is_not_possible_is_refused_by_name(more: dict[str, Any], param: str, message: str) -> None:
    engine = ScriptedEngine(lambda *_: "x", ("a",))
    async with client(build_app(offer(engine))) as asking:
        error = problem(await asking.post("/v1/responses", json={"model": "a", "input": "hi"} | more), 400)
    assert message in error["message"]
    assert error["param"].startswith(param)
    assert not engine.requests


@pytest.mark.parametrize("number", ["NaN", "-Infinity", "1e999"])
@pytest.mark.parametrize("stream", ["true", "false"])
async def test_a_schema_with_a_number_that_json_does_not_have_is_refused_before_anything_is_asked(
    number: str, stream: str
) -> None:
    engine = ScriptedEngine(lambda *_: "x", ("a",))
    tool = f'{{"type": "function", "name": "f", "parameters": {{"default": {number}}}}}'
    async with client(build_app(offer(engine))) as asking:
        body = f'{{"model": "a", "input": "hi", "stream": {stream}, "tools": [{tool}]}}'
        answer = await asking.post("/v1/responses", content=body, headers={"content-type": "application/json"})
        assert "JSON" in problem(answer, 400)["message"]
        assert (await asking.get("/health")).status_code == 200
    assert not engine.requests


class Failing(ScriptedEngine):
    """Streams one character, and fails."""

    async def stream(self, request: Request) -> AsyncGenerator[Generation]:
        yield Generation(token_ids=(ord("x") + 1,), logprobs=(0.0,), finish="", adapter=self.adapters()["a"])
        raise EngineError("out of memory")


async def test_an_engine_that_fails_in_a_stream_fails_the_response() -> None:
    engine = Failing(lambda *_: "x", ("a",))
    async with client(build_app(offer(engine))) as asking:
        answer = await asking.post("/v1/responses", json={"model": "a", "input": "hi", "stream": True})
    *_, last, rest = answer.text.split("\n\n")
    kind, data = last.split("\n")
    assert (kind, rest) == ("event: response.failed", "")
    response = json.loads(data.removeprefix("data: "))["response"]
    assert (response["status"], response["error"]) == ("failed", {"code": "server_error", "message": "out of memory"})
    (item,) = response["output"]
    assert (item["status"], item["content"][0]["text"]) == ("incomplete", "x")
