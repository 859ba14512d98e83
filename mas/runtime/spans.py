"""The spans of a team: episodes, team turns, agents, the environment, and what happens at joins.

Names and attributes are those of OpenTelemetry's conventions for generative AI where there is one; others begin with
`mas.`. Leaves out on purpose: messages (`mas.bus.traced`) and engines (`mas.runtime.traced_engine`).
"""

import time
from collections.abc import Awaitable, Sequence
from typing import TypeVar

from mas.bus.traced import TracedSender
from mas.core.bus import Bus
from mas.core.naming import agent_of
from mas.core.records import Attempt
from mas.core.tracing import Attributes, Kind, Span, Tracer, current_tracer
from mas.runtime.flow import Flow
from mas.runtime.payloads import Candidate
from mas.runtime.point import DecisionPoint, OnFlow
from mas.runtime.policies import OnAttempt

T = TypeVar("T")
PROVIDER = "mas"
"""Who serves the models, as far as mas knows."""


class _Episode:
    """An open episode's spans; `turn` None: between team turns."""

    __slots__ = ("span", "turn")

    def __init__(self, span: Span) -> None:
        self.span = span
        self.turn: Span | None = None

    def end_turn(self, error: BaseException | None = None) -> None:
        """The team turn is over."""
        if self.turn is not None:
            self.turn.end(error)
            self.turn = None


class TeamSpans:
    """Puts spans around what a runtime does.

    Args:
        is_distributed: whether agents may be in other processes.
    """

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
