"""The rules of a role for its tools, checked before every call: of a server's tool, of the sandbox, of the environment.

An environment acts on the call that a team's action is. So the check stands in front of every step, of the committed
one and of those of clones: `step_with` is the only way in which a team's action gets into a world.
"""

from collections.abc import Collection, Iterable, Mapping

from mas.core.environment import Caller, CountedCall, Environment, Step, ToolWorld
from mas.core.errors import RunError
from mas.core.naming import agent_of
from mas.core.privilege import Privilege
from mas.core.role import ENVIRONMENT, RoleSpec
from mas.core.tool_call import ToolCall
from mas.runtime.flow import Flow

DENIED = "denied"
"""The route of what an agent that calls tools says where it denies a call. No edge can ask for it."""


def denial(tools: Collection[str], rule: Privilege | None, sender: str, call: ToolCall, made: int) -> str | None:
    """What is answered in place of a result; None: the call may be made.

    Args:
        tools: that the sender may call. rule: for this one.
        made: how many calls of the tool that were not denied the sender has made in this branch of the episode.
    """
    if call.name not in tools:
        named = ", ".join(tools) or "none"
        return f"denied: {sender!r} may not call {call.name[:100]!r}; it may call: {named}"
    if rule is None:
        return None
    why = rule.problem(call.arguments)
    if why is None and rule.most is not None and made >= rule.most:
        why = f"{rule.most} calls in an episode are allowed"
    if why is None:
        return None
    return rule.instead or f"denied: {sender!r} may not call {call.name!r} so: {why}"


def environment_step(environment: Environment, flow: Flow, actions: Mapping[str, str]) -> Step:
    """Let a finished team turn act.

    Args:
        actions: of all seats that must act.

    Raises:
        EnvironmentFault: as `Environment.step`. RunError: as `callers`.
    """
    found = callers(environment, flow, actions)
    return step_with(environment, actions, found) if found else environment.step(actions)


def step_with(environment: Environment, actions: Mapping[str, str], found: Mapping[str, Caller]) -> Step:
    """Act, with what `callers` has found."""
    if found and isinstance(environment, ToolWorld):
        return environment.step_as(actions, found)
    return environment.step(actions)


def callers(environment: Environment, flow: Flow, actions: Mapping[str, str]) -> dict[str, Caller]:
    """Seat -> who calls a tool of the environment there, of agents that have rules for them.

    Raises:
        RunError: the environment has no tools that can be denied.
    """
    found: dict[str, Caller] = {}
    if not any(role.spec.environment_tools for role in flow.plan.roles.values()):
        return found
    if not isinstance(environment, ToolWorld):
        raise RunError(
            f"roles of team {flow.plan.spec.name!r} have tools of the environment, and that of "
            f"{environment.spec.name!r}, as it is played here, has none that can be denied: leave them out of the team"
        )
    for seat, action in actions.items():
        agent = flow.speaker(seat) if seat in flow.plan.spec.plays else None
        role = None if agent is None else flow.plan.roles[agent_of(agent)].spec
        call = None if role is None or not role.environment_tools else environment.call_of(action)
        if agent is not None and role is not None and call is not None:
            found[seat] = Caller(agent, _denial(role, agent, call, environment.counted_calls()))
    return found


def _denial(role: RoleSpec, agent: str, call: ToolCall, done: Iterable[CountedCall]) -> str | None:
    made = sum((one.agent, one.tool, one.is_denied) == (agent, call.name, False) for one in done)
    name = f"{ENVIRONMENT}.{call.name}"
    tools = [f"{ENVIRONMENT}.{tool}" for tool in role.environment_tools]
    return denial(tools, role.privileges.get(name), agent, ToolCall(name, call.arguments), made)
