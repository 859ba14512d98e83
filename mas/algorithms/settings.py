"""Options that several algorithms share, and the parts that these set."""

from typing import Literal

from pydantic import Field

from mas.core.options import Options


class CriticSettings(Options):
    """`gamma` and `lam` are those of generalised advantage estimation. `whiten`: the advantages of an adapter's tokens
    get mean 0 and standard deviation 1. `critic_lr`, `critic_epochs`, `critic_minibatches`: how the critic learns.
    `critic_clip`: a value counts as moved by this at most where that makes its loss greater; None: no bound."""

    gamma: float = 1.0
    lam: float = 0.95
    whiten: bool = True
    critic_lr: float = 3e-3
    critic_epochs: int = 4
    critic_minibatches: int = 4
    critic_clip: float | None = None


CRITIC = {
    "gamma": "critic.gamma",
    "lam": "critic.lam",
    "whiten": "critic.whiten",
    "critic_lr": "critic.lr",
    "critic_epochs": "critic.epochs",
    "critic_minibatches": "critic.minibatches",
    "critic_clip": "critic.clip",
}


class PreferenceSettings(Options):
    """loss = `sft` x imitation of better candidates + `dpo` x preference of them to worse ones, as
    `mas.algorithms.parts.losses.preference` says. `threshold`: above it a candidate is better; None: above the mean of
    its siblings. `beta` and `reference` are DPO's."""

    threshold: float | None = None
    sft: float = 0.0
    dpo: float = 1.0
    beta: float = 0.1
    reference: Literal["base", "start"] = "base"


PREFERENCE = {name: f"preference.{name}" for name in PreferenceSettings.model_fields}


class StageSettings(Options):
    """So many `steps` in which these `roles` train, paid by these `weights` in place of those of the same terms in
    `algorithm.reward.weights`; the last stage never ends."""

    roles: tuple[str, ...]
    steps: int
    weights: dict[str, float] = Field(default_factory=dict)
