"""What the embedded engine does beyond the contract: batches of bounded size, and an end to what nobody waits for."""

import asyncio
from dataclasses import replace

import pytest
import torch
from conftest import BaseFor

from mas.core.engine import Request, Sampling
from mas.serving.model import BaseModel
from mas.serving.transformers_engine import TransformersEngine


@pytest.fixture(scope="module")
def base(base_for: BaseFor) -> BaseModel:
    return base_for("relay")


def rows_seen(base: BaseModel) -> list[int]:
    """The rows of every forward pass from now on, until the model is next used by another test's hook."""
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
    hook = base.model.register_forward_hook(
        lambda *_: loop.call_soon_threadsafe(deep.set) if len(seen) == 5 else None  # type: ignore[func-returns-value]
    )
    await deep.wait()
    hook.remove()
    asked.cancel()
    await asyncio.wait([asked])
    (after,) = await engine.generate(asking(1, max_tokens=1))
    assert len(seen) < 100, "the cancelled request was decoded to its end"
    assert len(after.token_ids) == 1
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
