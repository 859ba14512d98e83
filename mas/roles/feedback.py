"""The feedback agent: says what should change in an action that was not accepted."""

from typing import ClassVar

from mas.roles.base import PromptedRole


class FeedbackAgent(PromptedRole):
    """Emits feedback on an action and its verdict."""

    default_emits: ClassVar[str] = "feedback"
    default_accepts: ClassVar[frozenset[str]] = frozenset({"action", "verdict", "plan", "note", "items"})
    duty: ClassVar[str] = "Find what is wrong with the proposed action and say how to correct it."
