"""Which tokens top-k, top-p and min-p leave, against the plain rule; and what the head makes of a support."""

import tracemalloc
import zlib

import numpy as np
import pytest
import torch
from torch import Tensor

from mas.core.engine import Sampling
from mas.core.support import WHOLE, pack_support, unpack_support
from mas.serving.logits import Head, Picks, draw_tokens, likely, pick, supports_of

LIMITS = [
    {"top_k": 1},
    {"top_k": 7},
    {"top_p": 0.3},
    {"top_p": 0.9},
    {"top_p": 0.999},
    {"min_p": 0.2},
    {"min_p": 0.001},
    {"min_p": 1.0},
    {"top_k": 9, "top_p": 0.8},
    {"min_p": 0.05, "top_p": 0.8},
    {"min_p": 0.05, "top_k": 6, "top_p": 0.5},
]


def plainly(probabilities: list[float], sampling: Sampling) -> set[int]:
    """One row by the rule as it is written, token by token."""
    left = {n: p for n, p in enumerate(probabilities) if p >= sampling.min_p * max(probabilities) and p > 0}
    if sampling.top_k:
        left = dict(sorted(left.items(), key=lambda one: -one[1])[: sampling.top_k])
    total, passed, found = sum(left.values()), 0.0, set()
    for token, p in sorted(left.items(), key=lambda one: -one[1]):
        if passed >= sampling.top_p and sampling.top_p < 1:
            break
        found.add(token)
        passed += p / total
    return found


@pytest.mark.parametrize("first", [3, 512])
@pytest.mark.parametrize("spread", [0.3, 4.0])
@pytest.mark.parametrize("limits", LIMITS)
def test_the_likely_tokens_are_those_of_the_plain_rule(limits: dict[str, float], spread: float, first: int) -> None:
    sampling = Sampling(**limits)
    scores_NV = spread * torch.randn(6, 50, generator=torch.Generator().manual_seed(7))
    scores_NV[2, 10:] = -torch.inf
    found_NV = likely(scores_NV, [sampling] * 6, first)
    for row, scores_V in enumerate(scores_NV.double().softmax(-1)):
        assert set(found_NV[row].nonzero()[:, 0].tolist()) == plainly(scores_V.tolist(), sampling)


def test_rows_keep_their_own_limits_and_greedy_ones_have_none() -> None:
    logits_NV = torch.randn(3, 50, generator=torch.Generator().manual_seed(1))
    samplings = [Sampling(top_k=3), Sampling(), Sampling(temperature=0.0, top_k=3)]
    support_NV = supports_of(logits_NV, samplings, [None] * 3)
    assert support_NV is not None
    assert support_NV.sum(-1).tolist() == [3, 50, 50]
    assert supports_of(logits_NV, [Sampling(), Sampling(temperature=0.0, top_p=0.5)], [None] * 2) is None


def test_equally_likely_tokens_stay_or_go_together() -> None:
    scores_NV = torch.tensor([[2.0, 1.0, 1.0, 1.0, 0.0]])
    assert likely(scores_NV, [Sampling(top_k=2)]).tolist() == [[True, True, True, True, False]]


def test_what_is_drawn_has_the_probability_that_it_has_over_its_support() -> None:
    logits_NV = torch.randn(1, 12, generator=torch.Generator().manual_seed(2)).expand(4000, 12)
    support_NV = torch.zeros(4000, 12, dtype=torch.bool)
    support_NV[:, [1, 5, 8]] = True
    tokens_N, logprobs_N = draw_tokens(logits_NV, [0.5] * 4000, range(4000), [0] * 4000, support_NV)
    right_3 = (logits_NV[0, [1, 5, 8]] / 0.5).softmax(-1)
    shares_3 = torch.stack([(tokens_N == token).float().mean() for token in (1, 5, 8)])
    assert torch.allclose(shares_3, right_3, atol=0.03)
    for token, right in zip((1, 5, 8), right_3.log(), strict=True):
        assert torch.allclose(logprobs_N[tokens_N == token], right)


def test_greedy_takes_the_most_likely_token_that_is_possible() -> None:
    logits_NV = torch.tensor([[3.0, 2.0, 1.0]])
    tokens_N, logprobs_N = draw_tokens(logits_NV, [0.0], [1], [0], torch.tensor([[False, True, True]]))
    assert tokens_N.tolist() == [1]
    assert logprobs_N[0] == pytest.approx(float(torch.tensor([2.0, 1.0]).log_softmax(-1)[0]))


def test_a_support_is_what_was_packed() -> None:
    mask_V = np.random.default_rng(0).random(49_152) < 0.01
    assert (unpack_support(pack_support(mask_V), 49_152) == mask_V).all()
    assert pack_support(np.ones(13, dtype=np.bool_)) == WHOLE
    assert unpack_support(WHOLE, 13).tolist() == [True] * 13
    few_V = np.zeros(49_152, dtype=np.bool_)
    few_V[[17, 40_000]] = True
    assert len(pack_support(few_V)) < 100


@pytest.mark.parametrize("support", [b"no zlib", pack_support(np.arange(99) < 9), zlib.compress(bytes(10**8))])
def test_bytes_that_are_no_support_of_the_model_are_refused_without_unpacking_them(support: bytes) -> None:
    tracemalloc.start()
    with pytest.raises(ValueError, match="support"):
        unpack_support(support, 49_152)
    assert tracemalloc.get_traced_memory()[1] < 10**6
    tracemalloc.stop()


READINGS, SIZE, VOCABULARY = 5, 6, 20
READING, TOKEN = [0, 0, 1, 3, 4], [4, 9, 0, 2, 11]


def head_of(**form: float) -> Head:
    generator = torch.Generator().manual_seed(1)
    weight_VD = torch.randn(VOCABULARY, SIZE, generator=generator)
    return Head(weight_VD, torch.randn(VOCABULARY, generator=generator), **form)


def picked(head: Head, hidden_RD: Tensor, possible_RV: Tensor, chunk: int) -> tuple[Tensor, Tensor, Tensor]:
    starts = [sum(reading < n for reading in READING) for n in range(READINGS + 1)]
    supports = tuple(pack_support(possible_V.numpy()) for possible_V in possible_RV)
    heat_R1 = torch.tensor([1.0, 0.5, 2.0, 1.3, 1.0])[:, None]
    picks = Picks(heat_R1, True, torch.tensor(READING), torch.tensor(TOKEN), torch.ones(5), starts, supports)
    found = pick(head, hidden_RD, picks, chunk)
    return found.logits_P, found.lse_R, found.entropy_R


def written_out(head: Head, hidden_RD: Tensor, possible_RV: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    logits_RV = head.factor * (hidden_RD @ head.weight_VD.T + head.bias_V)
    if head.cap is not None:
        logits_RV = head.cap * (logits_RV / head.cap).tanh()
    logits_RV = logits_RV / torch.tensor([1.0, 0.5, 2.0, 1.3, 1.0])[:, None]
    own = [logits_V[possible_V] for logits_V, possible_V in zip(logits_RV, possible_RV, strict=True)]
    entropies = [-(one.softmax(-1) * one.log_softmax(-1)).sum() for one in own]
    return logits_RV[READING, TOKEN], torch.stack([one.logsumexp(-1) for one in own]), torch.stack(entropies)


@pytest.mark.parametrize("chunk", [0, 1, 3])
@pytest.mark.parametrize("form", [{}, {"factor": 2.0, "cap": 3.0}])
@pytest.mark.parametrize("weights", [(1.0, -1.0, 0.0), (0.0, 0.0, 1.0), (1.0, 0.5, -2.0)])
def test_the_head_reads_the_distribution_over_the_support(
    chunk: int, form: dict[str, float], weights: tuple[float, float, float]
) -> None:
    generator = torch.Generator().manual_seed(3)
    possible_RV = torch.rand(READINGS, VOCABULARY, generator=generator) < 0.4
    possible_RV[READING, TOKEN] = True
    possible_RV[1] = True  # one reading of the whole vocabulary among the others
    possible_RV[2] = torch.arange(VOCABULARY) == 4  # and one of one token
    head, hidden_RD = head_of(**form), torch.randn(READINGS, SIZE, generator=generator).requires_grad_()
    found, right = picked(head, hidden_RD, possible_RV, chunk), written_out(head, hidden_RD, possible_RV)
    slopes = []
    for values in (found, right):
        total = sum((w * torch.linspace(-1, 2, len(v)) * v).sum() for w, v in zip(weights, values, strict=True) if w)
        slopes.append(torch.autograd.grad(total, hidden_RD, retain_graph=True)[0])
    for one, other in zip((*found, slopes[0]), (*right, slopes[1]), strict=True):
        torch.testing.assert_close(one, other)


def test_a_choice_outside_the_support_has_no_share() -> None:
    possible_RV = torch.ones(READINGS, VOCABULARY, dtype=torch.bool)
    possible_RV[0, 9] = False
    head, hidden_RD = head_of(cap=3.0), torch.randn(READINGS, SIZE).requires_grad_()
    logits_P, lse_R, _ = picked(head, hidden_RD, possible_RV, 0)
    assert logits_P[1] < -1e29
    (found,) = torch.autograd.grad(lse_R.sum(), hidden_RD)
    (right,) = torch.autograd.grad(written_out(head, hidden_RD, possible_RV)[1].sum(), hidden_RD)
    torch.testing.assert_close(found, right)
