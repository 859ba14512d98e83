"""Playing the episodes of a team: turn after turn, with an environment that listens on the bus like an agent."""

from collections.abc import Awaitable, Callable, Mapping
from functools import partial

from mas.core.environment import Environment, Observation, Step
from mas.core.errors import RunError
from mas.core.messages import Payload
from mas.core.records import Attempt
from mas.graph.plan import TeamPlan
from mas.runtime.agent_client import AgentClient
from mas.runtime.agents import EnvironmentAgent, ObserveReply, ObserveRequest, StepReply, StepRequest
from mas.runtime.budget import Accounts
from mas.runtime.drain import RequestGate
from mas.runtime.events import Setting
from mas.runtime.flow import Flow
from mas.runtime.opponents import NO_OPPONENTS, OpponentPolicies, opponent_actions
from mas.runtime.play import play_turn, seat_actions
from mas.runtime.play_replay_log import PlayReplayLog
from mas.runtime.point import Decide, silent_agents, view_names
from mas.runtime.process_role import ENVIRONMENT
from mas.runtime.replay_log import ReplayLog
from mas.runtime.spans import TeamSpans
from mas.runtime.turn_replay_log import restored

OnTurn = Callable[[int, Flow, Step], None]


class EpisodeLoop:
    """What `TeamRuntime.play` plays.

    Args:
        client: how agents and the environment are asked; accounts: what they may spend; gate: whether they may begin.
        spans: of what happens; None: nobody traces it. log: where it is written down; None: nowhere.
    """

    def __init__(
        self,
        plan: TeamPlan,
        *,
        client: AgentClient,
        accounts: Accounts,
        gate: RequestGate,
        spans: TeamSpans | None,
        log: ReplayLog | None,
    ) -> None:
        self.world = EnvironmentAgent()
        self.plan = plan
        self._client = client
        self._accounts = accounts
        self._gate = gate
        self._spans = spans
        self._log = log
        self._views = view_names(plan)

    async def play(
        self,
        episode: str,
        environment: Environment,
        decide: Decide,
        on_turn: OnTurn,
        *,
        on_attempt: Callable[[Attempt], None] | None,
        in_step: bool,
        settings: Mapping[str, Setting],
        turns: int | None = None,
        opponents: OpponentPolicies = NO_OPPONENTS,
    ) -> None:
        """See `TeamRuntime.play`."""
        if opponents and self._log is not None:
            raise RunError("opponents move where no log can write it down: play without a log, or with all seats")
        self._gate.check(f"episode {episode!r}")
        async with self._gate.passing(f"episode {episode!r}"):
            self.world.episodes[episode] = environment
            if on_attempt is not None:
                self._client.notes[episode] = on_attempt
            try:
                loop = partial(self._play, episode, environment, decide, on_turn, in_step, turns, opponents)
                if self._log is None:
                    played = loop(None)
                else:
                    every = {**settings, "in_step": in_step} | ({} if turns is None else {"turns": turns})
                    played = self._record(self._log, episode, environment, loop, every)
                await (played if self._spans is None else self._spans.episode(episode, played))
            finally:
                del self.world.episodes[episode]
                self._client.notes.pop(episode, None)
                self._accounts.end(episode)

    async def _record(
        self,
        log: ReplayLog,
        episode: str,
        environment: Environment,
        loop: Callable[[PlayReplayLog], Awaitable[None]],
        settings: Mapping[str, Setting],
    ) -> None:
        """Play with a log."""
        is_timed = bool(self.plan.timeouts) or self._accounts.is_timed
        async with log.play(self.plan, episode, environment, settings, ticks=is_timed) as play:
            self._client.logs[episode] = play
            try:
                await loop(play)
                await play.end()
            finally:
                del self._client.logs[episode]

    async def _play(
        self,
        episode: str,
        environment: Environment,
        decide: Decide,
        on_turn: OnTurn,
        in_step: bool,
        turns: int | None,
        opponents: OpponentPolicies,
        play: PlayReplayLog | None,
    ) -> None:
        undo = partial(self._client.undo, episode=episode)
        turn, plan = 0, self.plan
        while turn != turns and (seats := environment.to_move()):
            own = tuple(seat for seat in seats if seat not in opponents)
            if not set(own) <= plan.starting.keys():
                raise RunError(f"team {plan.spec.name!r} plays {', '.join(plan.starting)}, to move: {seats}")
            self._gate.check(f"turn {turn} of episode {episode!r}")
            self._accounts.begin_turn(episode)
            observations = await self.look(episode, turn)
            theirs = await opponent_actions(opponents, seats, environment, turn)
            begin = Flow.start(plan, own, silent_agents(observations))
            log = None if play is None else play.of_turn(turn)
            if log is not None:
                await log.begin(observations)
            on_flow = None if self._spans is None else self._spans.joins(episode)
            flow = await play_turn(
                begin,
                environment,
                observations,
                turn,
                decide,
                in_step=in_step,
                undo=undo,
                on_flow=on_flow,
                log=log,
            )
            actions = seat_actions(flow, own) | theirs
            if log is None:
                step = await self.act(episode, turn, actions)
            elif log.committed is not None:
                step = restored(log.committed, actions, environment)
            else:
                step = await self.act(episode, turn, actions)
                await log.commit(actions, step, environment)
            on_turn(turn, flow, step)
            turn += 1

    async def look(self, episode: str, turn: int) -> Mapping[str, Observation]:
        """What every agent sees, asked over the bus."""
        views = tuple(dict.fromkeys(self._views.values()))
        payload = ObserveRequest.model_construct(episode=episode, views=views)
        seen = await self._ask_world(payload, episode, turn)
        if not isinstance(seen, ObserveReply):
            raise RunError(f"the environment answered {seen.kind!r} to 'look'")
        return {agent: seen.observations[view] for agent, view in self._views.items()}

    async def act(self, episode: str, turn: int, actions: dict[str, str]) -> Step:
        """Act in the episode's environment over the bus."""
        payload = StepRequest.model_construct(episode=episode, actions=actions)
        answer = await self._ask_world(payload, episode, turn)
        if not isinstance(answer, StepReply):
            raise RunError(f"the environment answered {answer.kind!r} to 'act'")
        return answer.step

    async def _ask_world(self, payload: Payload, episode: str, turn: int) -> Payload:
        answer = self._client.request(ENVIRONMENT, payload, episode, turn)
        return await (answer if self._spans is None else self._spans.world(payload.kind, episode, turn, answer))
