"""From role names in a team to role objects."""

from importlib import import_module
from inspect import isclass

from mas.core.errors import ConfigError
from mas.core.naming import did_you_mean
from mas.core.role import Role, RoleSpec
from mas.core.team import TeamSpec
from mas.roles.base import PromptedRole
from mas.roles.executor import Executor
from mas.roles.feedback import FeedbackAgent
from mas.roles.planner import Planner
from mas.roles.verifier import Verifier

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
    """The role object of one spec: a built-in type, or a user's own class written `package.module:Class`.

    Raises:
        ConfigError: the type does not exist or is no role, or the spec asks what it cannot honour.
    """
    if ":" not in spec.type:
        built_in = BUILT_IN.get(spec.type)
        if built_in is None:
            raise ConfigError(
                f"role {name!r} has the unknown type {spec.type!r}. {did_you_mean(spec.type, BUILT_IN)} "
                "A class of your own is written 'package.module:Class'."
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
    module_name, _, class_name = path.partition(":")
    try:
        module = import_module(module_name)
    except (ImportError, ValueError) as error:
        hint = "Install it, or put its folder into PYTHONPATH: PYTHONPATH=. mas ..."
        if module_name.startswith("mas."):
            hint = "Role types of scenarios were moved: take those that its team has now, or train the run anew."
        raise ConfigError(f"{where}: the module {module_name!r} cannot be imported: {error}. {hint}") from error
    found = getattr(module, class_name, None)
    if not isclass(found):
        classes = [name for name, value in vars(module).items() if isclass(value)]
        raise ConfigError(f"{where}: {module_name!r} has no class {class_name!r}. {did_you_mean(class_name, classes)}")
    return found
