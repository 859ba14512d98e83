"""A team over several processes: what can be wrong with joining their bus, and how an agent process ends.

The checks come before anything slow begins. An agent process finishes the requests that it has taken; at a second
signal it stops at once.
"""

import asyncio
import signal
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

from mas.bus.mqtt import MqttBus
from mas.bus.mqtt.coordination import shutdown_command
from mas.bus.mqtt.options import parse_broker
from mas.bus.mqtt.presence import Owns, any_address
from mas.bus.mqtt.topics import Peer
from mas.core.errors import ConfigError
from mas.core.naming import did_you_mean, listed
from mas.core.policy import Replicas
from mas.core.team import COORDINATOR, TeamSpec
from mas.runtime.payloads import TEAM_PAYLOADS
from mas.runtime.team import TeamRuntime


def agent_principal(team: TeamSpec, name: str) -> str:
    """As whom an agent, or a stand-in, is on a bus; also its address.

    Raises:
        ConfigError: the team has none of that name.
    """
    names = (*team.members(), *team.stand_ins())
    if name not in names:
        raise ConfigError(f"team {team.name!r} has no agent {name!r}. {did_you_mean(name, names)}")
    return f"{team.name}/{name}"


def team_owns(team: TeamSpec) -> Owns:
    """Whose the addresses are: an agent's its own, and no other; the rest belongs to the coordinator."""
    agents = {f"{team.name}/{name}" for name in (*team.members(), *team.stand_ins())}

    def owns(principal: str, address: str) -> bool:
        return principal == address or not agents & {principal, address}

    return owns


def check_user(url: str, principal: str, *, ca_file: Path | None = None) -> None:
    """Refuse a URL that is none, or that names another user.

    Raises:
        ConfigError: such a URL; or `ca_file` cannot be used.
    """
    user = parse_broker(url, ca_file=ca_file).principal
    if user != principal:
        raise ConfigError(
            f"the bus's URL names the user {user!r}; agent {principal.rpartition('/')[2]!r} is {principal!r} there: "
            f"write {principal.replace('/', '%2F')}@ before the host"
        )


def check_player(url: str, team: TeamSpec, *, ca_file: Path | None = None) -> None:
    """Refuse to play as one of the team's agents, which may not serve the environment.

    Raises:
        ConfigError: the URL names such a user, or is none; or `ca_file` cannot be used.
    """
    user = parse_broker(url, ca_file=ca_file).principal
    if user in {f"{team.name}/{name}" for name in (*team.members(), *team.stand_ins())}:
        raise ConfigError(
            f"the bus's URL names the user {user!r}, which is an agent of the team; the user that plays or trains it "
            f"is {COORDINATOR!r}: write {COORDINATOR}@ before the host, and set its password"
        )


def check_room(principal: str, first: Collection[Peer], limits: Replicas | None) -> None:
    """Refuse to serve an agent beside as many processes as may; `first`: those that do. None: there is no limit.

    Raises:
        ConfigError: there is no room.
    """
    if limits is not None and len(first) >= limits.most:
        names = ", ".join(sorted(peer.process for peer in first))
        raise ConfigError(
            f"{principal!r} is served by {names}, and {limits.most} may be at most: end one with Ctrl-C, or raise "
            "'most' under 'replicas' of the team"
        )


def listening(bus: MqttBus, principal: str) -> list[Peer]:
    """The processes that serve an agent; not those that only finish what they have taken."""
    return [peer for peer, presence in bus.processes().items() if presence.takes(principal)]


def who_is_there(bus: MqttBus) -> str:
    """The agents that processes serve, of any team, for people."""
    agents = [presence for presence in bus.processes().values() if COORDINATOR in presence.stops_for]
    return f"agents there: {listed({address for presence in agents for address in presence.addresses})}"


def share_of(bus: MqttBus, principal: str, limits: Replicas | None) -> str:
    """How many processes serve an agent, this process included, for people; empty where there is no limit."""
    return "" if limits is None else f", {len(listening(bus, principal))} of at most {limits.most}"


async def try_connection(
    url: str,
    *,
    ca_file: Path | None = None,
    store: str | None = None,
    principal: str = "",
    limits: Replicas | None = None,
    owns: Owns = any_address,
) -> None:
    """Come to the bus, look whether there is room for one more of an agent, and leave again.

    Raises:
        ConfigError: the URL, `ca_file` or `store` is wrong. Unreachable: no broker answers, or it refuses user or
        password. Denied: the broker does not let this principal listen to what is meant for it.
    """
    async with MqttBus.connect(url, payloads=TEAM_PAYLOADS, ca_file=ca_file, store=store, owns=owns) as bus:
        check_room(principal, listening(bus, principal), limits)


_LOOK_S = 0.1
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class ShutdownSignals:
    """How often this process got the signal to end: 0; 1: drain; 2 and more: stop at once. Never less than before.

    By SIGINT or SIGTERM, each time, and by a shutdown command on the bus (see `mas.bus.mqtt.coordination`).
    """

    def __init__(self, bus: MqttBus) -> None:
        self._bus = bus
        self._times = 0

    @contextmanager
    def by_signals(self) -> Iterator[None]:
        """Count signals while this is entered. In the main thread's event loop; not on Windows."""
        loop = asyncio.get_running_loop()
        for one in _SIGNALS:
            loop.add_signal_handler(one, self._once_more)
        try:
            yield
        finally:
            for one in _SIGNALS:
                loop.remove_signal_handler(one)

    async def until(self, times: int) -> None:
        """Wait until it got the signal that often."""
        while True:
            order = shutdown_command(self._bus)
            if order is not None:
                self._times = max(self._times, 2 if order else 1)
            if self._times >= times:
                return
            await asyncio.sleep(_LOOK_S)

    def _once_more(self) -> None:
        self._times += 1


async def shut_down_in_order(runtime: TeamRuntime, told: ShutdownSignals) -> None:
    """Let the agents here finish what they have taken; at a second signal they stop at once, and callers get Closed."""
    leaving = asyncio.create_task(runtime.leave(), name="leave")
    again = asyncio.create_task(told.until(2), name="told again")
    try:
        await asyncio.wait((leaving, again), return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in (leaving, again):
            task.cancel()
        await asyncio.wait((leaving, again))
    if not leaving.cancelled():
        leaving.result()
