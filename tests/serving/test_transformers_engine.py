"""What the embedded engine does beyond the contract: batches of bounded size, and an end to what nobody waits for."""

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from itertools import cycle
from pathlib import Path
from typing import Any, ClassVar

import msgspec
import pytest
import torch
from conftest import SMALL, BaseFor
from loud import loud_adapter

from mas.config.options import ScenarioOptions
from mas.core.engine import Generation, Request, Sampling
from mas.core.errors import EngineError
from mas.scenarios import build_scenario
from mas.serving import decode
from mas.serving.adapter_weights import AdapterWeights
from mas.serving.decode import Batch, DecodeJob
from mas.serving.forward import Prompt
from mas.serving.grammar import Grammars
from mas.serving.model import BaseModel, load_base
from mas.serving.transformers_engine import TransformersEngine
from mas.training.base import tiny_base


@pytest.fixture(scope="module")
def base(base_for: BaseFor) -> BaseModel:
    return base_for("relay")


@pytest.fixture
def shapes(base: BaseModel) -> Iterator[list[tuple[int, ...]]]:
    """Rows and tokens of every forward pass of the test."""
    seen: list[tuple[int, ...]] = []
    hook = base.model.register_forward_pre_hook(
        lambda module, args, kwargs: seen.append(tuple(kwargs["input_ids"].shape)), with_kwargs=True
    )
    yield seen
    hook.remove()


def asking(count: int, max_tokens: int = 3) -> Request:
    return Request(prompt_ids=(5, 6, 7), sampling=Sampling(max_tokens=max_tokens), seeds=tuple(range(count)))


async def test_one_request_for_many_candidates_is_decoded_in_batches_of_the_allowed_size(
    base: BaseModel, shapes: list[tuple[int, ...]]
) -> None:
    small = replace(base, options=base.options.model_copy(update={"max_batch": 4}))
    wide, narrow = TransformersEngine(base), TransformersEngine(small)
    wanted = await wide.generate(asking(10))
    shapes.clear()
    given = await narrow.generate(asking(10))
    assert [g.token_ids for g in given] == [g.token_ids for g in wanted]
    assert max(rows for rows, _ in shapes) <= 4
    await wide.close()
    await narrow.close()


async def test_a_cancelled_decode_ends_within_a_token(base: BaseModel, shapes: list[tuple[int, ...]]) -> None:
    engine = TransformersEngine(base)
    asked = asyncio.create_task(engine.generate(asking(2, max_tokens=200)), name="long")
    deep, loop = asyncio.Event(), asyncio.get_running_loop()

    def tell(*_: object) -> None:
        if len(shapes) == 5:
            loop.call_soon_threadsafe(deep.set)

    hook = base.model.register_forward_hook(tell)
    await deep.wait()
    hook.remove()
    asked.cancel()
    await asyncio.wait([asked])
    (after,) = await engine.generate(asking(1, max_tokens=1))
    assert len(shapes) < 100, "the cancelled request was decoded to its end"
    assert len(after.token_ids) == 1
    await engine.close()


async def test_a_finished_completion_is_answered_and_another_takes_its_place_at_once(
    base: BaseModel, shapes: list[tuple[int, ...]]
) -> None:
    small = replace(base, options=base.options.model_copy(update={"max_batch": 2}))
    engine = TransformersEngine(small)
    order: list[str] = []

    async def ask(name: str, max_tokens: int) -> None:
        await engine.generate(asking(1, max_tokens))
        order.append(name)

    async with asyncio.TaskGroup() as group:
        for name, max_tokens in (("long", 40), ("first", 3), ("second", 9), ("third", 5)):
            group.create_task(ask(name, max_tokens), name=name)
    assert order == ["first", "second", "third", "long"]
    # A prompt gives the first token, a step one to each of two rows: the 39 steps of the long one hold all others.
    # Every row that was computed is a token that was wanted; the first two read their equal prompts as one.
    assert engine.steps == 39
    assert sum(rows for rows, _ in shapes) == 40 + 3 + 9 + 5 - 1
    await engine.close()


async def test_equal_prompts_of_one_adapter_are_read_once_and_uneven_ones_apart(
    base: BaseModel, shapes: list[tuple[int, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mas.serving.decode._PREFILL_TOKENS", 100)
    engine = TransformersEngine(base)
    long = [tuple(range(first, first + 40)) for first in (5, 6, 7)]
    prompts = [(5, 6, 7), (5, 6, 7), (7, 6, 5), *long, *long]
    seeds = tuple(range(8))
    await asyncio.gather(
        *(engine.generate(Request(prompt_ids=ids, sampling=Sampling(max_tokens=1), seeds=seeds)) for ids in prompts)
    )
    assert shapes == [(2, 3), (2, 40), (1, 40)]
    await engine.close()


async def test_no_more_rows_run_than_the_cache_may_hold_if_all_are_as_long_as_the_longest(
    base: BaseModel, shapes: list[tuple[int, ...]]
) -> None:
    small = replace(base, options=base.options.model_copy(update={"max_batch_tokens": 75}))
    engine = TransformersEngine(small)
    asked = [engine.generate(asking(1, max_tokens)) for max_tokens in (7, 7, 7, 22, 150)]
    assert [len(made[0].token_ids) for made in await asyncio.gather(*asked)] == [7, 7, 7, 22, 150]
    # 25 tokens fit three times into 75, so three of 10 wait for no fourth of 25; what never fits runs alone.
    assert max(rows for rows, tokens in shapes if tokens == 1) == 3
    assert not engine._batch._cache._slots[0].buffers, "an idle engine holds a cache"
    await engine.close()


async def test_a_request_joins_rows_that_are_in_the_middle_of_their_completions(base: BaseModel) -> None:
    engine = TransformersEngine(base)
    long = asyncio.create_task(engine.generate(asking(2, max_tokens=200)), name="long")
    await steps_of(engine, 3)
    await engine.generate(asking(1, max_tokens=2))
    assert engine.steps < 150
    assert not long.done()
    assert len(await long) == 2
    await engine.close()


async def steps_of(engine: TransformersEngine, count: int) -> None:
    while engine.steps < count:  # noqa: ASYNC110 - the worker counts, in its own thread
        await asyncio.sleep(0.001)


async def test_rows_that_decode_go_on_when_a_newcomer_cannot_be_read(
    base: BaseModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    prefill = decode.prefill

    def fail_at_four(base: BaseModel, prompts: list[Prompt]) -> Any:
        if len(prompts[0].ids) == 4:
            raise MemoryError("no room")
        return prefill(base, prompts)

    engine = TransformersEngine(base)
    wanted = await engine.generate(asking(2, max_tokens=60))
    monkeypatch.setattr(decode, "prefill", fail_at_four)
    long = asyncio.create_task(engine.generate(asking(2, max_tokens=60)), name="long")
    await steps_of(engine, engine.steps + 3)
    with pytest.raises(EngineError, match="decoding failed: MemoryError: no room") as failed:
        await engine.generate(Request(prompt_ids=(5, 6, 7, 8), sampling=Sampling(), seeds=(1,)))
    assert isinstance(failed.value.__cause__, MemoryError)
    assert [g.token_ids for g in await long] == [g.token_ids for g in wanted]
    await engine.close()


async def test_an_adapter_that_computes_no_numbers_fails_alone_and_leaves_nothing_behind(base: BaseModel) -> None:
    engine = TransformersEngine(base)
    for name in "ab":
        await engine.store.publish(name, loud_adapter(base, 1))
    request = replace_adapter(asking(1, max_tokens=30), "b")
    wanted = await engine.generate(request)
    engine.store.weights("a").parameters()[0].fill_(3e38)  # finite, and infinite in every product
    async with asyncio.TaskGroup() as group:
        good = [group.create_task(engine.generate(one), name="good") for one in (request, request)]
        bad = group.create_task(refused(engine, replace_adapter(asking(3, max_tokens=30), "a")), name="bad")
    assert "gives a log-probability of nan" in bad.result()
    for task in good:
        assert [g.token_ids for g in task.result()] == [g.token_ids for g in wanted]
    broken = loud_adapter(base, 2)
    broken.parameters()[-1][0, 0] = torch.nan
    with pytest.raises(EngineError, match=r"adapter a@1 cannot be served: .* holds NaN"):
        await engine.store.publish("a", broken)
    misfit = AdapterWeights(broken.options, {"model.layers.9.mlp.up_proj": next(iter(broken.pairs.values()))})
    with pytest.raises(EngineError, match="no such layer among its targets"):
        await engine.store.publish("a", misfit)
    await engine.close()


def replace_adapter(request: Request, adapter: str) -> Request:
    return msgspec.structs.replace(request, adapter=adapter)


async def refused(engine: TransformersEngine, request: Request) -> str:
    with pytest.raises(EngineError) as error:
        await engine.generate(request)
    return str(error.value)


async def test_what_was_retired_is_kept_in_no_stack(mas_cache: Path) -> None:
    relay = build_scenario(ScenarioOptions(name="relay"))
    base = load_base(SMALL, tiny_base(relay, SMALL.tiny))  # not the shared one: other tests leave stacks in that
    engine = TransformersEngine(base)
    for round_ in range(6):
        for number, name in enumerate("abc"):
            await engine.store.publish(name, loud_adapter(base, 10 * round_ + number))
        await asyncio.gather(*(engine.generate(replace_adapter(asking(2), name)) for name in "abc"))
    served = {id(engine.store.weights(name)) for name in "abc"}
    assert all(key <= served for key in base.bank._stacks)
    assert base.bank._stacks
    await engine.close()
    assert not base.bank._stacks


async def test_closing_that_is_given_up_lets_nobody_wait_for_ever(base: BaseModel) -> None:
    engine = TransformersEngine(base)
    long = asyncio.create_task(engine.generate(asking(1, max_tokens=200)), name="long")
    await steps_of(engine, 2)
    closing = asyncio.create_task(engine.close(), name="close")
    await asyncio.sleep(0)
    closing.cancel()
    await asyncio.wait([closing])
    assert len((await long)[0].token_ids) == 200
    await engine.close()


class Fickle(DecodeJob):
    """Somebody cancels it between any two looks."""

    looks: ClassVar[Iterator[bool]]

    @property
    def is_done(self) -> bool:
        return next(self.looks)


@pytest.mark.parametrize("first", [True, False])
def test_a_row_that_is_cancelled_while_it_is_looked_at_is_either_done_or_goes_on(base: BaseModel, first: bool) -> None:
    Fickle.looks = cycle((first, not first))
    batch, job = decode.Batch(base, Grammars(base.text)), Fickle(asking(1), 0, None, None)
    done = batch.admit([job])
    assert [*done, *batch.jobs] == [job]
    for _ in range(3):
        if batch.jobs:
            done = batch.step()
            assert [*done, *batch.jobs] == [job]


async def test_a_failed_step_fails_its_rows_and_nobody_else(base: BaseModel, monkeypatch: pytest.MonkeyPatch) -> None:
    small = replace(base, options=base.options.model_copy(update={"max_batch": 2}))
    engine = TransformersEngine(small)
    step, calls = Batch.step, 0

    def fail_once(batch: Batch) -> list[DecodeJob]:
        nonlocal calls
        calls += 1
        if calls == 2:
            raise RuntimeError("out of memory")
        return step(batch)

    monkeypatch.setattr(Batch, "step", fail_once)

    async def streamed() -> list[Generation]:
        return [piece async for piece in engine.stream(asking(1, max_tokens=9))]

    asked = [engine.generate(asking(1, max_tokens=9)), engine.generate(asking(2, max_tokens=9))]
    *failed, later = await asyncio.gather(streamed(), *asked, return_exceptions=True)
    assert [str(error) for error in failed] == ["decoding failed: RuntimeError: out of memory"] * 2
    assert isinstance(later, tuple), "it waited, and had no part in the step that failed"
    assert len(await engine.generate(asking(5, max_tokens=9))) == 5
    await engine.close()


async def test_a_score_waits_for_a_step_of_a_running_batch_not_for_its_end(base: BaseModel) -> None:
    engine = TransformersEngine(base)
    long = asyncio.create_task(engine.generate(asking(2, max_tokens=200)), name="long")
    await steps_of(engine, 3)
    await engine.score((5, 6, 7), (8, 9))
    assert engine.steps < 190
    assert not long.done()
    assert len(await long) == 2
    await engine.close()


async def test_a_stream_shows_tokens_while_they_are_drawn_and_leaves_when_closed(base: BaseModel) -> None:
    engine = TransformersEngine(base)
    stream = engine.stream(asking(1, max_tokens=200))
    beside = asyncio.create_task(engine.generate(asking(1, max_tokens=100)), name="beside")
    pieces = [await anext(stream) for _ in range(3)]
    assert engine.steps < 50
    assert all(piece.token_ids and not piece.finish for piece in pieces)
    await stream.aclose()
    assert len((await beside)[0].token_ids) == 100
    assert engine.steps <= 110, "the closed stream was decoded to its end"
    await engine.close()


async def test_a_step_of_the_learner_beside_a_cancelled_decode_is_not_disturbed(base: BaseModel) -> None:
    engine = TransformersEngine(base)
    weights = base.bank.create(base.options.lora, 0)
    await engine.store.publish("a", weights)
    ids = torch.tensor([[5, 6, 7]])
    with base.bank.routing([None]), torch.inference_mode():
        alone = base.model(input_ids=ids).logits
    request = Request(prompt_ids=(5, 6, 7), sampling=Sampling(max_tokens=200), seeds=(1, 2, 3), adapter="a")
    asked = asyncio.create_task(engine.generate(request), name="long")
    for _ in range(40):
        await asyncio.sleep(0)
    asked.cancel()
    for _ in range(20):
        with base.bank.routing([None]), torch.inference_mode():
            assert torch.equal(base.model(input_ids=ids).logits, alone)
    await asyncio.wait([asked])
    await engine.close()
