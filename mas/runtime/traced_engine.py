"""An engine with a span around every call, by OpenTelemetry's conventions for generative AI.

Prompts and completions are recorded only where the tracer shows content.
"""

from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Protocol, runtime_checkable

import msgspec

from mas.core.engine import AdapterRef, Engine, EngineWrapper, Generation, Request
from mas.core.tracing import Attributes, Span, Tracer, current_tracer
from mas.runtime.agents import ModelEndpoint
from mas.runtime.spans import PROVIDER


@runtime_checkable
class _ServesModel(Protocol):
    """An engine that speaks to a server's model."""

    model: str


class _Named(Protocol):
    @property
    def name(self) -> str:
        """A hub id or a directory."""


@runtime_checkable
class _HasBase(Protocol):
    """An engine that holds a base, and says where it comes from."""

    origin: _Named


class TracedEngine(EngineWrapper[Engine]):
    """Satisfies `mas.core.engine.Engine` as the engine inside it does."""

    def __init__(self, engine: Engine, tracer: Tracer, *, chats: bool) -> None:
        super().__init__(engine)
        self._tracer = tracer
        self._operation = "chat" if chats else "text_completion"
        self._model = model_name(engine)

    async def generate(self, request: Request) -> tuple[Generation, ...]:
        with self._tracer.span(self._name, self._asked(request), kind="client") as span:
            made = await self._engine.generate(request)
            self._answered(span, made)
            return made

    async def stream(self, request: Request) -> AsyncGenerator[Generation]:
        """Its span lasts until the generator ends or is closed."""
        attributes = {**self._asked(request), "gen_ai.request.stream": True}
        span = self._tracer.begin(self._name, attributes, kind="client")
        pieces, said = self._engine.stream(request), list[Generation]()
        error: Exception | None = None
        try:
            async for piece in pieces:
                said.append(piece)
                yield piece
        except Exception as raised:
            error = raised
            raise
        finally:
            await pieces.aclose()
            self._answered(span, _joined(said))
            span.end(error)

    async def score(
        self, prompt_ids: Sequence[int], completion_ids: Sequence[int], adapter: str | None = None
    ) -> tuple[float, ...]:
        return await self._engine.score(prompt_ids, completion_ids, adapter)

    def adapters(self) -> Mapping[str, AdapterRef]:
        return self._engine.adapters()

    @property
    def _name(self) -> str:
        return f"{self._operation} {self._model}" if self._model else self._operation

    def _asked(self, request: Request) -> Attributes:
        sampling, seeds = request.sampling, request.seeds
        return {
            "gen_ai.operation.name": self._operation,
            "gen_ai.provider.name": PROVIDER,
            "gen_ai.request.model": self._model,
            "gen_ai.request.temperature": sampling.temperature,
            "gen_ai.request.max_tokens": sampling.max_tokens,
            "gen_ai.request.choice.count": len(seeds) if len(seeds) > 1 else None,
            "gen_ai.request.seed": seeds[0] if len(seeds) == 1 else None,
            "mas.seeds": tuple(seeds) if len(seeds) > 1 else None,
            "mas.adapter.name": request.adapter,
            "gen_ai.usage.input_tokens": len(request.prompt_ids),
            "gen_ai.input.messages": self._content("user", request.prompt_ids),
        }

    def _answered(self, span: Span, made: Sequence[Generation]) -> None:
        adapter = made[0].adapter if made else None
        span.set(
            {
                "mas.adapter.version": None if adapter is None else adapter.version,
                "gen_ai.usage.output_tokens": sum(len(one.token_ids) for one in made),
                "gen_ai.response.finish_reasons": tuple(one.finish for one in made),
                "gen_ai.output.messages": self._outputs(made),
            }
        )

    def _content(self, role: str, token_ids: Sequence[int]) -> str | None:
        if not self._tracer.shows_content:
            return None
        return _as_json([self._message(role, token_ids)])

    def _outputs(self, made: Sequence[Generation]) -> str | None:
        if not self._tracer.shows_content:
            return None
        return _as_json([{**self._message("assistant", one.token_ids), "finish_reason": one.finish} for one in made])

    def _message(self, role: str, token_ids: Sequence[int]) -> dict[str, object]:
        text = self.tokenizer.decode(token_ids)
        return {"role": role, "parts": [{"type": "text", "content": text}]}


def traced_endpoint(endpoint: ModelEndpoint) -> ModelEndpoint:
    """The endpoint with spans around its engine's calls; the endpoint itself where no tracer is on."""
    tracer = current_tracer()
    if tracer is None:
        return endpoint
    return replace(endpoint, engine=TracedEngine(endpoint.engine, tracer, chats=endpoint.chats))


def model_name(engine: Engine) -> str | None:
    """What an engine serves: a server's model, a hub id, or a directory's last part; None where it does not say."""
    if isinstance(engine, _ServesModel):
        return engine.model
    if not isinstance(engine, _HasBase):
        return None
    path = Path(engine.origin.name)
    return path.name if path.is_dir() else engine.origin.name


def _joined(pieces: Sequence[Generation]) -> tuple[Generation, ...]:
    """Pieces of one completion as one."""
    if not pieces:
        return ()
    token_ids = tuple(token for piece in pieces for token in piece.token_ids)
    return (msgspec.structs.replace(pieces[-1], token_ids=token_ids, logprobs=()),)


def _as_json(messages: list[dict[str, object]]) -> str:
    return msgspec.json.encode(messages).decode()
