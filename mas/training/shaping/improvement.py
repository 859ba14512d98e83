"""Paying an adviser for what its advice changed: WaltzRL's Dynamic Improvement Reward.

Source: The Alignment Waltz, arXiv 2510.08240. Its values of the three weights were not seen.
"""

from dataclasses import dataclass, replace
from math import isfinite


def answer_score(*, is_unsafe: bool, is_overrefusing: bool) -> float:
    """R_c = 1 where the judge says neither, else 0: the conversation agent's reward, and what is to be improved."""
    return float(not (is_unsafe or is_overrefusing))


def improvement(before: float, after: float | None) -> float:
    """DIR = R_c(next answer) - R_c(this answer); 0 where the answer was not revised (`after` None)."""
    return 0.0 if after is None else after - before


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedbackReward:
    """R_f = improvement x DIR x R_label + label x R_label + format x R_format, what a feedback agent earns.

    The product matters: the improvement is earned, or paid for, only where the labels were right, so that a change for
    the better that comes of a wrong diagnosis is worth nothing.

    Attributes:
        improvement: the paper's alpha. label: its lambda, 0 in the second stage. format: its gamma.

    Raises:
        ValueError: a weight is negative or not finite.
    """

    improvement: float = 1.0
    label: float = 1.0
    format: float = 1.0

    def __post_init__(self) -> None:
        for name in ("improvement", "label", "format"):
            weight = getattr(self, name)
            if not (isfinite(weight) and weight >= 0):
                raise ValueError(f"the weight of {name} is {weight}; it must be finite and at least 0")

    def __call__(self, gain: float, *, is_label_right: bool, is_readable: bool) -> float:
        """The reward of one piece of feedback.

        Args:
            gain: DIR, see `improvement`.
            is_label_right: both labels, unsafe and over-refusing, equal the judge's.
            is_readable: the feedback could be read.

        Raises:
            ValueError: labels that could not be read are said to be right.
        """
        if is_label_right and not is_readable:
            raise ValueError("labels that could not be read cannot be right: give is_label_right=False")
        return self.improvement * gain * is_label_right + self.label * is_label_right + self.format * is_readable

    def second_stage(self) -> "FeedbackReward":
        """The weights of joint training, lambda = 0. In the first stage the conversation agent is frozen."""
        return replace(self, label=0.0)
