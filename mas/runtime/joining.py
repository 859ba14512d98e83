"""What can be wrong with joining a bus that processes share, found before anything slow begins."""

from pathlib import Path

from mas.bus.mqtt import MqttBus
from mas.bus.mqtt_url import parse_broker
from mas.core.errors import ConfigError
from mas.core.naming import did_you_mean
from mas.core.team import TeamSpec
from mas.runtime.agents import TEAM_PAYLOADS


def agent_principal(team: TeamSpec, name: str) -> str:
    """As whom an agent, or a stand-in, is on a bus; also its address.

    Raises:
        ConfigError: the team has none of that name.
    """
    names = (*team.members(), *team.stand_ins())
    if name not in names:
        raise ConfigError(f"team {team.name!r} has no agent {name!r}. {did_you_mean(name, names)}")
    return f"{team.name}/{name}"


def check_user(url: str, principal: str, *, ca_file: Path | None = None) -> None:
    """Refuse a URL that is none, or that names somebody else.

    Raises:
        ConfigError: such a URL; or `ca_file` cannot be used.
    """
    user = parse_broker(url, ca_file=ca_file).principal
    if user != principal:
        raise ConfigError(
            f"the bus's URL names the user {user!r}; agent {principal.rpartition('/')[2]!r} is {principal!r} there: "
            f"write {principal.replace('/', '%2F')}@ before the host"
        )


async def try_connection(url: str, *, ca_file: Path | None = None) -> None:
    """Come to the bus, and leave it again.

    Raises:
        ConfigError: the URL or `ca_file` is wrong. Unreachable: no broker answers, or it refuses user or password.
        Denied: the broker does not let this principal listen to what is meant for it.
    """
    async with MqttBus.connect(url, payloads=TEAM_PAYLOADS, ca_file=ca_file):
        pass
