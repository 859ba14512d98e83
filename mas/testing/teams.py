"""Teams made of their edges alone, for tests: every agent speaks notes and has the routes that its edges name.

An agent whose edge has `map` speaks lists: the words of its text.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from mas.core.messages import Failure, Items, Note, Payload
from mas.core.role import Role, RoleSpec, View
from mas.core.team import DONE, START, TeamSpec
from mas.graph import TeamPlan, compile_team, load_team


class Says(Note):
    """A note that takes a route; None takes none."""

    kind: ClassVar[str] = "says"
    takes: str | None = None

    @property
    def route(self) -> str | None:
        return self.takes


@dataclass(slots=True)
class ScriptedRole:
    """A role with any routes: a text that is one of them takes it, `fail` is a failure, and others take none."""

    name: str
    spec: RoleSpec
    routes: tuple[str, ...]
    emits: str = "note"
    accepts: frozenset[str] = frozenset({"note", "items", "failure"})

    def prompt(self, view: View) -> str:
        """Its name."""
        return self.name

    def chat(self, view: View) -> tuple[str, str]:
        """Its name, twice."""
        return self.name, self.name

    def earlier(self, view: View) -> tuple[tuple[str, str], ...]:
        """Nothing."""
        return ()

    def prefill(self, view: View) -> str:
        """None."""
        return ""

    def parse(self, text: str) -> Payload:
        """The note or list, or the failure that was asked for."""
        if text == "fail":
            return Failure(text=text, cause="asked to")
        if self.emits == Items.kind:
            return Items(items=tuple(text.split()))
        return Says(text=text, takes=text if text in self.routes else None)


Joins = Mapping[str, object]


def team_of(
    edges: Sequence[str],
    output: str | None = None,
    joins: Joins | None = None,
    teams: Mapping[str, TeamSpec] | None = None,
) -> tuple[TeamSpec, dict[str, Role]]:
    """The team and its roles; the output is the first agent that leads to `done`.

    Args:
        teams: the teams that some of its members are.
    """
    inner = teams or {}
    ends = [edge.split(" ") for edge in edges]
    nodes = dict.fromkeys(name for words in ends for name in (words[0], words[2]))
    agents = [name for name in nodes if name not in (START, DONE, *inner)]
    last = output or next(words[0] for words in ends if words[2] == DONE)
    mapped = {words[2] for words in ends if words[-1] == "map"}
    makers = {words[0] for words in ends if words[-1] == "map"} - mapped
    roles = {name: RoleSpec(emits=Items.kind if name in makers else "note") for name in agents}
    cast: dict[str, object] = {name: {"team": inner[name]} if name in inner else name for name in (*agents, *inner)}
    spec = load_team(
        {"name": "t", "roles": roles, "agents": cast, "edges": list(edges), "output": last, "joins": dict(joins or {})}
    )
    routes: dict[str, dict[str, None]] = {name: {} for name in spec.roles}
    for edge in spec.edges:
        agent = spec.teams.get(edge.source, edge.source)
        if edge.when and agent in spec.agents:
            routes[spec.agents[agent]][edge.when] = None
    return spec, {
        name: ScriptedRole(name, role, tuple(routes[name]), role.emits or "note") for name, role in spec.roles.items()
    }


def plan_of(
    edges: Sequence[str],
    output: str | None = None,
    joins: Joins | None = None,
    teams: Mapping[str, TeamSpec] | None = None,
) -> TeamPlan:
    """The compiled team of `team_of`."""
    return compile_team(*team_of(edges, output, joins, teams))
