"""Teams that most work needs, as functions from roles to a `TeamSpec`.

A role left out is the built-in one of that name with its own instructions. Agents have fixed names (`planner`,
`executor`, ...), so that templates can read `{from.planner}`. Leaves out on purpose: checking, which
`mas.graph.compile_team` does for every team alike.
"""

import itertools
from collections.abc import Mapping

from mas.core.errors import ConfigError
from mas.core.team import DONE, START, EdgeSpec, RoleSpec, TeamSpec

PLANNER = RoleSpec(type="planner")
EXECUTOR = RoleSpec(type="executor")
VERIFIER = RoleSpec(type="verifier")
FEEDBACK = RoleSpec(type="feedback")


def solo(role: RoleSpec = EXECUTOR, *, name: str = "solo") -> TeamSpec:
    """One agent, `solo`, whose output is the team's action: the baseline of every team."""
    return TeamSpec(name=name, roles={"solo": role}, edges=_chain("solo"), output="solo")


def plan_execute(planner: RoleSpec = PLANNER, executor: RoleSpec = EXECUTOR, *, name: str = "plan_execute") -> TeamSpec:
    """The planner speaks, then the executor acts."""
    roles = {"planner": planner, "executor": executor}
    return TeamSpec(name=name, roles=roles, edges=_chain(*roles), output="executor")


def plan_execute_verify(
    planner: RoleSpec = PLANNER,
    executor: RoleSpec = EXECUTOR,
    verifier: RoleSpec = VERIFIER,
    feedback: RoleSpec = FEEDBACK,
    *,
    revisions: int = 1,
    name: str = "plan_execute_verify",
) -> TeamSpec:
    """Plan, act, and let a verifier accept the action or send it back with feedback, `revisions` times at most.

    An action that is rejected once more after the last revision is not committed: the team passes.

    Raises:
        ConfigError: revisions is below 1.
    """
    if revisions < 1:
        raise ConfigError(f"revisions={revisions} leaves nothing to verify for: at least 1, or use plan_execute")
    edges = (
        EdgeSpec(source=START, target="planner"),
        EdgeSpec(source="planner", target="executor"),
        EdgeSpec(source="executor", target="verifier"),
        EdgeSpec(source="verifier", target=DONE, when="accept"),
        EdgeSpec(source="verifier", target="feedback", when="reject", loop=revisions),
        EdgeSpec(source="feedback", target="executor"),
    )
    roles = {"planner": planner, "executor": executor, "verifier": verifier, "feedback": feedback}
    return TeamSpec(name=name, roles=roles, edges=edges, joins={"executor": "any"}, output="executor")


def fan_out(
    workers: Mapping[str, RoleSpec],
    judge: RoleSpec = EXECUTOR,
    planner: RoleSpec | None = None,
    *,
    name: str = "fan_out",
) -> TeamSpec:
    """Workers by name, each a role of its own, speak at the same time; then the judge, who hears all, acts.

    Args:
        planner: speaks first and is heard by every worker; None: the workers begin.

    Raises:
        ConfigError: no workers, or one that is named like another agent.
    """
    members = {worker: worker for worker in workers}
    return _fan(dict(workers), members, judge, planner, name)


def vote(
    worker: RoleSpec = EXECUTOR,
    judge: RoleSpec = EXECUTOR,
    planner: RoleSpec | None = None,
    *,
    voters: int = 3,
    name: str = "vote",
) -> TeamSpec:
    """`voters` agents `worker_1`, `worker_2`, ... of one role speak at the same time; then the judge acts.

    They share the role's adapter and, unless the role names another, the environment view `worker`.

    Raises:
        ConfigError: fewer than 1 voter.
    """
    shared = worker.model_copy(update={"view": worker.view or "worker"})
    members = {f"worker_{number}": "worker" for number in range(1, voters + 1)}
    return _fan({"worker": shared}, members, judge, planner, name)


def _fan(
    roles: dict[str, RoleSpec], workers: Mapping[str, str], judge: RoleSpec, planner: RoleSpec | None, name: str
) -> TeamSpec:
    taken = {"judge", "planner"} & roles.keys()
    if not workers or taken:
        problem = f"a worker is named {sorted(taken)[0]!r}, as another agent is" if taken else "there is no worker"
        raise ConfigError(f"team {name!r} cannot fan out: {problem}; give at least one worker with a name of its own")
    first = {} if planner is None else {"planner": planner}
    source = "planner" if first else START
    edges = [EdgeSpec(source=START, target="planner")] if first else []
    edges += [EdgeSpec(source=source, target=worker) for worker in workers]
    edges += [EdgeSpec(source=worker, target="judge") for worker in workers]
    return TeamSpec(
        name=name,
        roles={**first, **roles, "judge": judge},
        agents={**{agent: agent for agent in first}, **workers, "judge": "judge"},
        edges=(*edges, EdgeSpec(source="judge", target=DONE)),
        output="judge",
    )


def _chain(*agents: str) -> tuple[EdgeSpec, ...]:
    nodes = (START, *agents, DONE)
    return tuple(EdgeSpec(source=a, target=b) for a, b in itertools.pairwise(nodes))
