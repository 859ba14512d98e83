"""Options of an algorithm: which team, how sampled, rewarded, compared and improved."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from mas.config.base import Count, NonNegative, Options, Positive
from mas.config.critic import CriticOptions
from mas.config.experience import ExperienceOptions
from mas.config.losses import LossOptions
from mas.config.preference import PreferenceOptions

Share = Annotated[float, Field(ge=0, le=1)]


class HorizonOptions(Options):
    """An episode ends after so many team turns: the first of `turns` for `every` steps, then the next, and so on."""

    turns: Annotated[tuple[Positive, ...], Field(min_length=1)]
    every: Positive = 100


class ResampleOptions(Options):
    """`factor` times K episodes are played, and K of them kept: failures as they come, successes by the share of their
    outputs that did not parse, the lowest first; in proportion, but `least` of each where there are so many."""

    factor: Annotated[int, Field(ge=2)] = 2
    least: Count = 2


class FilterOptions(Options):
    """Groups that are not trained: `share` of each role's, those of the lowest `mean` reward or of the lowest `std`, or
    all whose rewards are `equal`."""

    by: Literal["mean", "std", "equal"] = "mean"
    share: Annotated[float, Field(ge=0, lt=1)] = 0.5


class SamplerOptions(Options):
    """How candidates are drawn.

    `tree`: at each decision K `candidates` from one prompt and state, each scored on its own clone, one committed.
    `parallel`: K whole episodes per task, each compared with the others.
    `full_tree`: K candidates at each decision, and all of them are carried on, to `max_leaves` ends of a task at most.
    `lookahead`: how far a candidate is played on before the team's reward is read: not at all (`action`), to the end
    of the team turn (`turn`), or of the episode (`episode`); `continuations` play-outs are averaged.
    `commit_best`: probability that the best candidate is committed; otherwise one is drawn uniformly.
    `refill`: a task none of whose groups has anything to teach is replaced by another one, so many times a step.
    """

    mode: Literal["tree", "parallel", "full_tree"] = "tree"
    candidates: Annotated[int, Field(ge=2)] = 8
    lookahead: Literal["action", "turn", "episode"] = "turn"
    continuations: Positive = 1
    commit_best: Share = 1.0
    max_leaves: Positive = 256
    horizon: HorizonOptions | None = None
    resample: ResampleOptions | None = None
    refill: Count = 0
    filter: FilterOptions | None = None


class LengthOptions(Options):
    """A completion loses reward as it comes nearer than `margin` tokens to `most`, and 1 beyond it."""

    most: Positive
    margin: Positive


class RewardOptions(Options):
    """R = alpha x team + own, each the weighted sum of its named terms; unnamed terms weigh 1.

    `failure` is added where output does not parse. `of`: all turns of a trajectory have the reward of the whole one, or
    each `turn` is compared by itself, with what was paid for it alone. `discount`: below 1 each turn is compared by
    itself, with R x discount^(its distance to the trajectory's end). `length`: what long completions lose.
    """

    alpha: float = 1.0
    weights: dict[str, float] = Field(default_factory=dict)
    failure: float = -1.0
    of: Literal["trajectory", "turn"] = "trajectory"
    discount: Annotated[float, Field(gt=0, le=1)] = 1.0
    length: LengthOptions | None = None


class StrataOptions(Options):
    """Trajectories are compared with those of as many `turns`, or as many `failures` to parse, by the share `blend`,
    and with the whole group by the rest."""

    by: Literal["turns", "failures"] = "turns"
    blend: Share = 0.8


class StepOptions(Options):
    """A term of each turn beside its trajectory's, added with `weight`.

    `value`: what was paid from this turn on, discounted (`return`), or for this turn alone (`reward`). `key`: compared
    with turns of the same task and agent that began in the same `state`, or with the same number of turns behind them
    (`index`), or with `size` turns of the role drawn at `random` from the batch; `none`: with nothing.
    """

    weight: Annotated[float, Field(gt=0)] = 1.0
    value: Literal["return", "reward"] = "return"
    discount: Annotated[float, Field(gt=0, le=1)] = 0.95
    key: Literal["state", "index", "random", "none"] = "state"
    size: Annotated[int, Field(ge=2)] = 16
    scale: Literal["std", "none"] = "std"


class UncertaintyOptions(Options):
    """Advantages x exp(-`scale` H) / mean, + `clarity` x exp(-`clarity_scale` H of the next turn), less the mean.

    H: the turn's mean entropy a token, from 0 for the least of the batch to 1 for the greatest.
    """

    scale: NonNegative = 1.0
    clarity: NonNegative = 0.05
    clarity_scale: NonNegative = 1.0


class AdvantageOptions(Options):
    """What each turn's reward is compared with. In this order; what is not given is left out.

    `key`: within the `group` that was sampled (tree: one agent's candidates of one prompt and state; parallel: one
    agent's trajectories of one task), one `prompt` of a task and agent, one `role` of the batch, or the whole `batch`.
    A = (R - baseline) / scale. `baseline`: the `mean` of the group, of the others in it (`leave_one_out`), weighted by
    tokens (`length_weighted`), the second best (`best`), `none`, the role's `running` mean, which forgets by `decay`,
    or what a `critic` expected, token by token and in no group. A group of one gets 0 (`zero`) or its reward (`raw`).
    `components`: each named term of the reward is compared by itself, and the weighted sum is the advantage.
    `strata`: compared among trajectories of one structure. `step`: a term for each turn is added.
    `inherit`: turns of all other agents have the advantage of this agent's trajectory in their episode.
    `uncertainty`: by entropy. `whiten`: less the mean and by the standard deviation of the adapter's batch, each turn
    once (`turns`) or by its number of tokens (`tokens`).
    """

    key: Literal["group", "prompt", "role", "batch"] = "group"
    baseline: Literal["mean", "leave_one_out", "length_weighted", "best", "none", "running", "critic"] = "mean"
    scale: Literal["std", "none", "nonzero"] = "std"
    single: Literal["zero", "raw"] = "zero"
    decay: Annotated[float, Field(ge=0, lt=1)] = 0.95
    components: bool = False
    strata: StrataOptions | None = None
    step: StepOptions | None = None
    inherit: str | None = None
    uncertainty: UncertaintyOptions | None = None
    whiten: Literal["none", "turns", "tokens"] = "none"


class StageOptions(Options):
    """So many `steps` in which only these `roles` train."""

    roles: Annotated[tuple[str, ...], Field(min_length=1)]
    steps: Positive


class SwapOptions(Options):
    """Every `every` steps each of these `roles` takes the adapter of the one before it, the first that of the last."""

    roles: Annotated[tuple[str, ...], Field(min_length=2)]
    every: Positive = 5


class AlgorithmOptions(Options):
    """One way to train: which team, whose adapters, how sampled, compared and improved.

    `policy`: `per_role` gives every role an adapter of its own, `shared` gives all of them one.
    `roles`: those that are trained, of the trainable ones; empty: all. `stages`: only some of them at a time; the last
    stage never ends. `swap`: roles whose adapters change places.
    `update`: adapters follow the policy gradient (`advantage`, `loss`), or imitate and prefer (`preference`); or no
    weight changes (`training_free`), and roles learn by `experience`.
    """

    name: str = "at_grpo"
    team: str = "team"
    policy: Literal["per_role", "shared"] = "per_role"
    roles: tuple[str, ...] = ()
    stages: tuple[StageOptions, ...] = ()
    swap: SwapOptions | None = None
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

    @model_validator(mode="after")
    def _makes_sense(self) -> Self:
        if reason := why_senseless(self):
            raise ValueError(reason)
        return self


def why_senseless(algorithm: AlgorithmOptions) -> str | None:
    """Why parts do not go together; None: they do."""
    advantage, sampler = algorithm.advantage, algorithm.sampler
    is_tree, is_preference = sampler.mode != "parallel", algorithm.update == "preference"
    wrong = {
        "update=preference compares candidates of one prompt and state, and sampler.mode=parallel has none; use "
        "sampler.mode=full_tree, or sampler.mode=tree with preference.value=reward": is_preference and not is_tree,
        "preference.value=outcome is the share of won episodes below a candidate, and sampler.mode=tree plays none "
        "from it; use sampler.mode=full_tree, or preference.value=reward": (
            is_preference and sampler.mode == "tree" and algorithm.preference.value == "outcome"
        ),
        "advantage.baseline=none compares nothing, so advantage.scale=std has no meaning: choose scale=none": (
            advantage.baseline == "none" and advantage.scale == "std"
        ),
        "advantage.baseline=running is a mean per role: write advantage.key=role and advantage.scale=none": (
            advantage.baseline == "running" and (advantage.key != "role" or advantage.scale != "none")
        ),
        "advantage.step, advantage.strata, advantage.inherit, reward.discount and reward.of need trajectories of many "
        "turns: write sampler.mode=parallel; in tree sampling every turn is a trajectory of its own": (
            is_tree and _needs_trajectories(algorithm)
        ),
        "sampler.resample keeps some of many whole episodes: write sampler.mode=parallel": (
            is_tree and sampler.resample is not None
        ),
        "advantage.strata compares in groups and by their mean: leave key, baseline and components as they are": (
            advantage.strata is not None
            and (advantage.key, advantage.baseline, advantage.components) != ("group", "mean", False)
        ),
        f"critic.level={algorithm.critic.level} gives every token its advantage, but loss.surrogate=gmpo weighs a turn "
        "as one: write critic.level=turn, or another surrogate": (
            advantage.baseline == "critic" and algorithm.critic.level != "turn" and algorithm.loss.surrogate == "gmpo"
        ),
        "advantage.baseline=critic compares with no group: leave advantage.key, components, strata, step, inherit, "
        "uncertainty and whiten (critic.whiten has it) as they are": (
            advantage.baseline == "critic" and _compares(advantage)
        ),
        "advantage.components compares terms, and reward.length and a KL in the reward are none: leave reward.length "
        "out, and write loss.kl_in=loss": (
            advantage.components
            and (algorithm.reward.length is not None or (algorithm.loss.kl > 0 and algorithm.loss.kl_in == "reward"))
        ),
        "reward.of=turn compares what each turn was paid, reward.discount its share of the whole: choose one": (
            algorithm.reward.of == "turn" and algorithm.reward.discount < 1
        ),
        "advantage.components compares each term by mean and spread: leave baseline, scale and whiten as they are": (
            advantage.components and (advantage.baseline, advantage.scale, advantage.whiten) != ("mean", "std", "none")
        ),
        f"update=training_free compares whole episodes of a task, and sampler.mode={sampler.mode} plays one: write "
        "sampler.mode=parallel": algorithm.is_training_free and sampler.mode != "parallel",
        "algorithm.swap exchanges adapters, and update=training_free has none: leave it out": (
            algorithm.is_training_free and algorithm.swap is not None
        ),
        "algorithm.swap exchanges adapters, and policy=shared has only one: write policy=per_role": (
            algorithm.swap is not None and algorithm.policy == "shared"
        ),
    }
    return next((reason for reason, is_wrong in wrong.items() if is_wrong), None)


def _needs_trajectories(algorithm: AlgorithmOptions) -> bool:
    advantage = algorithm.advantage
    slots = (advantage.step, advantage.strata, advantage.inherit)
    return any(slot is not None for slot in slots) or algorithm.reward.discount < 1 or algorithm.reward.of == "turn"


def _compares(advantage: AdvantageOptions) -> bool:
    slots = (advantage.strata, advantage.step, advantage.inherit, advantage.uncertainty)
    is_usual = (advantage.key, advantage.components, advantage.whiten) == ("group", False, "none")
    return not is_usual or any(slot is not None for slot in slots)
