"""A script for `ScriptedEngine` that answers an editor of experiences: the test double of the model that it asks.

    engine = ScriptedEngine(EditorScript(["Look first."]), context=100_000)
    LanguageEditor(ModelEndpoint(engine=engine, chats=True), ExperienceOptions())

It tells the kinds of questions apart by the form of the answer that they ask for.
"""

import json
from collections.abc import Callable, Mapping, Sequence

Texts = Sequence[str] | Callable[[str], Sequence[str]]


class EditorScript:
    """Satisfies `mas.testing.scripted.Answer`.

    Args:
        learned: what every group teaches, or a function of the question that asks for it, which has the summaries.
        operations: what the library shall become by; None: every text that was learned is added.
        summary: of a rollout, made of the question that shows it.

    Attributes:
        asked: every question, oldest first.
    """

    def __init__(
        self,
        learned: Texts,
        operations: Sequence[Mapping[str, str]] | None = None,
        summary: Callable[[str], str] = lambda question: "It tried.",
    ) -> None:
        self._learned, self._operations, self._summary = learned, operations, summary
        self.asked: list[str] = []

    def __call__(self, prompt: str, adapter: str | None, seed: int) -> str:
        """The answer to one question."""
        self.asked.append(prompt)
        if '"operation"' in prompt:
            wanted = self._operations
            if wanted is None:
                wanted = [{"operation": "ADD", "content": text} for text in self._texts(prompt)]
            return json.dumps(wanted)
        if "JSON list" in prompt:
            return json.dumps(list(self._texts(prompt)))
        return self._summary(prompt)

    def _texts(self, prompt: str) -> Sequence[str]:
        return self._learned(prompt) if callable(self._learned) else self._learned
