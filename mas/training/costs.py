"""What a turn costs, as own terms of its reward: tokens, their price, and the seconds that they took."""

from collections.abc import Sequence

from mas.config.rewards import Cost
from mas.core.errors import ConfigError
from mas.core.policy import Price
from mas.core.team import TeamSpec
from mas.runtime.agents import Candidate
from mas.runtime.budget import Spent
from mas.training.rewards import OWN

TERMS: dict[Cost, str] = {"tokens": "cost_tokens", "price": "cost_price", "seconds": "cost_seconds"}
"""Names of the terms, without `own.`."""


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
    return {f"{OWN}{TERMS[cost]}": found[cost] for cost in costs}


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
    return {TERMS[cost] for cost in costs}
