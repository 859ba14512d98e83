"""What there is to know about a scenario before anybody plays it: for people, and as JSON."""

import inspect
from collections.abc import Mapping
from itertools import islice
from typing import Any

import msgspec

from mas.config.options import ScenarioOptions, TinyOptions
from mas.config.plain_values import literal
from mas.core.errors import ConfigError
from mas.core.naming import did_you_mean, local_name
from mas.core.options import Options
from mas.core.plugins import offered_names
from mas.core.role import RoleSpec, View
from mas.core.scenario import Scenario
from mas.core.team import TeamSpec
from mas.roles import PromptedRole, build_roles
from mas.scenarios.registry import GROUP, SCENARIOS, build_scenario, find_scenario
from mas.scenarios.user_class import UserScenario
from mas.scenarios.world import FolderScenario, expert_of

_BOUNDS = {"minimum": ">=", "exclusiveMinimum": ">", "maximum": "<=", "exclusiveMaximum": "<"}


class OptionProfile(msgspec.Struct, frozen=True, kw_only=True):
    """One option of a scenario. `kind`: its type in JSON's words; `bounds`: what it may be, empty for no limit."""

    name: str
    kind: str
    default: Any
    bounds: str


class Profile(msgspec.Struct, frozen=True, kw_only=True):
    """One scenario at one size.

    Attributes:
        summary: the first paragraph of its README.
        notes: what the options mean, in their author's words.
        sizes: the options that each size sets, by name, the smallest first; `size` is the one that the rest is true of.
        terms: named rewards that the environment pays to seats; `own_terms`: those that roles are paid on top.
        teams: agent -> role of every team, by name.
        has_expert: whether the best play that is known is written down.
    """

    name: str
    family: str
    size: str
    summary: str
    options: tuple[OptionProfile, ...]
    notes: str
    sizes: Mapping[str, Mapping[str, Any]]
    seats: tuple[str, ...]
    views: tuple[str, ...]
    dynamics: str
    max_turns: int
    terms: tuple[str, ...]
    own_terms: tuple[str, ...]
    teams: Mapping[str, Mapping[str, str]]
    has_expert: bool


def scenario_names() -> list[str]:
    """All scenarios: those that come with mas, then those that other packages offer."""
    return list(dict.fromkeys([*SCENARIOS, *offered_names(GROUP)]))


def sized(name: str, size: str | None = None) -> ScenarioOptions:
    """A scenario's options at one of its sizes; None: the smallest.

    Raises:
        ConfigError: no such scenario, or it has no such size.
    """
    sizes = find_scenario(name).sizes
    chosen = next(iter(sizes)) if size is None else size
    if chosen not in sizes:
        raise ConfigError(f"scenario {name!r} has no size {chosen!r}. {did_you_mean(chosen, sizes)}")
    return ScenarioOptions(name=name, options=dict(sizes[chosen]))


def size_overrides(name: str, size: str | None) -> list[str]:
    """The size as overrides of a command; none for None.

    Raises:
        ConfigError: no such scenario, or it has no such size.
    """
    options = sized(name, size).options if size is not None else {}
    return [f"scenario.options.{key}={literal(value)}" for key, value in options.items()]


def profile(name: str, size: str | None = None) -> Profile:
    """All that is known of a scenario at one of its sizes; None: the smallest.

    Raises:
        ConfigError: no such scenario, or it has no such size.
    """
    entry, options = find_scenario(name), sized(name, size)
    scenario = build_scenario(options)
    world = scenario.environment().spec
    return Profile(
        name=name,
        family=entry.family,
        size=next(iter(entry.sizes)) if size is None else size,
        summary=summary(scenario),
        options=_options(entry.options),
        notes="" if entry.options is Options else inspect.cleandoc(entry.options.__doc__ or ""),
        sizes={size: dict(changed) for size, changed in entry.sizes.items()},
        seats=world.seats,
        views=world.views,
        dynamics=world.dynamics,
        max_turns=world.max_turns,
        terms=world.terms,
        own_terms=scenario.reward.terms,
        teams={team: spec.members() for team, spec in scenario.teams.items()},
        has_expert=expert_of(scenario) is not None,
    )


def summary(scenario: Scenario) -> str:
    """From the README of the scenario's folder, or of a user's class its docstring; without one from that of the module
    that builds it."""
    if isinstance(scenario, UserScenario):
        return first_paragraph(inspect.getdoc(scenario.kind) or "")
    readme = scenario.folder / "README.md" if isinstance(scenario, FolderScenario) else None
    if readme is not None and readme.is_file():
        return first_paragraph(readme.read_text(encoding="utf-8"))
    module = inspect.getmodule(find_scenario(scenario.name).build)
    return first_paragraph(module.__doc__ or "") if module is not None else ""


def first_paragraph(page: str) -> str:
    """The first lines of a Markdown text that are no title, as one line."""
    lines: list[str] = []
    for line in page.splitlines():
        if line.strip() and not line.startswith("#"):
            lines.append(line.strip())
        elif lines:
            break
    return " ".join(lines)


def _options(model: type[Options]) -> tuple[OptionProfile, ...]:
    schema = model.model_json_schema()
    shared = schema.get("$defs", {})
    return tuple(
        OptionProfile(
            name=name,
            kind=" or ".join(
                str(one.get("type", "choice" if "enum" in one or "const" in one else "any"))
                for one in _alternatives(spec, shared)
            ),
            default=spec.get("default"),
            bounds=", ".join(bound for one in _alternatives(spec, shared) for bound in _bounds(one)),
        )
        for name, spec in schema.get("properties", {}).items()
    )


def _alternatives(spec: Mapping[str, Any], shared: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The possible shapes of an option, as `int | None` has two; references followed."""
    return [shared.get(one.get("$ref", "").rpartition("/")[2], one) for one in spec.get("anyOf", [spec])]


def _bounds(spec: Mapping[str, Any]) -> list[str]:
    limits = [f"{sign} {spec[key]}" for key, sign in _BOUNDS.items() if key in spec]
    possible = spec.get("enum", [spec["const"]] if "const" in spec else [])
    return limits + ([f"one of {', '.join(str(value) for value in possible)}"] if possible else [])


_SHOWN = 256
"""Demonstrations that are looked at; those of all roles come in turn."""


def longest(scenario: Scenario, team: TeamSpec) -> tuple[str, int]:
    """The role with the longest prompt and answer in the first held-out task, and how many characters these have.

    Messages of others are not counted, so more may be needed. A scenario's attribute `longest_prompt` may know more.
    Roles that the base does not play (peers, people, tools, agents elsewhere) count as nothing.
    """
    environment, roles = scenario.environment(), build_roles(team)
    environment.reset(scenario.task("eval", 0))
    needs = {}
    for agent, name in team.members().items():
        role = roles[name]
        if not _is_the_bases(role.spec):
            needs[name] = 0
            continue
        observation = environment.observe(role.spec.view or local_name(agent))
        needs[name] = len(role.prompt(View(observation=observation))) + role.spec.max_tokens
    found = max(needs, key=needs.__getitem__)
    known = getattr(scenario, "longest_prompt", 0)
    return found, max(needs[found], known)


def _is_the_bases(role: RoleSpec) -> bool:
    return role.peer is None and role.voice == "engine"


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
        if type(role).prompt is PromptedRole.prompt and role.spec.template is None and _is_the_bases(role.spec)
    ]
    if not asked:
        return []
    shown = [prompt.rsplit("\n", 1)[-1] for prompt, _ in islice(scenario.demonstrations(0, expert=True), _SHOWN)]
    return [name for name in asked if f"{name}:" not in shown]
