"""Checks that limits of how many work at once are of somebody."""

from mas.core.naming import did_you_mean
from mas.core.team import TeamSpec


def replica_problems(spec: TeamSpec) -> list[str]:
    """Problems of a team's `replicas`: names of nobody, and several of one person."""
    members = spec.members()
    known = {**members, **{name: name for name in spec.stand_ins()}}
    problems = []
    for name, limits in spec.replicas.items():
        if name not in known:
            problems.append(f"'replicas' names the unknown agent {name!r}. {did_you_mean(name, known)}")
        elif known[name] in spec.roles and spec.roles[known[name]].voice == "human" and limits.most > 1:
            problems.append(f"'replicas': a person plays agent {name!r}, and is not more than one; remove the key")
    return problems
