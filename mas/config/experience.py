"""Options of training without gradients: what is compared, who writes experiences down, and how many."""

from typing import Annotated, Literal

from pydantic import Field

from mas.config.base import NonNegative, Options, Positive

BUILT_IN_EDITORS = ("base", "quote")
"""Editors that are no peer."""


class ExperienceOptions(Options):
    """How libraries of experiences are written.

    `editor`: `base` asks the run's own base LLM, any other name the peer of that name (`peers.NAME.url`); `quote` asks
    nobody and writes down how the role answered in an episode that did better than others of its group.
    `score`: whether an episode was solved, or the role's reward as `algorithm.reward` adds it up.
    `sees`: an editor is shown the role's `own` turns alone, or those of the whole `team`.

    `most` experiences of `characters` characters each are in a library, and at most `per_group` come of one group.
    `max_tokens`, `temperature`: of each of the editor's answers.
    """

    editor: Annotated[str, Field(min_length=1)] = "base"
    score: Literal["success", "reward"] = "success"
    sees: Literal["own", "team"] = "own"
    most: Positive = 32
    characters: Positive = 400
    per_group: Positive = 2
    max_tokens: Positive = 1024
    temperature: NonNegative = 0.0

    @property
    def peer(self) -> str | None:
        """The peer that edits; None: it is no peer."""
        return None if self.editor in BUILT_IN_EDITORS else self.editor

    def why_idle(self, name: str) -> str | None:
        """Why an option has no effect beside the others; None: it has one."""
        if self.editor == "quote" and name in ("sees", "max_tokens", "temperature"):
            return "editor=quote asks no model"
        return None
