"""Options of an algorithm: which team, how sampled, rewarded, compared and improved."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from mas.config.base import Options, Positive
from mas.config.experience import ExperienceOptions
from mas.config.losses import LossOptions


class SamplerOptions(Options):
    """How candidates are drawn.

    `tree`: at each decision K `candidates` from one prompt and state, each scored on its own clone, one committed.
    `parallel`: K whole episodes per task, each compared with the others.
    `lookahead`: how far a candidate is played on before the team's reward is read: not at all (`action`), to the end
    of the team turn (`turn`), or of the episode (`episode`); `continuations` play-outs are averaged.
    `commit_best`: probability that the best candidate is committed; otherwise one is drawn uniformly.
    """

    mode: Literal["tree", "parallel"] = "tree"
    candidates: Annotated[int, Field(ge=2)] = 8
    lookahead: Literal["action", "turn", "episode"] = "turn"
    continuations: Positive = 1
    commit_best: Annotated[float, Field(ge=0, le=1)] = 1.0


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
    `update`: adapters follow the policy gradient (`advantage`, `loss`); or nothing is trained (`training_free`), and
    roles learn by `experience`.
    """

    name: str = "at_grpo"
    team: str = "team"
    policy: Literal["per_role", "shared"] = "per_role"
    sampler: SamplerOptions = SamplerOptions()
    reward: RewardOptions = RewardOptions()
    advantage: AdvantageOptions = AdvantageOptions()
    loss: LossOptions = LossOptions()
    update: Literal["policy_gradient", "training_free"] = "policy_gradient"
    experience: ExperienceOptions = ExperienceOptions()

    @property
    def is_training_free(self) -> bool:
        """Whether text is learned and no weight."""
        return self.update == "training_free"

    @model_validator(mode="after")
    def _experiences_have_episodes(self) -> Self:
        if self.is_training_free and self.sampler.mode != "parallel":
            raise ValueError(
                f"update=training_free compares whole episodes of a task, and sampler.mode={self.sampler.mode} plays "
                "one; use sampler.mode=parallel"
            )
        return self
