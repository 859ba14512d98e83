"""A team as data: roles, and edges between them.

Leaves out on purpose: checking that the graph is well formed, which needs the whole team (`mas.graph`).
"""

import re
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, model_validator

from mas.core.naming import scoped
from mas.core.options import Options
from mas.core.policy import ALL, Budgets, JoinSpec, Policy, Replicas, parse_join
from mas.core.role import RoleSpec
from mas.core.tool_server import ToolServer

START = "start"
"""Every team begins at this node."""
DONE = "done"
"""A live token here commits the team's action."""
COORDINATOR = "coordinator"
"""The principal of whoever plays a team whose agents are processes on a bus; agents end on its word alone."""
TEXT = "{text}"
"""Stands for a plain text in the fields that it becomes."""
MAX_DEPTH = 8
"""How many teams may stand in each other, the outermost included."""


class EdgeSpec(Options):
    """A message route. `when` names the source's route that takes it; `loop` bounds an edge that leads back.

    With `map` the source's list is handed out: the target speaks once per item, and its outputs travel on as one list.
    Written `a -> b`, `a -> b when accept`, `a -> b loop 2`, `a -> b map`, or as a mapping.
    """

    source: str
    target: str
    when: str | None = None
    loop: Annotated[int, Field(ge=1)] | None = None
    map: bool = False


_EDGE = re.compile(r"^\s*([\w-]+)\s*->\s*([\w-]+)(?:\s+when\s+([\w-]+))?(?:\s+loop\s+(\d+))?(?:\s+(map))?\s*$")


def _parse_edge(value: object) -> object:
    if not isinstance(value, str):
        return value
    match = _EDGE.match(value)
    if match is None:
        raise ValueError(f"edge {value!r} is not of the form 'a -> b [when ROUTE] [loop N] [map]'")
    source, target, when, loop, mapped = match.groups()
    return {"source": source, "target": target, "when": when, "loop": int(loop) if loop else None, "map": bool(mapped)}


def _parse_text(value: object) -> object:
    if isinstance(value, str):
        return {value: TEXT}
    if isinstance(value, dict) and value and not any(TEXT in str(part) for part in value.values()):
        raise ValueError(f"it leaves the text out: write {TEXT} in one of its fields")
    return value


class TeamSpec(Options):
    """A team: who is in it and who speaks to whom.

    A member may be a team itself: `agents: {solve: {team: TEAM}}`, where TEAM is a `TeamSpec` or an equal mapping. It
    is laid into this one at once, so that a `TeamSpec` is always flat: its agents become `solve.NAME`, its ends
    `solve.start` and `solve.done`, and its roles roles of this team.

    Attributes:
        agents: node name -> role name; empty: one agent per role, named like it.
        edges: from `start` over the agents to `done`.
        joins: how agents (or `done`) with several incoming edges wait; one that is left out waits for `all`.
        output: the agent whose last action is the team's action when the run reaches `done`.
        else_output: agents whose last action it is in turns in which `output` did not speak: the first that spoke.
        leader: the agent who leads, if it is not `output`: who plays where one agent of the team is tried alone.
        joint: agents whose last actions in a turn are the team's action together, a JSON object agent -> text
            (`joint_action`), without those that did not speak or whose output did not parse; `output` is one of them.
        seat: the environment's seat that the team plays.
        seats: where it plays several at once, as in self-play: seat -> the agent whose last action is that seat's. In
            each step those that have to move begin; agents of different seats hear nothing of each other.
        policies: agent -> limits, retries, and what its failure means; an agent without one is asked once.
        budget: what a turn, an episode and a run may spend.
        replicas: agent -> how many listeners may share its work; an agent without an entry has one in one process, and
            as many processes as come.
        text: observation field -> what it is where somebody asks the team with a plain text, which stands for `{text}`;
            a name alone is the one field that the text is. Empty: all members are shown the text as the field `task`.
        tools: name -> a server of tools; roles say which of its tools they may call.
        teams: team within this one -> the agent whose last output it sends; made from `agents`.
    """

    name: str
    roles: dict[str, RoleSpec]
    edges: tuple[Annotated[EdgeSpec, BeforeValidator(_parse_edge)], ...]
    output: str
    else_output: tuple[str, ...] = ()
    leader: str | None = None
    joint: tuple[str, ...] = ()
    agents: dict[str, str] = Field(default_factory=dict)
    joins: dict[str, Annotated[JoinSpec, BeforeValidator(parse_join)]] = Field(default_factory=dict)
    seat: str = "team"
    seats: dict[str, str] = Field(default_factory=dict)
    policies: dict[str, Policy] = Field(default_factory=dict)
    budget: Budgets = Budgets()
    replicas: dict[str, Replicas] = Field(default_factory=dict)
    text: Annotated[dict[str, str], BeforeValidator(_parse_text)] = Field(default_factory=dict)
    tools: dict[str, ToolServer] = Field(default_factory=dict)
    teams: dict[str, str] = Field(default_factory=dict)

    @property
    def outputs(self) -> tuple[str, ...]:
        """The agents that may speak for the team, the first that spoke in a turn does."""
        return (self.output, *self.else_output)

    @property
    def led_by(self) -> str:
        """The agent who leads: `leader`, else `output`."""
        return self.leader or self.output

    @property
    def plays(self) -> dict[str, str]:
        """Every seat that the team plays -> the agent that speaks for it, of several the first that may."""
        return dict(self.seats) or {self.seat: self.output}

    def members(self) -> dict[str, str]:
        """Agent name -> role name."""
        return dict(self.agents) if self.agents else {name: name for name in self._played()}

    def stand_ins(self) -> tuple[str, ...]:
        """Roles that no agent plays and that a policy names, in declared order."""
        members = self.members()
        taken, named = {*members, *members.values()}, self._named()
        return tuple(name for name in self.roles if name in named and name not in taken)

    def _named(self) -> set[str]:
        return {name for policy in self.policies.values() for name in (policy.fallback, policy.compensation) if name}

    def _played(self) -> list[str]:
        """Without `agents`, a role is an agent unless only policies name it."""
        if not self.policies:
            return list(self.roles)
        at_ends = {name for edge in self.edges for name in (edge.source, edge.target)} | set(self.outputs)
        named = self._named()
        return [name for name in self.roles if name in at_ends or name not in named]

    def join(self, name: str) -> JoinSpec:
        """How a node waits: an agent, `done`, a team, or a team's own `done`."""
        return self.joins.get(name, ALL)

    @model_validator(mode="before")
    @classmethod
    def _flat(cls, content: Any) -> Any:
        agents = content.get("agents") if isinstance(content, Mapping) else None
        if not isinstance(agents, Mapping):
            return content
        for name, value in agents.items():
            if isinstance(value, Mapping):
                content = _laid_in(content, name, _inner(name, value))
        return content


_CARRIED = {"name", "roles", "edges", "output", "leader", "agents", "joins", "seat", "teams", "tools"}


def _inner(name: str, value: Mapping[str, Any]) -> TeamSpec:
    if set(value) != {"team"}:
        raise ValueError(f"agent {name!r} is {dict(value)!r}; write a role's name, or {{team: TEAM}} for a team")
    inner = value["team"]
    if not isinstance(inner, TeamSpec | Mapping):
        raise ValueError(f"the team of {name!r} is {inner!r}; a team, or a mapping with its keys, was expected")
    if _depth(inner, MAX_DEPTH) >= MAX_DEPTH:
        raise ValueError(f"the team of {name!r} makes more than {MAX_DEPTH} teams stand in each other")
    team = TeamSpec.model_validate(inner)
    for key in sorted(team.model_fields_set - _CARRIED - {"text"}):  # nobody asks an inner team with a text
        raise ValueError(f"the team of {name!r} sets {key!r}, which only the outermost team can have")
    return team


def _depth(team: object, limit: int) -> int:
    """How many teams stand in each other, this one included; beyond the limit nothing is counted."""
    if isinstance(team, TeamSpec):
        return 1 + max((agent.count(".") for agent in team.members()), default=0)
    agents = team.get("agents") if isinstance(team, Mapping) and limit else None
    members = agents.values() if isinstance(agents, Mapping) else ()
    inner = [member["team"] for member in members if isinstance(member, Mapping) and "team" in member]
    return 1 + max((_depth(one, limit - 1) for one in inner), default=0)


def _laid_in(content: Mapping[str, Any], name: str, inner: TeamSpec) -> dict[str, Any]:
    """The outer team's content with an inner team instead of the member of that name."""
    seat = content.get("seat", TeamSpec.model_fields["seat"].default)
    if "seat" in inner.model_fields_set and inner.seat != seat:
        raise ValueError(f"the team of {name!r} plays seat {inner.seat!r}, this one {seat!r}; all play one seat")
    agents: dict[str, Any] = {}
    for agent, role in content["agents"].items():
        its_own = {scoped(name, one): played for one, played in inner.members().items()}
        agents |= its_own if agent == name else {agent: role}
    edges = [
        edge.model_copy(update={"source": scoped(name, edge.source), "target": scoped(name, edge.target)})
        for edge in inner.edges
    ]
    outer, last = content.get("edges", ()), scoped(name, inner.output)
    teams = {name: last} | {scoped(name, one): scoped(name, other) for one, other in inner.teams.items()}
    flat = dict(content) | {
        "agents": agents,
        "roles": _both(content, "roles", _shared(content, name, inner.roles)),
        "edges": [*outer, *edges] if isinstance(outer, list | tuple) else outer,
        "joins": _both(content, "joins", {scoped(name, one): join for one, join in inner.joins.items()}),
        "teams": _both(content, "teams", teams),
        "tools": _both(content, "tools", _same_servers(content, name, inner.tools)),
    }
    is_told = content.get("leader") is not None or inner.leader is not None
    if is_told and (content.get("leader") or content.get("output")) == name:
        flat["leader"] = scoped(name, inner.led_by)
    return flat | ({"output": last} if content.get("output") == name else {})


def _same_servers(content: Mapping[str, Any], name: str, inner: Mapping[str, ToolServer]) -> Mapping[str, ToolServer]:
    """The inner team's servers of tools. One of a name that the outer team has, too, must be the same."""
    outer = _both(content, "tools", {})
    for server, options in inner.items():
        if isinstance(outer, Mapping) and server in outer and ToolServer.model_validate(outer[server]) != options:
            raise ValueError(f"server {server!r} of the team of {name!r} is another outside it: rename one")
    return inner


def _both(content: Mapping[str, Any], key: str, more: Mapping[str, object]) -> Any:
    """A mapping of the outer team and what is added to it; what is no mapping is left to be refused."""
    value = content.get(key, {})
    return {**value, **more} if isinstance(value, Mapping) else value


def _shared(content: Mapping[str, Any], name: str, inner: Mapping[str, RoleSpec]) -> Mapping[str, RoleSpec]:
    """The inner team's roles. One that the outer team has, too, must be the same: they share their adapter."""
    outer = _both(content, "roles", {})
    for role, spec in inner.items():
        if isinstance(outer, Mapping) and role in outer and RoleSpec.model_validate(outer[role] or {}) != spec:
            raise ValueError(
                f"role {role!r} of the team of {name!r} is another than the role of that name outside it; rename one, "
                "or make them equal: then they are one role, with one adapter"
            )
    return inner
