"""The built-in roles, and from role names in a team to role objects.

The planner says what should be done and does nothing itself, the executor acts in the environment, the feedback agent
says what should change in an action that was not accepted, and the verifier accepts or rejects an action, and so
chooses the way on. `taught` and `unlearned` put experiences into a team and take them out of prompts.
"""

import re
from collections.abc import Mapping, Sequence
from importlib import import_module
from inspect import isclass
from typing import ClassVar

from mas.core.errors import ConfigError
from mas.core.messages import Payload, Verdict
from mas.core.naming import did_you_mean
from mas.core.role import Role, View
from mas.core.team import RoleSpec, TeamSpec
from mas.roles.base import PromptedRole
from mas.roles.chat import learned


class Planner(PromptedRole):
    """Emits a plan. Hears what happened, so that it can plan again."""

    default_emits: ClassVar[str] = "plan"
    default_accepts: ClassVar[frozenset[str]] = frozenset({"note", "feedback", "action", "items"})
    duty: ClassVar[str] = "Study the situation and write a short plan that your team can carry out."


class Executor(PromptedRole):
    """Emits the action. Follows plans and mends what feedback or a verdict found wrong."""

    default_emits: ClassVar[str] = "action"
    default_accepts: ClassVar[frozenset[str]] = frozenset({"plan", "feedback", "note", "action", "verdict", "items"})
    duty: ClassVar[str] = "Carry out the plan. If an earlier action of yours was criticised, correct it."


class FeedbackAgent(PromptedRole):
    """Emits feedback on an action and its verdict."""

    default_emits: ClassVar[str] = "feedback"
    default_accepts: ClassVar[frozenset[str]] = frozenset({"action", "verdict", "plan", "note", "items"})
    duty: ClassVar[str] = "Find what is wrong with the proposed action and say how to correct it."


class Verifier(PromptedRole):
    """Emits a verdict, whose route is `accept` or `reject`.

    An answer counts if it begins with the spec's `accept_text` or `reject_text` as a whole word, in upper or lower
    case: 'Accept.' and 'reject, because …' both do. Output that is neither takes the failure route (`reject`).
    """

    default_emits: ClassVar[str] = "verdict"
    default_accepts: ClassVar[frozenset[str]] = frozenset({"action", "plan", "note", "items"})
    default_routes: ClassVar[tuple[str, ...]] = ("accept", "reject")
    default_failure_route: ClassVar[str | None] = "reject"
    emittable: ClassVar[frozenset[str]] = frozenset({"verdict"})
    duty: ClassVar[str] = "Check whether the proposed action is right and fits the plan. Do not act yourself."

    def __init__(self, name: str, spec: RoleSpec) -> None:
        """Check that the two answers differ.

        Raises:
            ConfigError: they do not, or the spec asks for what a verifier cannot do.
        """
        super().__init__(name, spec)
        words = {spec.accept_text.strip().casefold(): True, spec.reject_text.strip().casefold(): False}
        if len(words) < 2 or "" in words:
            raise ConfigError(
                f"verifier {name!r} needs two different answers, but accept_text is {spec.accept_text!r} "
                f"and reject_text is {spec.reject_text!r}"
            )
        self._words = dict(sorted(words.items(), key=lambda word: -len(word[0])))

    @property
    def choices(self) -> tuple[str, ...]:
        """The spec's choices, else its two answers."""
        return self.spec.choices or (self.spec.accept_text, self.spec.reject_text)

    def rule(self) -> str:
        """Which word an answer must begin with; empty where the instructions name both words."""
        accept, reject = self.spec.accept_text, self.spec.reject_text
        if self.spec.format:
            return self.spec.format
        if all(re.search(rf"(?<!\w){re.escape(word)}(?!\w)", self.spec.instructions) for word in (accept, reject)):
            return ""
        return f"Begin your answer with {accept!r} if it is right, or with {reject!r} if it is not."

    def answer(self, text: str) -> Payload:
        """The verdict that the first word says; the whole text stays readable for others."""
        accept = self._decision(text)
        if accept is None:
            words = f"{self.spec.accept_text!r} nor {self.spec.reject_text!r}"
            return self.failure(text, f"begins neither with {words}")
        return Verdict(text=text, accept=accept)

    def _illegal(self, answer: str) -> str | None:
        return super()._illegal(answer) if self.spec.choices else None

    def _decision(self, text: str) -> bool | None:
        raw = text.casefold()
        for spoken in (raw, raw.lstrip("*_`'\"([")):
            for word, accept in self._words.items():
                if spoken.startswith(word) and not spoken[len(word) : len(word) + 1].isalnum():
                    return accept
        return None


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


_PROBE = "This line is read."


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


def is_reader(role: Role, view: View) -> bool:
    """Whether a role of this kind shows its experiences in both of its prompts."""
    reader = build_role(role.name, role.spec.model_copy(update={"experiences": (_PROBE,)}))
    return _PROBE in reader.prompt(view) and _PROBE in "\n".join(reader.chat(view))
