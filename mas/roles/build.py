"""Roles made from the specs of a team, and what such a role says at random in the right form."""

from collections.abc import Sequence
from inspect import isclass
from random import Random

from mas.core.errors import ConfigError
from mas.core.messages import Action, Failure, Items
from mas.core.naming import did_you_mean
from mas.core.role import Role, RoleSpec
from mas.core.team import TeamSpec
from mas.core.user_code import load_module
from mas.roles.base import PromptedRole
from mas.roles.kinds import Executor, FeedbackAgent, Planner, Verifier

BUILT_IN: dict[str, type[PromptedRole]] = {
    "agent": PromptedRole,
    "executor": Executor,
    "feedback": FeedbackAgent,
    "planner": Planner,
    "verifier": Verifier,
}
"""Role types that need no import path."""

_METHODS = ("prompt", "chat", "parse")
_ATTRIBUTES = ("name", "spec", "emits", "accepts", "routes")


def build_roles(spec: TeamSpec) -> dict[str, Role]:
    """One role object per role of the team, by role name.

    Raises:
        ConfigError: a type that does not exist, or a spec that its role cannot honour.
    """
    return {name: build_role(name, role) for name, role in spec.roles.items()}


def build_role(name: str, spec: RoleSpec) -> Role:
    """The role object of one spec: a built-in type, or a user's own class, `file.py:Class` or `package.module:Class`.

    Raises:
        ConfigError: the type does not exist or is no role, or the spec asks what it cannot honour.
    """
    if ":" not in spec.type:
        built_in = BUILT_IN.get(spec.type)
        if built_in is None:
            raise ConfigError(
                f"role {name!r} has the unknown type {spec.type!r}. {did_you_mean(spec.type, BUILT_IN)} "
                "A class of your own is written 'file.py:Class' or 'package.module:Class'."
            )
        return built_in(name, spec)
    where = f"role {name!r} of type {spec.type!r}"
    found = _load(where, spec.type)
    try:
        role = found(name, spec)
    except TypeError as error:
        raise ConfigError(f"{where} could not be made from (name, spec): {error}") from error
    if not isinstance(role, Role):
        missing = [part for part in (*_ATTRIBUTES, *_METHODS) if not hasattr(role, part)]
        raise ConfigError(f"{where} is no role: it lacks {missing}. Derive it from mas.roles.PromptedRole.")
    return role


def _load(where: str, path: str) -> type:
    place, _, class_name = path.rpartition(":")
    module = load_module(where, place, "my_roles.py:MyRole")
    found = getattr(module, class_name, None)
    if not isclass(found):
        classes = [name for name, value in vars(module).items() if isclass(value)]
        raise ConfigError(f"{where}: {place!r} has no class {class_name!r}. {did_you_mean(class_name, classes)}")
    return found


def random_answer(role: Role, random: Random, legal: Sequence[str] = ()) -> str | None:
    """One of the role's choices, several in a row where its answers are spelled, one of them a line in a list.

    None: it has no choices, or none that it can read; any text may then be right.

    Args:
        legal: what the environment allows now, for a role that acts and declares no choices of its own.
    """
    choices = role.choices if isinstance(role, PromptedRole) else role.spec.choices
    if not choices and role.emits == Action.kind:
        choices = tuple(legal)
    readable = [choice for choice in choices if not isinstance(role.parse(choice), Failure)]
    if not readable:
        return None
    number, between = 1, ""
    if role.emits == Items.kind and isinstance(role, PromptedRole):
        number, between = random.randint(1, role.max_items), "\n"
    elif isinstance(role, PromptedRole) and role.spec.choices and role.is_spelled:
        number = random.randint(1, role.spec.max_tokens)
    text = between.join(random.choice(readable) for _ in range(number))
    return random.choice(readable) if isinstance(role.parse(text), Failure) else text
