"""A team at work: its agents and its environment listen on the bus, and episodes are played through it."""

import asyncio
import signal
import sys
from collections.abc import Awaitable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, contextmanager
from dataclasses import replace
from itertools import count
from types import MappingProxyType, TracebackType
from typing import Self

from mas.bus.serve import Handler, serve
from mas.core.bus import Bus
from mas.core.engine import Engine
from mas.core.errors import ConfigError, RunError
from mas.core.role import Role, View
from mas.graph.plan import TeamPlan
from mas.runtime.agent_client import AgentClient
from mas.runtime.agents import Likelihoods, ModelEndpoint, RoleAgent, TeamMember, likelihoods
from mas.runtime.episodes import EpisodeRunner, RequestGate
from mas.runtime.human import HumanAgent, HumanDesk
from mas.runtime.payloads import Candidate
from mas.runtime.placement import ENVIRONMENT, RUN, AgentReplicas, ProcessRole
from mas.runtime.play import DecisionPoint
from mas.runtime.policies import Accounts, OnAttempt, Remaining
from mas.runtime.replay_log import ReplayLog
from mas.runtime.spans import TeamSpans, traced_endpoint
from mas.runtime.streaming import OnPart, streamed_to, with_heartbeat
from mas.runtime.tool_agent import ToolAgent
from mas.tools.recorded import RecordedTools

_RUNS = count()
_ENVIRONMENT_CREDIT = 65_536
"""Messages that the environment and the heartbeat may have taken at once: neither waits for anything."""


class TeamRuntime(EpisodeRunner):
    """Puts the agents of a plan on a bus, and plays episodes with them. Use as an async context manager.

    Args:
        adapters: role name -> adapter name, None for the bare base.
        chats: whether roles use the model's chat template.
        timeout_s: how long one agent may take to answer, where its policy does not say; None: no limit.
        peers: role name -> endpoint, for roles that use something other than the engine.
        desk: where the questions to people lie; needed by teams with a role that a person plays.
        tools: calls the tools of the team's servers; needed by teams with a role that tools play.
        place: what of the team is in this process; None: all of it.
        log: where every play is recorded, so that it can be resumed after a kill; None: it ends with the process.
        accounts: budgets that are shared with other runtimes of the same team; None: its own.

    Raises:
        ConfigError: there is such a role and no desk or no tools, or a stop text that is not one token.
    """

    def __init__(
        self,
        plan: TeamPlan,
        engine: Engine,
        bus: Bus,
        *,
        adapters: Mapping[str, str | None],
        chats: bool = False,
        timeout_s: float | None = None,
        peers: Mapping[str, ModelEndpoint] = MappingProxyType({}),
        desk: HumanDesk | None = None,
        tools: RecordedTools | None = None,
        place: ProcessRole | None = None,
        log: ReplayLog | None = None,
        accounts: Accounts | None = None,
    ) -> None:
        def member(name: str, role: Role) -> TeamMember:
            if role.spec.voice == "human":
                return HumanAgent(role, desk)
            if role.spec.voice == "tools":
                return ToolAgent(name, role, plan.spec, tools)
            if role.spec.voice == "a2a" and role.name not in peers:
                raise ConfigError(f"role {role.name!r} is played by an agent elsewhere (a2a), and no endpoint is open")
            endpoint = peers.get(role.name) or ModelEndpoint(
                engine=engine, adapter=adapters.get(role.name), chats=chats
            )
            return RoleAgent(role, traced_endpoint(endpoint), bus.part)

        self.bus = bus
        self._peers = frozenset(peers)
        self.endpoint = ModelEndpoint(engine=engine, chats=chats)  # of a role without an adapter
        self._spawned: list[RoleAgent] = []
        self._members = {name: member(name, role) for name, role in (*plan.roles.items(), *plan.stand_ins.items())}
        self._place = place
        number = next(_RUNS)
        self._address = f"run/{plan.spec.name}/{number}" if place is None else f"{plan.spec.name}/{RUN}"
        self.accounts = accounts = Accounts(plan.spec, bus.now) if accounts is None else accounts
        spans = TeamSpans.of(plan.spec.name, is_distributed=place is not None)
        client = AgentClient(
            bus,
            team=plan.spec.name,
            address=self._address,
            principal=self._address if place is None else place.principal,
            first_id=self._address if place is None else f"{self._address}/{place.process}/{number}",
            members=self._members,
            policies=plan.spec.policies,
            accounts=accounts,
            timeout_s=timeout_s,
            remote=None if place is None else place.remote,
            comes_back=place is not None and place.comes_back,
            spans=spans,
        )
        super().__init__(plan, client=client, accounts=accounts, gate=RequestGate(), spans=spans, log=log)
        self._replicas_of = AgentReplicas(
            bus,
            limits=plan.spec.replicas,
            addresses={name: self._of(name) for name in self._members if self._hosts(name)},
        )
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            await self._listen(stack)
            stack.push_async_callback(self._replicas_of.close)
            for name, member in self._members.items():
                if self._hosts(name):
                    # Over processes each is one; the process that plays the team waits for the others.
                    for _ in range(self._replicas_of.limits(name).least if self._place is None else 1):
                        await self._replicas_of.spawn(name, with_heartbeat(self.bus, member.handle))
            self._stack = stack.pop_all()
        return self

    async def _listen(self, stack: AsyncExitStack) -> None:
        """The process that plays the team listens for requests to the environment, and for heartbeats."""
        listeners: dict[str, Handler] = {}
        if self._hosts(ENVIRONMENT):
            listeners[self._of(ENVIRONMENT)] = self.world.handle
            if any(policy.idle_s is not None for policy in self.plan.spec.policies.values()):
                listeners[self._address] = self._client.heartbeat.handle
        # It reads there as the principal that it asks as.
        principal = None if self._place is None else self._place.principal
        for address, handler in listeners.items():
            await stack.enter_async_context(
                serve(self.bus, address, handler, concurrency=_ENVIRONMENT_CREDIT, principal=principal)
            )

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.aclose()

    def _of(self, name: str) -> str:
        return f"{self.plan.spec.name}/{name}"

    def _hosts(self, name: str) -> bool:
        return self._place is None or name in self._place.hosts

    def at_work(self, agent: str) -> int:
        """How many listeners share the questions to an agent in this process; RunError: no such agent works here."""
        return self._replicas_of.at_work(agent)

    async def spawn(self, agent: str, *, endpoint: ModelEndpoint | None = None) -> int:
        """Let one more listener share the questions to an agent; how many do then.

        Args:
            endpoint: what it uses; None: what the others of the agent do, one engine for all.

        Raises:
            RunError: no such agent works here, as many do as the team's `replicas` allow, or the agent is one process
            of several: start another one instead. ConfigError: as when the runtime was made.
        """
        if self._place is not None:
            raise RunError(f"agent {agent!r} is in processes of its own here: start one more `mas agent {agent}`")
        self._replicas_of.check_more(agent)
        member = self._members[agent]
        if endpoint is not None:
            member = RoleAgent(member.role, traced_endpoint(endpoint), self.bus.part)
            self._spawned.append(member)
        return await self._replicas_of.spawn(agent, with_heartbeat(self.bus, member.handle))

    def use_adapters(self, adapters: Mapping[str, str]) -> None:
        """Let roles, by name, use other adapters from now on; those not named, and peers, stay as they are.

        Raises:
            RunError: the agents are processes of their own.
        """
        members = self._here()
        if not members:
            raise RunError("agents in processes of their own keep their adapters: roles swap in one process only")
        for member in members:
            name = member.role.name
            if isinstance(member, RoleAgent) and name in adapters and name not in self._peers:
                member.endpoint = replace(member.endpoint, adapter=adapters[name])

    async def retire(self, agent: str) -> int:
        """Let the newest listener of an agent finish what it has taken, and leave; returns how many are left.

        What it has not begun goes to the others. Cancelled, it leaves at once, and its callers get Closed.

        Raises:
            RunError: no such agent works here, or no more do than must by the team's `replicas`.
        """
        return await self._replicas_of.retire(agent)

    def teach(self, roles: Mapping[str, Role]) -> None:
        """Put roles with other experiences in the places of those of their names, in all members or in none.

        Raises:
            RunError: no member plays a role, or it differs in more.
        """
        members = self._here()
        for name, role in roles.items():
            own = [member for member in members if member.role.name == name]
            if not own:
                raise RunError(f"role {name!r} cannot be taught: no agent in this process plays it")
            same = {"experiences": role.spec.experiences}
            if any(member.role.spec.model_copy(update=same) != role.spec for member in own):
                raise RunError(f"role {name!r} cannot become another one while the team plays: only experiences change")
        for member in members:
            member.role = roles.get(member.role.name, member.role)

    def _here(self) -> tuple[TeamMember, ...]:
        """The members in this process."""
        return (*self._members.values(), *self._spawned) if self._place is None else ()

    async def leave(self) -> None:
        """Let all agents that work here finish what they have taken, and leave. Nothing new is taken."""
        await self._replicas_of.drain()

    @property
    def is_draining(self) -> bool:
        """Whether `drain` or `cancel` was called."""
        return self._gate.is_draining

    async def drain(self, timeout_s: float | None = None) -> None:
        """Begin nothing new, let running team turns end, and return when they have; what is not over after `timeout_s`
        is cancelled (None: waited for). The caller of an episode that is not over gets Halted."""
        await self._gate.drain(timeout_s)

    async def cancel(self) -> None:
        """End everything now: callers get Halted, and the bus cancels the handlers of their requests.

        Returns when all have left, or after five seconds.
        """
        await self._gate.cancel()

    def remaining(self, episode: str | None = None, agent: str | None = None) -> dict[str, Remaining]:
        """What is left of the budgets: of the `run`, and of an open episode also of `episode`, `turn` and `agent`."""
        return self._accounts.remaining(episode, agent)

    async def ask(
        self,
        point: DecisionPoint,
        seeds: tuple[int, ...],
        *,
        episode: str,
        temperature: float | None = None,
        on_part: OnPart | None = None,
    ) -> tuple[Candidate, ...]:
        """One candidate per seed from the agent at a decision point. Only the agent can read what it is asked.
        `on_part` is called with the text while it is drawn, best effort; the candidates are the same as without.

        Raises:
            MasError: what the agent failed with at last, after what its policy tried. BudgetExceeded, Halted.
        """
        with streamed_to(on_part):
            if episode in self.world.episodes:  # `play` has passed the gate
                return await self._client.sample(point, seeds, episode=episode, temperature=temperature)
            self._gate.check(f"a question to agent {point.agent!r}")
            async with self._gate.passing(f"the question to agent {point.agent!r}"):
                return await self._client.sample(point, seeds, episode=episode, temperature=temperature)

    async def log_chances(self, agent: str, view: View, texts: Sequence[str]) -> tuple[float, ...] | None:
        """What `RoleAgent.log_chances` says of an agent. Nothing travels. None: it is in a process of its own, or a
        person.

        Raises:
            EngineError: its engine cannot score.
        """
        member = self._members.get(agent) if self._place is None else None
        return await member.log_chances(view, texts) if isinstance(member, RoleAgent) else None

    @contextmanager
    def noting(self, episode: str, on_attempt: OnAttempt) -> Iterator[None]:
        """Call `on_attempt` with attempts, as `play` does, in an episode whose agents are asked without playing it."""
        self._client.notes[episode] = on_attempt
        try:
            yield
        finally:
            del self._client.notes[episode]

    def sample_locally(self, point: DecisionPoint, seed: int, *, episode: str | None = None) -> Awaitable[Candidate]:
        """What the agent would say at a hypothetical point. Only what agents in other processes are asked travels on
        the bus. It counts in the budgets of the run and, if `episode` names an open one, of the episode.

        Raises:
            As `ask`. Expired: no answer came in time. RemoteError: the agent failed with an error that is not of mas.
        """
        return self._client.sample_locally(point, seed, episode=episode)

    async def likelihoods(self, agent: str, views: Sequence[View], text: str) -> Likelihoods:
        """See `mas.runtime.agents.likelihoods`."""
        return await likelihoods(self._members[agent], views, text)


_FIRST = "stopping: the team turns that run are played to their end; Ctrl-C again stops at once"


@contextmanager
def drains_on_interrupt(runtime: TeamRuntime) -> Iterator[None]:
    """While this is entered, Ctrl-C drains the runtime and a second one cancels it.

    Where a loop cannot catch signals, in a thread that is not the main one (`run_blocking` in a notebook) or on
    Windows, this changes nothing: Ctrl-C stops at once.
    """
    loop = asyncio.get_running_loop()
    stopping: set[asyncio.Task[None]] = set()

    def on_interrupt() -> None:
        if runtime.is_draining:
            stopping.add(loop.create_task(runtime.cancel(), name="cancel"))
        else:
            print(_FIRST, file=sys.stderr, flush=True)
            stopping.add(loop.create_task(runtime.drain(), name="drain"))

    try:
        loop.add_signal_handler(signal.SIGINT, on_interrupt)
    except (NotImplementedError, RuntimeError):  # on Windows; outside the main thread
        yield
        return
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGINT)
        for task in stopping:
            task.cancel()
