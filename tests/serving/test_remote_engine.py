"""The engine of remote servers against this project's own endpoint, with token ids and with text."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest
from clients import playing
from conftest import BaseFor
from loud import loud_adapter

from mas.config.servers import PeerOptions, RemoteOptions
from mas.core.engine import AdapterRef, Engine, Request, Sampling
from mas.core.errors import EngineError, UnknownAdapter
from mas.endpoint import Served, build_app
from mas.endpoint.client_keys import Entrance
from mas.endpoint.server import running
from mas.serving.model import BaseModel
from mas.serving.model_text import END, MessageTokenizer
from mas.serving.remote_chat import ChatEngine
from mas.serving.remote_completions import OpenAIEngine
from mas.serving.transformers_engine import TransformersEngine
from mas.testing.engine import EngineContract
from mas.testing.scripted import ScriptedEngine


def app_of(engine: Engine, context: int = 256) -> object:
    served = Served(engine=engine, base="tiny", context=context, roles={}, teams=(), created=1)
    return build_app(served, max_waiting=4096)


@pytest.mark.timeout(300)
class TestOpenAIEngine(EngineContract):
    @pytest.fixture(autouse=True)
    async def _base(self, base_for: BaseFor) -> AsyncIterator[None]:
        self.base: BaseModel = base_for("plan_path")
        async with AsyncExitStack() as stack:
            self.stack = stack
            yield

    async def make_engine(self) -> Engine:
        self.behind = TransformersEngine(self.base)
        self.stack.push_async_callback(self.behind.close)
        await self.behind.store.publish("a", loud_adapter(self.base, 1))
        await self.behind.store.publish("b", loud_adapter(self.base, 2))
        address = await self.stack.enter_async_context(running(app_of(self.behind)))
        return await OpenAIEngine.start(RemoteOptions(url=f"{address}/v1"), self.base.text)

    async def publish_again(self, engine: Engine) -> AdapterRef:
        assert isinstance(engine, OpenAIEngine)
        ref = (await self.behind.store.publish("a", loud_adapter(self.base, 3))).ref
        await engine.refresh()
        return ref

    @pytest.mark.nightly(of=16)  # some 1,600 requests; the engine behind is held to its distribution in every run
    async def test_samples_follow_the_distribution(self, engine: Engine) -> None:
        await super().test_samples_follow_the_distribution(engine)

    async def test_a_new_version_is_noticed_by_what_it_says(self, engine: Engine) -> None:
        ref = (await self.behind.store.publish("a", loud_adapter(self.base, 3))).ref
        (generation,) = await engine.generate(self.request(engine, seeds=(1,)))
        assert generation.adapter == ref == engine.adapters()["a"]

    async def test_seeds_as_large_as_the_contract_allows(self, engine: Engine) -> None:
        first, last = await engine.generate(self.request(engine, seeds=(2**64 - 1, 2**63 - 1)))
        assert first == last  # servers read 63 bits of them


@pytest.fixture
async def chat() -> AsyncIterator[tuple[ChatEngine, ScriptedEngine]]:
    """Text with a scripted engine behind the endpoint: it repeats what it reads, and says who it is."""
    behind = ScriptedEngine(lambda prompt, adapter, seed: f"{adapter or 'base'} {seed} read «{prompt}»", ("a", "b"))
    async with running(app_of(behind, 4096)) as address:
        engine = await ChatEngine.start(PeerOptions(url=f"{address}/v1"), "peers.x")
        yield engine, behind
        await engine.close()


async def test_messages_go_out_as_messages_and_text_comes_back_as_characters(
    chat: tuple[ChatEngine, ScriptedEngine],
) -> None:
    engine, behind = chat
    assert isinstance(engine, Engine)
    ids = engine.tokenizer.chat("Be strict.", "2 + 2 = 5?")
    sampling = Sampling(temperature=0.25, max_tokens=1000, stop=(END,))
    first, second = await engine.generate(Request(prompt_ids=ids, sampling=sampling, seeds=(3, 4), adapter="a"))
    assert engine.tokenizer.decode(first.token_ids) == "a 3 read «Be strict.\n\n2 + 2 = 5?\n\n»"
    assert engine.tokenizer.decode(second.token_ids).startswith("a 4 read")
    assert (first.finish, first.token_ids[-1], first.logprobs) == ("stop", END, ())
    assert first.adapter == AdapterRef("a", 0)
    assert {request.sampling.temperature for request in behind.requests} == {0.25}


async def test_a_text_that_is_cut_has_no_end(chat: tuple[ChatEngine, ScriptedEngine]) -> None:
    engine, _ = chat
    ids = engine.tokenizer.chat("", "hello")
    (cut,) = await engine.generate(Request(prompt_ids=ids, sampling=Sampling(max_tokens=4), seeds=(3,)))
    assert (engine.tokenizer.decode(cut.token_ids), cut.finish, cut.adapter) == ("base", "length", None)
    sampling = Sampling(max_tokens=1000, stop=(END, *engine.tokenizer.encode("r")))
    (stopped,) = await engine.generate(Request(prompt_ids=ids, sampling=sampling, seeds=(3,)))
    assert (engine.tokenizer.decode(stopped.token_ids), stopped.finish) == ("base 3 ", "stop")


async def test_a_streamed_text_is_the_text(chat: tuple[ChatEngine, ScriptedEngine]) -> None:
    engine, _ = chat
    sampling = Sampling(max_tokens=1000, stop=(END,))
    request = Request(prompt_ids=engine.tokenizer.chat("", "hello"), sampling=sampling, seeds=(3,), adapter="b")
    (whole,) = await engine.generate(request)
    *pieces, last = [piece async for piece in engine.stream(request)]
    assert not any(piece.finish for piece in pieces)
    assert tuple(token for piece in (*pieces, last) for token in piece.token_ids) == whole.token_ids
    assert (last.finish, last.adapter) == (whole.finish, whole.adapter)


async def test_texts_are_not_scored_and_unknown_adapters_are_not_asked(
    chat: tuple[ChatEngine, ScriptedEngine],
) -> None:
    engine, behind = chat
    with pytest.raises(EngineError, match=r"cannot score tokens.*api=completions"):
        await engine.score((5,), (6,))
    with pytest.raises(UnknownAdapter, match=r"no adapter 'c'.*'a', 'b'"):
        await engine.generate(Request(prompt_ids=(5,), sampling=Sampling(), seeds=(1,), adapter="c"))
    for wrong in ((), (MessageTokenizer.size,)):
        with pytest.raises(EngineError):
            await engine.generate(Request(prompt_ids=wrong, sampling=Sampling(), seeds=(1,)))
    assert behind.requests == []
    flying = asyncio.create_task(
        engine.generate(Request(prompt_ids=(5,), sampling=Sampling(), seeds=(1,))), name="generate"
    )
    await asyncio.sleep(0)
    await engine.close()
    assert len(await flying) == 1
    with pytest.raises(EngineError, match="closed"):
        await engine.generate(Request(prompt_ids=(5,), sampling=Sampling(), seeds=(1,)))


async def test_further_fields_are_sent_and_null_leaves_one_out() -> None:
    behind = ScriptedEngine(lambda prompt, adapter, seed: "x" * 50)
    async with running(app_of(behind, 4096)) as address:
        extra = {"max_tokens": None, "max_completion_tokens": 3, "temperature": None}
        engine = await ChatEngine.start(PeerOptions(url=f"{address}/v1", extra=extra), "peers.x")
        (made,) = await engine.generate(Request(prompt_ids=(5,), sampling=Sampling(temperature=0.5), seeds=(1,)))
        await engine.close()
    assert len(made.token_ids) == 3
    assert behind.requests[0].sampling.temperature == 1.0


async def test_the_endpoints_key_opens_it(monkeypatch: pytest.MonkeyPatch) -> None:
    behind = ScriptedEngine(lambda prompt, adapter, seed: "yes")
    served = Served(engine=behind, base="tiny", context=4096, roles={}, teams=(), created=1)
    monkeypatch.setenv("RIGHT", "open-sesame")
    monkeypatch.setenv("WRONG", "open-barley")
    async with running(build_app(served, entrance=Entrance(key="open-sesame"))) as address:
        url = f"{address}/v1"
        engine = await ChatEngine.start(PeerOptions(url=url, key_env="RIGHT"), "peers.x")
        assert len(await engine.generate(Request(prompt_ids=(5,), sampling=Sampling(), seeds=(1,)))) == 1
        await engine.close()
        with pytest.raises(EngineError, match=r"refuses access \(401\).*variable WRONG, which is set") as caught:
            await ChatEngine.start(PeerOptions(url=url, key_env="WRONG"), "peers.x")
        assert "open-" not in str(caught.value)
        with pytest.raises(EngineError, match=r"refuses access \(401\).*No key was sent.*peers.x.key_env"):
            await ChatEngine.start(PeerOptions(url=url), "peers.x")


async def test_a_whole_team_answers_like_a_model() -> None:
    behind = ScriptedEngine(lambda prompt, adapter, seed: "U" if prompt.startswith("E") else "12")
    async with playing(behind, "team") as team:
        served = Served(engine=behind, base="tiny", context=4096, roles={}, teams=(team,), created=1)
        async with running(build_app(served)) as address:
            options = PeerOptions(url=f"{address}/v1", model=f"team:{team.name}", extra={"max_tokens": None})
            engine = await ChatEngine.start(options, "peers.x")
            prompt_ids = engine.tokenizer.chat("", team.example)
            (made,) = await engine.generate(Request(prompt_ids=prompt_ids, sampling=Sampling(), seeds=(1,)))
            await engine.close()
    assert (made.finish, made.adapter, made.token_ids[-1]) == ("stop", None, END)
    assert behind.requests


def test_a_conversation_survives_being_tokens() -> None:
    tokenizer = MessageTokenizer()
    said = [("system", "Be brief."), ("user", "Hello ✓"), ("assistant", ""), ("user", "")]
    ids = tokenizer.chat_messages(said)
    assert tokenizer.messages(ids) == [{"role": role, "content": content} for role, content in said]
    assert tokenizer.messages(tokenizer.chat("", "hi")) == [{"role": "user", "content": "hi"}]
    assert tokenizer.messages(tokenizer.encode("plain")) == [{"role": "user", "content": "plain"}]
    assert tokenizer.decode(ids) == "Be brief.Hello ✓"
    with pytest.raises(EngineError, match=r"no role 'tool'.*system, user, assistant"):
        tokenizer.chat_messages([("tool", "x")])
