"""What turns are paid: named terms, and the one number that they make.

Terms stay apart in the records; `total_reward` is the only place that adds them up.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Literal

from pydantic import Field

from mas.algorithms.parts.advantages.steps import GainOptions
from mas.algorithms.parts.rewards.interaction import ProposerOptions
from mas.algorithms.parts.rewards.late import LateOptions
from mas.algorithms.parts.rewards.names import FAILURE, OUTCOME, OWN, TEAM
from mas.algorithms.parts.rewards.transforms import LengthOptions, PartialOptions, RewardModelOptions
from mas.core.environment import LARGEST, Step, check_finite
from mas.core.errors import ConfigError
from mas.core.options import Options
from mas.core.team import TeamSpec

Cost = Literal["tokens", "price", "seconds"]
COST_TERMS: dict[Cost, str] = {"tokens": "cost_tokens", "price": "cost_price", "seconds": "cost_seconds"}
"""Names of the terms that a turn's cost makes, without `own.`."""


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

    def unused_reason(self, name: str) -> str | None:
        """Why an option has no effect beside the others; None: it has one."""
        if name.startswith("weights") and self.source == "outcome":
            return "algorithm.reward.source=outcome pays no named term; weigh it with algorithm.reward.alpha"
        if name in ("alpha", "failure") and self.model is not None and self.model.joins == "alone":
            return "algorithm.reward.model.joins=alone leaves no term but the model's own"
        return None


def total_reward(terms: Mapping[str, float], options: RewardOptions) -> float:
    """R = alpha x sum of the weighted team terms + sum of the weighted own terms; by source=outcome alpha x whether the
    episode succeeded + what output that does not parse costs.

    Names are `team.NAME` and `own.NAME`; a weight is looked up by NAME and is 1 unless given.
    Source: AT-GRPO, arXiv 2510.11062: r = alpha r_team + r_loc.

    Raises:
        RewardError: R is NaN, infinite or larger than 1e60 in absolute value; terms are checked where they are
            recorded, so that the weights are too large.
    """
    team = own = 0.0
    if options.source == "outcome":
        team = terms.get(OUTCOME, 0.0)
        terms = {name: value for name, value in terms.items() if name == FAILURE}
    for name, value in terms.items():
        if name.startswith(TEAM):
            team += options.weights.get(name.removeprefix(TEAM), 1.0) * value
        elif name.startswith(OWN):
            own += options.weights.get(name.removeprefix(OWN), 1.0) * value
    total = options.alpha * team + own
    check_finite({"R": total}, "the weighted sum of the terms", LARGEST**2)
    return total


def term_weights(names: Iterable[str], options: RewardOptions) -> dict[str, float]:
    """What each named term counts in R, alpha in those of the team; other names are left out."""
    return {name: total_reward({name: 1.0}, options) for name in names if name.startswith((TEAM, OWN))}


def terms_paid(earned: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    """What all seats were paid, by term; of several seats by `SEAT.TERM`."""
    if len(earned) == 1:
        return dict(next(iter(earned.values())))
    return {f"{seat}.{name}": value for seat, own in earned.items() for name, value in own.items()}


def check_paid(step: Step, seat: str, turn: int) -> None:
    """Raises RewardError: what the environment paid a seat in a team turn is no finite number."""
    check_finite(step.rewards.get(seat, {}), f"the environment, in team turn {turn} to seat {seat!r},")


def check_costs(costs: Sequence[Cost], team: TeamSpec) -> set[str]:
    """Names of the terms that are paid.

    Raises:
        ConfigError: prices are wanted, and no role has one.
    """
    if "price" in costs and all(role.price is None for role in team.roles.values()):
        raise ConfigError(
            f"algorithm.reward.cost has 'price', and no role of team {team.name!r} has one: give a role of a team file "
            "`price: {prompt: 0.1, completion: 0.4}`, of a thousand tokens each, or write reward.cost=[tokens]"
        )
    return {COST_TERMS[cost] for cost in costs}
