"""The executor: acts in the environment."""

from typing import ClassVar

from mas.roles.base import PromptedRole


class Executor(PromptedRole):
    """Emits the action. Follows plans and mends what feedback or a verdict found wrong."""

    default_emits: ClassVar[str] = "action"
    default_accepts: ClassVar[frozenset[str]] = frozenset({"plan", "feedback", "note", "action", "verdict", "items"})
    duty: ClassVar[str] = "Carry out the plan. If an earlier action of yours was criticised, correct it."
