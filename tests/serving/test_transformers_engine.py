"""What the embedded engine does beyond the contract: batches of bounded size, and an end to what nobody waits for."""

import asyncio
from dataclasses import replace

import pytest
import torch
from conftest import BaseFor

from mas.core.engine import Generation, Request, Sampling
from mas.core.errors import EngineError
from mas.serving.decode import Batch, Job
from mas.serving.model import BaseModel
from mas.serving.transformers_engine import TransformersEngine


@pytest.fixture(scope="module")
def base(base_for: BaseFor) -> BaseModel:
    return base_for("relay")


def rows_seen(base: BaseModel) -> list[int]:
    """The rows of every forward pass from now on."""
    seen: list[int] = []
    base.model.register_forward_pre_hook(
        lambda module, args, kwargs: seen.append(len(kwargs["input_ids"])), with_kwargs=True
    )
    return seen


def asking(count: int, max_tokens: int = 3) -> Request:
    return Request(prompt_ids=(5, 6, 7), sampling=Sampling(max_tokens=max_tokens), seeds=tuple(range(count)))


async def test_one_request_for_many_candidates_is_decoded_in_batches_of_the_allowed_size(base: BaseModel) -> None:
    small = replace(base, options=base.options.model_copy(update={"max_batch": 4}))
    wide, narrow = TransformersEngine(base), TransformersEngine(small)
    wanted = await wide.generate(asking(10))
    seen = rows_seen(base)
    given = await narrow.generate(asking(10))
    assert [g.token_ids for g in given] == [g.token_ids for g in wanted]
    assert max(seen) <= 4
    await wide.close()
    await narrow.close()


async def test_a_cancelled_decode_ends_within_a_token(base: BaseModel) -> None:
    engine = TransformersEngine(base)
    seen = rows_seen(base)
    asked = asyncio.create_task(engine.generate(asking(2, max_tokens=200)), name="long")
    deep, loop = asyncio.Event(), asyncio.get_running_loop()

    def tell(*_: object) -> None:
        if len(seen) == 5:
            loop.call_soon_threadsafe(deep.set)

    hook = base.model.register_forward_hook(tell)
    await deep.wait()
    hook.remove()
    asked.cancel()
    await asyncio.wait([asked])
    (after,) = await engine.generate(asking(1, max_tokens=1))
    assert len(seen) < 100, "the cancelled request was decoded to its end"
    assert len(after.token_ids) == 1
    await engine.close()


async def test_a_finished_completion_is_answered_and_another_takes_its_place_at_once(base: BaseModel) -> None:
    small = replace(base, options=base.options.model_copy(update={"max_batch": 2}))
    engine = TransformersEngine(small)
    order: list[str] = []

    async def ask(name: str, max_tokens: int) -> None:
        await engine.generate(asking(1, max_tokens))
        order.append(name)

    seen = rows_seen(base)
    async with asyncio.TaskGroup() as group:
        for name, max_tokens in (("long", 40), ("first", 3), ("second", 9), ("third", 5)):
            group.create_task(ask(name, max_tokens), name=name)
    assert order == ["first", "second", "third", "long"]
    # A prompt gives the first token, a step one to each of two rows: the 39 steps of the long one hold all others.
    # Every row that was computed is a token that was wanted; the first two read their equal prompts as one.
    assert engine.steps == 39
    assert sum(seen) == 40 + 3 + 9 + 5 - 1
    await engine.close()


async def test_equal_prompts_of_one_adapter_are_read_once_and_uneven_ones_apart(base: BaseModel) -> None:
    engine = TransformersEngine(base)
    read: list[tuple[int, int]] = []
    hook = base.model.register_forward_pre_hook(
        lambda module, args, kwargs: read.append(tuple(kwargs["input_ids"].shape)), with_kwargs=True
    )
    prompts = [(5, 6, 7), (5, 6, 7), (7, 6, 5), tuple(range(5, 45))]
    await asyncio.gather(
        *(engine.generate(Request(prompt_ids=ids, sampling=Sampling(max_tokens=1), seeds=(1, 2))) for ids in prompts)
    )
    hook.remove()
    assert read == [(2, 3), (1, 40)]
    await engine.close()


async def test_a_failed_step_fails_its_rows_and_nobody_else(base: BaseModel, monkeypatch: pytest.MonkeyPatch) -> None:
    small = replace(base, options=base.options.model_copy(update={"max_batch": 2}))
    engine = TransformersEngine(small)
    step, calls = Batch.step, 0

    def fail_once(batch: Batch) -> list[Job]:
        nonlocal calls
        calls += 1
        if calls == 2:
            raise RuntimeError("out of memory")
        return step(batch)

    monkeypatch.setattr(Batch, "step", fail_once)
    streamed = anext(engine.stream(asking(1, max_tokens=1)))
    asked = [engine.generate(asking(1, max_tokens=9)), engine.generate(asking(2, max_tokens=9))]
    first, *results = await asyncio.gather(streamed, *asked, return_exceptions=True)
    assert isinstance(first, Generation)
    assert [type(result) for result in results] == [EngineError, EngineError]
    assert "decoding failed: RuntimeError: out of memory" in str(results[0])
    assert len(await engine.generate(asking(5, max_tokens=9))) == 5
    await engine.close()


async def test_a_score_waits_for_a_step_of_a_running_batch_not_for_its_end(base: BaseModel) -> None:
    engine = TransformersEngine(base)
    long = asyncio.create_task(engine.generate(asking(2, max_tokens=200)), name="long")
    while engine.steps < 3:  # noqa: ASYNC110 - the worker counts, in its own thread
        await asyncio.sleep(0.001)
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
