"""Changes that the form of the editor makes to a team: each is a record, its effect is a new mapping, and the mapping
becomes YAML again. A change may leave a team that is not well formed: the check says so.

Leaves out on purpose: comments of the text, which plain values do not have.
"""

import re
from collections.abc import Callable, Mapping
from copy import deepcopy
from typing import Any, Literal, get_args

import msgspec
import yaml

from mas.core.errors import MasError
from mas.core.messages import PAYLOADS
from mas.core.naming import did_you_mean
from mas.core.role import Context, RoleSpec
from mas.core.team import EdgeSpec, TeamSpec
from mas.graph.wiring import edge_text
from mas.roles import BUILT_IN
from mas.studio.team_text import check_content

FieldLook = Literal["text", "lines", "list", "number", "flag", "choice"]


class RoleField(msgspec.Struct, frozen=True):
    """An option of a role that the form has a field for; a `list` is written as one text per line."""

    key: str
    look: FieldLook
    hint: str
    choices: tuple[str, ...] = ()


ROLE_FIELDS = (
    RoleField("type", "choice", "what the role does", tuple(BUILT_IN)),
    RoleField("instructions", "lines", "what the role is told, for models that chat"),
    RoleField("ask", "lines", "the user message; {field} and {from.AGENT} are filled in"),
    RoleField("template", "lines", "the compact prompt, for base models"),
    RoleField("prefill", "text", "how its answer begins"),
    RoleField("format", "text", "what an answer looks like"),
    RoleField("view", "text", "the environment view that it sees"),
    RoleField("emits", "choice", "kind of its output", tuple(kind for kind in PAYLOADS if kind != "failure")),
    RoleField("pattern", "text", "regular expression of the whole output"),
    RoleField("choices", "list", "the legal outputs, one per line"),
    RoleField("max_tokens", "number", "of one output"),
    RoleField("temperature", "number", "of sampling"),
    RoleField("context", "choice", "messages that it is shown", get_args(Context)),
    RoleField("history", "number", "its own earlier calls that it is shown"),
    RoleField("adapter", "text", "roles that name the same one share it"),
    RoleField("trainable", "flag", "false freezes it", ("true", "false")),
    RoleField("voice", "choice", "who speaks", get_args(RoleSpec.model_fields["voice"].annotation)),
)
"""The other options of a role are edited in the text."""
FIELD_KEYS = {field.key: field for field in ROLE_FIELDS}
_ENDS = re.compile(r"^\s*([\w-]+)\s*->\s*([\w-]+)(.*)$", re.DOTALL)
_NAMED_BY = ("joins", "policies", "replicas")
"""Keys of a team that are mappings from agents."""
_LISTED_BY = ("else_output", "joint")


class ChangeError(MasError):
    """A change that cannot be made: it names what there is not, or what there is already."""


class AddRole(msgspec.Struct, frozen=True, tag="add_role", tag_field="do", forbid_unknown_fields=True):
    """A new role, and an agent of its name that plays it."""

    role: str
    type: str = "agent"

    def apply(self, team: dict[str, Any]) -> None:
        """Change the mapping."""
        _check_name(self.role)
        roles = _roles(team)
        if self.role in roles:
            raise ChangeError(f"there is a role {self.role!r} already; choose another name")
        roles[self.role] = {"type": self.type}
        if isinstance(team.get("agents"), dict):
            team["agents"].setdefault(self.role, self.role)


class RemoveRole(msgspec.Struct, frozen=True, tag="remove_role", tag_field="do", forbid_unknown_fields=True):
    """A role goes, with the agents that play it and all edges of theirs."""

    role: str

    def apply(self, team: dict[str, Any]) -> None:
        """Change the mapping."""
        del _role(team, self.role)[self.role]
        agents = team.get("agents")
        played = {self.role}
        if isinstance(agents, dict):
            played = {agent for agent, role in agents.items() if role == self.role}
            team["agents"] = {agent: role for agent, role in agents.items() if agent not in played}
        edges = team.get("edges", [])
        team["edges"] = [edge for edge in edges if not played & set(_ends(edge))]
        for key in _NAMED_BY:
            if isinstance(team.get(key), dict):
                _keep(team, key, {agent: value for agent, value in team[key].items() if agent not in played})
        for key in _LISTED_BY:
            if isinstance(team.get(key), list):
                _keep(team, key, [agent for agent in team[key] if agent not in played])
        if "protocol" in team:
            _keep(team, "edges", team["edges"])


class RenameRole(msgspec.Struct, frozen=True, tag="rename_role", tag_field="do", forbid_unknown_fields=True):
    """Another name for a role, and for the agent of its name, wherever the team names them."""

    role: str
    to: str

    def apply(self, team: dict[str, Any]) -> None:
        """Change the mapping."""
        _check_name(self.to)
        roles = _role(team, self.role)
        if self.to == self.role:
            return
        agents = team.get("agents")
        if self.to in roles or (isinstance(agents, dict) and self.to in agents):
            raise ChangeError(f"the name {self.to!r} is taken; choose another")
        old, new = self.role, self.to
        team["roles"] = {new if name == old else name: role for name, role in roles.items()}
        _rename_agents(team, old, new)
        for role in team["roles"].values():
            for key in ("template", "ask", "prefill"):
                if isinstance(role, dict) and isinstance(role.get(key), str):
                    role[key] = role[key].replace(f"{{from.{old}}}", f"{{from.{new}}}")


class SetRole(msgspec.Struct, frozen=True, tag="set_role", tag_field="do", forbid_unknown_fields=True):
    """A value of one option of a role as the form has it; an empty one takes the option out."""

    role: str
    key: str
    value: str

    def apply(self, team: dict[str, Any]) -> None:
        """Change the mapping."""
        roles, field = _role(team, self.role), FIELD_KEYS.get(self.key)
        if field is None:
            raise ChangeError(f"the form has no field {self.key[:80]!r}; change it in the text")
        role = roles[self.role] if isinstance(roles[self.role], dict) else {}
        value = _value(field, self.value.replace("\r\n", "\n"))
        roles[self.role] = {key: old for key, old in role.items() if key != self.key or value is not None}
        if value is not None:
            roles[self.role][self.key] = value


class AddEdge(msgspec.Struct, frozen=True, tag="add_edge", tag_field="do", forbid_unknown_fields=True):
    """A new edge behind the others."""

    source: str
    target: str
    when: str = ""
    loop: str = ""
    map: bool = False

    def apply(self, team: dict[str, Any]) -> None:
        """Change the mapping."""
        if self.loop and not (self.loop.isdecimal() and int(self.loop[:9]) > 0):
            raise ChangeError(f"a loop is taken a number of times from 1, not {self.loop[:20]!r}")
        for name in (self.source, self.target, *([self.when] if self.when else [])):
            _check_name(name)
        edge = EdgeSpec(
            source=self.source,
            target=self.target,
            when=self.when or None,
            loop=int(self.loop[:9]) if self.loop else None,
            map=self.map,
        )
        _edges(team).append(edge_text(edge))


class SetEdge(msgspec.Struct, frozen=True, tag="set_edge", tag_field="do", forbid_unknown_fields=True):
    """Another text for an edge; an empty one takes the edge out."""

    number: int
    text: str = ""

    def apply(self, team: dict[str, Any]) -> None:
        """Change the mapping."""
        edges = _edges(team)
        if not 0 <= self.number < len(edges):
            raise ChangeError(f"there is no edge {self.number}")
        edges[self.number : self.number + 1] = [self.text.strip()] if self.text.strip() else []


class SetTeam(msgspec.Struct, frozen=True, tag="set_team", tag_field="do", forbid_unknown_fields=True):
    """The name of the team, or the agent whose output is its action."""

    key: Literal["name", "output"]
    value: str

    def apply(self, team: dict[str, Any]) -> None:
        """Change the mapping."""
        if self.key == "output" and "protocol" in team:
            raise ChangeError("the protocol says whose output is the team's action")
        team[self.key] = self.value.strip()


class SetJoin(msgspec.Struct, frozen=True, tag="set_join", tag_field="do", forbid_unknown_fields=True):
    """How an agent waits for its branches; empty or `all`: for all live ones."""

    agent: str
    value: str

    def apply(self, team: dict[str, Any]) -> None:
        """Change the mapping."""
        _edges(team)
        value: int | str = int(self.value[:9]) if self.value.isdecimal() else self.value.strip()
        old = team.get("joins")
        joins = {agent: need for agent, need in (old if isinstance(old, dict) else {}).items() if agent != self.agent}
        _keep(team, "joins", joins if value in ("", "all") else joins | {self.agent: value})


class WriteOut(msgspec.Struct, frozen=True, tag="write_out", tag_field="do", forbid_unknown_fields=True):
    """The edges of a team's protocol stand in its place, so that they can be changed."""

    def apply(self, team: dict[str, Any]) -> None:
        """Change the mapping."""
        if "protocol" not in team:
            raise ChangeError("the team has no protocol; its edges are written out")
        checked = check_content(team, {})
        if checked.spec is None:
            raise ChangeError(f"put this right first: {checked.problems[0].text}")
        spec: TeamSpec = checked.spec
        plain = spec.model_dump(mode="json", exclude_defaults=True)
        del team["protocol"]
        roles = team.setdefault("roles", {})
        for name, role in plain["roles"].items():
            roles.setdefault(name, role)
        team["edges"] = [edge_text(edge) for edge in spec.edges]
        for key in ("agents", "joins", "seats"):
            if key in plain:
                team[key] = plain[key]
        team["output"] = spec.output


Change = WriteOut | AddRole | RemoveRole | RenameRole | SetRole | AddEdge | SetEdge | SetTeam | SetJoin


def changed(content: Mapping[str, Any], change: Change) -> dict[str, Any]:
    """A team's plain values after a change.

    Raises:
        ChangeError: the change names what there is not, or what there is already.
    """
    team = deepcopy(dict(content))
    change.apply(team)
    return team


def _rename_agents(team: dict[str, Any], old: str, new: str) -> None:
    """Another name for an agent, and for the role that agents play, in all keys of a team but `roles`."""
    if isinstance(agents := team.get("agents"), dict):
        team["agents"] = {_other(agent, old, new): _other(role, old, new) for agent, role in agents.items()}
    for key in _NAMED_BY:
        if isinstance(team.get(key), dict):
            team[key] = {_other(agent, old, new): value for agent, value in team[key].items()}
    for key in (*_LISTED_BY, "edges"):
        if isinstance(team.get(key), list):
            renamed = _renamed_edge if key == "edges" else _other
            team[key] = [renamed(entry, old, new) for entry in team[key]]
    for key in ("output", "leader"):
        if team.get(key) == old:
            team[key] = new


def _keep(team: dict[str, Any], key: str, value: dict[str, Any] | list[Any]) -> None:
    """Set the key, or take it out where nothing is left."""
    team.pop(key, None)
    if value:
        team[key] = value


def _check_name(name: str) -> None:
    if not re.fullmatch(r"[\w-]{1,60}", name):
        raise ChangeError(f"{name[:80]!r} is no name: write letters, digits, _ and -, at most 60")


def _roles(team: dict[str, Any]) -> dict[str, Any]:
    if not isinstance(team.setdefault("roles", {}), dict):
        raise ChangeError("'roles' is no mapping; put it right in the text first")
    roles: dict[str, Any] = team["roles"]
    return roles


def _role(team: dict[str, Any], name: str) -> dict[str, Any]:
    """The roles, among which there is one of this name."""
    roles = _roles(team)
    if name not in roles:
        raise ChangeError(f"there is no role {name[:80]!r}. {did_you_mean(name[:80], [str(role) for role in roles])}")
    return roles


def _edges(team: dict[str, Any]) -> list[Any]:
    if "protocol" in team:
        raise ChangeError("the edges are those of the team's protocol; change it in the text")
    if not isinstance(team.setdefault("edges", []), list):
        raise ChangeError("'edges' is no list; put it right in the text first")
    edges: list[Any] = team["edges"]
    return edges


def _ends(edge: object) -> tuple[object, object]:
    """Source and target of an edge as it is written; two empty texts where it cannot be read."""
    if isinstance(edge, dict):
        return edge.get("source"), edge.get("target")
    match = _ENDS.match(edge) if isinstance(edge, str) else None
    return (match[1], match[2]) if match else ("", "")


def _renamed_edge(edge: object, old: str, new: str) -> object:
    if isinstance(edge, dict):
        return {key: _other(name, old, new) if key in ("source", "target") else name for key, name in edge.items()}
    match = _ENDS.match(edge) if isinstance(edge, str) else None
    return f"{_other(match[1], old, new)} -> {_other(match[2], old, new)}{match[3]}" if match else edge


def _other(name: Any, old: str, new: str) -> Any:
    return new if name == old else name


def _value(field: RoleField, text: str) -> Any:
    """What the text of a field means; None: the option is left out. A number that is none stays a text, which the
    check refuses at its place."""
    if field.look == "list":
        return [line for line in text.split("\n") if line] or None
    if field.look == "lines" or field.look == "text":
        return text or None
    value = text.strip()
    if field.look == "flag":
        return {"true": True, "false": False}.get(value)
    if field.look == "number":
        for kind in (int, float):
            try:
                return kind(value[:40])
            except ValueError:
                continue
    return value or None


def edge_words(edge: object) -> str:
    """An edge of a team's plain values as text."""
    if isinstance(edge, dict):
        try:
            return edge_text(EdgeSpec.model_validate(edge))
        except ValueError:
            return str(edge)[:200]
    return str(edge)


class _Edges(list[Any]):
    """The edges, which stand below each other."""


class _TeamDumper(yaml.SafeDumper):
    """Short lists on one line, lists below their key indented, texts of several lines as blocks, no aliases."""

    def ignore_aliases(self, data: Any) -> bool:
        return True

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        super().increase_indent(flow, False)


def _written_text(dumper: yaml.SafeDumper, text: str) -> yaml.Node:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


def _written_list(dumper: yaml.SafeDumper, values: list[Any]) -> yaml.Node:
    is_short = not isinstance(values, _Edges) and all(isinstance(value, str | int | float) for value in values)
    is_short = is_short and sum(len(str(value)) + 2 for value in values) < 80 and "\n" not in "".join(map(str, values))
    return dumper.represent_sequence("tag:yaml.org,2002:seq", values, flow_style=is_short)


_REPRESENTERS: Mapping[type, Callable[..., yaml.Node]] = {
    str: _written_text, list: _written_list, _Edges: _written_list
}  # fmt: skip
for _kind, _written in _REPRESENTERS.items():
    _TeamDumper.add_representer(_kind, _written)


def written(content: Mapping[str, Any]) -> str:
    """Plain values as YAML; reading it gives equal values."""
    team = dict(content)
    if isinstance(team.get("edges"), list):
        team["edges"] = _Edges(team["edges"])
    return yaml.dump(team, Dumper=_TeamDumper, sort_keys=False, allow_unicode=True, width=110)
