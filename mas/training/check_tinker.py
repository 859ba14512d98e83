"""What of a training cannot be had from a Tinker service, refused before it begins; and which of the service's losses
is the algorithm's own. Free of torch and of the SDK.

A service's losses see log-probabilities at temperature 1 and nothing else of the model: no entropies, no other
distribution, no weights.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from mas.algorithms.parts.losses.tokens import LossOptions
from mas.config.options import LearnerOptions, LoraOptions
from mas.core.errors import ConfigError
from mas.training.setup import Setup

_LAYERS = {
    "train_attn": frozenset({"q_proj", "k_proj", "v_proj", "o_proj"}),
    "train_mlp": frozenset({"gate_proj", "up_proj", "down_proj"}),
}
_NO_BOUND = 1e6
"""A ratio that none is above, where the algorithm has no upper bound: services take finite numbers alone."""
_FIRST_UPDATE = ("clip", "keep_gradient", "cispo", "sapo", "reinforce")
"""Surrogates with the same gradient where the ratio is 1, as it is in a step's first update."""


@dataclass(frozen=True, slots=True)
class TinkerLoss:
    """A loss of the Tinker API with its settings.

    `cap`: the ratio is to log-probabilities of the step's beginning, and advantages are multiplied by
    min(start / behaviour, cap); None: the ratio is to those of the samples.
    """

    name: str
    settings: Mapping[str, float] = field(default_factory=dict)
    cap: float | None = None


def tinker_loss(loss: LossOptions, learner: LearnerOptions) -> TinkerLoss:
    """The loss with the gradient that the learner here would follow.

    With an `importance_cap` c and one update a step the ratio pi / start is 1, and the gradient that of
    -min(pi / behaviour, c) A log pi: `cispo` with bounds of 0 and c. Else it is the service's loss by its name: `ppo`,
    `importance_sampling` without bounds, `gspo` for the ratio of a turn, `cispo`, and `cross_entropy` for `reinforce`.

    Raises:
        ConfigError: the service has none; says what to write.
    """
    cap, settings = loss.importance_cap, _clip(loss.clip_low, loss.clip_high)
    if cap is not None and learner.epochs * learner.minibatches == 1:
        if loss.surrogate in _FIRST_UPDATE:
            return TinkerLoss("cispo", _clip(None, cap - 1))
    elif loss.surrogate == "reinforce":
        return TinkerLoss("cross_entropy", cap=cap)
    elif loss.surrogate == "cispo" and loss.ratio == "token":
        return TinkerLoss("cispo", settings, cap)
    elif loss.surrogate == "clip" and loss.ratio in ("token", "turn"):
        if loss.dual_clip is not None:
            raise ConfigError("a Tinker loss has no dual clip: write algorithm.loss.dual_clip=null")
        if loss.ratio == "turn":
            return TinkerLoss("gspo", settings, cap)
        is_free = loss.clip_low is None and loss.clip_high is None
        return TinkerLoss("importance_sampling", cap=cap) if is_free else TinkerLoss("ppo", settings, cap)
    raise ConfigError(
        f"the Tinker API has no loss like surrogate={loss.surrogate} with ratio={loss.ratio} and importance_cap={cap}: "
        "write algorithm.loss.surrogate=clip algorithm.loss.ratio=token"
    )


def _clip(low: float | None, high: float | None) -> dict[str, float]:
    return {
        "clip_low_threshold": 0.0 if low is None else 1 - low,
        "clip_high_threshold": _NO_BOUND if high is None else 1 + high,
    }


def trained_layers(lora: LoraOptions) -> dict[str, bool]:
    """What the SDK is told to train.

    Raises:
        ConfigError: a part of the attention or of the MLP layers.
    """
    wanted = {name: layers <= set(lora.targets) for name, layers in _LAYERS.items()}
    if set(lora.targets) != frozenset[str]().union(*(_LAYERS[name] for name, is_wanted in wanted.items() if is_wanted)):
        raise ConfigError(
            f"model.lora.targets={[*lora.targets]}: a Tinker service trains all of {sorted(_LAYERS['train_attn'])}, "
            f"all of {sorted(_LAYERS['train_mlp'])}, or both"
        )
    return wanted


def check_tinker(setup: Setup) -> None:
    """Refuse a training with `engine=tinker` that wants what the service cannot give.

    Raises:
        ConfigError: says what, and what to write.
    """
    for why in _refusals(setup):
        raise ConfigError(f"{why} (engine=tinker: docs/tinker.md has what is possible)")
    tinker_loss(setup.algorithm.loss, setup.learner)
    for name in sorted(set(setup.trained_adapters.values())):
        trained_layers(setup.model.lora_of(name))


def _refusals(setup: Setup) -> Iterator[str]:
    algorithm, loss, method = setup.algorithm, setup.algorithm.loss, setup.method
    wanted = {
        "a preference loss is computed here, on a base that is not loaded: choose an algorithm with "
        "algorithm.update=policy_gradient": algorithm.update == "preference",
        "a critic is trained on the base here, which is not loaded: choose another algorithm.advantage.baseline": (
            algorithm.advantage.baseline == "critic"
        ),
        "a reward model is computed on the base here, which is not loaded: leave algorithm.reward.model out": (
            algorithm.reward.model is not None
        ),
        "the algorithm's own loss or update is computed here, on a base that is not loaded: take its loss from "
        "algorithm.loss": method is not None and (method.loss is not None or method.algorithm.update is not None),
        "the entropy bonus needs entropies, which the service does not tell: write algorithm.loss.entropy=0": (
            loss.entropy > 0
        ),
        "a KL in the loss has no place in a Tinker loss: write algorithm.loss.kl=0, or algorithm.loss.kl_in=reward": (
            loss.kl > 0 and loss.kl_in == "loss"
        ),
        "a moving average of adapters needs their weights, which stay at the service: write "
        "algorithm.loss.reference=null": loss.reference is not None,
        "off-policy masks have no place in a Tinker loss: write algorithm.loss.off_policy=null": (
            loss.off_policy is not None
        ),
        "the bias correction needs gradients, which stay at the service: write algorithm.loss.bias_correction=false": (
            loss.bias_correction
        ),
        "advantages by entropy need entropies, which the service does not tell: leave algorithm.advantage.uncertainty "
        "and algorithm.advantage.entropy_weight out": (
            algorithm.advantage.uncertainty is not None or algorithm.advantage.entropy_weight > 0
        ),
        "the warm start is computed here, on a base that is not loaded: write algorithm.warm_start=null": (
            algorithm.warm_start is not None
        ),
        "a fork copies weights, which stay at the service: write algorithm.fork=null": algorithm.fork is not None,
        "opponents are adapters of runs here: write algorithm.opponents=null": algorithm.opponents is not None,
        "train.start has adapters of a run here, which cannot be sent: leave it out": setup.train.start is not None,
        "batches in flight need older weights, which stay at the service: write train.staleness=0": (
            setup.train.staleness > 0
        ),
        "the service samples and trains, and no process of mas does: leave cluster out": setup.cluster.is_used,
    }
    yield from (why for why, is_wanted in wanted.items() if is_wanted)
    yield from _warm_roles(setup)


def _warm_roles(setup: Setup) -> Iterator[str]:
    for name, role in setup.team.roles.items():
        if name in setup.trained_adapters and role.temperature != 1:
            yield (
                f"role {name!r} is trained and samples at temperature {role.temperature:g}, and the service trains at "
                "temperature 1: write temperature: 1 in its team"
            )
