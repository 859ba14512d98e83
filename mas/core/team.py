"""A team as data: roles, and edges between them.

Leaves out on purpose: checking that the graph is well formed, which needs the whole team (`mas.graph`).
"""

import re
from typing import Annotated, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from mas.core.messages import PAYLOADS
from mas.core.policy import Budgets, Policy, Price

START = "start"
"""Every team begins at this node."""
DONE = "done"
"""A live token here commits the team's action."""

Context = Literal["inbox", "turn", "none"]


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class RoleSpec(_Frozen):
    """One role: what it is told, what its output means, which adapter speaks, and how it is sampled.

    Attributes:
        type: a built-in role (`planner`, `executor`, `verifier`, `feedback`, `agent`) or `package.module:Class`.
        view: the environment view that it sees; None: the view named like the agent.
        instructions: what the role is told, for models that follow instructions.
        template: a compact prompt in which `{name}` is an observation field, `{from.AGENT}` the last message of an
            agent, and `{self}` the role's own last output (empty where there is none). Used with base models.
        emits: kind of its output; accepts: kinds that it can read.
        pattern: regular expression that the whole output must match.
        choices: the legal outputs or, with `max_tokens` above 1, the legal tokens; shown in instructions.
        accept_text, reject_text: a verifier's two answers.
        failure_route: the route that output which does not parse takes, for roles that choose one.
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
    emits: str | None = None
    accepts: tuple[str, ...] | None = None
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
    max_tokens: Annotated[int, Field(ge=1)] = 16
    stop: tuple[str, ...] = ()
    price: Price | None = None
    voice: Literal["engine", "human"] = "engine"

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
        if self.peer is not None and (self.trainable or self.adapter is not None):
            raise ValueError(f"peer {self.peer!r} plays this role: set trainable: false, and name no adapter")
        if self.voice == "human" and (self.trainable or self.adapter is not None or self.peer is not None):
            raise ValueError(
                "a person plays this role (voice: human): set trainable: false, and name no adapter, no peer"
            )
        return self


class EdgeSpec(_Frozen):
    """A message route. `when` names the source's route that takes it; `loop` bounds an edge that leads back.

    Written `a -> b`, `a -> b when accept`, `a -> b loop 2`, or as a mapping.
    """

    source: str
    target: str
    when: str | None = None
    loop: Annotated[int, Field(ge=1)] | None = None


_EDGE = re.compile(r"^\s*([\w-]+)\s*->\s*([\w-]+)(?:\s+when\s+([\w-]+))?(?:\s+loop\s+(\d+))?\s*$")


def _parse_edge(value: object) -> object:
    if not isinstance(value, str):
        return value
    match = _EDGE.match(value)
    if match is None:
        raise ValueError(f"edge {value!r} is not of the form 'a -> b [when ROUTE] [loop N]'")
    source, target, when, loop = match.groups()
    return {"source": source, "target": target, "when": when, "loop": int(loop) if loop else None}


class TeamSpec(_Frozen):
    """A team: who is in it and who speaks to whom.

    Attributes:
        agents: node name -> role name; empty: one agent per role, named like it.
        edges: from `start` over the agents to `done`.
        joins: how an agent with several incoming edges waits: `all` live branches (the default) or `any` first one.
        output: the agent whose last action is the team's action when the run reaches `done`.
        seat: the environment's seat that the team plays.
        policies: agent -> limits, retries, and what its failure means; an agent without one is asked once.
        budget: what a turn, an episode and a run may spend.
    """

    name: str
    roles: dict[str, RoleSpec]
    edges: tuple[Annotated[EdgeSpec, BeforeValidator(_parse_edge)], ...]
    output: str
    agents: dict[str, str] = {}
    joins: dict[str, Literal["all", "any"]] = {}
    seat: str = "team"
    policies: dict[str, Policy] = {}
    budget: Budgets = Budgets()

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
        at_ends = {name for edge in self.edges for name in (edge.source, edge.target)} | {self.output}
        named = self._named()
        return [name for name in self.roles if name in at_ends or name not in named]
