"""What one client sends harms no other client and not the server."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from tinker.proto import tinker_public_pb2 as pb

from mas.config.options import LearnerOptions
from mas.core.errors import EngineError, RefusedRequest
from mas.serving.model import BaseModel
from mas.serving.transformers_engine import TransformersEngine
from mas.tinker.sampling import Samplers, SamplingTarget
from mas.tinker.wire import ForwardBackward
from mas.training.client_adapter import ClientAdapter, ClientStep

STEP = ClientStep(lr=0.1, beta1=0.9, beta2=0.95, eps=1e-12, weight_decay=0.0, clip_norm=0.0)


async def test_weights_that_are_no_numbers_are_not_sampled_with(base: BaseModel) -> None:
    """They would be in one product with the weights of other clients."""
    engine = TransformersEngine(base)
    weights = base.bank.create(base.options.lora, 0)
    weights.parameters()[0].view(-1)[0] = math.nan
    target, samplers = SamplingTarget(), Samplers(engine, 2)
    with pytest.raises(EngineError, match="cannot be served"):
        await samplers.hold(target, weights)
    assert target.version is None
    await samplers.close()
    await engine.close()


def test_a_step_that_could_divide_by_zero_is_refused() -> None:
    STEP.check()
    with pytest.raises(RefusedRequest, match=r"eps is 0; it must be finite and above 0"):
        replace(STEP, eps=0).check()


def test_a_checkpoint_repairs_a_model_that_diverged_and_one_of_another_alpha_is_refused(base: BaseModel) -> None:
    good = base.bank.create(base.options.lora, 0)
    adapter = ClientAdapter(base, base.bank.create(base.options.lora, 1), LearnerOptions())
    with torch.no_grad():
        for one in adapter.weights.parameters():
            one.fill_(math.inf)
    adapter.restore(good, None)
    assert all(
        torch.equal(mine, its) for mine, its in zip(adapter.weights.parameters(), good.parameters(), strict=True)
    )
    other = base.bank.create(base.options.lora.model_copy(update={"alpha": base.options.lora.alpha * 2}), 0)
    with pytest.raises(RefusedRequest, match=r"the checkpoint was trained with model.lora.alpha="):
        adapter.restore(other, None)


def test_sparse_tensors_of_a_request_are_counted_together_before_one_is_written_out() -> None:
    """Each alone would be allowed."""
    rows = np.zeros(2, "<i8").tobytes()
    one = pb.Tensor(dtype=pb.DTYPE_INT64, shape=[1, 2**25], sparse_csr=pb.SparseCsr(crow_indices=rows))
    message = pb.ForwardBackwardRequest()
    for _ in range(3):
        message.data.add().loss_fn_inputs["target_tokens"].CopyFrom(one)
    with pytest.raises(RefusedRequest, match="sparse tensors are 67,108,864 numbers at most"):
        ForwardBackward.read(message.SerializeToString()).data()
