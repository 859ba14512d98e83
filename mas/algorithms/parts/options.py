"""All options of an algorithm, each section beside what reads it."""

from typing import Any, Literal, Self

from pydantic import Field, model_validator

from mas.algorithms.parts.advantages.gae import CriticOptions
from mas.algorithms.parts.advantages.pipeline import AdvantageOptions
from mas.algorithms.parts.combinations import invalid_reason
from mas.algorithms.parts.experience.editor import ExperienceOptions
from mas.algorithms.parts.losses.preference import PreferenceOptions
from mas.algorithms.parts.losses.tokens import LossOptions
from mas.algorithms.parts.opponents import OpponentsOptions
from mas.algorithms.parts.rewards.terms import RewardOptions
from mas.algorithms.parts.sampling.options import SamplerOptions
from mas.algorithms.parts.schedules import ForkOptions, StageOptions, SwapOptions
from mas.algorithms.parts.warm_start import WarmStartOptions
from mas.core.options import Options

_OF_BAD = ("loss.clip_low", "loss.dual_clip", "loss.tau_neg")
"""What the loss has for advantages below 0 alone."""


class AlgorithmOptions(Options):
    """One way to train: which team, whose adapters, how sampled, compared and improved.

    `code`: a file, module, entry point or algorithm of mas with functions and `options` of its own
    (docs/own_algorithm.md), in place of some of the parts below; None: there are none.
    `name` is what it is called in files and curves.
    `policy`: `per_role` gives every role an adapter of its own, `shared` gives all of them one.
    `roles`: those that are trained, of the trainable ones; empty: all. `stages`: only some of them at a time, each with
    weights of its own; the last stage never ends. `swap`: roles whose adapters change places. `fork`: adapters that
    begin as copies of one.
    `opponents`: others play some of the seats of a game. `warm_start`: adapters first imitate what succeeded.
    `update`: adapters follow the policy gradient (`advantage`, `loss`), or imitate and prefer (`preference`); or no
    weight changes (`training_free`), and roles learn by `experience`.
    """

    name: str = "at_grpo"
    code: str | None = None
    options: dict[str, Any] = Field(default_factory=dict)
    team: str = "team"
    policy: Literal["per_role", "shared"] = "per_role"
    roles: tuple[str, ...] = ()
    stages: tuple[StageOptions, ...] = ()
    swap: SwapOptions | None = None
    fork: ForkOptions | None = None
    opponents: OpponentsOptions | None = None
    warm_start: WarmStartOptions | None = None
    sampler: SamplerOptions = SamplerOptions()
    reward: RewardOptions = RewardOptions()
    advantage: AdvantageOptions = AdvantageOptions()
    critic: CriticOptions = CriticOptions()
    loss: LossOptions = LossOptions()
    update: Literal["policy_gradient", "preference", "training_free"] = "policy_gradient"
    preference: PreferenceOptions = PreferenceOptions()
    experience: ExperienceOptions = ExperienceOptions()

    @property
    def is_training_free(self) -> bool:
        """Whether text is learned and no weight."""
        return self.update == "training_free"

    def unused_reason(self, name: str) -> str | None:
        """Why an option, a dotted name below `algorithm`, has no effect beside the others; None: it has one."""
        section, _, key = name.partition(".")
        is_tree = self.sampler.mode != "parallel"
        only = {"preference": "preference", "experience": "training_free"}.get(section, self.update)
        if self.update != only:
            return f"only algorithm.update={only} has it"
        if self.update == "preference" and section in ("loss", "advantage"):
            return "algorithm.update=preference imitates and prefers; only update=policy_gradient has it"
        if self.is_training_free and section in ("loss", "advantage", "policy"):
            return "algorithm.update=training_free changes no weights"
        if name == "loss.ratio" and self.loss.ratio == "sequence" and is_tree:
            return (
                "in tree sampling every turn is a trajectory of its own; write ratio=turn, or use sampler.mode=parallel"
            )
        if name == "loss.aggregation" and self.loss.aggregation == "trajectory_mean" and is_tree:
            return "in tree sampling every turn is a trajectory of its own; write aggregation=seq_mean_token_mean"
        if name in _OF_BAD and self._has_none_bad:
            return "advantage.baseline=best leaves no advantage below 0"
        if (name in ("reward.alpha", "reward.failure") or name.startswith("reward.weights")) and self._counts_successes:
            return "preference.value=outcome reads whether episodes were won, and no term"
        if section == "critic":
            if self.advantage.baseline != "critic":
                return f"advantage.baseline={self.advantage.baseline} has no critic; advantage.baseline=critic has one"
            return self.critic.unused_reason(key, is_tree=is_tree)
        sections = {
            "sampler": self.sampler.unused_reason,
            "reward": self.reward.unused_reason,
            "advantage": self.advantage.unused_reason,
            "loss": self.loss.unused_reason,
            "preference": self.preference.unused_reason,
            "experience": self.experience.unused_reason,
        }
        return sections[section](key) if key and section in sections else None

    @property
    def _has_none_bad(self) -> bool:
        """Whether no advantage is below 0, and the loss treats those apart."""
        own = self.advantage
        is_changed = own.step is not None or own.uncertainty is not None or own.whiten != "none"
        return own.baseline == "best" and not is_changed and self.loss.surrogate != "cispo"

    @property
    def _counts_successes(self) -> bool:
        """Whether what is learned depends on the outcomes of episodes, and on no reward."""
        is_paid = self.warm_start is not None and self.warm_start.threshold is not None
        return self.update == "preference" and self.preference.value == "outcome" and not is_paid

    @model_validator(mode="after")
    def _makes_sense(self) -> Self:
        if reason := invalid_reason(self):
            raise ValueError(reason)
        return self
