"""Adapters in vLLM on CPUs: what our products add, token by token. Needs no vLLM."""

from types import SimpleNamespace

import pytest
import torch
from torch import Tensor

from mas.config.options import EngineOptions
from mas.core.errors import ConfigError
from mas.serving.vllm_cpu_lora import add_lora_linear
from mas.serving.vllm_options import _adds_lora

PLACES, RANK, INPUTS, SLICES = 4, 3, 5, (6, 2)


def stacked(dtype: torch.dtype = torch.float32) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
    """A and B of two slices, every place filled."""
    generator = torch.Generator().manual_seed(0)
    lora_a = tuple(torch.randn(PLACES, 1, RANK, INPUTS, generator=generator).to(dtype) for _ in SLICES)
    lora_b = tuple(torch.randn(PLACES, 1, width, RANK, generator=generator).to(dtype) for width in SLICES)
    return lora_a, lora_b


def added(places: list[int], dtype: torch.dtype = torch.float32, scale: float = 0.5) -> tuple[Tensor, Tensor]:
    """What was added to y, and what should have been: scale B A x for each token and slice."""
    lora_a, lora_b = stacked(dtype)
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(len(places), INPUTS, generator=generator).to(dtype)
    y = torch.randn(len(places), sum(SLICES), generator=generator).to(dtype)
    before = y.clone()
    wrapper = SimpleNamespace(token_lora_indices=torch.tensor(places))
    assert add_lora_linear(wrapper, y, x, lora_a, lora_b, scale, SLICES) is None
    wanted = torch.zeros_like(before, dtype=torch.float32)
    for row, place in enumerate(places):
        if place >= 0:
            parts = [
                b[place, 0].float() @ (a[place, 0].float() @ x[row].float())
                for a, b in zip(lora_a, lora_b, strict=True)
            ]
            wanted[row] = scale * torch.cat(parts)
    return y.float() - before.float(), wanted


def test_it_is_for_cpus_and_switching_it_off_elsewhere_is_refused() -> None:
    assert not _adds_lora(EngineOptions(name="vllm"), is_cpu=False)
    with pytest.raises(ConfigError, match=r"engine.cpu_lora=false has no effect"):
        _adds_lora(EngineOptions(name="vllm", cpu_lora=False), is_cpu=False)


@pytest.mark.parametrize("places", [[0, 1, 2, 3], [2, 2, 0], [1], [3, -1, 0, -1, 3]])
def test_every_token_gets_its_own_adapter(places: list[int]) -> None:
    found, wanted = added(places)
    assert wanted.abs().max() > 0.1
    assert (found - wanted).abs().max() < 1e-5


def test_the_bare_base_gets_nothing_though_all_places_are_taken() -> None:
    found, _ = added([-1, 3, -1, 0])
    assert not found[[0, 2]].any()
    assert found[[1, 3]].all()
    assert not added([-1, -1])[0].any()


def test_products_of_low_precision_agree_as_far_as_it_goes() -> None:
    found, wanted = added([0, -1, 2, 3], torch.bfloat16)
    # bfloat16 keeps 8 bits: y + sum is rounded to 2^-8 of a size of about 8.
    assert (found - wanted).abs().max() < 0.1
