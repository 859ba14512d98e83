"""The spans of a team: episodes, team turns, agents, the environment, what happens at joins, and calls of engines.

Names and attributes are those of OpenTelemetry's conventions for generative AI where there is one; others begin with
`mas.`. Prompts and completions are recorded only where the tracer shows content. Leaves out on purpose: messages
(`mas.bus.traced`).
"""

import time
from collections.abc import AsyncGenerator, Awaitable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import msgspec

from mas.bus.traced import TracedSender
from mas.core.bus import Bus
from mas.core.engine import AdapterRef, Engine, EngineWrapper, Generation, Request
from mas.core.naming import agent_of
from mas.core.records import Attempt
from mas.core.tracing import Attributes, Kind, Span, Tracer, current_tracer
from mas.runtime.agents import ModelEndpoint
from mas.runtime.flow import Flow
from mas.runtime.payloads import Candidate
from mas.runtime.play import DecisionPoint, OnFlow
from mas.runtime.policies import OnAttempt

T = TypeVar("T")
PROVIDER = "mas"
"""Who serves the models, as far as mas knows."""


class _Episode:
    """An open episode's spans; `turn` None: between team turns."""

    def __init__(self, span: Span) -> None:
        self.span = span
        self.turn: Span | None = None

    def end_turn(self, error: BaseException | None = None) -> None:
        if self.turn is not None:
            self.turn.end(error)
            self.turn = None


class TeamSpans:
    """Puts spans around what a runtime does. `is_distributed`: whether agents may be in other processes."""

    def __init__(self, tracer: Tracer, team: str, *, is_distributed: bool) -> None:
        self._tracer = tracer
        self._team = team
        self._is_distributed = is_distributed
        self._open: dict[str, _Episode] = {}

    @classmethod
    def of(cls, team: str, *, is_distributed: bool) -> "TeamSpans | None":
        """Those of a team, None where no tracer is on."""
        tracer = current_tracer()
        return None if tracer is None else cls(tracer, team, is_distributed=is_distributed)

    def sender(self, bus: Bus) -> TracedSender:
        """The bus, with a span around each message sent."""
        return TracedSender(bus, self._tracer)

    async def episode(self, episode: str, played: Awaitable[T]) -> T:
        """Play one episode: the team is a workflow, named as an agent is, and the episode its conversation."""
        attributes: Attributes = {
            "gen_ai.operation.name": "invoke_workflow",
            "gen_ai.agent.name": self._team,
            "gen_ai.conversation.id": episode,
        }
        with self._tracer.span(f"invoke_workflow {self._team}", attributes, is_episode=True) as span:
            opened = self._open[episode] = _Episode(span)
            error: BaseException | None = None
            try:
                return await played
            except BaseException as raised:
                error = raised
                raise
            finally:
                opened.end_turn(error)
                del self._open[episode]

    async def world(self, what: str, episode: str, turn: int, answer: Awaitable[T]) -> T:
        """Ask the environment: a team turn begins as the team looks, and ends when it has acted or looks again."""
        opened = self._open.get(episode)
        if opened is not None and what == "look":
            opened.end_turn()
            begun: Attributes = {"gen_ai.conversation.id": episode, "mas.turn": turn}
            opened.turn = self._tracer.begin(f"turn {turn}", begun, within=opened.span)
        with self._tracer.span(what, {"mas.turn": turn}, within=self._within(episode)):
            result = await answer
        if opened is not None and what == "act":
            opened.end_turn()
        return result

    async def agent(
        self,
        point: DecisionPoint,
        seeds: Sequence[int],
        episode: str | None,
        answer: Awaitable[tuple[Candidate, ...]],
        *,
        is_imagined: bool = False,
    ) -> tuple[Candidate, ...]:
        """Ask one agent, whatever its policy makes of it. `is_imagined`: in a play-out, nothing of it happens."""
        attributes: Attributes = {
            "gen_ai.operation.name": "invoke_agent",
            "gen_ai.provider.name": PROVIDER,
            "gen_ai.agent.name": point.agent,
            "gen_ai.conversation.id": episode,
            "mas.role": point.flow.plan.roles[agent_of(point.agent)].name,
            "mas.turn": point.turn,
            "mas.visit": point.flow.visits(point.agent),
            "mas.seeds": tuple(seeds),
            "mas.imagined": True if is_imagined else None,
        }
        kind: Kind = "client" if self._is_distributed and not is_imagined else "internal"
        name, within = f"invoke_agent {point.agent}", self._within(episode)
        with self._tracer.span(name, attributes, kind=kind, within=within) as span:
            candidates = await answer
            span.set(_usage(candidates))
            return candidates

    def noting(self, note: OnAttempt) -> OnAttempt:
        """The note of an episode, with an event in the current span (an agent's) for each attempt."""

        def noted(attempt: Attempt) -> None:
            cause = attempt.cause
            if cause is not None and not self._tracer.shows_content:
                cause = cause.partition(":")[0]
            event: Attributes = {
                "mas.attempt.number": attempt.number,
                "mas.attempt.purpose": attempt.purpose,
                "mas.attempt.asked": attempt.asked,
                "mas.attempt.cause": cause,
            }
            self._tracer.event("attempt.failed" if attempt.cause is not None else "attempt.succeeded", event)
            note(attempt)

        return noted

    def joins(self, episode: str) -> OnFlow:
        """Tells the team turn's span which joins wait, and what ends their waiting."""
        opened = self._open.get(episode)
        span = None if opened is None else opened.turn
        since: dict[str, float] = {}

        def watch(flow: Flow, is_expired: bool) -> None:
            if span is None:
                return
            waiting, now = flow.waiting_joins(), time.perf_counter()
            for name in since.keys() - set(waiting):
                waited: Attributes = {"mas.join": name, "mas.join.waited_s": round(now - since.pop(name), 6)}
                span.event("join.expired" if is_expired else "join.decided", waited)
            for name in waiting:
                if name not in since:
                    since[name] = now
                    span.event("join.waiting", {"mas.join": name})

        return watch

    def _within(self, episode: str | None) -> Span | None:
        opened = self._open.get(episode or "")
        return None if opened is None else opened.turn or opened.span


def _usage(candidates: Sequence[Candidate]) -> Attributes:
    """What candidates of one prompt cost, and how they ended; a stand-in's role, where one spoke."""
    return {
        "mas.candidates": len(candidates),
        "mas.answered_by": candidates[0].role,
        "gen_ai.request.temperature": candidates[0].temperature,
        "gen_ai.usage.input_tokens": len(candidates[0].prompt_ids),
        "gen_ai.usage.output_tokens": sum(len(one.generation.token_ids) for one in candidates),
        "gen_ai.response.finish_reasons": tuple(one.generation.finish for one in candidates),
    }


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
    model: str | None = getattr(engine, "model", None)
    name: str | None = getattr(getattr(engine, "origin", None), "name", None)
    if model is not None or name is None:
        return model
    return Path(name).name if Path(name).is_dir() else name


def _joined(pieces: Sequence[Generation]) -> tuple[Generation, ...]:
    """Pieces of one completion as one."""
    if not pieces:
        return ()
    token_ids = tuple(token for piece in pieces for token in piece.token_ids)
    return (msgspec.structs.replace(pieces[-1], token_ids=token_ids, logprobs=()),)


def _as_json(messages: list[dict[str, object]]) -> str:
    return msgspec.json.encode(messages).decode()
