"""Options of an algorithm: which team, how sampled, rewarded, compared and improved."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from mas.config.base import Options, Positive
from mas.config.losses import LossOptions
from mas.config.preference import PreferenceOptions


class SamplerOptions(Options):
    """How candidates are drawn.

    `tree`: at each decision K `candidates` from one prompt and state, each scored on its own clone, one committed.
    `parallel`: K whole episodes per task, each compared with the others.
    `full_tree`: K candidates at each decision, and all of them are carried on, to `max_leaves` ends of a task at most.
    `lookahead`: how far a candidate is played on before the team's reward is read: not at all (`action`), to the end
    of the team turn (`turn`), or of the episode (`episode`); `continuations` play-outs are averaged.
    `commit_best`: probability that the best candidate is committed; otherwise one is drawn uniformly.
    """

    mode: Literal["tree", "parallel", "full_tree"] = "tree"
    candidates: Annotated[int, Field(ge=2)] = 8
    lookahead: Literal["action", "turn", "episode"] = "turn"
    continuations: Positive = 1
    commit_best: Annotated[float, Field(ge=0, le=1)] = 1.0
    max_leaves: Positive = 256


class RewardOptions(Options):
    """R = alpha x team + own, each the weighted sum of its named terms; unnamed terms weigh 1.

    `failure` is added where output does not parse.
    """

    alpha: float = 1.0
    weights: dict[str, float] = Field(default_factory=dict)
    failure: float = -1.0


class AdvantageOptions(Options):
    """A = (R - baseline) / scale inside a group; a group of one gets 0 (`zero`) or its raw reward (`raw`)."""

    baseline: Literal["mean", "leave_one_out"] = "mean"
    scale: Literal["std", "none"] = "std"
    single: Literal["zero", "raw"] = "zero"


class AlgorithmOptions(Options):
    """One way to train: which team, whose adapters, how sampled, compared and improved.

    `policy`: `per_role` gives every role an adapter of its own, `shared` gives all of them one.
    `update`: adapters follow the policy gradient (`advantage`, `loss`), or imitate and prefer (`preference`).
    """

    name: str = "at_grpo"
    team: str = "team"
    policy: Literal["per_role", "shared"] = "per_role"
    sampler: SamplerOptions = SamplerOptions()
    reward: RewardOptions = RewardOptions()
    advantage: AdvantageOptions = AdvantageOptions()
    loss: LossOptions = LossOptions()
    update: Literal["policy_gradient", "preference"] = "policy_gradient"
    preference: PreferenceOptions = PreferenceOptions()

    @model_validator(mode="after")
    def _preferences_have_siblings(self) -> Self:
        mode = self.sampler.mode
        if self.update != "preference":
            return self
        if mode == "parallel":
            raise ValueError(
                "update=preference compares candidates of one prompt and state, and sampler.mode=parallel has none; "
                "use sampler.mode=full_tree, or sampler.mode=tree with preference.value=reward"
            )
        if mode == "tree" and self.preference.value == "outcome":
            raise ValueError(
                "preference.value=outcome is the share of won episodes below a candidate, and sampler.mode=tree plays "
                "none from it; use sampler.mode=full_tree, or preference.value=reward"
            )
        return self
