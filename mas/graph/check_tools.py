"""Checks what a team says about tools: who may call what, and which agents do what they are called for."""

from collections.abc import Iterator, Mapping

from mas.core.naming import did_you_mean
from mas.core.role import ENVIRONMENT, RoleSpec
from mas.core.team import TeamSpec
from mas.graph.check_messages import senders_of

PLAYED = "tools"
"""The `voice` of roles that servers of tools play."""


def has_tools(spec: TeamSpec) -> bool:
    """Whether anything of the team is about tools."""
    return bool(spec.tools) or any(role.tools or role.voice == PLAYED for role in spec.roles.values())


def tool_problems(spec: TeamSpec) -> list[str]:
    """Problems of a team's servers of tools, of the roles that may call them, and of the agents that do so."""
    played = {agent: spec.roles[role] for agent, role in spec.members().items() if role in spec.roles}
    return [
        *_name_problems(spec),
        *_stand_in_problems(spec, played),
        *_edge_problems(spec, played),
        *_environment_problems(spec, played),
    ]


def callers_of(spec: TeamSpec, agent: str) -> dict[str, RoleSpec]:
    """Whom an agent hears, by the agents' names, or those of teams, with their roles."""
    members = spec.members()
    heard = {name: members.get(spec.teams.get(name, name), "") for name in senders_of(spec, agent)}
    return {name: spec.roles[role] for name, role in heard.items() if role in spec.roles}


def _name_problems(spec: TeamSpec) -> Iterator[str]:
    named = set[str]()
    for name, role in spec.roles.items():
        for tool in role.server_tools:
            server = tool.partition(".")[0]
            named.add(server)
            if server not in spec.tools:
                yield f"role {name!r} may call {tool!r} of an unknown server. {did_you_mean(server, spec.tools)}"
    for server in spec.tools:
        if "." in server:
            yield f"the server of tools {server!r} has a dot in its name: take it out"
        elif server == ENVIRONMENT:
            yield f"a server of tools cannot be named {ENVIRONMENT!r}, as the tools of environments are: rename it"
        elif server not in named:
            yield f"no role may call a tool of the server {server!r}: name one under 'tools' of a role, or remove it"


def _stand_in_problems(spec: TeamSpec, played: Mapping[str, RoleSpec]) -> Iterator[str]:
    for agent, policy in spec.policies.items():
        other = played.get(policy.fallback or "") or spec.roles.get(policy.fallback or "")
        own = played.get(agent)
        if own is None or other is None:
            continue
        if (own.tools, own.privileges) != (other.tools, other.privileges) or (own.voice == PLAYED) != (
            other.voice == PLAYED
        ):
            yield f"agent {agent!r} and its fallback {policy.fallback!r} must have the same tools and privileges"


def _edge_problems(spec: TeamSpec, played: Mapping[str, RoleSpec]) -> Iterator[str]:
    doing = [agent for agent, role in played.items() if role.voice == PLAYED]
    called = {spec.teams.get(caller, caller) for agent in doing for caller in callers_of(spec, agent)}
    for agent, role in played.items():
        if role.server_tools and agent not in called:
            yield (
                f"agent {agent!r} has tools, and no edge leads from it to an agent that calls them: add a role with "
                f"voice: tools, and '{agent} -> THAT when call'"
            )
    for agent in doing:
        untooled = [caller for caller, role in callers_of(spec, agent).items() if not role.server_tools]
        if untooled or not callers_of(spec, agent):
            whom = repr(untooled[0]) if untooled else "nobody"
            yield f"agent {agent!r} calls tools for {whom}: lead edges to it from roles with 'tools' alone"


def _environment_problems(spec: TeamSpec, played: Mapping[str, RoleSpec]) -> Iterator[str]:
    acting = {*spec.outputs, *spec.seats.values()}
    for agent, role in played.items():
        if role.environment_tools and spec.joint:
            yield f"agent {agent!r} has tools of the environment, and the team has 'joint': leave out one of both"
        elif role.environment_tools and agent not in acting:
            names = ", ".join(sorted(acting))
            yield (
                f"agent {agent!r} has tools of the environment, and its output is never the team's action: give them "
                f"to who acts ({names})"
            )
