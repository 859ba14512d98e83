"""The losses of the Tinker API: what a client names, with a number for each token that it sends.

Every loss is a sum over the tokens of a datum, so that one datum's gradient does not depend on the others of its batch.
`stable_reinforce` is left out: it needs records of sampling that mas does not keep. A client's own loss needs nothing
here: its SDK sends the slopes of that loss as the weights of `cross_entropy`.

Shape legend: T places of a datum, each with one target or, for `cross_entropy`, K of them.
Source: the definitions at https://tinker-docs.thinkingmachines.ai/tinker/losses.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from mas.core.errors import RefusedRequest
from mas.core.naming import did_you_mean

Inputs = Mapping[str, Tensor]
Settings = Mapping[str, float]
_CLIP = frozenset({"clip_low_threshold", "clip_high_threshold"})


def _cross_entropy(logprobs: Tensor, inputs: Inputs, settings: Settings) -> Tensor:
    """-sum w log p."""
    return -(logprobs * inputs["weights"]).sum()


def _importance_sampling(logprobs: Tensor, inputs: Inputs, settings: Settings) -> Tensor:
    """-sum (p / q) A."""
    return -(_ratio(logprobs, inputs) * inputs["advantages"]).sum()


def _ppo(logprobs: Tensor, inputs: Inputs, settings: Settings) -> Tensor:
    """-sum min(r A, clip(r) A), r = p / q."""
    return _clipped(_ratio(logprobs, inputs), inputs, settings)


def _cispo(logprobs: Tensor, inputs: Inputs, settings: Settings) -> Tensor:
    """-sum sg(clip(p / q)) A log p."""
    bounded = torch.clamp(_ratio(logprobs.detach(), inputs), *_bounds(inputs, settings))
    return -(bounded * logprobs * inputs["advantages"]).sum()


def _dro(logprobs: Tensor, inputs: Inputs, settings: Settings) -> Tensor:
    """-sum (A log p - beta / 2 (log p - log q)^2)."""
    apart = (logprobs - inputs["logprobs"]).square()
    return -(logprobs * inputs["advantages"] - 0.5 * settings["beta"] * apart).sum()


def _gspo(logprobs: Tensor, inputs: Inputs, settings: Settings) -> Tensor:
    """As `ppo`, where r has the value of the geometric mean of p / q over the tokens of the mask (GSPO-token)."""
    chosen = inputs["sequence_ratio_mask"] != 0
    if not bool(chosen.any()):
        raise RefusedRequest("sequence_ratio_mask marks no token: mark those that were sampled")
    mean = (logprobs.detach() - inputs["logprobs"])[chosen].mean()
    return _clipped((mean + logprobs - logprobs.detach()).exp(), inputs, settings)


def _ratio(logprobs: Tensor, inputs: Inputs) -> Tensor:
    return (logprobs - inputs["logprobs"]).exp()


def _bounds(inputs: Inputs, settings: Settings) -> tuple[Tensor, Tensor]:
    """Of the ratio: each token's own where the client sends them."""
    low, high = (
        inputs[name] if name in inputs else torch.as_tensor(settings[name], device=inputs["logprobs"].device)
        for name in ("clip_low_threshold", "clip_high_threshold")
    )
    return low, high


def _clipped(ratio: Tensor, inputs: Inputs, settings: Settings) -> Tensor:
    advantages = inputs["advantages"]
    return -torch.minimum(ratio * advantages, torch.clamp(ratio, *_bounds(inputs, settings)) * advantages).sum()


@dataclass(frozen=True, slots=True)
class ClientLoss:
    """One loss.

    Attributes:
        value: of log-probabilities, inputs and settings, summed.
        needs: inputs that every datum has, beside `target_tokens`. may: others that it may have.
        usual: settings with their values where the client sends none; None: the client must send one.
        is_wide: whether a place may have several targets.
    """

    value: Callable[[Tensor, Inputs, Settings], Tensor]
    needs: frozenset[str] = frozenset({"logprobs", "advantages"})
    may: frozenset[str] = frozenset()
    usual: Mapping[str, float | None] = field(default_factory=dict)
    is_wide: bool = False

    def settings(self, name: str, given: Mapping[str, float | str], per_token: frozenset[str]) -> dict[str, float]:
        """All of them. `per_token`: those that the data have token by token.

        Raises:
            RefusedRequest: one is unknown, missing, or no finite number.
        """
        if unknown := sorted(set(given) - set(self.usual)):
            possible = ", ".join(self.usual) or "none"
            raise RefusedRequest(f"loss_fn_config of {name} has no {unknown[0]!r}; possible: {possible}")
        found: dict[str, float] = {}
        for key, usual in self.usual.items():
            value = given.get(key, usual)
            if value is None and key in per_token:
                continue
            if not isinstance(value, float | int) or not math.isfinite(value):
                raise RefusedRequest(f"loss_fn_config of {name}: {key} is {value!r}; a finite number is needed")
            found[key] = float(value)
        return found


_USUAL_CLIP = {"clip_low_threshold": 0.8, "clip_high_threshold": 1.2}
CLIENT_LOSSES: Mapping[str, ClientLoss] = {
    "cross_entropy": ClientLoss(_cross_entropy, needs=frozenset({"weights"}), is_wide=True),
    "importance_sampling": ClientLoss(_importance_sampling),
    "ppo": ClientLoss(_ppo, may=_CLIP, usual=_USUAL_CLIP),
    "cispo": ClientLoss(_cispo, may=_CLIP, usual=_USUAL_CLIP),
    "dro": ClientLoss(_dro, usual={"beta": None}),
    "gspo": ClientLoss(
        _gspo,
        needs=frozenset({"logprobs", "advantages", "sequence_ratio_mask"}),
        may=_CLIP,
        usual=dict.fromkeys(("clip_low_threshold", "clip_high_threshold")),
    ),
}


def find_client_loss(name: str) -> ClientLoss:
    """A loss by its name.

    Raises:
        RefusedRequest: there is none of that name.
    """
    if name not in CLIENT_LOSSES:
        raise RefusedRequest(f"no loss {name[:40]!r} here. {did_you_mean(name[:40], CLIENT_LOSSES)}")
    return CLIENT_LOSSES[name]
