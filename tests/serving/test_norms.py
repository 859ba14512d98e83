"""Norms with a backward pass of their own: the same numbers, and only where a module computes that norm."""

import pytest
import torch
from torch import Tensor, nn
from transformers.models.gemma2.modeling_gemma2 import Gemma2RMSNorm
from transformers.models.llama.modeling_llama import LlamaRMSNorm
from transformers.models.qwen3.modeling_qwen3 import Qwen3RMSNorm

from mas.serving.attention import quicken_norms

SIZE = 12


def drawn(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0))


def norm_of(kind: type[nn.Module]) -> nn.Module:
    norm = kind(SIZE, eps=1e-3).requires_grad_(False)
    norm.weight.copy_(torch.linspace(-1, 2, SIZE))
    return norm


def run(norm: nn.Module, x: Tensor) -> tuple[Tensor, Tensor]:
    x = x.detach().requires_grad_()
    y: Tensor = norm(x)
    (slope,) = torch.autograd.grad((y * torch.linspace(-1, 3, y.numel()).view_as(y)).sum(), x)
    return y.detach(), slope


@pytest.mark.parametrize("kind", [Qwen3RMSNorm, LlamaRMSNorm])
@pytest.mark.parametrize("shape", [(1, 5, SIZE), (2, 3, 4, SIZE)])
def test_outputs_and_gradients_stay_the_same(kind: type[nn.Module], shape: tuple[int, ...]) -> None:
    norm, x = norm_of(kind), drawn(*shape)
    plain = norm.forward
    wanted = run(norm, x)
    assert quicken_norms(nn.ModuleList([norm])) == 1
    assert norm.forward is not plain
    for mine, theirs in zip(run(norm, x), wanted, strict=True):
        assert (mine - theirs).norm() <= 1e-6 * theirs.norm()


def test_without_gradients_the_modules_own_code_runs() -> None:
    norm, x = norm_of(Qwen3RMSNorm), drawn(1, 5, SIZE)
    wanted = norm(x)
    quicken_norms(nn.ModuleList([norm]))
    with torch.no_grad():
        assert torch.equal(norm(x), wanted)


class NamelessRMSNorm(Qwen3RMSNorm):
    """Takes the mean away first, so that it is another norm under a familiar name."""

    def forward(self, hidden_states: Tensor) -> Tensor:
        centred: Tensor = super().forward(hidden_states - hidden_states.mean(-1, keepdim=True))
        return centred


@pytest.mark.parametrize("kind", [Gemma2RMSNorm, NamelessRMSNorm])
def test_a_module_that_computes_something_else_is_left_alone(kind: type[nn.Module]) -> None:
    norm = norm_of(kind)
    before = run(norm, drawn(1, 5, SIZE))
    assert quicken_norms(nn.ModuleList([norm])) == 0
    assert all(torch.equal(now, then) for now, then in zip(run(norm, drawn(1, 5, SIZE)), before, strict=True))


def test_in_bfloat16_nothing_changes() -> None:
    assert quicken_norms(nn.ModuleList([norm_of(Qwen3RMSNorm).bfloat16()])) == 0
