"""A team at work: its agents and its environment listen on the bus, and episodes are played through it."""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from itertools import count
from types import MappingProxyType, TracebackType
from typing import Self

from mas.bus.serve import serve
from mas.core.bus import Bus
from mas.core.engine import Engine
from mas.core.environment import Environment, Observation, Step
from mas.core.errors import Expired, MasError, RemoteError, RunError
from mas.core.messages import Envelope, Payload
from mas.core.naming import agent_of
from mas.graph.plan import Plan
from mas.runtime.agents import Act, Answer, Ask, Candidate, EnvironmentAgent, Look, RoleAgent, Seen, Stepped, Voice
from mas.runtime.flow import Flow
from mas.runtime.play import Decide, Point, play_turn, team_action, view_names

OnTurn = Callable[[int, Flow, Step], None]

_RUNS = count()
_CREDIT = 65_536
"""Asks that one agent may have in hand: the engine, not the bus, decides how many run together."""


class TeamRuntime:
    """Puts the agents of a plan on a bus. Use as an async context manager.

    Args:
        adapters: role name -> adapter name, None for the bare base.
        chats: whether roles speak through the model's chat template.
        timeout_s: how long one agent may take to answer; None: no limit.
        peers: role name -> voice, for roles that speak through something other than the engine.
    """

    def __init__(
        self,
        plan: Plan,
        engine: Engine,
        bus: Bus,
        *,
        adapters: Mapping[str, str | None],
        chats: bool = False,
        timeout_s: float | None = None,
        peers: Mapping[str, Voice] = MappingProxyType({}),
    ) -> None:
        self.plan = plan
        self.bus = bus
        self.timeout_s = timeout_s
        self.world = EnvironmentAgent()
        self._agents = {
            name: RoleAgent(
                role,
                peers.get(role.name) or Voice(engine=engine, adapter=adapters.get(role.name), chats=chats),
            )
            for name, role in plan.roles.items()
        }
        self._address = f"run/{plan.spec.name}/{next(_RUNS)}"
        self._numbers = count()
        self._views = view_names(plan)
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        await self._stack.enter_async_context(
            serve(self.bus, self._of("environment"), self.world.handle, concurrency=_CREDIT)
        )
        for name, agent in self._agents.items():
            await self._stack.enter_async_context(serve(self.bus, self._of(name), agent.handle, concurrency=_CREDIT))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.aclose()

    async def ask(
        self, point: Point, seeds: tuple[int, ...], *, episode: str, temperature: float | None = None
    ) -> tuple[Candidate, ...]:
        """One candidate per seed from the agent at a decision point. Only the agent can read what it is asked."""
        payload = Ask.model_construct(view=point.view, seeds=seeds, temperature=temperature)
        answer = await self._request(agent_of(point.agent), payload, episode, point.turn)
        if not isinstance(answer, Answer):
            raise RunError(f"agent {point.agent!r} answered {answer.kind!r} to 'ask'")
        return answer.candidates

    async def imagine(self, point: Point, seed: int) -> Candidate:
        """What the agent would say at a hypothetical point. Nothing happens there, so nothing travels on the bus.

        Raises:
            Expired: no answer came in time. RemoteError: the agent failed with an error that is not of mas.
        """
        try:
            async with asyncio.timeout(self.timeout_s) as limit:
                (candidate,) = await self._agents[agent_of(point.agent)].answer(point.view, (seed,))
        except MasError:
            raise
        except Exception as error:
            if limit.expired():
                raise Expired(f"agent {point.agent!r} did not answer within {self.timeout_s} s") from None
            raise RemoteError(f"agent {point.agent!r} failed: {type(error).__name__}: {error}") from error
        return candidate

    async def play(self, episode: str, environment: Environment, decide: Decide, on_turn: OnTurn) -> None:
        """Play an environment that was reset to its end; it takes part through the bus like an agent.

        `on_turn` is told every team turn after it was committed.

        Raises:
            RunError: a seat other than the team's has to move.
        """
        self.world.episodes[episode] = environment
        try:
            turn = 0
            while seats := environment.to_move():
                if seats != (self.plan.spec.seat,):
                    raise RunError(f"team {self.plan.spec.name!r} plays seat {self.plan.spec.seat!r}, to move: {seats}")
                observations = await self.look(episode, turn)
                flow = await play_turn(Flow.start(self.plan), environment, observations, turn, decide)
                on_turn(turn, flow, await self.act(episode, turn, {seats[0]: team_action(flow)}))
                turn += 1
        finally:
            del self.world.episodes[episode]

    async def look(self, episode: str, turn: int) -> Mapping[str, Observation]:
        """What every agent sees, asked over the bus."""
        views = tuple(dict.fromkeys(self._views.values()))
        seen = await self._request("environment", Look.model_construct(episode=episode, views=views), episode, turn)
        if not isinstance(seen, Seen):
            raise RunError(f"the environment answered {seen.kind!r} to 'look'")
        return {agent: seen.observations[view] for agent, view in self._views.items()}

    async def act(self, episode: str, turn: int, actions: dict[str, str]) -> Step:
        """Act in the episode's environment over the bus."""
        answer = await self._request(
            "environment", Act.model_construct(episode=episode, actions=actions), episode, turn
        )
        if not isinstance(answer, Stepped):
            raise RunError(f"the environment answered {answer.kind!r} to 'act'")
        return answer.step

    def _of(self, name: str) -> str:
        return f"{self.plan.spec.name}/{name}"

    async def _request(self, name: str, payload: Payload, episode: str, turn: int) -> Payload:
        target = self._of(name)
        envelope = Envelope(
            id=f"{self._address}/{next(self._numbers)}",
            kind=payload.kind,
            source=self._address,
            target=target,
            payload=payload,
            visibility=frozenset((target, self._address)),
            episode=episode,
            turn=turn,
        )
        return (await self.bus.request(envelope, timeout_s=self.timeout_s)).payload
