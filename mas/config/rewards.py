"""Options of rewards: which terms turns are paid, by whom and when, and what they may be charged for."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from mas.config.base import Count, NonNegative, Options, Positive, Selective, Share

Cost = Literal["tokens", "price", "seconds"]


class RewardModelOptions(Selective):
    """In each step it learns which episodes succeeded, then says what each of their turns is paid.

    `kind`: `progress`, an estimate of each turn's share in the outcome (1 for a success, else 0), to which the shares
    add up; or `implicit`, `beta` x log(phi / policy) of the turn's tokens, where phi prefers successes to failures of
    one group, by the `pooling` of their turns. Either is an adapter like the policy's, never published.
    `bound`: `clip` leaves min(r - `eta`, 0) of each turn, `delta` what it is above the turn after it, `both` the one
    and then the other. `grounded` is added where an output parsed and the team's action was legal, and at the end.
    `joins`: the own term `model` is `added` to the others, is paid `alone`, or no reward has it and only
    `advantage.step.value=model` reads it (`step`).
    `lr` falls as the learner's does, `epochs` are passes over the whole batch; all else is the learner's.
    """

    kind: Literal["progress", "implicit"]
    joins: Literal["added", "alone", "step"] = "added"
    bound: Literal["none", "clip", "delta", "both"] = "none"
    eta: NonNegative = 0.0
    grounded: NonNegative = 0.0
    beta: Annotated[float, Field(gt=0)] = 0.05
    pooling: Literal["sum", "mean"] = "sum"
    lr: Annotated[float, Field(gt=0)] = 3e-3
    epochs: Positive = 4

    def unused_reason(self, name: str) -> str | None:
        if name in ("beta", "pooling") and self.kind != "implicit":
            return "only kind=implicit has it"
        if name == "eta" and self.bound not in ("clip", "both"):
            return "only bound=clip and bound=both take it off"
        return None


class LateOptions(Options):
    """Own terms that a `judge` pays by turn id, after the turns were sampled and before they are compared.

    `judge`: `pattern` pays 1 for a text in which the term's regular expression of `asks` is found, else 0; `base` asks
    the run's own base LLM the term's question of `asks`, and the name of a peer (`peers.NAME.url`) its model: the first
    number from 0 to 10 in the answer, by 10; or a name among the entry points `mas.judges` of installed packages, or
    one given in Python. `terms`: name -> what it counts as where no answer comes.
    A step waits `wait_s` seconds for answers. `steps`: how many further steps a group with missing answers waits, to be
    trained in the step in which they are complete; 0: what is missing then has its default at once.
    """

    judge: Annotated[str, Field(min_length=1)]
    terms: Annotated[dict[str, Annotated[float, Field(allow_inf_nan=False)]], Field(min_length=1)]
    asks: dict[str, Annotated[str, Field(min_length=1)]] = Field(default_factory=dict)
    wait_s: Annotated[float, Field(gt=0)] = 60.0
    steps: Count = 0


class ProposerOptions(Selective):
    """What a `role` that poses tasks earns by them, from the outcomes (0 to 1) of the others' attempts in its episode,
    which are what these were paid as the team's `term`.

    `failure`: 1 - p, p their mean. `intermediate`: 4 (`left` + p)(`right` - p) for 0 < p < 1, else 0. `invalid` where
    no other role spoke, as the task was not accepted.
    """

    role: str = "proposer"
    term: str = "right"
    mode: Literal["failure", "intermediate"] = "failure"
    left: Annotated[NonNegative, Field(allow_inf_nan=False)] = 0.0
    right: Annotated[float, Field(allow_inf_nan=False)] = 1.0
    invalid: Annotated[float, Field(le=0, allow_inf_nan=False)] = 0.0

    def unused_reason(self, name: str) -> str | None:
        return "mode=failure pays 1 - p" if name in ("left", "right") and self.mode == "failure" else None


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
