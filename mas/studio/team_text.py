"""A team's text as somebody writes it in the editor: read within bounds, checked, and every problem at its line.

The text may be hostile. Nothing that it names is opened, imported or called: a role or a team that is the path of a
file, and a class that is none of mas itself, are problems here. Tags of YAML are refused, and aliases that stand for
too much. What takes too long or too much memory in spite of that ends with its process (`mas.studio.team_checker`).
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
import yaml

from mas.config.access import class_access, is_of_mas
from mas.config.plain_values import PlainLoader
from mas.core.errors import MasError
from mas.core.team import TeamSpec
from mas.graph.load import load_team
from mas.graph.plan import compile_team
from mas.graph.wiring import edge_text
from mas.roles import BUILT_IN, build_roles

MOST_CHARACTERS = 64 * 1024
MOST_VALUES = 20_000
MOST_ROLES, MOST_EDGES, MOST_OPTION = 64, 256, 64
"""What the editor checks; `mas graph` has no such bounds. The option is a protocol's, such as `voters`."""
_QUOTED = re.compile(r"'([^']*)'")
_POSSIBLE = re.compile(r"Did you mean|Possible:")
_OF_EDGES = re.compile(r"\b(?:edges?|cycle)\b")
_HEAD = re.compile(r"^team(?: '[^']*')? is not (?:a team|well formed): ?")
_BETWEEN = re.compile(r"\n  - ")


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """What is wrong, as `mas graph` says it, and where.

    Attributes:
        line: in the text, from 1; None: nowhere in particular.
        place: the key, dotted, such as `roles.planner.max_tokens`; empty without a line.
    """

    text: str
    line: int | None = None
    place: str = ""


class CheckedTeam(msgspec.Struct, frozen=True, kw_only=True):
    """A text after its check.

    Attributes:
        content: the plain values of the text, None where it cannot be read as a mapping.
        spec: the team, None where its keys or values are wrong.
        kinds: role -> kind of its output, of the roles that could be made.
    """

    problems: tuple[Problem, ...]
    content: dict[str, Any] | None = None
    spec: Any = None
    kinds: Mapping[str, str] = {}


def read_team(text: str) -> tuple[dict[str, Any], dict[str, int]]:
    """The plain values of a text, and the line of every key in it by its dotted place.

    Raises:
        TeamTextError: it is too long, is not YAML, has tags, holds no mapping, or its aliases stand for too much.
    """
    if len(text) > MOST_CHARACTERS:
        raise TeamTextError(f"the text has {len(text):,} characters; the editor reads {MOST_CHARACTERS:,} at most")
    try:
        loader = PlainLoader(text)
        try:
            node = loader.get_single_node()
            _check_values(node)
            content = None if node is None else loader.construct_document(node)
        finally:
            loader.dispose()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        said = ", ".join(part for part in (error.context, error.problem) if part)
        raise TeamTextError(f"this is not YAML: {said}", None if mark is None else mark.line + 1) from None
    except (yaml.YAMLError, ValueError) as error:
        raise TeamTextError(f"this is not YAML: {str(error)[:300]}") from None
    except RecursionError:
        raise TeamTextError("this cannot be read: it is nested too deeply") from None
    if not isinstance(content, dict) or node is None:
        raise TeamTextError("a team is a mapping of keys to values; it begins with 'name: NAME'", 1)
    return content, dict(_lines(node, ""))


class TeamTextError(MasError):
    """A text that cannot be read as a team's plain values.

    Attributes:
        line: in the text, from 1; None: nowhere in particular.
    """

    def __init__(self, text: str, line: int | None = None) -> None:
        super().__init__(text)
        self.line = line


def _check_values(root: yaml.Node | None) -> None:
    """Refuse a text whose aliases (`*name`) stand for too many values, before any of them is written out."""
    sizes: dict[int, int] = {}
    open_nodes: set[int] = set()

    def size(node: yaml.Node) -> int:
        if id(node) in open_nodes:
            raise TeamTextError("an alias (*name) stands within what it stands for", node.start_mark.line + 1)
        if id(node) not in sizes:
            open_nodes.add(id(node))
            parts = [part for pair in node.value for part in pair] if isinstance(node, yaml.MappingNode) else []
            parts = list(node.value) if isinstance(node, yaml.SequenceNode) else parts
            sizes[id(node)] = 1 + sum(map(size, parts))
            open_nodes.remove(id(node))
        return sizes[id(node)]

    if root is not None and (count := size(root)) > MOST_VALUES:
        raise TeamTextError(f"the text stands for {count:,} values; the editor reads {MOST_VALUES:,} at most")


def _lines(node: yaml.Node, place: str) -> Iterator[tuple[str, int]]:
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            if isinstance(key, yaml.ScalarNode):
                below = f"{place}.{key.value}" if place else key.value
                yield below, key.start_mark.line + 1
                yield from _lines(value, below)
    elif isinstance(node, yaml.SequenceNode):
        for number, value in enumerate(node.value):
            below = f"{place}.{number}"
            yield below, value.start_mark.line + 1
            yield from _lines(value, below)


def check_text(text: str) -> CheckedTeam:
    """All that `mas graph` would say about this text, as far as the editor may look. Raises nothing of mas."""
    try:
        content, lines = read_team(text)
    except TeamTextError as error:
        return CheckedTeam(problems=(Problem(text=str(error), line=error.line),))
    return check_content(content, lines)


def check_content(content: dict[str, Any], lines: dict[str, int]) -> CheckedTeam:
    """The same of plain values that are read already, with the line of each key."""
    refused = [_placed(said, lines) for said in _refused(content, "")]
    if refused:
        return CheckedTeam(problems=tuple(refused), content=content)
    try:
        spec = load_team(content)
    except MasError as error:
        return CheckedTeam(problems=tuple(_placed(said, lines) for said in _told(error)), content=content)
    if len(spec.roles) > MOST_ROLES or len(spec.members()) > MOST_ROLES or len(spec.edges) > MOST_EDGES:
        said = f"the editor takes {MOST_ROLES} roles and agents and {MOST_EDGES} edges; check this with mas graph FILE"
        return CheckedTeam(problems=(Problem(text=said),), content=content)
    known = {edge_text(edge): f"edges.{number}" for number, edge in enumerate(spec.edges)}
    lines = lines | {text: lines[place] for text, place in known.items() if place in lines}
    problems, kinds = _checked_graph(spec)
    return CheckedTeam(
        problems=tuple(_placed(said, lines) for said in problems), content=content, spec=spec, kinds=kinds
    )


def _refused(content: Mapping[Any, Any], place: str) -> Iterator[str]:
    """What the editor does not follow: paths of other files, and numbers of members without end."""
    roles, agents, protocol = content.get("roles"), content.get("agents"), content.get("protocol")
    for name, role in roles.items() if isinstance(roles, dict) else ():
        if isinstance(role, str):
            yield f"'{place}roles.{name}' is a path: the editor opens no other file; write the role's keys out here"
    for name, member in agents.items() if isinstance(agents, dict) else ():
        inner = member.get("team") if isinstance(member, dict) else None
        if isinstance(inner, str):
            yield f"'{place}agents.{name}' is the path of a team: the editor opens no other file; write it out here"
        elif isinstance(inner, dict):
            yield from _refused(inner, f"{place}agents.{name}.team.")
    for key, value in protocol.items() if isinstance(protocol, dict) else ():
        if isinstance(value, int) and value > MOST_OPTION:
            yield f"'{place}protocol.{key}' is {value}; the editor takes {MOST_OPTION} at most"


def foreign_types(spec: TeamSpec) -> dict[str, str]:
    """Role -> type, of the roles whose class is none of mas itself: to make them is to run somebody's code."""
    return {
        name: role.type
        for name, role in spec.roles.items()
        if ":" in role.type and not is_of_mas(class_access(role.type, name))
    }


def _checked_graph(spec: TeamSpec) -> tuple[list[str], dict[str, str]]:
    """What is wrong with the graph, and the kind that each role emits, as far as it is known."""
    written = {name: role.emits or _usual_kind(role.type) for name, role in spec.roles.items()}
    kinds = {name: kind for name, kind in written.items() if kind is not None}
    if foreign := foreign_types(spec):
        return [
            f"'roles.{name}.type' is {kind[:200]!r}, a class that the editor does not import: check this team with "
            "mas graph FILE, which asks you first"
            for name, kind in foreign.items()
        ], kinds
    try:
        roles = build_roles(spec)
        kinds = {name: role.emits for name, role in roles.items()}
        compile_team(spec, roles)
    except MasError as error:
        return _told(error), kinds
    return [], kinds


def _usual_kind(kind: str) -> str | None:
    built_in = BUILT_IN.get(kind)
    return None if built_in is None else built_in.default_emits


def _told(error: MasError) -> list[str]:
    """The single problems of an error that lists several."""
    first, *rest = _BETWEEN.split(str(error))
    return rest or [_HEAD.sub("", first)]


def _placed(said: str, lines: Mapping[str, int]) -> Problem:
    """A problem at the line of the first name in it that stands in the text."""
    names = [name for name in _QUOTED.findall(_POSSIBLE.split(said)[0]) if name]
    for name in names:
        for place in (name, f"roles.{name}", f"agents.{name}", f"joins.{name}", f"policies.{name}"):
            if place in lines:
                return Problem(text=said, line=lines[place], place=place)
    for name in (*names, "edges" if _OF_EDGES.search(said) else ""):
        while "." in name and name not in lines:
            name = name.rpartition(".")[0]
        if name in lines:
            return Problem(text=said, line=lines[name], place=name)
    return Problem(text=said)
