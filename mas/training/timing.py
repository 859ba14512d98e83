"""Teams in which time decides what is said: they are played, and not trained.

A limit that ends an episode is no such thing: what is not played to its end is recorded, and not trained on.
"""

from mas.core.errors import ConfigError
from mas.core.policy import Policy
from mas.core.team import TeamSpec

_WHY = "what is trained must not depend on who was quick"


def check_untimed(team: TeamSpec) -> None:
    """Refuse joins with a time limit, and limits of agents after which the team goes on without them.

    Raises:
        ConfigError: says where the limit is, and what to remove.
    """
    for name, join in team.joins.items():
        if join.timeout_s is not None:
            raise ConfigError(
                f"team {team.name!r} has a time limit at the join of {name!r} ({join.timeout_s:g} s): {_WHY}; "
                "remove 'timeout_s' to train it"
            )
    for name, policy in team.policies.items():
        limits = _limits(policy) + (_seconds(team, policy) if policy.on_failure == "isolate" else [])
        if limits and (policy.fallback is not None or policy.on_failure == "isolate"):
            raise ConfigError(
                f"team {team.name!r} goes on without agent {name!r} when it is late ({', '.join(limits)}, and then "
                f"{_then(policy)}): {_WHY}; remove one of the two from its policy to train it"
            )


def check_vanishing(team: TeamSpec) -> None:
    """Refuse to train over processes what goes on without an agent whose process is gone: that, too, is timing.

    Raises:
        ConfigError: says which agent, and what to remove.
    """
    for name, policy in team.policies.items():
        if policy.fallback is not None or policy.on_failure == "isolate":
            raise ConfigError(
                f"team {team.name!r} goes on without agent {name!r} when its process is gone ({_then(policy)}): {_WHY};"
                " remove that from its policy to train it over a bus"
            )
        if policy.idle_s is not None:
            raise ConfigError(
                f"team {team.name!r} waits for heartbeats of agent {name!r} (idle_s): over a bus, training learns "
                "from the broker whose process is gone; remove 'idle_s' to train it"
            )


def _limits(policy: Policy) -> list[str]:
    """The limits of one answer, as the policy has them."""
    return [name for name in ("timeout_s", "idle_s") if getattr(policy, name) is not None]


def _seconds(team: TeamSpec, policy: Policy) -> list[str]:
    """Budgets in seconds that the agent's calls fall under."""
    budgets = {"budget": policy.budget}
    budgets |= {f"the team's budget.{name}": getattr(team.budget, name) for name in ("turn", "episode", "run")}
    return [f"{name}.seconds" for name, budget in budgets.items() if budget.seconds is not None]


def _then(policy: Policy) -> str:
    return f"fallback: {policy.fallback}" if policy.fallback is not None else "on_failure: isolate"
