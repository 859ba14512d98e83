"""Named reward terms to one number. Terms stay apart in the records; this is the only place that adds them up."""

from collections.abc import Iterable, Mapping

from mas.config.algorithm import AlgorithmOptions
from mas.config.options import RewardOptions
from mas.core.environment import LARGEST, check_finite
from mas.training.schedules import stage_number

TEAM, OWN = "team.", "own."
FAILURE = "own.failure"
OUTCOME = "outcome"
"""Whether an episode succeeded; of a candidate of a full tree the share of won episodes below it. No team's and no own
term: only `reward.source=outcome` counts it."""
MODEL = "model"
"""What a reward model pays: a term that no reward counts, or an own term of this name."""


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
