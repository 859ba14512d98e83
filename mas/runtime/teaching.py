"""Changing what agents know, and which adapters they speak through, while their team plays."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from mas.core.errors import RunError
from mas.core.role import Role
from mas.runtime.agents import RoleAgent, TeamMember


def teach(members: Sequence[TeamMember], roles: Mapping[str, Role]) -> None:
    """Put roles with other experiences in the places of those of their names, in all members or in none.

    Raises:
        RunError: no member plays a role, or it differs in more.
    """
    for name, role in roles.items():
        own = [member for member in members if member.role.name == name]
        if not own:
            raise RunError(f"role {name!r} cannot be taught: no agent in this process plays it")
        same = {"experiences": role.spec.experiences}
        if any(member.role.spec.model_copy(update=same) != role.spec for member in own):
            raise RunError(f"role {name!r} cannot become another one while the team plays: only experiences change")
    for member in members:
        member.role = roles.get(member.role.name, member.role)


def speak_as(members: Sequence[TeamMember], adapters: Mapping[str, str]) -> None:
    """Let roles, by name, speak through other adapters from now on; those not named stay as they are.

    Raises:
        RunError: the agents are processes of their own.
    """
    if not members:
        raise RunError("agents in processes of their own keep their adapters: roles swap in one process only")
    for member in members:
        if isinstance(member, RoleAgent) and member.role.name in adapters:
            member.voice = replace(member.voice, adapter=adapters[member.role.name])
