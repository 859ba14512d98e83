"""Experiences of roles: a team that has them, prompts without them, and whether a role reads its own."""

from collections.abc import Mapping, Sequence

from mas.core.role import Role, View
from mas.core.team import TeamSpec
from mas.roles.build import build_role
from mas.roles.chat import learned


def taught(team: TeamSpec, experiences: Mapping[str, Sequence[str]]) -> TeamSpec:
    """The team with these experiences, by role, in place of the roles' own; roles that are left out keep theirs."""
    roles = {
        name: spec.model_copy(update={"experiences": tuple(experiences.get(name, spec.experiences))})
        for name, spec in team.roles.items()
    }
    return team.model_copy(update={"roles": roles}) if experiences else team


def unlearned(prompt: str, experiences: Sequence[str]) -> str:
    """A prompt as it was without its experiences: without their section, and without the lines that they are."""
    for section in learned(experiences):
        prompt = prompt.replace(f"{section}\n\n", "", 1)
    return prompt.replace("".join(f"{text}\n" for text in experiences), "", 1)


_PROBE = "This line is read."


def is_reader(role: Role, view: View) -> bool:
    """Whether a role of this kind shows its experiences in both of its prompts."""
    reader = build_role(role.name, role.spec.model_copy(update={"experiences": (_PROBE,)}))
    return _PROBE in reader.prompt(view) and _PROBE in "\n".join(reader.chat(view))
