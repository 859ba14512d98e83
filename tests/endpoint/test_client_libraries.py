"""Agents and chains that are written with other libraries ask the endpoint as they ask OpenAI's."""

import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import openai
import pytest
from clients import offer, playing
from pydantic import BaseModel

from mas.endpoint import RoleModel, build_app, running
from mas.testing.scripted import ScriptedEngine

CALL = '<tool_call>\n{"name": "weather", "arguments": {"city": "Rome"}}\n</tool_call>'


def agent(prompt: str, adapter: str | None, seed: int) -> str:
    """Looks up the weather once, and answers in the form that it is asked for."""
    if "<tool_response>" not in prompt and "<tools>" in prompt:
        return CALL
    return '{"city": "Rome", "sky": "sunny"}' if "form" in prompt else "It is sunny in Rome."


@pytest.fixture
async def served() -> AsyncIterator[tuple[str, ScriptedEngine]]:
    engine = ScriptedEngine(agent, ("a",), context=100_000)
    async with (
        playing(ScriptedEngine(lambda *_: "hop", ("planner", "executor")), chats=True) as team,
        running(build_app(offer(engine, {"a": RoleModel(chats=True)}, [team]))) as url,
    ):
        yield f"{url}/v1", engine


class Sky(BaseModel):
    city: str
    sky: str


@pytest.mark.parametrize("api", ["chat", "responses"])
@pytest.mark.parametrize("is_streamed", [False, True])
async def test_an_agent_of_openais_agents_sdk(served: tuple[str, ScriptedEngine], api: str, is_streamed: bool) -> None:
    agents = pytest.importorskip("agents")
    agents.set_tracing_disabled(True)
    url, engine = served

    @agents.function_tool
    def weather(city: str) -> str:
        """The weather of a city."""
        return f"sunny in {city}"

    async with openai.AsyncOpenAI(base_url=url, api_key="none") as client:
        kind = agents.OpenAIChatCompletionsModel if api == "chat" else agents.OpenAIResponsesModel
        asked = agents.Agent(name="guide", instructions="Help.", tools=[weather], model=kind("a", openai_client=client))
        if is_streamed:
            run = agents.Runner.run_streamed(asked, "How is the weather in Rome?")
            async for _ in run.stream_events():
                pass
        else:
            run = await agents.Runner.run(asked, "How is the weather in Rome?")
    assert run.final_output == "It is sunny in Rome."
    last = engine.tokenizer.decode(engine.requests[-1].prompt_ids)
    assert last.startswith("Help.\n\nYou can call these functions:")
    assert "<tool_response>\nsunny in Rome\n</tool_response>" in last
    assert len(engine.requests) == 2


async def test_an_agent_with_an_output_type(served: tuple[str, ScriptedEngine]) -> None:
    agents = pytest.importorskip("agents")
    agents.set_tracing_disabled(True)
    url, engine = served
    async with openai.AsyncOpenAI(base_url=url, api_key="none") as client:
        model = agents.OpenAIResponsesModel("a", openai_client=client)
        asked = agents.Agent(name="guide", instructions="Keep to the form.", output_type=Sky, model=model)
        run = await agents.Runner.run(asked, "How is the weather in Rome?")
    assert run.final_output == Sky(city="Rome", sky="sunny")
    assert json.loads(engine.requests[0].sampling.grammar.text)["required"] == ["city", "sky"]


async def test_langchain(served: tuple[str, ScriptedEngine]) -> None:
    langchain_openai = pytest.importorskip("langchain_openai")
    url, engine = served

    def weather(city: str) -> str:
        """The weather of a city."""
        return f"sunny in {city}"

    async with httpx.AsyncClient() as connections:
        model = langchain_openai.ChatOpenAI(
            base_url=url, api_key="none", model="a", temperature=0.5, top_p=0.9, http_async_client=connections
        )
        answer = await model.bind_tools([weather]).ainvoke("How is the weather in Rome?")
        (call,) = answer.tool_calls
        assert (call["name"], call["args"]) == ("weather", {"city": "Rome"})
        assert await model.with_structured_output(Sky).ainvoke("Keep to the form.") == Sky(city="Rome", sky="sunny")
        pieces = [piece.content async for piece in model.astream("Hello.")]
    assert "".join(pieces) == "It is sunny in Rome."
    assert len(pieces) > 10
    assert engine.requests[0].sampling.top_p == 0.9


@pytest.mark.nightly(of=16)
@pytest.mark.filterwarnings("ignore")
async def test_litellm(served: tuple[str, ScriptedEngine], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LITELLM_LOCAL_MODEL_COST_MAP", "True")
    litellm = pytest.importorskip("litellm")
    url, _ = served
    asked: dict[str, Any] = {"model": "openai/a", "api_base": url, "api_key": "none"}
    messages = [{"role": "user", "content": "Keep to the form."}]
    answer = await litellm.acompletion(messages=messages, response_format=Sky, **asked)
    assert Sky.model_validate_json(answer.choices[0].message.content).sky == "sunny"
    stream = await litellm.acompletion(messages=messages, stream=True, **asked)
    assert (
        "".join([chunk.choices[0].delta.content or "" async for chunk in stream]) == '{"city": "Rome", "sky": "sunny"}'
    )
    made = await litellm.aresponses(input="Hello.", **asked)
    assert made.output[0].content[0].text == "It is sunny in Rome."
    team = await litellm.acompletion(messages=messages, model="openai/team:plan_path", api_base=url, api_key="none")
    assert not team.choices[0].message.content
    await litellm.close_litellm_async_clients()
