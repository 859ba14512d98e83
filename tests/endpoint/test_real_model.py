"""SmolLM2 behind the endpoint: answers of a form and calls that must be made, whatever the model would rather say."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import jsonschema
import openai
import pytest

from mas.config.options import ModelOptions
from mas.endpoint import Served, build_app, running
from mas.serving.model import BaseModel, load_base
from mas.serving.transformers_engine import TransformersEngine

ANIMAL = {
    "type": "object",
    "properties": {"name": {"enum": ["dog", "cat"]}, "legs": {"type": "integer", "minimum": 0, "maximum": 8}},
    "required": ["name", "legs"],
    "additionalProperties": False,
}
QUESTION: Any = [{"role": "user", "content": "Which animal barks?"}]


@pytest.fixture(scope="module")
def base(smollm: Path) -> BaseModel:
    return load_base(ModelOptions(path="smollm2"))


@pytest.fixture
async def asking(base: BaseModel) -> AsyncIterator[openai.AsyncOpenAI]:
    engine = TransformersEngine(base)
    served = Served(engine=engine, base="smollm2", context=base.limits.context, roles={}, teams=(), created=1)
    async with (
        running(build_app(served)) as url,
        openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client,
    ):
        yield client
    await engine.close()


@pytest.mark.nightly(of=16)
@pytest.mark.parametrize("temperature", [0, 1.5])
async def test_answers_keep_to_their_form(asking: openai.AsyncOpenAI, temperature: float) -> None:
    wanted: Any = {"type": "json_schema", "json_schema": {"name": "animal", "schema": ANIMAL}}
    made = await asking.chat.completions.create(
        model="smollm2", messages=QUESTION, temperature=temperature, n=3, seed=1, response_format=wanted
    )
    for choice in made.choices:
        jsonschema.validate(json.loads(choice.message.content), ANIMAL)
        assert choice.finish_reason == "stop"
    one = await asking.completions.create(
        model="smollm2", prompt="Dogs", seed=1, extra_body={"structured_outputs": {"choice": [" bark", " meow"]}}
    )
    assert one.choices[0].text in (" bark", " meow")


async def test_a_call_that_must_be_made_is_made(asking: openai.AsyncOpenAI) -> None:
    tool: Any = {
        "type": "function",
        "function": {"name": "note", "description": "Note an animal", "parameters": ANIMAL},
    }
    made = await asking.chat.completions.create(
        model="smollm2", messages=QUESTION, temperature=1, seed=3, tools=[tool], tool_choice="required"
    )
    (call,) = made.choices[0].message.tool_calls
    jsonschema.validate(json.loads(call.function.arguments), ANIMAL)
    assert made.choices[0].finish_reason == "tool_calls"
