"""Named reward terms: what is paid as it is recorded, what a turn costs, and the one number that they make.

Terms stay apart in the records; `total_reward` is the only place that adds them up.
"""

from collections.abc import Iterable, Mapping, Sequence

from mas.config.algorithm import AlgorithmOptions
from mas.config.rewards import Cost, RewardOptions
from mas.core.environment import LARGEST, Environment, Move, Reward, Step, check_finite
from mas.core.errors import ConfigError
from mas.core.messages import Failure, Payload
from mas.core.naming import agent_of
from mas.core.policy import Price
from mas.core.team import TeamSpec
from mas.runtime.flow import Flow
from mas.runtime.payloads import Candidate
from mas.runtime.play import DecisionPoint
from mas.runtime.policies import Spent
from mas.training.schedules import stage_number

TEAM, OWN = "team.", "own."
FAILURE = "own.failure"
OUTCOME = "outcome"
"""Whether an episode succeeded; of a candidate of a full tree the share of won episodes below it. No team's and no own
term: only `reward.source=outcome` counts it."""
MODEL = "model"
"""What a reward model pays: a term that no reward counts, or an own term of this name."""
COST_TERMS: dict[Cost, str] = {"tokens": "cost_tokens", "price": "cost_price", "seconds": "cost_seconds"}
"""Names of the terms that a turn's cost makes, without `own.`."""


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


def rewards_of(algorithm: AlgorithmOptions, steps_done: int) -> RewardOptions:
    """The reward after so many steps, with the weights of their stage."""
    if not algorithm.stages:
        return algorithm.reward
    stage = algorithm.stages[stage_number([stage.steps for stage in algorithm.stages], steps_done)]
    return algorithm.reward.model_copy(update={"weights": algorithm.reward.weights | stage.weights})


def term_weights(names: Iterable[str], options: RewardOptions) -> dict[str, float]:
    """What each named term counts in R, alpha in those of the team; other names are left out."""
    return {name: total_reward({name: 1.0}, options) for name in names if name.startswith((TEAM, OWN))}


def add_rewards(earned: dict[str, dict[str, float]], flow: Flow, step: Step, turn: int) -> None:
    """Add what the environment paid in a team turn to what each seat has earned, by term.

    Raises:
        RewardError: that is no finite number.
    """
    for seat in flow.plan.starting:
        check_paid(step, seat, turn)
        own = earned.setdefault(seat, {})
        for name, value in step.rewards.get(seat, {}).items():
            own[name] = own.get(name, 0.0) + value


def terms_paid(earned: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    """What all seats were paid, by term; of several seats by `SEAT.TERM`."""
    if len(earned) == 1:
        return dict(next(iter(earned.values())))
    return {f"{seat}.{name}": value for seat, own in earned.items() for name, value in own.items()}


def check_paid(step: Step, seat: str, turn: int) -> None:
    """Raises RewardError: what the environment paid a seat in a team turn is no finite number."""
    check_finite(step.rewards.get(seat, {}), f"the environment, in team turn {turn} to seat {seat!r},")


def own_terms(
    reward: Reward, point: DecisionPoint, environment: Environment, payload: Payload, after: Flow | None, failure: float
) -> dict[str, float]:
    """The role's own terms of one output, and the failure term where it did not parse.

    Raises:
        RewardError: a term is no finite number.
    """
    role = point.flow.plan.roles[agent_of(point.agent)].name
    move = Move(
        agent=point.agent,
        role=role,
        environment=environment,
        output=payload,
        before=point.flow.outputs,
        after=after.outputs if after is not None else {},
    )
    paid = reward.own(move)
    check_finite(paid, f"the reward of role {role!r}, in team turn {point.turn},")
    terms = {f"{OWN}{name}": value for name, value in paid.items()}
    if isinstance(payload, Failure):
        terms[FAILURE] = failure
    return terms


def cost_terms(costs: Sequence[Cost], candidate: Candidate, price: Price | None) -> dict[str, float]:
    """What one output cost, as negative terms.

    `own.cost_tokens`: thousands of tokens, prompt and completion; `own.cost_price`: what they cost at the role's price;
    `own.cost_seconds`: that their request took, which all of its candidates share.
    """
    prompt, completion = len(candidate.prompt_ids), len(candidate.generation.token_ids)
    found: dict[Cost, float] = {
        "tokens": -(prompt + completion) / 1000,
        "price": -Spent.of(prompt, completion, 1, price).cost,
        "seconds": -candidate.seconds,
    }
    return {f"{OWN}{COST_TERMS[cost]}": found[cost] for cost in costs}


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
