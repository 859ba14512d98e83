"""Changing what agents know while their team plays."""

from collections.abc import Iterable, Mapping

from mas.core.errors import RunError
from mas.core.role import Role
from mas.runtime.agents import Member


def teach(members: Iterable[Member], roles: Mapping[str, Role]) -> None:
    """Put roles with other experiences in the places of those of their names, in all members or in none.

    Raises:
        RunError: no member plays a role, or it differs in more.
    """
    playing = list(members)
    for name, role in roles.items():
        own = [member for member in playing if member.role.name == name]
        if not own:
            raise RunError(f"role {name!r} cannot be taught: no agent in this process plays it")
        same = {"experiences": role.spec.experiences}
        if any(member.role.spec.model_copy(update=same) != role.spec for member in own):
            raise RunError(f"role {name!r} cannot become another one while the team plays: only experiences change")
    for member in playing:
        member.role = roles.get(member.role.name, member.role)
