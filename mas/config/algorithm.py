"""Options of an algorithm: which team, how sampled, rewarded, compared and improved; and all of what turns are compared
with.
"""

from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from mas.config.base import NonNegative, Options, Positive, Selective, Share
from mas.config.combinations import invalid_reason
from mas.config.rewards import RewardOptions
from mas.config.sampling import OpponentsOptions, SamplerOptions, WarmStartOptions
from mas.config.updates import CriticOptions, ExperienceOptions, LossOptions, PreferenceOptions


class StrataOptions(Options):
    """Trajectories are compared with those of episodes with as many tool `calls`, or those of as many `turns`, or
    `failures` to parse, by the share `blend`, and with the whole group by the rest."""

    by: Literal["calls", "turns", "failures"] = "turns"
    blend: Share = 0.8


class StepOptions(Selective):
    """A term of each turn beside its trajectory's, added with `weight`.

    `value`: what was paid from this turn on, discounted (`return`), for this turn alone (`reward`), for it by its own
    terms (`own`), or by the reward model (`model`). `key`: compared with all turns of the `group`, with those that
    began in the same `state` (where the task stood, and what the agent had heard), or with the same number of turns
    behind them (`index`), or with `size` turns of the role drawn at `random` from the batch; `none`: with nothing.
    `baseline`: the mean of all of these, or of the others.
    """

    weight: Annotated[float, Field(gt=0)] = 1.0
    value: Literal["return", "reward", "own", "model"] = "return"
    discount: Annotated[float, Field(gt=0, le=1)] = 0.95
    key: Literal["group", "state", "index", "random", "none"] = "state"
    baseline: Literal["mean", "leave_one_out"] = "mean"
    size: Annotated[int, Field(ge=2)] = 16
    scale: Literal["std", "none"] = "std"

    def unused_reason(self, name: str) -> str | None:
        if name == "size" and self.key != "random":
            return "only key=random draws groups of a size"
        if name == "discount" and self.value != "return":
            return f"value={self.value} is what this turn alone was paid"
        if name in ("scale", "baseline") and self.key == "none":
            return "key=none compares with nothing"
        return None


class TreeOptions(Options):
    """Values of an entropy tree's turns, from the ends below them as z among the ends of the tree.

    `backup`: the mean of the children by softmax of their entropies, their plain mean, or the mean of all ends below.
    `form`: V; V - V(parent); V - V(root); or the sum of these differences.
    """

    backup: Literal["child_softmax", "child_mean", "leaf_mean"] = "child_softmax"
    form: Literal["node_value", "diff_parent", "diff_global", "diff_localglobal"] = "node_value"


class EarlyOptions(Options):
    """A bonus for tools that are used early, in episodes that are won and use one: A + clip(`delta` (p - mean p) /
    mean L, -`bound` |A|, `bound` |A|), p the tokens before the first call, L those of the episode."""

    delta: Annotated[float, Field(lt=0)] = -2.0
    bound: Annotated[float, Field(gt=0, lt=1)] = 0.7


class UncertaintyOptions(Selective):
    """Advantages x exp(-`scale` H) / mean, + `clarity` x exp(-`clarity_scale` H of the next turn), less the mean.

    H: the turn's mean entropy a token, from 0 for the least of the batch to 1 for the greatest.
    """

    scale: NonNegative = 1.0
    clarity: NonNegative = 0.05
    clarity_scale: NonNegative = 1.0

    def unused_reason(self, name: str) -> str | None:
        return "clarity is 0" if name == "clarity_scale" and not self.clarity else None


class AdvantageOptions(Options):
    """What each turn's reward is compared with. In this order; what is not given is left out.

    `key`: within the `group` that was sampled (tree: one agent's candidates of one prompt and state; parallel: one
    agent's trajectories of one task), one `prompt` of a task and agent, one `role` of an `episode` (agents that did the
    same there), one `role` of the batch in one world (a game), or the whole `batch`.
    A = (R - baseline) / scale. `baseline`: the `mean` of the group, of the others in it (`leave_one_out`), weighted by
    tokens (`length_weighted`), the second best (`best`), `none`, the role's `running` mean, which forgets by `decay`,
    or what a `critic` expected, token by token and in no group. A group of one gets 0 (`zero`) or its reward (`raw`).
    `components`: each named term of the reward is compared by itself, and the weighted sum is the advantage.
    `strata`: compared among trajectories of one structure. `step`: a term for each turn is added.
    `tree`: values of an entropy tree's turns, in place of groups.
    `early`: a bonus for using tools early, after the comparison.
    `inherit`: turns of all other agents have the advantage of this agent's trajectory in their episode.
    `uncertainty`: by entropy. `whiten`: less the mean and by the standard deviation of the adapter's batch, each turn
    once (`turns`) or by its number of tokens (`tokens`).
    `entropy_weight`: at last, token by token, A x (1 + `entropy_weight` x z of the token's entropy in its adapter's
    batch).
    """

    key: Literal["group", "prompt", "episode", "role", "batch"] = "group"
    baseline: Literal["mean", "leave_one_out", "length_weighted", "best", "none", "running", "critic"] = "mean"
    scale: Literal["std", "none", "nonzero"] = "std"
    single: Literal["zero", "raw"] = "zero"
    decay: Annotated[float, Field(ge=0, lt=1)] = 0.95
    components: bool = False
    strata: StrataOptions | None = None
    step: StepOptions | None = None
    tree: TreeOptions | None = None
    early: EarlyOptions | None = None
    inherit: str | None = None
    uncertainty: UncertaintyOptions | None = None
    whiten: Literal["none", "turns", "tokens"] = "none"
    entropy_weight: NonNegative = 0.0


class StageOptions(Options):
    """So many `steps` in which only these `roles` train, paid by these `weights` in place of those of the same terms in
    `reward.weights`."""

    roles: Annotated[tuple[str, ...], Field(min_length=1)]
    steps: Positive
    weights: dict[str, float] = Field(default_factory=dict)


class SwapOptions(Options):
    """Every `every` steps each of these `roles` takes the adapter of the one before it, the first that of the last."""

    roles: Annotated[tuple[str, ...], Field(min_length=2)]
    every: Positive = 5


class ForkOptions(Options):
    """For the first `after` steps all roles learn through one adapter; then each goes on with a copy of it."""

    after: Positive


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

    @model_validator(mode="after")
    def _makes_sense(self) -> Self:
        if reason := invalid_reason(self):
            raise ValueError(reason)
        return self
