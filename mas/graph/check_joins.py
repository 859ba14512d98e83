"""Checks that every join can be met and that what is said of it has an effect."""

from mas.core.naming import did_you_mean, scoped
from mas.core.team import DONE, TeamSpec


def join_problems(spec: TeamSpec) -> list[str]:
    """Problems of a team's `joins`. Edges of one source count as one branch; those that lead back do not count."""
    known = (*spec.members(), DONE, *spec.teams, *(scoped(team, DONE) for team in spec.teams))
    problems = []
    for name, join in spec.joins.items():
        if name not in known:
            problems.append(f"'joins' names the unknown agent {name!r}. {did_you_mean(name, known)}")
            continue
        branches = dict.fromkeys(edge.source for edge in spec.edges if edge.target == name and edge.loop is None)
        found = f"{len(branches)} ({', '.join(branches)})" if branches else "none"
        if isinstance(join.need, int) and join.need > max(len(branches), 1):
            problems.append(f"the join of {name!r} needs {join.need} branches, but there are {found}; lower 'need'")
        if join.timeout_s is not None and len(branches) < 2:
            problems.append(
                f"the join of {name!r} has timeout_s: {join.timeout_s:g}, but waits for nothing: its branches are "
                f"{found}; remove it"
            )
    return problems
