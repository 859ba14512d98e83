"""The worker of `delegate`: what its sub-question finds in the archive is all that it is shown.

The search happens where its prompt is made, and every worker has its own: no page reaches another's context.
"""

from typing import ClassVar

import msgspec

from mas.core.environment import Observation
from mas.core.role import View
from mas.roles.base import PromptedRole
from mas.scenarios.delegate.cases import Style, page


class Worker(PromptedRole):
    """Emits a note. Its prompt has the field `page` instead of the observation's `archive`."""

    style: ClassVar[Style] = "words"
    duty: ClassVar[str] = "Answer your question from the page that a search found for it."

    def prompt(self, view: View) -> str:
        return super().prompt(self._searched(view))

    def chat(self, view: View) -> tuple[str, str]:
        return super().chat(self._searched(view))

    def prefill(self, view: View) -> str:
        return super().prefill(self._searched(view))

    def _searched(self, view: View) -> View:
        heard = self.visible(view)
        fields = dict(view.observation.fields)
        found = page(fields.pop("archive"), heard[-1].payload.content if heard else "", self.style)
        return msgspec.structs.replace(view, observation=Observation(fields | {"page": found}))


class LetterWorker(Worker):
    """The same in letters."""

    style: ClassVar[Style] = "letters"
