"""Teams made of their edges alone, for tests: every agent speaks notes and has the routes that its edges name."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from mas.core.messages import Failure, Note, Payload
from mas.core.role import Role, View
from mas.core.team import DONE, START, RoleSpec, TeamSpec
from mas.graph import Plan, compile_team, load_team


class Says(Note):
    """A note that takes a route; None takes none."""

    takes: str | None = None

    @property
    def route(self) -> str | None:
        return self.takes


@dataclass(slots=True)
class Speaker:
    """A role with any routes: a text that is one of them takes it, `fail` is a failure, and others take none."""

    name: str
    spec: RoleSpec
    routes: tuple[str, ...]
    emits: str = "note"
    accepts: frozenset[str] = frozenset({"note", "failure"})

    def prompt(self, view: View) -> str:
        """Its name."""
        return self.name

    def chat(self, view: View) -> tuple[str, str]:
        """Its name, twice."""
        return self.name, self.name

    def parse(self, text: str) -> Payload:
        """The note, or the failure that was asked for."""
        if text == "fail":
            return Failure(text=text, cause="asked to")
        return Says(text=text, takes=text if text in self.routes else None)


def team_of(
    edges: Sequence[str], output: str | None = None, joins: Mapping[str, str] | None = None
) -> tuple[TeamSpec, dict[str, Role]]:
    """The team and its roles; the output is the first agent that leads to `done`."""
    ends = [edge.split(" ") for edge in edges]
    nodes = dict.fromkeys(name for words in ends for name in (words[0], words[2]))
    agents = [name for name in nodes if name not in (START, DONE)]
    last = output or next(words[0] for words in ends if words[2] == DONE)
    roles = {name: RoleSpec(emits="note") for name in agents}
    spec = load_team({"name": "t", "roles": roles, "edges": list(edges), "output": last, "joins": dict(joins or {})})
    routes = {name: dict.fromkeys(e.when for e in spec.edges if e.source == name and e.when) for name in agents}
    return spec, {name: Speaker(name, roles[name], tuple(routes[name])) for name in agents}


def plan_of(edges: Sequence[str], output: str | None = None, joins: Mapping[str, str] | None = None) -> Plan:
    """The compiled team of `team_of`."""
    return compile_team(*team_of(edges, output, joins))
