"""The planner: says what should be done, does nothing itself."""

from typing import ClassVar

from mas.roles.base import PromptedRole


class Planner(PromptedRole):
    """Emits a plan. Hears what happened, so that it can plan again."""

    default_emits: ClassVar[str] = "plan"
    default_accepts: ClassVar[frozenset[str]] = frozenset({"note", "feedback", "action", "items"})
    duty: ClassVar[str] = "Study the situation and write a short plan that your team can carry out."
