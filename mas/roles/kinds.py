"""The kinds of roles: the planner says what should be done, the executor acts, the verifier accepts or rejects, the
feedback agent says what should change.
"""

import re
from typing import ClassVar

from mas.core.errors import ConfigError
from mas.core.messages import Payload, Verdict
from mas.core.role import RoleSpec
from mas.roles.base import PromptedRole


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
