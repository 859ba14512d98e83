"""An engine that says what a function says: the test double of every engine; and a function that answers an editor of
experiences.

    engine = ScriptedEngine(EditorScript(["Look first."]), context=100_000)
    LanguageEditor(ModelEndpoint(engine=engine, chats=True), ExperienceOptions())

Leaves out on purpose: batching, and adapters that change anything but what the function is told.
"""

import json
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from types import MappingProxyType

from mas.core.engine import AdapterRef, Generation, Request
from mas.core.errors import EngineError, UnknownAdapter
from mas.core.naming import did_you_mean
from mas.serving.model_text import CHARACTERS, END, CharacterTokenizer, ModelLimits

Answer = Callable[[str, str | None, int], str]
"""(prompt text, adapter name, seed) -> completion text."""


class ScriptedEngine:
    """Satisfies `mas.core.engine.Engine`. Every token that the script says has probability 1.

    Args:
        answer: the script. A completion is its text and the end token, cut at `max_tokens` or behind a stop token.
        adapters: names that are published, all as version 0.
        has_chat: whether its tokenizer has a chat template.
        context: tokens, which are characters, that a prompt and its completion may have.

    Attributes:
        requests: every request served, oldest first, for tests to look at.
    """

    def __init__(
        self, answer: Answer, adapters: Sequence[str] = (), *, has_chat: bool = True, context: int = 4096
    ) -> None:
        self.answer = answer
        self.tokenizer = CharacterTokenizer(has_chat=has_chat)
        self.stop_ids: tuple[int, ...] = (END,)
        self.requests: list[Request] = []
        self._served = {name: AdapterRef(name, 0) for name in adapters}
        self._limits = ModelLimits(vocabulary=CHARACTERS, context=context)
        self._closed = False

    def adapters(self) -> Mapping[str, AdapterRef]:
        return MappingProxyType(self._served)

    def publish(self, name: str) -> AdapterRef:
        """The name's next version."""
        version = self._served[name].version + 1 if name in self._served else 0
        self._served[name] = AdapterRef(name, version)
        return self._served[name]

    async def generate(self, request: Request) -> tuple[Generation, ...]:
        self._check_open()
        ref = self._resolve(request.adapter)
        self._limits.check_request(request)
        self.requests.append(request)
        return tuple(self._generation(request, seed, ref) for seed in request.seeds)

    async def stream(self, request: Request) -> AsyncGenerator[Generation]:
        """One character after the other."""
        self._limits.check_stream(request)
        (whole,) = await self.generate(request)
        for position, token in enumerate(whole.token_ids, start=1):
            finish = whole.finish if position == len(whole.token_ids) else ""
            yield Generation(token_ids=(token,), logprobs=(0.0,), finish=finish, adapter=whole.adapter)

    async def score(
        self, prompt_ids: Sequence[int], completion_ids: Sequence[int], adapter: str | None = None
    ) -> tuple[float, ...]:
        self._check_open()
        self._resolve(adapter)
        self._limits.check_score(prompt_ids, completion_ids)
        return (0.0,) * len(completion_ids)

    async def close(self) -> None:
        self._closed = True

    def _generation(self, request: Request, seed: int, ref: AdapterRef | None) -> Generation:
        text = self.answer(self.tokenizer.decode(request.prompt_ids), request.adapter, seed)
        sampling = request.sampling
        token_ids = (*self.tokenizer.encode(text), END)[: sampling.max_tokens]
        for position, token in enumerate(token_ids):
            if token in sampling.stop:
                token_ids = token_ids[: position + 1]
                break
        finish = "stop" if token_ids[-1] in sampling.stop else "length"
        return Generation(token_ids=token_ids, logprobs=(0.0,) * len(token_ids), finish=finish, adapter=ref)

    def _resolve(self, name: str | None) -> AdapterRef | None:
        if name is not None and name not in self._served:
            raise UnknownAdapter(f"no adapter {name!r} is published. {did_you_mean(name, self._served)}")
        return None if name is None else self._served[name]

    def _check_open(self) -> None:
        if self._closed:
            raise EngineError("the engine is closed")


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
