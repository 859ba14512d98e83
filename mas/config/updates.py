"""Options of how roles learn: the loss of the policy gradient, a critic, imitation and preference, and text that is
learned without gradients.
"""

import math
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from mas.config.base import NonNegative, Options, Positive, Selective

Surrogate = Literal["clip", "keep_gradient", "cispo", "gmpo", "sapo", "reinforce"]

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
Level = Literal["token", "turn", "bad"]
BUILT_IN_EDITORS = ("base", "quote")
"""Editors that are no peer."""


class SmoothingOptions(Options):
    """Each token's entropy is held between `low` and `high` times what it used to be in that team turn of an episode.

    How far it is out of that band costs `weight` x the coefficient of the entropy, less and less over `steps`.
    """

    weight: Annotated[float, Field(gt=0)] = 1.0
    low: NonNegative = 0.0
    high: Annotated[float, Field(gt=0)] = 2.0
    steps: Annotated[int, Field(ge=2)] = 100

    @model_validator(mode="after")
    def _is_a_band(self) -> Self:
        if self.low >= self.high:
            raise ValueError(f"low={self.low:g} and high={self.high:g} leave no band: low must be below high")
        return self


class ReferenceOptions(Options):
    """The KL is measured to a moving average of each adapter's own weights: after every step reference <- `ema` x
    reference + (1 - `ema`) x adapter. It begins as the adapter does."""

    ema: Annotated[float, Field(ge=0, lt=1)] = 0.99


class OffPolicyOptions(Selective):
    """Tokens that add nothing to the policy loss, by their importance weights w = start / behaviour; each a band
    [low, high] of weights to learn from, bounds included, with low 0 for no lower bound, or None: no such mask.

    `token_band`: a token whose w is outside (IcePop). `sequence_band`: all tokens of a turn where the geometric mean of
    their w is outside. `veto`: all tokens of a turn in which any w is outside. With ratio=sequence the two are of a
    trajectory in place of a turn.
    """

    token_band: tuple[float, float] | None = None
    sequence_band: tuple[float, float] | None = None
    veto: tuple[float, float] | None = None

    def unused_reason(self, name: str) -> str | None:
        band = getattr(self, name)
        if name == "veto" or band is None or self.veto is None:
            return None
        if band[0] <= self.veto[0] and self.veto[1] <= band[1]:
            return f"veto={list(self.veto)} leaves out all that it would"
        return None

    @model_validator(mode="after")
    def _are_bands(self) -> Self:
        bands = {"token_band": self.token_band, "sequence_band": self.sequence_band, "veto": self.veto}
        given = {name: band for name, band in bands.items() if band is not None}
        if not given:
            raise ValueError(f"there is no mask: give {', '.join(bands)} or several of them, or write off_policy=null")
        for name, (low, high) in given.items():
            if not 0 <= low <= 1 <= high < math.inf or low == high:
                raise ValueError(
                    f"{name}={[low, high]} is no band of weights, which are 1 on policy: write [low, high] with "
                    "0 <= low <= 1 <= high, low below high and both finite"
                )
        return self


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

    surrogate: Surrogate = "clip"
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


class CriticOptions(Options):
    """A value function per trained adapter: an adapter of the same shape and a linear head, never published.

    `level`: whose advantages; of each token (`token`, PPO), one per turn (`turn`), or of each token where only turns
    are discounted (`bad`, POAD). `gamma` and `lam` are those of generalised advantage estimation. `whiten`: the
    advantages of an adapter's tokens get mean 0 and standard deviation 1 in each step.

    `lr` falls as the learner's does, `epochs` are passes over the batch, in `minibatches` optimiser steps each; betas,
    weight decay and the bound of the gradient are the learner's. `clip`: a value counts as moved from the one before
    the step by this at most, where that makes the loss greater; None: no bound.
    """

    level: Level = "token"
    gamma: Annotated[float, Field(ge=0, le=1)] = 1.0
    lam: Annotated[float, Field(ge=0, le=1)] = 0.95
    whiten: bool = True
    lr: Annotated[float, Field(gt=0)] = 3e-3
    epochs: Positive = 4
    minibatches: Positive = 4
    clip: NonNegative | None = None

    def unused_reason(self, name: str, *, is_tree: bool) -> str | None:
        between_turns = {"token": (), "bad": ("gamma",), "turn": ("gamma", "lam")}
        if is_tree and name in between_turns[self.level]:
            return "in tree sampling a trajectory is one turn, so nothing is discounted from turn to turn"
        return None


class PreferenceOptions(Options):
    """loss = `sft` x mean of -log pi over the tokens of positives + `dpo` x mean over pairs of -log sigmoid(margin).

    `value`: what a candidate is worth: the share of won episodes below it in its tree (`outcome`), or its reward as
    `algorithm.reward` adds it up (`reward`). It is positive where that is above `threshold`; None: above the mean of
    its siblings. Pairs are a positive and a negative of the same prompt and state; roles `sft_only` only imitate.
    `repairs`: what the reflector says (`sampler.attempts.guide=repair`) is imitated by whoever failed, too, as the
    answer to its own prompt. `beta` and `reference` are DPO's: the base with its adapter off, or the adapter as the
    step began (`start`).
    """

    value: Literal["outcome", "reward"] = "outcome"
    threshold: float | None = 0.5
    sft: NonNegative = 1.0
    dpo: NonNegative = 1.0
    beta: Annotated[float, Field(gt=0)] = 0.1
    reference: Literal["base", "start"] = "base"
    sft_only: tuple[str, ...] = ()
    repairs: bool = False

    def unused_reason(self, name: str) -> str | None:
        if name in ("beta", "reference", "sft_only") and not self.dpo:
            return "dpo is 0: nothing is learned from pairs"
        return None

    @model_validator(mode="after")
    def _something_is_learned(self) -> Self:
        if not self.sft and not self.dpo:
            raise ValueError("sft and dpo are both 0: nothing would be learned; give one of them a weight above 0")
        if self.sft_only and not self.sft:
            raise ValueError(f"roles {list(self.sft_only)} only imitate and sft is 0: give it a weight, or no sft_only")
        return self


class ExperienceOptions(Options):
    """How libraries of experiences are written.

    `editor`: `base` asks the run's own base LLM, any other name the peer of that name (`peers.NAME.url`); `quote` asks
    nobody and writes down how the role answered in an episode that did better than others of its group.
    `score`: whether an episode was solved, or the role's reward as `algorithm.reward` adds it up.
    `sees`: an editor is shown the role's `own` turns alone, or those of the whole `team`.

    `most` experiences of `characters` characters each are in a library, and at most `per_group` come of one group.
    `max_tokens`, `temperature`: of each of the editor's answers.
    """

    editor: Annotated[str, Field(min_length=1)] = "base"
    score: Literal["success", "reward"] = "success"
    sees: Literal["own", "team"] = "own"
    most: Positive = 32
    characters: Positive = 400
    per_group: Positive = 2
    max_tokens: Positive = 1024
    temperature: NonNegative = 0.0

    @property
    def peer(self) -> str | None:
        """The peer that edits; None: it is no peer."""
        return None if self.editor in BUILT_IN_EDITORS else self.editor

    def unused_reason(self, name: str) -> str | None:
        if self.editor == "quote" and name in ("sees", "max_tokens", "temperature"):
            return "editor=quote asks no model"
        return None
