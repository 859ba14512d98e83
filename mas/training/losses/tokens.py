"""The loss of every token, before the weights of `aggregation` make one number of it.

Shape legend: J loss tokens of several rows, one after the other.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace

import torch
from torch import Tensor

from mas.config.updates import LossOptions
from mas.core.errors import TrainingError
from mas.training.losses import policy
from mas.training.losses.off_policy import ANY_MASKED, off_policy_masks
from mas.training.losses.policy import (
    band_hinge,
    importance_weights,
    log_ratio,
    shared_ratio,
    taken_loss,
    truncated,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Signals:
    """What the loss reads of each token. Log-probabilities are in nats.

    Attributes:
        logprobs_J: of the learner now, with gradient.
        start_J: of the learner at the start of the step; `logprobs_J` detached in a step's first update.
        behaviour_J: of who sampled.
        advantage_J: of the token, or of its turn.
        row_J: index of the token's row (one generation), int64, from 0 on.
        trajectory_J: index of its trajectory (all turns of one agent in one episode), likewise. All tokens of a row,
            and with ratio=sequence of a trajectory, must be here.
        entropy_J: of the learner's distribution at the token, with gradient.
        reference_J: of the base with its adapter off; None: no KL.
        usual_J: entropy that the token's turn used to have; smoothing_J: what a nat out of its band costs, in units of
            the entropy's coefficient. None: nothing is smoothed.

    Raises:
        TrainingError: the tensors are not all of one length and one dimension.
    """

    logprobs_J: Tensor
    start_J: Tensor
    behaviour_J: Tensor
    advantage_J: Tensor
    row_J: Tensor
    trajectory_J: Tensor
    entropy_J: Tensor
    reference_J: Tensor | None = None
    usual_J: Tensor | None = None
    smoothing_J: Tensor | None = None

    def __post_init__(self) -> None:
        shapes = {field.name: getattr(self, field.name) for field in fields(self)}
        shapes = {name: tuple(tensor.shape) for name, tensor in shapes.items() if tensor is not None}
        if len(set(shapes.values())) > 1 or self.logprobs_J.dim() != 1:
            raise TrainingError(f"the signals of a loss must have one number per token, but their shapes are {shapes}")


@dataclass(frozen=True, slots=True)
class TokenLosses:
    """`loss_J` with gradient, to be weighted and added up by the caller; `values`: metric -> one number per token.

    `taken_J`: with `bias_correction`, the part of the policy loss that clipping holds, as if it did not.
    """

    loss_J: Tensor
    values: Mapping[str, Tensor]
    taken_J: Tensor | None = None


Surrogate = Callable[[Signals], Tensor]
"""A policy loss of one's own: of J tokens, to minimise. Where `off_policy` masks a token, its `logprobs_J` is a number
without gradient, and its loss is not added up."""


def token_losses(signals: Signals, options: LossOptions, surrogate: Surrogate | None = None) -> TokenLosses:
    """min(start / behaviour, cap) x policy loss - entropy coefficient x entropy + KL coefficient x KL, per token.

    The first factor is without gradient, and only there with an `importance_cap`; the KL only with kl_in=loss. Where
    `off_policy` masks a token, its policy loss is 0 and has no gradient; entropy and KL stay.

    Raises:
        TrainingError: the options ask for a KL in the loss, but the signals have no reference; or the surrogate did not
            return one number per token.
    """
    if options.kl and options.kl_in == "loss" and signals.reference_J is None:
        raise TrainingError(f"loss.kl is {options.kl}, but the signals have no log-probabilities of a reference")
    masks = _masks(signals, options)
    seen = _without_gradient(signals, masks[ANY_MASKED]) if masks else signals
    policy_J, values, taken_J = _policy_loss(seen, options) if surrogate is None else _own_loss(seen, surrogate)
    importance_J = importance_weights(signals.start_J, signals.behaviour_J)
    above_J = torch.zeros_like(importance_J)
    if options.importance_cap is not None:
        weight_J = truncated(importance_J, options.importance_cap)
        policy_J = weight_J * policy_J
        taken_J = None if taken_J is None else weight_J * taken_J
        above_J = (importance_J > options.importance_cap).to(importance_J.dtype)
    if masks:
        policy_J = policy_J.masked_fill(masks[ANY_MASKED], 0)
        taken_J = None if taken_J is None else taken_J.masked_fill(masks[ANY_MASKED], 0)
        values |= {name: masked_J.to(importance_J.dtype) for name, masked_J in masks.items()}
    values |= {
        "policy_loss": policy_J,
        "entropy": signals.entropy_J,
        "behaviour_gap": (signals.start_J - signals.behaviour_J).abs(),
        "importance": importance_J,
        "importance_clipped": above_J,
    }
    loss_J = policy_J
    if options.entropy:
        loss_J = loss_J - options.entropy * signals.entropy_J
    if options.smoothing is not None and signals.usual_J is not None and signals.smoothing_J is not None:
        band = options.smoothing
        values["smoothing"] = band_hinge(signals.entropy_J, signals.usual_J, low=band.low, high=band.high)
        loss_J = loss_J + options.entropy * signals.smoothing_J * values["smoothing"]
    if signals.reference_J is not None:
        estimator = "k1" if options.kl_in == "reward" else options.kl_estimator
        values["kl"] = policy.kl(signals.logprobs_J, signals.reference_J, estimator)
        if options.kl and options.kl_in == "loss":
            loss_J = loss_J + options.kl * values["kl"]
    return TokenLosses(loss_J, {name: value_J.detach() for name, value_J in values.items()}, taken_J)


def _masks(signals: Signals, options: LossOptions) -> dict[str, Tensor]:
    """See `off_policy_masks`; segments are rows, and with ratio=sequence trajectories. Empty: there are no masks."""
    if options.off_policy is None:
        return {}
    segment_J = signals.trajectory_J if options.ratio == "sequence" else signals.row_J
    return off_policy_masks(signals.start_J, signals.behaviour_J, segment_J, options.off_policy)


def _without_gradient(signals: Signals, masked_J: Tensor) -> Signals:
    """The signals with masked log-probabilities as numbers: not even the loss of another token has a gradient there,
    nor a surrogate that overflows there one that is not a number."""
    now_J = signals.logprobs_J
    return replace(signals, logprobs_J=torch.where(masked_J, now_J.detach(), now_J))


def _policy_loss(signals: Signals, options: LossOptions) -> tuple[Tensor, dict[str, Tensor], Tensor | None]:
    """The surrogate's loss, the unbounded ratio, where the bounds change a gradient, and what they take."""
    taken_J = None
    old_J = signals.behaviour_J if options.importance_cap is None else signals.start_J
    log_ratio_J, advantage_J = log_ratio(signals.logprobs_J, old_J), signals.advantage_J
    ratio_J = _ratio(log_ratio_J, signals, options)
    bounds = {"clip_low": options.clip_low, "clip_high": options.clip_high}
    match options.surrogate:
        case "clip":
            loss_J = policy.clipped_loss(ratio_J, advantage_J, dual_clip=options.dual_clip, **bounds)
            held_J = policy.clipped_share(ratio_J, advantage_J, **bounds)
            if options.bias_correction:
                taken_J = taken_loss(ratio_J, advantage_J, **bounds)
        case "keep_gradient":
            loss_J = policy.keep_gradient_loss(ratio_J, advantage_J, dual_clip=options.dual_clip, **bounds)
            held_J = policy.clipped_share(ratio_J, advantage_J, **bounds)
        case "cispo":
            loss_J = policy.cispo_loss(ratio_J, signals.logprobs_J, advantage_J, **bounds)
            held_J = policy.outside_share(ratio_J, **bounds)
        case "gmpo":
            loss_J = policy.gmpo_loss(log_ratio_J, advantage_J, signals.row_J, **bounds)
            held_J = policy.gmpo_share(log_ratio_J, advantage_J, **bounds)
        case "reinforce":
            loss_J = -advantage_J * signals.logprobs_J
            held_J = torch.zeros_like(ratio_J)
        case "sapo":
            loss_J = policy.sapo_loss(ratio_J, advantage_J, tau_pos=options.tau_pos, tau_neg=options.tau_neg)
            held_J = torch.zeros_like(ratio_J)
    return loss_J, {"ratio": ratio_J, "clip_fraction": held_J}, taken_J


def _own_loss(signals: Signals, surrogate: Surrogate) -> tuple[Tensor, dict[str, Tensor], None]:
    """As `_policy_loss`, of a user's function; nothing says where it bounds a gradient."""
    loss_J = surrogate(signals)
    if not isinstance(loss_J, Tensor) or loss_J.shape != signals.logprobs_J.shape:
        got = tuple(loss_J.shape) if isinstance(loss_J, Tensor) else type(loss_J).__name__
        raise TrainingError(
            f"the algorithm's own loss returned {got}; it must be a tensor with one number for each of "
            f"{len(signals.logprobs_J)} tokens"
        )
    ratio_J = log_ratio(signals.logprobs_J, signals.behaviour_J).exp()
    return loss_J, {"ratio": ratio_J, "clip_fraction": torch.zeros_like(ratio_J)}, None


def _ratio(log_ratio_J: Tensor, signals: Signals, options: LossOptions) -> Tensor:
    if options.ratio == "token":
        return log_ratio_J.exp()
    segment_J = signals.row_J if options.ratio == "turn" else signals.trajectory_J
    return shared_ratio(log_ratio_J, signals.logprobs_J, segment_J)
