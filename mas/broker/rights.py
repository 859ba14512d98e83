"""Who may read and write which topics, from the graph of a team; and the same as mosquitto's ACL file.

A member hears what is sent to its address and what comes back to its processes. It may send to the members that an edge
leads to, and always under its own name, the last level of the topic. Whoever may send to a member may also ask it what
became of a message and cancel it; whoever may be asked may answer, whole and in parts. Processes of one member may
speak to each other. The coordinator, the process that plays the team, asks everybody, keeps the environment, and hears
heartbeats at an address of its own. The operator looks on: presence and the broker's counters.
"""

import re
from collections import defaultdict
from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass

from mas.bus.mqtt.topics import level
from mas.core.errors import ConfigError
from mas.core.team import COORDINATOR, TeamSpec
from mas.graph.wiring import drawn_edges

OPERATOR = "operator"
_ENVIRONMENT = "environment"
_RUN = "run"
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
    address = {agent: _principal(spec, agent) for agent in (*spec.members(), *spec.stand_ins())}
    for name in (_ENVIRONMENT, _RUN):
        if name in address:
            raise ConfigError(
                f"team {spec.name!r}: agent {name!r} has an address of whoever plays the team; give it another name"
            )
    environment, run = _principal(spec, _ENVIRONMENT), _principal(spec, _RUN)
    owner = {name: name for name in address.values()} | {environment: COORDINATOR}
    sends = {(COORDINATOR, target) for target in owner} | {(name, run) for name in address.values()}
    owner[run] = COORDINATOR
    sends |= {(address[source], address[target]) for source, target in _neighbours(spec, address)}
    members = [_member(name, owner, sends, space) for name in (*address.values(), COORDINATOR)]
    return (*members, Rights(principal=OPERATOR, read=(_filter(space, "presence", None, None), "$SYS/#"), write=()))


def _neighbours(spec: TeamSpec, agents: Container[str]) -> Iterator[tuple[str, str]]:
    """Pairs of agents that an edge joins, directly or through the start and the end of teams within."""
    after = defaultdict(set)
    for edge in drawn_edges(spec):
        after[edge.source].add(edge.target)
    for agent in [name for name in after if name in agents]:
        seen: set[str] = set()
        left = [agent]
        while left:
            for target in after[left.pop()] - seen:
                seen.add(target)
                if target in agents:
                    yield agent, target
                else:
                    left.append(target)


def _member(name: str, owner: dict[str, str], sends: set[tuple[str, str]], space: str) -> Rights:
    """Rights of a principal that takes part; `owner`: address -> who listens there, `sends`: (principal, address)."""
    heard = [address for address, listener in owner.items() if listener == name]
    asked = [address for address in owner if (name, address) in sends]
    principals = tuple(dict.fromkeys(owner.values()))
    askers = {sender for sender, address in sends if owner[address] == name}
    known = {name} | askers | {owner[address] for address in asked}
    return Rights(
        principal=name,
        read=(
            *(_filter(space, "to", address, None) for address in heard),
            _filter(space, "back", name, None, None),
            _filter(space, "presence", None, None),
        ),
        write=(
            *(_filter(space, "to", address, name) for address in asked),
            *(_filter(space, "back", other, None, name) for other in principals if other in known),
            _filter(space, "presence", name, None),
        ),
    )


def _filter(space: str, kind: str, *names: str | None) -> str:
    """A topic of `mas.bus.mqtt.topics`, or all that differ in the names that are None."""
    return "/".join(("mas", level(space), kind, *("+" if name is None else level(name) for name in names)))


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
