"""Who may read and write which topics, from the graph of a team; and the same as mosquitto's ACL file.

A member hears what is sent to its address and what comes back to its processes. It may send to the members that an edge
leads to, and always under its own name, the last level of the topic. Whoever may send to a member may also tell it that
a request is cancelled; whoever may be asked may answer, and stream to the asker. The coordinator, the process that
plays the team, asks everybody and keeps the environment. The operator looks on: presence and the broker's counters.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from mas.bus.mqtt_topics import back_topic, card_topic, stream_topic, to_topic
from mas.core.errors import ConfigError
from mas.core.team import DONE, START, TeamSpec

COORDINATOR = "coordinator"
OPERATOR = "operator"
_ENVIRONMENT = "environment"
_PRINCIPAL = re.compile(r"[\w.@=-]+(/[\w.@=-]+)+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rights:
    """Topic filters that one principal may read and write. Its name is its user name at the broker."""

    principal: str
    read: tuple[str, ...]
    write: tuple[str, ...]


def team_rights(spec: TeamSpec, space: str) -> tuple[Rights, ...]:
    """Rights of every agent in declared order, of the coordinator and of the operator.

    Raises:
        ConfigError: a name that cannot be a user name, or an agent named like the environment's address.
    """
    address = {agent: _principal(spec, agent) for agent in spec.members()}
    if _ENVIRONMENT in address:
        raise ConfigError(
            f"team {spec.name!r}: agent {_ENVIRONMENT!r} has the address of the environment; give it another name"
        )
    environment = _principal(spec, _ENVIRONMENT)
    owner = {name: name for name in address.values()} | {environment: COORDINATOR}
    sends = {(COORDINATOR, target) for target in owner}
    sends |= {
        (address[edge.source], address[edge.target])
        for edge in spec.edges
        if edge.source != START and edge.target != DONE
    }
    members = [_member(name, owner, sends, space) for name in (*address.values(), COORDINATOR)]
    return (*members, Rights(principal=OPERATOR, read=(card_topic(space, None, None), "$SYS/#"), write=()))


def _member(name: str, owner: dict[str, str], sends: set[tuple[str, str]], space: str) -> Rights:
    """Rights of a principal that takes part; `owner`: address -> who listens there, `sends`: (principal, address)."""
    heard = [address for address, listener in owner.items() if listener == name]
    asked = [address for address in owner if (name, address) in sends]
    principals = tuple(dict.fromkeys(owner.values()))
    askers = {sender for sender, address in sends if owner[address] == name}
    known = askers | {owner[address] for address in asked}
    return Rights(
        principal=name,
        read=(
            *(to_topic(space, address, None) for address in heard),
            back_topic(space, name, None, None),
            stream_topic(space, name, None, None),
            card_topic(space, None, None),
        ),
        write=(
            *(to_topic(space, address, name) for address in asked),
            *(back_topic(space, other, None, name) for other in principals if other in known),
            *(stream_topic(space, other, None, name) for other in principals if other in askers),
            card_topic(space, name, None),
        ),
    )


def _principal(spec: TeamSpec, agent: str) -> str:
    """The address of an agent, which is its principal."""
    name = f"{spec.name}/{agent}"
    if not _PRINCIPAL.fullmatch(name):
        raise ConfigError(
            f"{name!r} cannot be a user name: use letters, digits, '_', '-', '.', '@' and '=' in the names of the team "
            "and its agents"
        )
    return name


def acl_text(rights: Iterable[Rights]) -> str:
    """The rights as the text of mosquitto's ACL file; what no line allows is denied."""
    lines = ["# Written by `mas broker` from the team's graph. What no line allows is denied."]
    for one in rights:
        lines += ["", f"user {one.principal}"]
        lines += [f"topic read {topic}" for topic in one.read]
        lines += [f"topic write {topic}" for topic in one.write]
    return "\n".join(lines) + "\n"
