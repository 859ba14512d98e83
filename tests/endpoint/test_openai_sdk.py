"""The official OpenAI client against the endpoint: what people use works as they know it."""

import gzip
from collections.abc import AsyncIterator

import httpx
import openai
import pytest
from clients import echo, offer, playing

from mas.endpoint import RoleModel, build_app, running
from mas.endpoint.client_keys import Entrance

ROLES = {"a": RoleModel(system="You are a.", chats=True)}


@pytest.fixture
async def asking() -> AsyncIterator[openai.AsyncOpenAI]:
    engine = echo()
    async with (
        playing(engine, chats=True) as team,
        running(build_app(offer(engine, ROLES, [team]), entrance=Entrance(key="sesame"))) as url,
        openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="sesame", max_retries=0) as client,
    ):
        yield client


async def test_models_are_listed_and_found_by_name(asking: openai.AsyncOpenAI) -> None:
    models = [model async for model in asking.models.list()]
    assert [model.id for model in models] == ["org/base:1", "a", "b", "team:plan_path"]
    assert (await asking.models.retrieve("org/base:1")).owned_by == "mas"
    assert (await asking.models.retrieve("team:plan_path")).model_extra["kind"] == "team"


async def test_a_chat_whole_and_streamed(asking: openai.AsyncOpenAI) -> None:
    talk = [{"role": "user", "content": "hi"}]
    whole = await asking.chat.completions.create(model="a", messages=talk, seed=3, logprobs=True, user="eve")
    said = "a3 «\n\nih\n\n.a era uoY» ✓"
    assert whole.choices[0].message.content == said
    assert "".join(entry.token for entry in whole.choices[0].logprobs.content) == said
    assert whole.usage.total_tokens == whole.usage.prompt_tokens + len(said) + 1
    stream = await asking.chat.completions.create(
        model="a", messages=talk, seed=3, stream=True, stream_options={"include_usage": True}
    )
    chunks = [chunk async for chunk in stream]
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices) == said
    assert chunks[-1].usage == whole.usage


async def test_raw_completions_with_token_ids_and_log_probabilities(asking: openai.AsyncOpenAI) -> None:
    prompt = [ord(letter) + 1 for letter in "hi"]
    extra = {"return_token_ids": True, "ignore_eos": True, "stop_token_ids": [ord("✓") + 1], "prompt_logprobs": 0}
    made = await asking.completions.create(
        model="b", prompt=prompt, logprobs=0, seed=1, max_tokens=50, extra_body=extra
    )
    (choice,) = made.choices
    assert choice.text == "b1 «ih» "
    assert choice.logprobs is not None
    assert choice.logprobs.token_logprobs == [0.0] * 9
    assert choice.model_extra is not None
    assert choice.model_extra["token_ids"] == [ord(letter) + 1 for letter in "b1 «ih» ✓"]
    assert choice.model_extra["prompt_logprobs"][0] is None
    assert made.model_extra == {"adapter": {"name": "b", "version": 0}}


async def test_errors_are_the_clients_own(asking: openai.AsyncOpenAI) -> None:
    with pytest.raises(openai.NotFoundError, match="no model 'c'"):
        await asking.completions.create(model="c", prompt="hi")
    with pytest.raises(openai.BadRequestError, match=r"presence_penalty=0\.5 is not supported"):
        await asking.completions.create(model="a", prompt="hi", presence_penalty=0.5)
    with pytest.raises(openai.AuthenticationError, match="needs its key"):
        await asking.with_options(api_key="wrong").models.list()


class Compressed(httpx.AsyncHTTPTransport):
    """Sends what the client sends, compressed."""

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        headers = {name: value for name, value in request.headers.items() if name != "content-length"}
        sent = httpx.Request(
            request.method,
            request.url,
            headers=headers | {"content-encoding": "gzip"},
            content=gzip.compress(await request.aread()),
        )
        return await super().handle_async_request(sent)


async def test_a_compressed_body_is_refused_and_answers_come_as_they_are(asking: openai.AsyncOpenAI) -> None:
    async with httpx.AsyncClient(transport=Compressed()) as http:
        packing = openai.AsyncOpenAI(base_url=asking.base_url, api_key="sesame", max_retries=0, http_client=http)
        with pytest.raises(openai.APIStatusError, match="'gzip' is not read here: send it without") as refused:
            await packing.completions.create(model="a", prompt="hi")
    assert (refused.value.status_code, refused.value.code) == (415, "content_encoding")
    raw = await asking.completions.with_raw_response.create(model="a", prompt="hi")
    assert "content-encoding" not in raw.headers
    assert raw.parse().choices[0].text


async def test_a_team_is_asked_like_any_model(asking: openai.AsyncOpenAI) -> None:
    answer = await asking.chat.completions.create(
        model="team:plan_path", messages=[{"role": "user", "content": "anything"}], temperature=0
    )
    assert answer.choices[0].model_extra == {"stop_reason": None, "passed": True}, "its members only echo"
    assert answer.choices[0].message.content == ""
