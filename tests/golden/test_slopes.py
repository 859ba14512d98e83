"""Gradients of policies, critics and reward models against differences of the loss, without any derivative."""

from typing import Any

import pytest
import torch
from golden.presets import base_of
from golden.steps import Compared, Loss, Noting, set_to
from golden.test_formulas import FORMULAS, MORE
from torch import Tensor

from mas.serving.adapter_weights import AdapterWeights
from mas.serving.model import BaseModel

pytestmark = pytest.mark.nightly


@pytest.fixture(scope="module")
def base() -> BaseModel:
    return base_of()


def check(optimiser: Noting, adapter: AdapterWeights, loss: Loss, reach: float = 3e-4) -> None:
    """Along its own gradient g of the first update the loss must change by |g| for each unit of length."""
    then, gradients = optimiser.updates[0]
    size = torch.cat([one.flatten() for one in gradients]).norm()
    assert size > 1e-3

    def at(far: float) -> Tensor:
        weights = adapter.snapshot()
        head = set_to(weights, [one + far / size * own for one, own in zip(then, gradients, strict=True)])
        with torch.no_grad():
            return loss(weights, head).double()

    assert (at(reach) - at(-reach)) / (2 * reach) == pytest.approx(float(size), rel=0.01)


def taken(name: str, base: BaseModel) -> tuple[Compared, Any]:
    own = Compared(name, (FORMULAS | MORE)[name], base)
    step, _ = own.step(1, own.case.done[0])
    return own, step


@pytest.mark.parametrize("name", ["parallel_grpo", "flow_grpo", "dpo", "malt"])
def test_a_policys_gradient_is_the_slope_of_its_loss(name: str, base: BaseModel) -> None:
    own, step = taken(name, base)
    advantages, _ = own.expected(step)
    for adapter, weights in own.adapters.items():
        if own.optimisers[adapter].updates:
            check(own.optimisers[adapter], weights, step.losses(adapter, advantages)[0])


@pytest.mark.parametrize("name", ["ppo", "turn_ppo", "poad"])
def test_a_critics_gradient_is_the_slope_of_its_loss(name: str, base: BaseModel) -> None:
    own, step = taken(name, base)
    assert own.critic is not None
    _, targets = own.expected(step)
    for adapter, weights in own.critic.adapters.items():
        check(own.critic.optimisers[adapter], weights, step.value_losses(adapter, targets)[0])


@pytest.mark.parametrize(("name", "kind"), [("reward_stack", "progress"), ("oprl", "implicit")])
def test_a_reward_models_gradient_is_the_slope_of_its_loss(name: str, kind: str, base: BaseModel) -> None:
    own, step = taken(name, base)
    assert own.model is not None
    for adapter, weights in own.model.adapters.items():
        check(own.model.optimisers[adapter], weights, step.model_losses(adapter, kind, 1)[0])
