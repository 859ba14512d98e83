"""A team as data: roles, and edges between them.

Leaves out on purpose: checking that the graph is well formed, which needs the whole team (`mas.graph`).
"""

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from mas.core.joins import ALL, JoinSpec, parse_join
from mas.core.messages import PAYLOADS
from mas.core.naming import scoped
from mas.core.policy import Budgets, Policy, Price
from mas.core.replicas import Replicas

START = "start"
"""Every team begins at this node."""
DONE = "done"
"""A live token here commits the team's action."""
COORDINATOR = "coordinator"
"""The principal of whoever plays a team whose agents are processes on a bus; agents end on its word alone."""
MAX_DEPTH = 8
"""How many teams may stand in each other, the outermost included."""
USUAL_ITEMS = 8
"""The most items of a list where the role does not say."""

Context = Literal["inbox", "turn", "none"]


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Constraint(_Frozen):
    """The texts that a role's output may be; decoding draws no token that leads out of them. One of the three.

    Attributes:
        one_of: a list of texts; or one text with names as in a template, split at line ends and at commas
            before a space when it is filled, such as `"{names}"`.
        regex: what the whole output matches, without look-around and back references.
        json_schema: a JSON Schema, as a mapping.
    """

    one_of: tuple[str, ...] | str | None = None
    regex: str | None = None
    json_schema: dict[str, Any] | None = None

    @model_validator(mode="after")
    def _one(self) -> Self:
        named = [key for key in type(self).model_fields if getattr(self, key) is not None]
        if len(named) != 1:
            raise ValueError(f"a constraint has one of one_of, regex and json_schema; this has {named or 'none'}")
        if self.one_of is not None and not all([self.one_of, *self.one_of]):
            raise ValueError(f"one_of is {self.one_of!r}; it needs at least one text, and none of them empty")
        return self


class RoleSpec(_Frozen):
    """One role: what it is told, what its output means, which adapter speaks, and how it is sampled.

    Attributes:
        type: a built-in role (`planner`, `executor`, `verifier`, `feedback`, `agent`) or `package.module:Class`.
        view: the environment view that it sees; None: the view named like the agent, within its own team.
        instructions: what the role is told, for models that follow instructions.
        template: a compact prompt in which `{name}` is an observation field, `{from.AGENT}` the last message of an
            agent, `{self}` the role's own last output (empty where there is none), and `{experiences}` its experiences,
            a line each (in front, where it does not say). Used with base models.
        ask: the user message for models that follow instructions, with names as in `template`; the system message is
            then `instructions` alone. None: all fields and messages, line by line.
        format: what an answer looks like, a sentence or an example, for models that follow instructions: the end of the
            user message. Empty: without `ask` the choices, a verifier's two answers or the form of a list, if any.
        prefill: how its answer begins in a chat, with names as in `template`: part of the prompt, and the output is
            what follows it.
        emits: kind of its output; accepts: kinds that it can read.
        max_items: the most items of a list that it emits; None: 8.
        pattern: regular expression that the whole output must match.
        experiences: what earlier attempts have taught the role, one line of text each, for its own prompts alone.
        choices: the legal outputs or, with `max_tokens` above 1, the legal tokens; shown in instructions.
        accept_text, reject_text: a verifier's two answers.
        failure_route: the route that output which does not parse takes, for roles that choose one.
        constraint: the texts that its output may be, for engines that can hold it to them; None: any.
        top_k, top_p, min_p: which tokens are drawn, see `mas.core.engine.Sampling`; as they are, any.
        context: messages shown: the last of each sender in this turn (`inbox`), all of this turn (`turn`), or none.
        adapter: name of its adapter; None: named like the role. `trainable` False freezes it.
        peer: name of a model from elsewhere that plays the role, described in the configuration; never trained.
        voice: whether the engine speaks or a person is asked; a person's role has no adapter and is never trained.
        price: of its tokens, for budgets in `cost`; None: it has none.
    """

    type: str = "agent"
    view: str | None = None
    instructions: str = ""
    template: str | None = None
    ask: str | None = None
    format: str = ""
    prefill: str = ""
    experiences: tuple[str, ...] = ()
    emits: str | None = None
    accepts: tuple[str, ...] | None = None
    max_items: Annotated[int, Field(ge=1)] | None = None
    pattern: str | None = None
    choices: tuple[str, ...] = ()
    accept_text: str = "accept"
    reject_text: str = "reject"
    failure_route: str | None = None
    context: Context = "inbox"
    adapter: str | None = None
    trainable: bool = True
    peer: str | None = None
    temperature: Annotated[float, Field(ge=0)] = 1.0
    top_k: Annotated[int, Field(ge=0)] = 0
    top_p: Annotated[float, Field(gt=0, le=1)] = 1.0
    min_p: Annotated[float, Field(ge=0, le=1)] = 0.0
    constraint: Constraint | None = None
    max_tokens: Annotated[int, Field(ge=1)] = 16
    stop: tuple[str, ...] = ()
    price: Price | None = None
    voice: Literal["engine", "human"] = "engine"

    @property
    def templates(self) -> Mapping[str, str]:
        """Its texts with names in braces, by field."""
        listed = None if self.constraint is None else self.constraint.one_of
        one_of = listed if isinstance(listed, str) else None
        texts = {"template": self.template, "ask": self.ask, "prefill": self.prefill, "constraint.one_of": one_of}
        return {field: text for field, text in texts.items() if text}

    @model_validator(mode="after")
    def _known(self) -> Self:
        kinds = [*([self.emits] if self.emits else []), *(self.accepts or ())]
        for kind in kinds:
            if kind not in PAYLOADS:
                raise ValueError(f"message kind {kind!r} does not exist; possible: {sorted(PAYLOADS)}")
        if self.pattern is not None:
            try:
                re.compile(self.pattern)
            except re.error as error:
                raise ValueError(f"pattern {self.pattern!r} is not a regular expression: {error}") from error
        for text in self.experiences:
            if len(text.splitlines()) != 1 or text != text.strip() or not text:
                raise ValueError(f"experience {text!r} is not one line of text without white space around it")
        if self.peer is not None and (self.trainable or self.adapter is not None):
            raise ValueError(f"peer {self.peer!r} plays this role: set trainable: false, and name no adapter")
        if self.voice == "human" and (self.trainable or self.adapter is not None or self.peer is not None):
            raise ValueError(
                "a person plays this role (voice: human): set trainable: false, and name no adapter, no peer"
            )
        return self


class EdgeSpec(_Frozen):
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


class TeamSpec(_Frozen):
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
            (`mas.core.joint`), without those that did not speak or whose output did not parse; `output` is one of them.
        seat: the environment's seat that the team plays.
        seats: where it plays several at once, as in self-play: seat -> the agent whose last action is that seat's. In
            each step those that have to move begin; agents of different seats hear nothing of each other.
        policies: agent -> limits, retries, and what its failure means; an agent without one is asked once.
        budget: what a turn, an episode and a run may spend.
        replicas: agent -> how many listeners may share its work; an agent without an entry has one in one process, and
            as many processes as come.
        teams: team within this one -> the agent whose last output it sends; made from `agents`.
    """

    name: str
    roles: dict[str, RoleSpec]
    edges: tuple[Annotated[EdgeSpec, BeforeValidator(_parse_edge)], ...]
    output: str
    else_output: tuple[str, ...] = ()
    leader: str | None = None
    joint: tuple[str, ...] = ()
    agents: dict[str, str] = {}
    joins: dict[str, Annotated[JoinSpec, BeforeValidator(parse_join)]] = {}
    seat: str = "team"
    seats: dict[str, str] = {}
    policies: dict[str, Policy] = {}
    budget: Budgets = Budgets()
    replicas: dict[str, Replicas] = {}
    teams: dict[str, str] = {}

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


_CARRIED = {"name", "roles", "edges", "output", "leader", "agents", "joins", "seat", "teams"}


def _inner(name: str, value: Mapping[str, Any]) -> TeamSpec:
    if set(value) != {"team"}:
        raise ValueError(f"agent {name!r} is {dict(value)!r}; write a role's name, or {{team: TEAM}} for a team")
    inner = value["team"]
    if not isinstance(inner, TeamSpec | Mapping):
        raise ValueError(f"the team of {name!r} is {inner!r}; a team, or a mapping with its keys, was expected")
    if _depth(inner, MAX_DEPTH) >= MAX_DEPTH:
        raise ValueError(f"the team of {name!r} makes more than {MAX_DEPTH} teams stand in each other")
    team = TeamSpec.model_validate(inner)
    for key in sorted(team.model_fields_set - _CARRIED):
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
    }
    is_told = content.get("leader") is not None or inner.leader is not None
    if is_told and (content.get("leader") or content.get("output")) == name:
        flat["leader"] = scoped(name, inner.led_by)
    return flat | ({"output": last} if content.get("output") == name else {})


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
