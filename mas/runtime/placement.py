"""Where the agents of a team listen: how many of each in this process, which ones in other processes.

In one process all replicas of an agent share the bus's work by credit: a question goes to the replica that has most
room. They share their engine as well, unless one is given an endpoint of its own: an engine that batches answers the
requests of two of them in one batch, as it would for one with twice the `concurrency`.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from mas.bus.serve import Handler, Service, serve
from mas.core.bus import Bus
from mas.core.concurrency import together
from mas.core.errors import RunError
from mas.core.naming import did_you_mean
from mas.core.policy import Replicas
from mas.runtime.remote import RemoteAgents

ENVIRONMENT = "environment"
RUN = "run"
"""Names, after the team's, of the addresses where the process that plays a team listens: for requests to the
environment, and for heartbeats."""
USUAL = Replicas()
"""The limits of an agent without an entry."""
_REPLICA_CREDIT = 65_536
"""Requests that one replica may take at once where the team does not say: the engine, not the bus, decides how many
run together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessRole:
    """What one process does for a team that is spread over several.

    Attributes:
        hosts: the agents and stand-ins that listen here, and `environment` in the process that plays the team.
        principal: as whom the bus of this process sends.
        process: its name, which goes before the ids of its messages; no two that live have the same.
        remote: how the trainer asks the agents elsewhere; None: no agent is trained here.
        comes_back: its bus has a journal, and after a kill the answers to what it had asked.
    """

    hosts: frozenset[str]
    principal: str
    process: str
    remote: RemoteAgents | None = None
    comes_back: bool = False


class AgentReplicas:
    """Who is at work for each agent of one runtime.

    Args:
        limits: agent -> how many may be.
        addresses: agent -> where it listens.
    """

    def __init__(self, bus: Bus, *, limits: Mapping[str, Replicas], addresses: Mapping[str, str]) -> None:
        self._bus, self._limits, self._addresses = bus, limits, addresses
        self._at_work: defaultdict[str, list[Service]] = defaultdict(list)
        self._coming: Counter[str] = Counter()
        self._leaving: list[Service] = []

    def limits(self, agent: str) -> Replicas:
        """How many of an agent may be at work."""
        return self._limits.get(agent, USUAL)

    def at_work(self, agent: str) -> int:
        """How many take questions now; see `TeamRuntime.at_work`."""
        self._check_known(agent)
        return len(self._at_work[agent])

    def check_more(self, agent: str) -> None:
        """Refuse one more.

        Raises:
            RunError: there is no such agent here, or as many are at work as may be.
        """
        self._check_known(agent)
        limits = self.limits(agent)
        number = len(self._at_work[agent]) + self._coming[agent]
        if number >= limits.most:
            raise RunError(
                f"agent {agent!r} has {number} at work, and {limits.most} are allowed at most: "
                "raise 'most' under 'replicas' of the team"
            )

    async def spawn(self, agent: str, handler: Handler) -> int:
        """Begin to listen once more; how many are then at work. Raises as `check_more` and `Bus.subscribe`."""
        self.check_more(agent)
        concurrency = self.limits(agent).concurrency or _REPLICA_CREDIT
        service = serve(self._bus, self._addresses[agent], handler, concurrency=concurrency)
        self._coming[agent] += 1
        try:
            await service.__aenter__()
        finally:
            self._coming[agent] -= 1
        self._at_work[agent].append(service)
        return len(self._at_work[agent])

    async def retire(self, agent: str) -> int:
        """Let the newest one finish what it has taken and leave; see `TeamRuntime.retire`."""
        self._check_known(agent)
        least = self.limits(agent).least
        if len(self._at_work[agent]) <= least:
            raise RunError(
                f"agent {agent!r} has {len(self._at_work[agent])} at work, and {least} must be at least: lower 'least' "
                "under 'replicas' of the team"
            )
        await self._let_go(self._at_work[agent].pop())
        return len(self._at_work[agent])

    async def drain(self) -> None:
        """Let all finish what they have taken and leave, whatever the limits say; nothing new is taken."""
        services = [self._at_work[agent].pop() for agent in tuple(self._at_work) for _ in tuple(self._at_work[agent])]
        self._leaving += services
        await together((self._drained(service) for service in services), "drain")

    async def close(self) -> None:
        """All leave at once: callers get Closed."""
        for services in (self._leaving, *self._at_work.values()):
            while services:
                await services.pop().__aexit__(None, None, None)

    async def _let_go(self, service: Service) -> None:
        self._leaving.append(service)
        await self._drained(service)

    async def _drained(self, service: Service) -> None:
        try:
            await service.drain()
        finally:
            if service in self._leaving:  # else `close` has ended it meanwhile
                self._leaving.remove(service)
                await service.__aexit__(None, None, None)

    def _check_known(self, agent: str) -> None:
        if agent not in self._addresses:
            raise RunError(f"no agent {agent!r} works in this process. {did_you_mean(agent, self._addresses)}")
