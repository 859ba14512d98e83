"""Options of learning by imitation and preference."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from mas.config.base import NonNegative, Options


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

    def why_idle(self, name: str) -> str | None:
        """Why an option has no effect beside the others; None: it has one."""
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
