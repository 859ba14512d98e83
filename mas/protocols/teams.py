"""Teams that most work needs, as functions from roles to a `TeamSpec`.

A role left out is the built-in one of that name with its own instructions. Agents have fixed names (`planner`,
`executor`, ...), so that templates can read `{from.planner}`. Leaves out on purpose: checking, which
`mas.graph.compile_team` does for every team alike.
"""

import itertools
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from pydantic import ValidationError

from mas.core.errors import ConfigError
from mas.core.role import RoleSpec
from mas.core.team import DONE, START, EdgeSpec, TeamSpec

PLANNER = RoleSpec(type="planner")
EXECUTOR = RoleSpec(type="executor")
VERIFIER = RoleSpec(type="verifier")
FEEDBACK = RoleSpec(type="feedback")
SPEAKER = RoleSpec(type="agent")
CRITIC = RoleSpec(type="feedback")


def solo(role: RoleSpec = EXECUTOR, *, name: str = "solo") -> TeamSpec:
    """One agent, `solo`, whose output is the team's action: the baseline of every team."""
    return TeamSpec(name=name, roles={"solo": role}, edges=_chain("solo"), output="solo")


def plan_execute(planner: RoleSpec = PLANNER, executor: RoleSpec = EXECUTOR, *, name: str = "plan_execute") -> TeamSpec:
    """The planner speaks, then the executor acts."""
    return pipeline({"planner": planner, "executor": executor}, name=name)


def pipeline(stages: Mapping[str, RoleSpec], *, name: str = "pipeline") -> TeamSpec:
    """Agents by name, each a role of its own, one after the other; each hears the one before it, and the last acts.

    Raises:
        ConfigError: no stages.
    """
    if not stages:
        raise ConfigError(f"team {name!r} has no stages: give at least one, as {{'writer': RoleSpec(type='executor')}}")
    return TeamSpec(name=name, roles=dict(stages), edges=_chain(*stages), output=list(stages)[-1])


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
    members = {f"worker_{number}": "worker" for number in range(1, voters + 1)}
    return _fan(_seen({"worker": worker}), members, judge, planner, name)


def nested(
    workers: Mapping[str, TeamSpec],
    judge: RoleSpec = EXECUTOR,
    planner: RoleSpec | None = None,
    *,
    name: str = "nested",
) -> TeamSpec:
    """As `fan_out`, and every worker is a team itself: its agents are called `WORKER.AGENT`, and the judge hears its
    action as a message of `WORKER`. Teams that have a role of one name share it, and its adapter.

    Raises:
        ConfigError: no workers, one that is named like another agent, or two teams with different roles of one name.
    """
    try:
        return _fan({}, {worker: {"team": team} for worker, team in workers.items()}, judge, planner, name)
    except ValidationError as error:
        said = "; ".join(problem["msg"].removeprefix("Value error, ") for problem in error.errors())
        raise ConfigError(f"team {name!r} cannot be made of these teams: {said}") from error


def debate(
    debaters: Mapping[str, RoleSpec] = MappingProxyType({"pro": SPEAKER, "con": SPEAKER}),
    judge: RoleSpec = EXECUTOR,
    *,
    rounds: int = 2,
    name: str = "debate",
) -> TeamSpec:
    """Debaters by name, each a role of its own, speak at the same time, `rounds` times; from the second round on each
    hears what all said in the round before. The judge, who hears the last round, acts.

    The agent of a debater in a round is called `NAME_1`, `NAME_2`, ...; unless a role names another, it has the
    environment view of the debater's name.
    Source: Du et al. 2023, arXiv 2305.14325, there with a vote instead of a judge.

    Raises:
        ConfigError: fewer than two debaters, rounds below 1, or a debater called `judge`.
    """
    if len(debaters) < 2 or rounds < 1 or "judge" in debaters:
        raise ConfigError(
            f"team {name!r}: {len(debaters)} debaters ({', '.join(debaters)}) and {rounds} rounds are no debate; give "
            "two debaters or more, none of them called 'judge', and one round or more"
        )
    stages = [[f"{debater}_{number}" for debater in debaters] for number in range(1, rounds + 1)]
    agents = {agent: agent.rpartition("_")[0] for stage in stages for agent in stage}
    return _staged([[START], *stages, ["judge"], [DONE]], {**_seen(debaters), "judge": judge}, agents, name)


def critique_and_refine(
    writer: RoleSpec = SPEAKER,
    critic: RoleSpec = CRITIC,
    refiner: RoleSpec = EXECUTOR,
    *,
    rounds: int = 1,
    name: str = "critique_and_refine",
) -> TeamSpec:
    """A writer drafts; then, `rounds` times, a critic criticises and a refiner, who hears the draft and the critique,
    writes it anew; the last refined draft is the action. Unlike `plan_execute_verify` nobody accepts or rejects.

    Agents are `writer`, `critic_1`, `refiner_1`, `critic_2`, ...; critics share a role and its adapter, as refiners do.
    Source: Madaan et al. 2023, Self-Refine, arXiv 2303.17651.

    Raises:
        ConfigError: rounds is below 1.
    """
    if rounds < 1:
        raise ConfigError(f"team {name!r}: rounds={rounds} refines nothing: at least 1, or use solo")
    edges, draft = [EdgeSpec(source=START, target="writer")], "writer"
    agents = {"writer": "writer"}
    for number in range(1, rounds + 1):
        now, after = f"critic_{number}", f"refiner_{number}"
        agents |= {now: "critic", after: "refiner"}
        edges += [EdgeSpec(source=a, target=b) for a, b in ((draft, now), (draft, after), (now, after))]
        draft = after
    roles = _seen({"writer": writer, "critic": critic, "refiner": refiner})
    edges.append(EdgeSpec(source=draft, target=DONE))
    return TeamSpec(name=name, roles=roles, agents=agents, edges=tuple(edges), output=draft)


def self_play(players: Mapping[str, RoleSpec], *, name: str = "self_play") -> TeamSpec:
    """A match: each player, by the name of the environment's seat, plays that seat, and hears nothing of the others.

    Roles that name one `adapter` share it: one policy then plays itself.

    Raises:
        ConfigError: fewer than two players.
    """
    if len(players) < 2:
        raise ConfigError(f"team {name!r}: {len(players)} players are no match; give a role for every seat of a game")
    stages = [[START], list(players), [DONE]]
    team = _staged(stages, dict(players), {player: player for player in players}, name)
    return team.model_copy(update={"seats": {player: player for player in players}})


def _seen(roles: Mapping[str, RoleSpec]) -> dict[str, RoleSpec]:
    """Roles of agents that are not called as they are: each sees the view of its own name, where it names no other."""
    return {name: role.model_copy(update={"view": role.view or name}) for name, role in roles.items()}


def _staged(stages: Sequence[Sequence[str]], roles: dict[str, RoleSpec], agents: dict[str, str], name: str) -> TeamSpec:
    """Everybody of a stage is heard by everybody of the next; the first of the last one acts."""
    edges = [EdgeSpec(source=a, target=b) for one, after in itertools.pairwise(stages) for a in one for b in after]
    everybody = {**agents, **{agent: agent for agent in roles if agent not in agents.values()}}
    return TeamSpec(name=name, roles=roles, agents=everybody, edges=tuple(edges), output=stages[-2][0])


def _fan(
    roles: dict[str, RoleSpec], workers: Mapping[str, Any], judge: RoleSpec, planner: RoleSpec | None, name: str
) -> TeamSpec:
    taken = {"judge", "planner"} & (roles.keys() | workers.keys())
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
