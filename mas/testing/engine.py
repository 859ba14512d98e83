"""The contract of every engine, as a test class: subclass `EngineContract`, say how to make one, run pytest.

    class TestMyEngine(EngineContract):
        async def make_engine(self) -> Engine:
            ...  # with two different adapters, "a" and "b", published

Needs pytest and pytest-asyncio in auto mode.
"""

import asyncio
import math
from collections import Counter
from collections.abc import AsyncIterator

import pytest

from mas.core.engine import AdapterRef, AlternativesScorer, Engine, Request, Sampling
from mas.core.errors import EngineError, UnknownAdapter

CLOSE = 1e-4
"""Nats by which two computations of one log-probability may differ."""
ADAPTERS = (None, "a", "b")


class EngineContract:
    """What every implementation of `Engine` must do."""

    draws = True
    """False for engines without a distribution, such as scripted ones: sampling itself is then not tested."""
    texts = ("P01>", "E00-11;>", "E34U12;DR>")
    """Prompts that the tokenizer knows, of different lengths."""

    async def make_engine(self) -> Engine:
        """A fresh engine with two different adapters, `a` and `b`."""
        raise NotImplementedError

    async def publish_again(self, engine: Engine) -> AdapterRef | None:
        """Publish a changed `a`; None where this engine's adapters never change."""
        return None

    @pytest.fixture
    async def engine(self) -> AsyncIterator[Engine]:
        """One engine per test, closed after it."""
        engine = await self.make_engine()
        yield engine
        await engine.close()

    def request(
        self,
        engine: Engine,
        number: int = 0,
        seeds: tuple[int, ...] = (1, 2),
        adapter: str | None = "a",
        **sampling: float,
    ) -> Request:
        """A request for the number-th text."""
        options = {"temperature": 1.0, "max_tokens": 6} | sampling
        return Request(
            prompt_ids=engine.tokenizer.encode(self.texts[number % len(self.texts)]),
            sampling=Sampling(temperature=options["temperature"], max_tokens=int(options["max_tokens"])),
            seeds=seeds,
            adapter=adapter,
        )

    async def test_it_has_the_shape_of_an_engine(self, engine: Engine) -> None:
        assert isinstance(engine, Engine)
        assert set(engine.adapters()) == {"a", "b"}
        for text in self.texts:
            assert engine.tokenizer.decode(engine.tokenizer.encode(text)) == text

    async def test_one_completion_per_seed_with_one_logprob_per_token(self, engine: Engine) -> None:
        generations = await engine.generate(self.request(engine, seeds=(3, 4, 3)))
        assert len(generations) == 3
        for generation in generations:
            assert 1 <= len(generation.token_ids) == len(generation.logprobs) <= 6
            assert all(math.isfinite(value) and value <= 1e-6 for value in generation.logprobs)
        assert generations[0].token_ids == generations[2].token_ids

    @pytest.mark.parametrize("temperature", [1.0, 0.0])
    async def test_behaviour_logprobs_are_the_scores(self, engine: Engine, temperature: float) -> None:
        for number, adapter in enumerate(ADAPTERS):
            request = self.request(engine, number, seeds=(5, 6, 7), adapter=adapter, temperature=temperature)
            for generation in await engine.generate(request):
                scores = await engine.score(request.prompt_ids, generation.token_ids, adapter)
                assert generation.logprobs == pytest.approx(scores, abs=CLOSE)

    async def test_completions_do_not_depend_on_batch_mates(self, engine: Engine) -> None:
        requests = [
            self.request(engine, number, seeds=(number, 90 + number), adapter=adapter, max_tokens=1 + number)
            for number in range(4)
            for adapter in ADAPTERS
        ]
        alone = [await engine.generate(request) for request in requests]
        for order in (requests, requests[::-1]):
            mixed = await asyncio.gather(*[engine.generate(request) for request in order])
            for request, generations in zip(order, mixed, strict=True):
                wanted = alone[requests.index(request)]
                assert [g.token_ids for g in generations] == [g.token_ids for g in wanted]
                for generation, want in zip(generations, wanted, strict=True):
                    assert generation.logprobs == pytest.approx(want.logprobs, abs=CLOSE)
                    assert (generation.adapter, generation.finish) == (want.adapter, want.finish)

    async def test_a_seed_draws_the_same_in_any_company(self, engine: Engine) -> None:
        (alone,) = await engine.generate(self.request(engine, seeds=(8,)))
        among = await engine.generate(self.request(engine, seeds=(1, 2, 8, 3)))
        assert among[2].token_ids == alone.token_ids

    async def test_adapters_change_what_is_said(self, engine: Engine) -> None:
        said = {}
        for adapter in ADAPTERS:
            generations = await engine.generate(self.request(engine, seeds=tuple(range(12)), adapter=adapter))
            said[adapter] = [generation.token_ids for generation in generations]
        assert said[None] != said["a"] != said["b"] != said[None]

    async def test_every_completion_carries_its_adapter_version(self, engine: Engine) -> None:
        for adapter in ADAPTERS:
            (generation,) = await engine.generate(self.request(engine, seeds=(1,), adapter=adapter))
            assert generation.adapter == (None if adapter is None else engine.adapters()[adapter])

    async def test_a_new_version_is_served_under_the_same_name(self, engine: Engine) -> None:
        before = engine.adapters()["a"]
        ref = await self.publish_again(engine)
        if ref is not None:
            assert ref.version > before.version
            assert engine.adapters()["a"] == ref
            (generation,) = await engine.generate(self.request(engine, seeds=(1,)))
            assert generation.adapter == ref

    async def test_stop_tokens_end_a_completion_and_are_part_of_it(self, engine: Engine) -> None:
        request = self.request(engine, seeds=tuple(range(16)), max_tokens=5)
        free = await engine.generate(request)
        stop = Counter(token for generation in free for token in generation.token_ids[1:]).most_common(1)[0][0]
        sampling = Sampling(max_tokens=5, stop=(stop,))
        finishes = set()
        stopping = Request(prompt_ids=request.prompt_ids, sampling=sampling, seeds=request.seeds, adapter="a")
        for want, generation in zip(free, await engine.generate(stopping), strict=True):
            cut = want.token_ids.index(stop) + 1 if stop in want.token_ids else len(want.token_ids)
            assert generation.token_ids == want.token_ids[:cut]
            assert generation.finish == ("stop" if stop in want.token_ids else "length")
            finishes.add(generation.finish)
        assert "stop" in finishes

    async def test_max_tokens_bounds_a_completion(self, engine: Engine) -> None:
        longest = {}
        for room in (1, 2, 4):
            generations = await engine.generate(self.request(engine, seeds=tuple(range(8)), max_tokens=room))
            assert all(len(g.token_ids) <= room for g in generations)
            longest[room] = [g.token_ids for g in generations]
        assert [ids[:1] for ids in longest[4]] == longest[1]

    async def test_a_stream_is_the_completion_in_pieces(self, engine: Engine) -> None:
        for number, adapter in enumerate(ADAPTERS):
            request = self.request(engine, number, seeds=(4,), adapter=adapter)
            (whole,) = await engine.generate(request)
            *pieces, last = [piece async for piece in engine.stream(request)]
            assert not any(piece.finish for piece in pieces)
            assert (last.finish, last.adapter) == (whole.finish, whole.adapter)
            assert tuple(token for piece in (*pieces, last) for token in piece.token_ids) == whole.token_ids
            joined = [value for piece in (*pieces, last) for value in piece.logprobs]
            assert joined == pytest.approx(whole.logprobs, abs=CLOSE)

    async def test_a_stream_that_is_closed_or_impossible_leaves_the_others_fine(self, engine: Engine) -> None:
        request = self.request(engine, seeds=(4,))
        (whole,) = await engine.generate(request)
        stream = engine.stream(request)
        first = await anext(stream)
        assert first.token_ids == whole.token_ids[: len(first.token_ids)]
        await stream.aclose()
        for wrong in (self.request(engine, seeds=(1, 2)), self.request(engine, seeds=(1,), max_tokens=0)):
            with pytest.raises(EngineError):
                await anext(engine.stream(wrong))
        with pytest.raises(UnknownAdapter):
            await anext(engine.stream(self.request(engine, seeds=(1,), adapter="no such adapter")))
        assert (await engine.generate(request))[0].token_ids == whole.token_ids

    async def test_greedy_takes_the_most_likely_token_whatever_the_seed(self, engine: Engine) -> None:
        if not self.draws:
            pytest.skip("this engine has no distribution")
        request = self.request(engine, seeds=(1, 2, 3), temperature=0.0, max_tokens=1)
        greedy = await engine.generate(request)
        assert len({generation.token_ids for generation in greedy}) == 1
        drawn = await engine.generate(self.request(engine, seeds=tuple(range(100)), max_tokens=1))
        scores = [await engine.score(request.prompt_ids, ids, "a") for ids in {g.token_ids for g in drawn}]
        assert len(scores) > 1
        assert greedy[0].logprobs[0] >= max(score[0] for score in scores) - CLOSE

    async def test_samples_follow_the_distribution(self, engine: Engine) -> None:
        if not self.draws:
            pytest.skip("this engine has no distribution")
        draws = 1500
        request = self.request(engine, seeds=tuple(range(draws)), max_tokens=1)
        counts = Counter(generation.token_ids for generation in await engine.generate(request))
        for ids, count in counts.items():
            (score,) = await engine.score(request.prompt_ids, ids, "a")
            share = math.exp(score)
            assert abs(count / draws - share) < 4.5 * math.sqrt(share * (1 - share) / draws) + 1e-3

    async def test_temperature_divides_logits(self, engine: Engine) -> None:
        if not self.draws:
            pytest.skip("this engine has no distribution")
        request = self.request(engine, seeds=tuple(range(30)), temperature=2.0, max_tokens=1)
        hot = {generation.token_ids: generation.logprobs[0] for generation in await engine.generate(request)}
        cold = {ids: (await engine.score(request.prompt_ids, ids, "a"))[0] for ids in hot}
        first, *others = hot
        assert others
        for ids in others:
            assert hot[ids] - hot[first] == pytest.approx((cold[ids] - cold[first]) / 2, abs=CLOSE)

    async def test_impossible_requests_are_typed_errors_and_harm_nobody(self, engine: Engine) -> None:
        good = self.request(engine, seeds=(1, 2))
        (wanted, _) = await engine.generate(good)
        sampling = good.sampling
        long = good.prompt_ids * 5000
        wrong = [
            Request(prompt_ids=(), sampling=sampling, seeds=(1,)),
            Request(prompt_ids=good.prompt_ids, sampling=sampling, seeds=()),
            Request(prompt_ids=(*good.prompt_ids, -1), sampling=sampling, seeds=(1,)),
            Request(prompt_ids=(*good.prompt_ids, 10**9), sampling=sampling, seeds=(1,)),
            Request(prompt_ids=long, sampling=sampling, seeds=(1,)),
            Request(prompt_ids=good.prompt_ids, sampling=Sampling(max_tokens=10**6), seeds=(1,)),
            Request(prompt_ids=good.prompt_ids, sampling=Sampling(max_tokens=0), seeds=(1,)),
            Request(prompt_ids=good.prompt_ids, sampling=Sampling(temperature=-1.0), seeds=(1,)),
            Request(prompt_ids=good.prompt_ids, sampling=Sampling(temperature=math.nan), seeds=(1,)),
            Request(prompt_ids=good.prompt_ids, sampling=Sampling(temperature=1e-40), seeds=(1,)),
        ]
        unknown = Request(prompt_ids=good.prompt_ids, sampling=sampling, seeds=(1,), adapter="no such adapter")
        calls = [engine.generate(request) for request in (*wrong, unknown, good)]
        *failed, refused, answered = await asyncio.gather(*calls, return_exceptions=True)
        assert all(isinstance(error, EngineError) and str(error) for error in failed), failed
        assert isinstance(refused, UnknownAdapter)
        assert isinstance(answered, tuple)
        assert answered[0].token_ids == wanted.token_ids

    async def test_impossible_scores_are_typed_errors(self, engine: Engine) -> None:
        ids = engine.tokenizer.encode(self.texts[0])
        for prompt, completion in (((), ids), (ids, ()), (ids, (-1,)), ((10**9,), ids), (ids * 5000, ids)):
            with pytest.raises(EngineError):
                await engine.score(prompt, completion)
        with pytest.raises(UnknownAdapter):
            await engine.score(ids, ids, "no such adapter")
        assert len(await engine.score(ids, ids)) == len(ids)

    async def test_the_most_likely_tokens_beside_scores_are_scored_alike(self, engine: Engine) -> None:
        if not isinstance(engine, AlternativesScorer):
            pytest.skip("this engine scores without alternatives")
        prompt, *others = engine.tokenizer.encode(self.texts[1])
        for adapter in ADAPTERS:
            found = await engine.score_alternatives((prompt,), others, adapter, count=3)
            assert found.logprobs == pytest.approx(await engine.score((prompt,), others, adapter), abs=CLOSE)
            for place, (own, top) in enumerate(zip(found.logprobs, found.alternatives, strict=True)):
                before = (prompt, *others[:place])
                single = [(await engine.score(before, (token,), adapter))[0] for token, _ in top]
                assert [value for _, value in top] == pytest.approx(single, abs=CLOSE)
                assert single == sorted(single, reverse=True)
                assert len(top) == 3
                assert own <= top[0][1]
                assert own == dict(top).get(others[place], own)
        with pytest.raises(EngineError, match="from 0 to 20"):
            await engine.score_alternatives((prompt,), others, count=21)
        with pytest.raises(UnknownAdapter):
            await engine.score_alternatives((prompt,), others, "no such adapter", count=1)

    async def test_a_cancelled_request_leaves_the_others_fine(self, engine: Engine) -> None:
        requests = [self.request(engine, number, adapter=adapter) for number, adapter in enumerate(ADAPTERS)]
        wanted = [await engine.generate(request) for request in requests]
        for rounds in range(12):
            tasks = [asyncio.create_task(engine.generate(request), name="generate") for request in requests]
            for _ in range(rounds):
                await asyncio.sleep(0)
            tasks[1].cancel()
            first, cancelled, last = await asyncio.gather(*tasks, return_exceptions=True)
            assert isinstance(cancelled, asyncio.CancelledError | tuple)
            assert isinstance(first, tuple)
            assert isinstance(last, tuple)
            assert [g.token_ids for g in first] == [g.token_ids for g in wanted[0]]
            assert [g.token_ids for g in last] == [g.token_ids for g in wanted[2]]

    async def test_closing_finishes_what_is_in_flight_and_is_safe_twice(self) -> None:
        engine = await self.make_engine()
        flying = asyncio.create_task(engine.generate(self.request(engine)), name="generate")
        await asyncio.sleep(0)
        await engine.close()
        await engine.close()
        assert len(await flying) == 2
        with pytest.raises(EngineError, match="closed"):
            await engine.generate(self.request(engine))
        with pytest.raises(EngineError, match="closed"):
            await engine.score((1,), (1,))
