"""The loss of every token, before the weights of `aggregation` make one number of it.

Shape legend: J loss tokens of several rows, one after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Annotated, Literal, Self

from pydantic import Field, model_validator

from mas.algorithms.parts.losses import policy
from mas.algorithms.parts.losses.off_policy import ANY_MASKED, OffPolicyOptions, off_policy_masks
from mas.algorithms.parts.losses.policy import (
    SmoothingOptions,
    band_hinge,
    importance_weights,
    log_ratio,
    shared_ratio,
    taken_loss,
    truncated,
)
from mas.core.errors import TrainingError
from mas.core.options import NonNegative, Options, Positive, Selective

if TYPE_CHECKING:
    from torch import Tensor

Aggregation = Literal[
    "token_mean",
    "seq_mean_token_mean",
    "seq_mean_token_sum",
    "seq_mean_token_sum_norm",
    "trajectory_mean",
    "episode_mean",
]

_BOUNDED = ("clip", "keep_gradient", "cispo", "gmpo")
_SURROGATES_WITH: dict[str, tuple[str, ...]] = {
    "clip_low": _BOUNDED,
    "clip_high": _BOUNDED,
    "dual_clip": ("clip", "keep_gradient"),
    "tau_pos": ("sapo",),
    "tau_neg": ("sapo",),
}


class ReferenceOptions(Options):
    """The KL is measured to a moving average of each adapter's own weights: after every step reference <- `ema` x
    reference + (1 - `ema`) x adapter. It begins as the adapter does."""

    ema: Annotated[float, Field(ge=0, lt=1)] = 0.99


class LossOptions(Selective):
    """The loss of a token, and the weights that make one number of all. Formulas and sources: docs/training.md.

    `surrogate` says how a ratio far from 1 is held back: `clip` takes its gradient away (PPO), `keep_gradient` keeps
    that of good tokens above the upper bound (AEPO), `cispo` bounds a weight of log pi, `gmpo` bounds each token's log
    ratio before a turn's mean, `sapo` has a smooth gate, `reinforce` has no ratio at all.
    `ratio`: a token's own, or the geometric mean over a turn or over a trajectory (`sequence`: all turns of one agent
    in one episode).

    The ratio is held between 1 - `clip_low` and 1 + `clip_high` (with `gmpo` its logarithm between -`clip_low` and
    `clip_high`); None: no bound on that side. `dual_clip`: a bad token counts as if its ratio were this at most; None:
    without bound. `tau_pos` and `tau_neg`: how narrow the gate of `sapo` is for good and for bad tokens.
    `importance_cap`: a token's policy loss is multiplied by min(start / behaviour, cap), which makes up for the gap
    between the engine's probabilities and the learner's at the start of the step, and the ratio is pi / start; None:
    there is no such weight, and the ratio is pi / behaviour.
    `off_policy`: masks over start / behaviour, with or without a cap; None: all tokens are learned from.

    `kl` (to the `reference`; None: the base with its adapter off) and `entropy` are coefficients; 0 leaves the term
    out. `kl_in`: the KL is a term of the loss by `kl_estimator`, or is subtracted from each turn's reward, where it is
    always k1.
    `smoothing`: the entropy is held in a band, beside its bonus. `bias_correction`: the gradient of an update is
    divided by 1 + the norm of what clipping takes from it, adapter by adapter.
    `max_length`: what `seq_mean_token_sum_norm` divides by, in tokens.
    `multiple_of`: of every adapter's rows of a step so many are learned from as the largest multiple of this; which are
    left out is drawn. Fewer rows than this are all learned from. None: all.
    """

    surrogate: Literal["clip", "keep_gradient", "cispo", "gmpo", "sapo", "reinforce"] = "clip"
    ratio: Literal["token", "turn", "sequence"] = "token"
    clip_low: NonNegative | None = 0.2
    clip_high: NonNegative | None = 0.2
    dual_clip: Annotated[float, Field(gt=1)] | None = 3.0
    tau_pos: Annotated[float, Field(gt=0)] = 1.0
    tau_neg: Annotated[float, Field(gt=0)] = 1.05
    importance_cap: Annotated[float, Field(ge=1)] | None = 2.0
    off_policy: OffPolicyOptions | None = None
    aggregation: Aggregation = "seq_mean_token_mean"
    max_length: Positive = 1024
    multiple_of: Annotated[int, Field(ge=2)] | None = None
    bias_correction: bool = False
    smoothing: SmoothingOptions | None = None
    kl: NonNegative = 0.0
    kl_in: Literal["loss", "reward"] = "loss"
    kl_estimator: Literal["k1", "k2", "k3", "k3_plus"] = "k2"
    reference: ReferenceOptions | None = None
    entropy: NonNegative = 0.02

    def unused_reason(self, name: str) -> str | None:
        """Why an option has no effect beside the others; None: it has one, or is None, which says that it has none."""
        surrogates = _SURROGATES_WITH.get(name, ())
        name = name.partition(".")[0]
        if getattr(self, name) is None:
            return None
        if surrogates and self.surrogate not in surrogates:
            possible = ", ".join(f"surrogate={one}" for one in surrogates)
            return f"surrogate={self.surrogate} does not read it (possible: {possible})"
        if name == "smoothing" and not self.entropy:
            return "it is a share of entropy, which is 0"
        if name == "bias_correction" and (self.surrogate != "clip" or self.clip_low is self.clip_high is None):
            return "only surrogate=clip with a bound has a clipping bias"
        if name == "ratio" and self.surrogate == "reinforce":
            return "surrogate=reinforce has no ratio"
        if name == "ratio" and self.surrogate == "gmpo":
            return "surrogate=gmpo takes the mean over a turn by itself"
        if name in ("kl_in", "kl_estimator", "reference") and not self.kl:
            return "kl is 0"
        if name == "kl_estimator" and self.kl_in == "reward":
            return "kl_in=reward subtracts k1"
        if name == "max_length" and self.aggregation != "seq_mean_token_sum_norm":
            return "only aggregation=seq_mean_token_sum_norm divides by it"
        return None

    @model_validator(mode="after")
    def _bounds_go_together(self) -> Self:
        low = self.clip_low if self.surrogate != "gmpo" else None
        if low is not None and low >= 1:
            raise ValueError(
                f"clip_low={low} has no effect here: no ratio is below {1 - low:g}; write clip_low=null for no bound"
            )
        if self.surrogate == "keep_gradient" and self.clip_high is None:
            raise ValueError(
                "surrogate=keep_gradient differs from clip only above the upper bound, and clip_high=null takes that "
                "away; give clip_high, or write surrogate=clip"
            )
        if self.surrogate == "gmpo" and self.off_policy is not None and self.off_policy.token_band is not None:
            raise ValueError(
                "surrogate=gmpo weighs a turn as one, so that off_policy.token_band cannot leave out single tokens; "
                "write off_policy.sequence_band or off_policy.veto, or another surrogate"
            )
        return self


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


Surrogate = Callable[[Signals], "Tensor"]
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
    above_J = importance_J.new_zeros(importance_J.shape)
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
        hinge_J = band_hinge(signals.entropy_J, signals.usual_J, low=band.low, high=band.high)
        values["smoothing"] = hinge_J.where(signals.smoothing_J > 0, 0)  # without a history there is no band
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
    return replace(signals, logprobs_J=now_J.detach().where(masked_J, now_J))


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
            held_J = ratio_J.new_zeros(ratio_J.shape)
        case "sapo":
            loss_J = policy.sapo_loss(ratio_J, advantage_J, tau_pos=options.tau_pos, tau_neg=options.tau_neg)
            held_J = ratio_J.new_zeros(ratio_J.shape)
    return loss_J, {"ratio": ratio_J, "clip_fraction": held_J}, taken_J


def _own_loss(signals: Signals, surrogate: Surrogate) -> tuple[Tensor, dict[str, Tensor], None]:
    """As `_policy_loss`, of a user's function; nothing says where it bounds a gradient."""
    from torch import Tensor

    loss_J = surrogate(signals)
    if not isinstance(loss_J, Tensor) or loss_J.shape != signals.logprobs_J.shape:
        got = tuple(loss_J.shape) if isinstance(loss_J, Tensor) else type(loss_J).__name__
        raise TrainingError(
            f"the algorithm's own loss returned {got}; it must be a tensor with one number for each of "
            f"{len(signals.logprobs_J)} tokens"
        )
    ratio_J = log_ratio(signals.logprobs_J, signals.behaviour_J).exp()
    return loss_J, {"ratio": ratio_J, "clip_fraction": ratio_J.new_zeros(ratio_J.shape)}, None


def _ratio(log_ratio_J: Tensor, signals: Signals, options: LossOptions) -> Tensor:
    if options.ratio == "token":
        return log_ratio_J.exp()
    segment_J = signals.row_J if options.ratio == "turn" else signals.trajectory_J
    return shared_ratio(log_ratio_J, signals.logprobs_J, segment_J)
