"""What a team sets for its members: policies, joins, replicas and seats name somebody, and have an effect.

A team that plays several seats of a world at once, as in self-play, says which member speaks for which seat. Members of
different seats share no edge, so that nothing which one seat is told or says is heard in another: what both may know is
in the views that the world shows them.
"""

from collections.abc import Iterator, Mapping, Set

from mas.core.naming import did_you_mean, scoped
from mas.core.policy import Policy
from mas.core.role import Role
from mas.core.team import DONE, START, TeamSpec
from mas.graph.wiring import seat_parts


def policy_problems(spec: TeamSpec, roles: Mapping[str, Role]) -> Iterator[str]:
    """Problems of a team's policies and budgets.

    Args:
        roles: by role name.
    """
    members = spec.members()
    yield from _pointless(spec)
    for agent, policy in spec.policies.items():
        if agent not in members:
            yield f"'policies' names the unknown agent {agent!r}. {did_you_mean(agent, members)}"
        elif members[agent] in roles:
            yield from _help_problems(spec, roles, agent, policy)
    yield from _price_problems(spec)


def perhaps_meant(spec: TeamSpec) -> set[str]:
    """Roles that take no part, where a policy names nobody: it may have meant one of them; empty where none does."""
    members = spec.members()
    named = [name for policy in spec.policies.values() for name in (policy.fallback, policy.compensation) if name]
    if all(name in members or name in spec.stand_ins() for name in named):
        return set()
    used = {name for edge in spec.edges for name in (edge.source, edge.target)} | {*spec.outputs, *spec.joins}
    taking_part = set(spec.agents.values()) if spec.agents else used | set(spec.policies)
    return set(spec.roles) - taking_part - set(named)


def extra_sources(spec: TeamSpec, names: Set[str]) -> set[str]:
    """Whom one of these agents or stand-in roles may hear besides the sources of its own edges: those heard by the
    agents that it stands in for, and those that it compensates."""
    helped = {agent for agent, policy in spec.policies.items() if policy.fallback in names}
    heard = {edge.source for edge in spec.edges if edge.target in helped and edge.source != START}
    return heard | {agent for agent, policy in spec.policies.items() if policy.compensation in names}


def cast_role(spec: TeamSpec, roles: Mapping[str, Role], name: str) -> Role | None:
    """The role of an agent, or a stand-in role; None: there is no such name."""
    return roles.get(spec.members().get(name, name if name in spec.stand_ins() else ""))


def _pointless(spec: TeamSpec) -> Iterator[str]:
    """Values that are right and can never matter."""
    compensating = [agent for agent, policy in spec.policies.items() if policy.on_failure == "compensate"]
    compensated = [agent for agent, policy in spec.policies.items() if policy.compensation is not None]
    if compensating and not compensated:
        yield f"agent {compensating[0]!r} has on_failure: compensate, but no agent has a 'compensation'; add one"
    if compensated and not compensating:
        yield f"agent {compensated[0]!r} has a 'compensation', but no agent has on_failure: compensate"


def _help_problems(spec: TeamSpec, roles: Mapping[str, Role], agent: str, policy: Policy) -> Iterator[str]:
    """What is wrong with whom an agent's policy names: its fallback and its compensation."""
    own = roles[spec.members()[agent]]
    for key, name in (("fallback", policy.fallback), ("compensation", policy.compensation)):
        if name is None:
            continue
        role = cast_role(spec, roles, name)
        if role is None or name == agent:
            possible = {*spec.members(), *spec.stand_ins(), *perhaps_meant(spec)} - {agent}
            yield (
                f"'policies': the {key} of agent {agent!r} is {name!r}, which is no other agent and no role that "
                f"nobody plays. {did_you_mean(name, possible)}"
            )
        elif key == "fallback" and (role.emits, set(role.routes)) != (own.emits, set(own.routes)):
            yield (
                f"the fallback {name!r} of agent {agent!r} emits {role.emits!r} with routes {sorted(role.routes)}; "
                f"what stands in for it must emit {own.emits!r} with routes {sorted(own.routes)}"
            )
        elif key == "compensation" and own.emits not in role.accepts:
            yield (
                f"the compensation {name!r} of agent {agent!r} is told {own.emits!r}, which it does not accept. "
                f"{did_you_mean(own.emits, role.accepts)}"
            )


def _price_problems(spec: TeamSpec) -> list[str]:
    limits = [spec.budget.turn, spec.budget.episode, spec.budget.run]
    limits += [policy.budget for policy in spec.policies.values()]
    if all(limit.cost is None for limit in limits):
        return []
    return [
        f"role {name!r} has no price, but a budget limits the cost; add 'price: {{prompt: 0, completion: 0}}', "
        "per 1000 tokens"
        for name, role in spec.roles.items()
        if role.price is None
    ]


def join_problems(spec: TeamSpec) -> Iterator[str]:
    """Problems of a team's `joins`. Edges of one source count as one branch; those that lead back do not count."""
    known = (*spec.members(), DONE, *spec.teams, *(scoped(team, DONE) for team in spec.teams))
    for name, join in spec.joins.items():
        if name not in known:
            yield f"'joins' names the unknown agent {name!r}. {did_you_mean(name, known)}"
            continue
        branches = dict.fromkeys(edge.source for edge in spec.edges if edge.target == name and edge.loop is None)
        found = f"{len(branches)} ({', '.join(branches)})" if branches else "none"
        looped = [edge for edge in spec.edges if edge.target == name and edge.loop is not None]
        uncounted = ", without the edges with 'loop', which are not waited for" if looped else ""
        if isinstance(join.need, int) and join.need > max(len(branches), 1):
            verb = "is" if len(branches) < 2 else "are"
            yield (
                f"the join of {name!r} needs {join.need} branches, but there {verb} {found}{uncounted}; lower 'need'"
            )
        if join.timeout_s is not None and len(branches) < 2:
            yield (
                f"the join of {name!r} has timeout_s: {join.timeout_s:g}, but waits for nothing: its branches are "
                f"{found}; remove it"
            )


def replica_problems(spec: TeamSpec) -> Iterator[str]:
    """Problems of a team's `replicas`: names of nobody, and several of one person."""
    members = spec.members()
    known = {**members, **{name: name for name in spec.stand_ins()}}
    for name, limits in spec.replicas.items():
        if name not in known:
            yield f"'replicas' names the unknown agent {name!r}. {did_you_mean(name, known)}"
        elif known[name] in spec.roles and spec.roles[known[name]].voice == "human" and limits.most > 1:
            yield f"'replicas': a person plays agent {name!r}, and is not more than one; remove the key"


def seat_problems(spec: TeamSpec) -> list[str]:
    """What is wrong with `seats`."""
    if not spec.seats:
        return []
    members = spec.members()
    problems = [
        f"'seats' names the unknown agent {agent!r}. {did_you_mean(agent, members)}"
        for agent in spec.seats.values()
        if agent not in members
    ]
    if "seat" in spec.model_fields_set:
        problems.append(f"'seat' ({spec.seat!r}) and 'seats' exclude each other; leave 'seat' out")
    if len(set(spec.seats.values())) < len(spec.seats):
        problems.append("'seats' names an agent twice; each seat has one of its own (agents may play one role)")
    if spec.output not in spec.seats.values():
        problems.append(f"'output' {spec.output!r} speaks for no seat; name one of {', '.join(spec.seats.values())}")
    if spec.joint or spec.else_output:
        problems.append("'seats' says who speaks for each seat; leave 'joint' and 'else_output' out")
    return problems or [*_part_problems(spec)]


def _part_problems(spec: TeamSpec) -> Iterator[str]:
    for part, seats in seat_parts(spec):
        if len(seats) > 1:
            yield (
                f"seats {', '.join(seats)} are joined by edges ({', '.join(part)}): one would hear what is said in the "
                "other; what both may know belongs into the world's views"
            )
        if not seats:
            yield f"agents {', '.join(part)} play for no seat: lead them to {', '.join(spec.seats.values())}"
