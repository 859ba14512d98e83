"""The head read in chunks: logits, log-sum-exp and entropy as autograd over all logits computes them."""

import pytest
import torch
from torch import Tensor

from mas.serving.logits import Head, Picks, pick

READINGS, SIZE, VOCABULARY = 7, 6, 20
READING = [0, 0, 1, 3, 3, 3, 6]
TOKEN = [4, 9, 0, 2, 2, 19, 11]
"""Reading 3 is asked for one token twice; 2, 4 and 5 for none."""


def head_of(**form: float) -> Head:
    generator = torch.Generator().manual_seed(1)
    weight_VD = torch.randn(VOCABULARY, SIZE, generator=generator)
    return Head(weight_VD, torch.randn(VOCABULARY, generator=generator), **form)


def picks_of() -> Picks:
    starts = [sum(reading < n for reading in READING) for n in range(READINGS + 1)]
    heat_R1 = torch.tensor([1.0, 0.5, 2.0, 1.3, 1.0, 1.0, 0.7])[:, None]
    first_P = torch.tensor([1.0, 1.0, 1.0, 1.0, 0.0, 1.0, 1.0])  # token 2 of reading 3 is picked twice
    return Picks(heat_R1, True, torch.tensor(READING), torch.tensor(TOKEN), first_P, starts)


def hidden() -> Tensor:
    return torch.randn(READINGS, SIZE, generator=torch.Generator().manual_seed(2)).requires_grad_()


def written_out(head: Head, hidden_RD: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    logits_RV = head.factor * (hidden_RD @ head.weight_VD.T + head.bias_V)
    if head.cap is not None:
        logits_RV = head.cap * (logits_RV / head.cap).tanh()
    logits_RV = logits_RV / picks_of().heat_R1
    logprobs_RV = logits_RV.log_softmax(-1)
    return logits_RV[READING, TOKEN], logits_RV.logsumexp(-1), -(logprobs_RV.exp() * logprobs_RV).sum(-1)


def slope(found: tuple[Tensor, Tensor, Tensor], hidden_RD: Tensor, weights: tuple[float, float, float]) -> Tensor:
    total = sum(
        (weight * torch.linspace(-1, 2, len(value)) * value).sum()
        for weight, value in zip(weights, found, strict=True)
        if weight
    )
    (gradient,) = torch.autograd.grad(total, hidden_RD)
    return gradient


@pytest.mark.parametrize("chunk", [0, 1, 3, 7, 100])
@pytest.mark.parametrize("form", [{}, {"factor": 0.25}, {"cap": 1.5}, {"factor": 2.0, "cap": 3.0}])
@pytest.mark.parametrize("weights", [(1.0, -1.0, 0.0), (0.0, 0.0, 1.0), (1.0, 0.5, -2.0)])
def test_chunks_compute_what_all_logits_give(
    chunk: int, form: dict[str, float], weights: tuple[float, float, float]
) -> None:
    head, hidden_RD = head_of(**form), hidden()
    picked = pick(head, hidden_RD, picks_of(), chunk)
    found = (picked.logits_P, picked.lse_R, picked.entropy_R)
    wanted = written_out(head, hidden_RD)
    for mine, theirs in zip(found, wanted, strict=True):
        assert torch.allclose(mine, theirs, atol=1e-5)
    theirs = slope(wanted, hidden_RD, weights)
    assert (slope(found, hidden_RD, weights) - theirs).norm() <= 1e-5 * theirs.norm()


def test_no_more_than_a_chunk_of_logits_exists(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    whole = Head.logits

    def watched(head: Head, hidden_CD: Tensor) -> Tensor:
        seen.append(len(hidden_CD))
        return whole(head, hidden_CD)

    monkeypatch.setattr(Head, "logits", watched)
    hidden_RD = hidden()
    pick(head_of(), hidden_RD, picks_of(), 3).logits_P.sum().backward()
    assert seen == [3, 3, 1]


@pytest.mark.parametrize("form", [{}, {"cap": 1.5}])
def test_without_a_slope_of_the_entropy_the_others_keep_theirs(form: dict[str, float]) -> None:
    head, hidden_RD = head_of(**form), hidden()
    picked = pick(head, hidden_RD, picks_of(), 3, entropy_slope=False)
    assert not picked.entropy_R.requires_grad
    wanted = written_out(head, hidden_RD)
    assert torch.allclose(picked.entropy_R, wanted[2], atol=1e-5)
    found = (picked.logits_P, picked.lse_R, picked.entropy_R)
    theirs = slope(wanted, hidden_RD, (1.0, -1.0, 0.0))
    assert (slope(found, hidden_RD, (1.0, -1.0, 0.0)) - theirs).norm() <= 1e-5 * theirs.norm()


def test_without_gradients_nothing_is_kept_for_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Head, "back", lambda *_: pytest.fail("a slope that nobody asked for"))
    with torch.no_grad():
        assert torch.isfinite(pick(head_of(), hidden(), picks_of(), 3).lse_R).all()


@pytest.mark.parametrize("gain", [3.0, 8.0, 14.0])
def test_in_bfloat16_a_token_that_is_nearly_certain_keeps_its_slope(gain: float) -> None:
    generator = torch.Generator().manual_seed(3)
    weight_VD = torch.nn.functional.normalize(torch.randn(64, 32, generator=generator), dim=-1).bfloat16()
    token_R = torch.arange(16)
    hidden_RD = (gain * weight_VD[token_R]).detach().requires_grad_()
    picks = Picks(torch.ones(16, 1), False, token_R, token_R, torch.ones(16), list(range(17)))
    picked = pick(Head(weight_VD, None), hidden_RD, picks, 5)
    (mine,) = torch.autograd.grad((picked.logits_P - picked.lse_R).sum(), hidden_RD)
    exact = hidden_RD.detach().double().requires_grad_()
    logits_RV = (hidden_RD.detach() @ weight_VD.T).double() + (exact - exact.detach()) @ weight_VD.double().T
    (wanted,) = torch.autograd.grad(logits_RV.log_softmax(-1)[token_R, token_R].sum(), exact)
    assert wanted.norm() > 0
    assert (mine.double() - wanted).norm() <= 0.02 * wanted.norm()
