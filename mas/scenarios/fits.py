"""Whether the tiny base can read what a team is told: it takes few characters, and sizes in words have many."""

from itertools import islice

from mas.config.options import TinyOptions
from mas.core.naming import local_name
from mas.core.role import View
from mas.core.scenario import Scenario
from mas.core.team import TeamSpec
from mas.roles import PromptedRole, build_roles
from mas.scenarios.catalogue import sized
from mas.scenarios.registry import build_scenario, find_scenario

_SHOWN = 256
"""Demonstrations that are looked at; those of all roles come in turn."""


def longest(scenario: Scenario, team: TeamSpec) -> tuple[str, int]:
    """The role with the longest prompt and answer in the first held-out task, and how many characters these have.

    Messages of others are not counted, so more may be needed. A scenario's attribute `longest_prompt` may know more.
    """
    environment, roles = scenario.environment(), build_roles(team)
    environment.reset(scenario.task("eval", 0))
    needs = {}
    for agent, name in team.members().items():
        role = roles[name]
        observation = environment.observe(role.spec.view or local_name(agent))
        needs[name] = len(role.prompt(View(observation=observation))) + role.spec.max_tokens
    found = max(needs, key=needs.__getitem__)
    known = getattr(scenario, "longest_prompt", 0)
    return found, max(needs[found], known)


def is_for_real_models(name: str, size: str) -> bool:
    """Whether a size is not for the tiny base: the scenario has no demonstrations for it, the size is in another style
    (words, JSON, whole numbers: an option that is a text), or a role is told more than it can read.

    Raises:
        ConfigError: no such scenario, or it has no such size. MissingPackage: its package would have to tell.
    """
    entry, options = find_scenario(name), sized(name, size)
    if not entry.is_demonstrated or any(isinstance(value, str) for value in options.options.values()):
        return True
    scenario = build_scenario(options)
    return (
        longest(scenario, scenario.teams.get("team") or next(iter(scenario.teams.values())))[1] > TinyOptions().context
    )


def untaught(scenario: Scenario, team: TeamSpec) -> list[str]:
    """Roles without a compact prompt, where no demonstration ends as the prompt that they get instead.

    Raises:
        ConfigError: the scenario has no demonstrations at all.
    """
    asked = [
        name
        for name, role in build_roles(team).items()
        if type(role).prompt is PromptedRole.prompt
        and role.spec.template is None
        and role.spec.peer is None
        and role.spec.voice == "engine"
    ]
    if not asked:
        return []
    shown = [prompt.rsplit("\n", 1)[-1] for prompt, _ in islice(scenario.demonstrations(0, expert=True), _SHOWN)]
    return [name for name in asked if f"{name}:" not in shown]
