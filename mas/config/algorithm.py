"""Options of an algorithm: which team, how sampled, rewarded, compared and improved."""

from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from mas.config.base import Count, NonNegative, Options, Positive, Selective
from mas.config.combinations import why_senseless
from mas.config.cost import Cost
from mas.config.critic import CriticOptions
from mas.config.experience import ExperienceOptions
from mas.config.late import LateOptions
from mas.config.losses import LossOptions
from mas.config.opponents import OpponentsOptions
from mas.config.preference import PreferenceOptions
from mas.config.proposer import ProposerOptions
from mas.config.reward_model import RewardModelOptions
from mas.config.warm_start import WarmStartOptions

Share = Annotated[float, Field(ge=0, le=1)]


class HorizonOptions(Options):
    """An episode ends after so many team turns: the first of `turns` for `every` steps, then the next, and so on."""

    turns: Annotated[tuple[Positive, ...], Field(min_length=1)]
    every: Positive = 100


class ResampleOptions(Options):
    """`factor` times K episodes are played, and K of them kept: failures as they come, successes by the share of their
    tool calls that failed (0.5 without a call), + 1 where an output did not parse, the lowest first; in proportion, but
    `least` of each where there are so many."""

    factor: Annotated[int, Field(ge=2)] = 2
    least: Count = 2


class FilterOptions(Selective):
    """Groups that are not trained: `share` of each role's, those of the lowest `mean` reward or of the lowest `std`, or
    all whose rewards are `equal`; or all of a task that `share` of its frozen members' answers solve (`solved`), which
    leaves nothing to add. `term`: the own term of theirs that is 1 for a right answer."""

    by: Literal["mean", "std", "equal", "solved"] = "mean"
    share: Annotated[float, Field(ge=0, lt=1)] = 0.5
    term: str = "answer"

    def why_idle(self, name: str) -> str | None:
        """Why an option has no effect beside the others; None: it has one."""
        if name == "term" and self.by != "solved":
            return f"by={self.by} compares rewards; only by=solved reads a term"
        return "by=equal drops all groups of equal rewards" if name == "share" and self.by == "equal" else None


class SuccessReplayOptions(Options):
    """Where all episodes of a task fail, one of them gives its place to an earlier success of the same task; up to
    `size` successes of every task are kept, the newest."""

    size: Positive = 4


class BranchOptions(Selective):
    """Where an entropy tree branches, by the mean entropy a token of turns that were drawn (of their first `tokens`).

    `rank`: `chains` whole episodes, then rounds in which the `expand` turns of the greatest entropy - `penalty` x
    (siblings - 1) are drawn again. `chance`: so many whole episodes as the entropy of the first turn against that of
    the others says; then a turn is drawn again where (u + `weight` (H - H of its episode's first turn)) x
    (1 - `penalty` x branches right before it) is at least 0.5, u uniform.
    """

    by: Literal["rank", "chance"] = "rank"
    chains: Positive = 4
    expand: Positive = 2
    penalty: NonNegative = 0.05
    weight: NonNegative = 0.2
    tokens: Positive | None = None

    def why_idle(self, name: str) -> str | None:
        """Why an option has no effect beside the others; None: it has one."""
        if name in ("chains", "expand") and self.by == "chance":
            return "by=chance chooses how many by entropies"
        return "by=rank compares entropies alone" if name == "weight" and self.by == "rank" else None


class AttemptOptions(Options):
    """A task is attempted again from the same start, `most` times in all.

    `stop`: once it is `solved`, which the environment says, so that later attempts are guided by an oracle; success is
    that of the first one. Or `never`: it is not told whether it was, and success is that of the last attempt.
    `guide`: what a new attempt is told: what was `tried` before (`none`), and what the `environment` says about it; or
    what a role `reflector`, which sees what was tried, says (`reflector`). `repair`: the reflector makes it itself.
    """

    most: Annotated[int, Field(ge=2)] = 2
    guide: Literal["none", "environment", "reflector", "repair"] = "none"
    stop: Literal["solved", "never"] = "solved"

    @model_validator(mode="after")
    def _guides_what_failed(self) -> Self:
        if self.stop == "never" and self.guide != "none":
            raise ValueError(
                f"guide={self.guide} tells of failures, which stop=never does not tell apart: leave one out"
            )
        return self


class SamplerOptions(Options):
    """How candidates are drawn.

    `tree`: at each decision K `candidates` from one prompt and state, each scored on its own clone, one committed.
    `parallel`: K whole episodes per task, each compared with the others.
    `full_tree`: K candidates at each decision, and all of them are carried on, to `max_leaves` ends of a task at most.
    `entropy_tree`: K whole episodes per task, some of which `branch` off from others where entropy is high.
    `lookahead`: how far a candidate is played on before the team's reward is read: not at all (`action`), to the end
    of the team turn (`turn`), or of the episode (`episode`); `continuations` play-outs are averaged.
    `commit_best`: probability that the best candidate is committed; otherwise one is drawn uniformly.
    `attempts`: an episode is several attempts at its task.
    `refill`: a task none of whose groups has anything to teach is replaced by another one, so many times a step.
    """

    mode: Literal["tree", "parallel", "full_tree", "entropy_tree"] = "tree"
    candidates: Annotated[int, Field(ge=2)] = 8
    lookahead: Literal["action", "turn", "episode"] = "turn"
    continuations: Positive = 1
    commit_best: Share = 1.0
    max_leaves: Positive = 256
    branch: BranchOptions = BranchOptions()
    attempts: AttemptOptions | None = None
    horizon: HorizonOptions | None = None
    resample: ResampleOptions | None = None
    refill: Count = 0
    filter: FilterOptions | None = None
    replay: SuccessReplayOptions | None = None


class LengthOptions(Options):
    """A completion loses reward as it comes nearer than `margin` tokens to `most`, and 1 beyond it."""

    most: Positive
    margin: Positive

    @model_validator(mode="after")
    def _begins_with_a_token(self) -> Self:
        if self.margin > self.most:
            raise ValueError(
                f"margin={self.margin} is more than most={self.most}, so that even an empty completion would lose "
                "reward: lower margin, or raise most"
            )
        return self


class GainOptions(Options):
    """What a turn added to the right answer; see `RewardOptions`. `of`: to its `probability`, the geometric mean over
    its tokens, or to their mean log-probability (`logprob`). `discount`: of what comes later, per wave of turns."""

    of: Literal["probability", "logprob"] = "probability"
    discount: Annotated[float, Field(gt=0, le=1)] = 1.0


class PartialOptions(Options):
    """What wrong answers earn that came near: `alpha` x the share of the task's entities that were said, by the
    greatest share of the group; nothing where an output did not parse.

    `most`: of tokens that an agent says in an episode. Who says more earns none of it, stays in the group's statistics,
    and has no advantage; None: there is no bound.
    """

    alpha: Share = 0.3
    most: Positive | None = None


class RewardOptions(Options):
    """R = alpha x team + own, each the weighted sum of its named terms; unnamed terms weigh 1.

    `source`: all named `terms` are paid; or the `outcome` alone, 1 for an episode that succeeded, else 0, as what the
    team earns, and `failure`. `failure` is added where output does not parse.
    `of`: all turns of a trajectory have the reward of the whole one, or each `turn` is compared by itself, with what
    was paid for it alone; or every `attempt` of an episode is a trajectory, with what was paid in it, or with the
    `improvement` of the team's terms on those of the attempt before.
    `discount`: below 1 each turn is compared by itself, with R x discount^(its distance to the trajectory's end).
    `length`: what long completions lose. `cost`: own terms of what each turn cost, to be weighed as any other:
    `cost_tokens`, minus thousands of tokens; `cost_price`, at the role's price; `cost_seconds`, of its request.
    `model`: one that is trained beside the policy pays turns, too. `late`: own terms that a judge says later.
    `gain`: every turn but the last ones earns what it added to the probability of the right answer, which is compared
    by itself, as R is, and summed from each turn on. `partial`: wrong answers may earn something.
    `shared`: all agents of an episode are paid the sum of everybody's own terms, each beside the team's.
    `proposer`: an own term of who poses tasks, by how the others fare with them.
    """

    source: Literal["terms", "outcome"] = "terms"
    alpha: float = 1.0
    weights: dict[str, float] = Field(default_factory=dict)
    failure: float = -1.0
    of: Literal["trajectory", "turn", "attempt", "improvement"] = "trajectory"
    discount: Annotated[float, Field(gt=0, le=1)] = 1.0
    length: LengthOptions | None = None
    cost: tuple[Cost, ...] = ()
    model: RewardModelOptions | None = None
    late: LateOptions | None = None
    gain: GainOptions | None = None
    partial: PartialOptions | None = None
    shared: bool = False
    proposer: ProposerOptions | None = None


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

    def why_idle(self, name: str) -> str | None:
        """Why an option has no effect beside the others; None: it has one."""
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

    def why_idle(self, name: str) -> str | None:
        """Why an option has no effect beside the others; None: it has one."""
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
        if reason := why_senseless(self):
            raise ValueError(reason)
        return self
