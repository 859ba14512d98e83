"""The grouped LoRA linear: every token gets its own adapter's product, in both ways, and so do gradients."""

import pytest
import torch
from torch import Tensor, nn

from mas.config.options import LoraOptions
from mas.core.errors import ModelError
from mas.serving.adapter_weights import AdapterWeights, Segment, Segments, _InTurn, has_grouped_products

INPUTS, OUTPUTS = 16, 24
CPU = torch.device("cpu")


def adapter(seed: int, rank: int, alpha: float, name: str = "layer") -> AdapterWeights:
    generator = torch.Generator().manual_seed(seed)
    a_RI = torch.randn(rank, INPUTS, generator=generator).requires_grad_()
    b_OR = torch.randn(OUTPUTS, rank, generator=generator).requires_grad_()
    return AdapterWeights(LoraOptions(rank=rank, alpha=alpha, targets=(name,)), {name: (a_RI, b_OR)})


def mixed(bias: bool = True) -> tuple[nn.Linear, Segments, Tensor]:
    """Adapters of other ranks, one of another layer, one frozen, and tokens without any, in 2 rows of 11."""
    torch.manual_seed(0)
    base = nn.Linear(INPUTS, OUTPUTS, bias=bias).requires_grad_(False)
    frozen = adapter(3, 5, 1.0)
    for tensor in frozen.parameters():
        tensor.requires_grad_(False)
    speakers = [adapter(1, 2, 4.0), None, adapter(2, 11, 3.0), adapter(4, 3, 1.0, "other"), frozen]
    stops = [3, 7, 12, 13, 22]
    segments = [Segment(one, start, stop) for one, start, stop in zip(speakers, [0, *stops], stops, strict=False)]
    return base, Segments(segments, CPU, {}), torch.randn(2, 11, INPUTS).requires_grad_()


def alone(base: nn.Linear, segments: Segments, x_NTI: Tensor) -> Tensor:
    """Token by token, as the paper writes it."""
    rows = []
    for place, x_I in enumerate(x_NTI.flatten(0, 1)):
        (one,) = [one for one in segments.segments if one.start <= place < one.stop]
        y_O = base(x_I)
        if one.weights is not None and "layer" in one.weights.pairs:
            a_RI, b_OR = one.weights.pairs["layer"]
            y_O = y_O + one.weights.options.alpha / one.weights.options.rank * (b_OR @ (a_RI @ x_I))
        rows.append(y_O)
    return torch.stack(rows).unflatten(0, x_NTI.shape[:2])


def gradients(y_NTO: Tensor, segments: Segments, x_NTI: Tensor) -> list[Tensor | None]:
    trained = [tensor for one in segments.segments if one.weights for tensor in one.weights.parameters()]
    trained = [tensor for tensor in trained if tensor.requires_grad]
    weights_NTO = torch.linspace(-1, 2, y_NTO.numel()).view_as(y_NTO)
    return list(torch.autograd.grad((y_NTO * weights_NTO).sum(), [x_NTI, *trained], allow_unused=True))


@pytest.mark.parametrize("way", ["linear", "in_groups"])
@pytest.mark.parametrize("bias", [True, False])
def test_outputs_and_gradients_are_those_of_every_token_alone(way: str, bias: bool) -> None:
    base, segments, x_NTI = mixed(bias)
    wanted = alone(base, segments, x_NTI)
    y_NTO = getattr(segments, way)("layer", base, x_NTI)
    assert torch.allclose(y_NTO, wanted, rtol=1e-5, atol=1e-5)
    found = gradients(y_NTO, segments, x_NTI)
    for mine, theirs in zip(found, gradients(wanted, segments, x_NTI), strict=True):
        if theirs is None:  # the adapter of another layer
            assert mine is None
            continue
        assert theirs.norm() > 0
        assert torch.allclose(mine, theirs, rtol=1e-4, atol=1e-4)


def family() -> tuple[dict[str, nn.Linear], tuple[Segment, ...]]:
    """Layers of several widths; adapters change all of them, the first and the last, none, the middle one."""
    torch.manual_seed(1)
    layers = {
        name: nn.Linear(INPUTS, width).requires_grad_(False) for name, width in zip("qkv", (12, 4, 8), strict=True)
    }
    speakers = []
    for rank, alpha, names in ((3, 2.0, "qkv"), (5, 4.0, "qv"), (2, 1.0, "o"), (4, 3.0, "k")):
        pairs = {
            name: (
                torch.randn(rank, INPUTS).requires_grad_(),
                torch.randn(layers[name].out_features if name in layers else 3, rank).requires_grad_(),
            )
            for name in names
        }
        speakers.append(AdapterWeights(LoraOptions(rank=rank, alpha=alpha, targets=tuple(names)), pairs))
    return layers, tuple(Segment(one, 5 * place, 5 * place + 5) for place, one in enumerate(speakers))


@pytest.mark.parametrize("order", ["qkv", "vqk", "qqkvk"])
@pytest.mark.parametrize("is_input_trained", [True, False])
def test_layers_that_read_one_input_are_computed_together_as_alone(order: str, is_input_trained: bool) -> None:
    layers, segments = family()
    siblings = {name: list(layers.items()) for name in layers}
    x_NTI, other_NTI = torch.randn(2, 1, 20, INPUTS).requires_grad_(is_input_trained)
    inputs = [other_NTI if place == 2 else x_NTI for place in range(len(order))]  # the third reads something else
    trained = [tensor for one in segments if one.weights for tensor in one.weights.parameters()]

    def run(known: dict[str, list[tuple[str, nn.Linear]]]) -> list[Tensor | None]:
        mix = Segments(segments, CPU, known)
        found = [mix.linear(name, layers[name], x) for name, x in zip(order, inputs, strict=True)]
        loss = sum((y_NTO * torch.linspace(-1, 2, y_NTO.numel()).view_as(y_NTO)).sum() for y_NTO in found)
        assert isinstance(loss, Tensor)
        wanted = [*trained, *([x_NTI, other_NTI] if is_input_trained else [])]
        return [*(y.detach() for y in found), *torch.autograd.grad(loss, wanted, allow_unused=True)]

    for mine, theirs in zip(run(siblings), run({}), strict=True):
        if theirs is None:  # of a layer that is not there
            assert mine is None
        else:
            assert mine is not None
            assert torch.allclose(mine, theirs, rtol=1e-4, atol=1e-4)


def test_layers_of_one_input_read_it_once(monkeypatch: pytest.MonkeyPatch) -> None:
    layers, segments = family()
    mix = Segments(segments, CPU, {name: list(layers.items()) for name in layers})
    calls = []
    apply = _InTurn.apply
    monkeypatch.setattr(_InTurn, "apply", lambda *inputs: calls.append(1) or apply(*inputs))
    x_NTI = torch.randn(1, 20, INPUTS)
    for name, layer in layers.items():
        mix.linear(name, layer, x_NTI)
    assert len(calls) == 1


def test_without_a_gradient_to_its_input_the_layer_still_trains() -> None:
    base, segments, x_NTI = mixed()
    y_NTO = segments.linear("layer", base, x_NTI.detach())
    first = segments.segments[0].weights
    assert first is not None
    assert all(grad.norm() > 0 for grad in torch.autograd.grad(y_NTO.sum(), first.parameters()))


def test_a_base_in_bfloat16_trains_adapters_in_float32() -> None:
    base, segments, x_NTI = mixed()
    exact = gradients(segments.linear("layer", base, x_NTI), segments, x_NTI)
    x_bf = x_NTI.detach().bfloat16().requires_grad_()
    y_NTO = segments.linear("layer", base.bfloat16(), x_bf)
    assert y_NTO.dtype == torch.bfloat16
    rough = gradients(y_NTO.float(), segments, x_bf)
    for mine, theirs in zip(rough[1:], exact[1:], strict=True):
        if theirs is not None:
            assert mine.dtype == torch.float32
            assert 0 < (mine - theirs).norm() < 0.02 * theirs.norm()


def test_a_layer_that_only_some_tokens_pass_is_refused() -> None:
    base, segments, x_NTI = mixed()
    with pytest.raises(ModelError, match=r"given 11 of 22 tokens: .* leave it out of model\.lora\.targets"):
        segments.linear("layer", base, x_NTI[0])


def test_grouped_products_are_for_cuda_in_bfloat16() -> None:
    assert not has_grouped_products(torch.zeros(1, 1, 1, dtype=torch.bfloat16))
