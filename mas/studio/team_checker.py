"""Checks of teams in a process of their own, which is killed when one takes too long and may not use much memory.

The process is asked line by line, in JSON, one question at a time:

    {"text": "name: t ..."}                            the team of this text
    {"text": "...", "change": {"do": "add_role", ...}}  the same after a change, with its new text
    {"text": "...", "lines": [...]}                    the same, with the edges that recorded answers travelled on
"""

import os
import resource
import subprocess
import sys
import threading
import weakref
from contextlib import suppress
from typing import BinaryIO

import msgspec

from mas.core.records import Line
from mas.studio.team_changes import FIELD_KEYS, Change, ChangeError, changed, edge_words, written
from mas.studio.team_episode import Travel, travels
from mas.studio.team_svg import SERIES, role_colours, team_svg
from mas.studio.team_text import CheckedTeam, Problem, TeamTextError, check_text, read_team

_START_S, _CHECK_S = 120.0, 10.0
_MEMORY = 2 * 2**30
_ANSWER = 16 * 2**20
"""Bytes of one answer; a drawing of the largest team has a tenth of it."""


_MOST_PROBLEMS = 40


class TeamQuestion(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is asked about a text; `prefix` begins the ids in the drawing."""

    text: str
    prefix: str = ""
    change: Change | None = None
    lines: tuple[Line, ...] | None = None


class FormRole(msgspec.Struct, frozen=True, kw_only=True):
    """A role as the form shows it.

    Attributes:
        values: option -> its text in the field; others: options that only the text has.
    """

    name: str
    colour: int
    kind: str
    values: dict[str, str]
    others: tuple[str, ...]


class TeamForm(msgspec.Struct, frozen=True, kw_only=True):
    """A team as the form shows it.

    Attributes:
        agents: names that an edge may have. has_protocol: the edges are those of a protocol.
        joins: agent -> how it waits.
    """

    name: str
    output: str
    agents: tuple[str, ...]
    has_protocol: bool
    roles: tuple[FormRole, ...]
    edges: tuple[str, ...]
    joins: dict[str, str]


class TeamAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a check.

    Attributes:
        refused: why a change was not made; text: the new one of a change that was.
        svg: the drawing, empty where the text is no team; form: None where it has no shape that a form can have.
        ends: the target of every edge; travels: of the recorded answers.
    """

    problems: tuple[Problem, ...] = ()
    refused: str | None = None
    text: str | None = None
    svg: str = ""
    form: TeamForm | None = None
    ends: tuple[str, ...] = ()
    travels: tuple[Travel, ...] = ()


def answered(question: TeamQuestion) -> TeamAnswer:
    """The answer to a question, with everything that a hostile text can cause turned into a problem."""
    text: str | None = None
    try:
        if question.change is not None:
            content, _ = read_team(question.text)
            text = written(changed(content, question.change))
        checked = check_text(question.text if text is None else text)
        spec = checked.spec
        return TeamAnswer(
            problems=checked.problems[:_MOST_PROBLEMS],
            text=text,
            svg="" if spec is None else str(team_svg(spec, checked.kinds, question.prefix)),
            form=_form(checked),
            ends=() if spec is None else tuple(edge.target for edge in spec.edges),
            travels=travels(spec, question.lines) if spec is not None and question.lines else (),
        )
    except (ChangeError, TeamTextError) as error:
        return TeamAnswer(refused=str(error))
    except (MemoryError, RecursionError):
        return TeamAnswer(problems=(Problem(text="this team is too large or nested too deeply for the editor"),))


def _form(checked: CheckedTeam) -> TeamForm | None:
    content = checked.content
    if content is None:
        return None
    roles, agents, edges, joins = (content.get(key) for key in ("roles", "agents", "edges", "joins"))
    roles, agents, edges, joins = roles or {}, agents or {}, edges or [], joins or {}
    if not isinstance(roles, dict) or not isinstance(agents, dict) or not isinstance(edges, list):
        return None
    if not isinstance(joins, dict) or not all(isinstance(role, dict | None) for role in roles.values()):
        return None
    colours = {} if checked.spec is None else role_colours(checked.spec)
    members = {} if checked.spec is None else checked.spec.members()
    colour_of = {role: colours[agent] for agent, role in members.items()}
    plain = {str(name): {str(key): value for key, value in (role or {}).items()} for name, role in roles.items()}
    return TeamForm(
        name=str(content.get("name", "")),
        output=str(content.get("output", "")),
        agents=tuple(str(agent) for agent in agents or (members if checked.spec is not None else roles)),
        has_protocol="protocol" in content,
        roles=tuple(
            FormRole(
                name=name,
                colour=colour_of.get(name, number % SERIES),
                kind=checked.kinds.get(name, ""),
                values={key: _field_text(value) for key, value in role.items() if key in FIELD_KEYS},
                others=tuple(key for key in role if key not in FIELD_KEYS),
            )
            for number, (name, role) in enumerate(plain.items())
        ),
        edges=tuple(edge_words(edge) for edge in edges),
        joins={str(agent): _field_text(value) for agent, value in joins.items()},
    )


def _field_text(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return "\n".join(str(item) for item in value)
    return "" if value is None else str(value)


class TeamChecker:
    """The other process, started with the first question and again after it was killed; it ends with this object.

    Args:
        check_s: seconds that one answer may take.
    """

    def __init__(self, *, check_s: float = _CHECK_S) -> None:
        self._check_s = check_s
        self._turn = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._finalizer: weakref.finalize[..., TeamChecker] | None = None

    def ask(self, question: TeamQuestion) -> TeamAnswer:
        """The answer. A question that takes too long, or ends the process, is answered with that as its problem."""
        with self._turn:
            if self._process is None:
                self._process = self._started()
            line = self._next_line(self._process, self._check_s, msgspec.json.encode(question) + b"\n")
            if line.endswith(b"\n"):
                return msgspec.json.decode(line, type=TeamAnswer)
            self._end()
            said = "the check of this team was ended: it took too long or too much memory"
            return TeamAnswer(problems=(Problem(text=said),))

    def close(self) -> None:
        """End the process."""
        with self._turn:
            self._end()

    def _started(self) -> "subprocess.Popen[bytes]":
        process = subprocess.Popen(
            # -P: what lies in the working directory is not imported
            (sys.executable, "-P", "-m", "mas.studio.team_checker"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        self._finalizer = weakref.finalize(self, _kill, process)
        self._next_line(process, _START_S)
        return process

    def _end(self) -> None:
        if self._finalizer is not None:
            self._finalizer()
        self._process = self._finalizer = None

    @staticmethod
    def _next_line(process: "subprocess.Popen[bytes]", limit_s: float, asked: bytes = b"") -> bytes:
        """What the process says; without a line break at its end it was killed, since it was late, or has ended."""
        assert process.stdin is not None
        assert process.stdout is not None
        late = threading.Timer(limit_s, process.kill)
        late.start()
        try:
            process.stdin.write(asked)
            process.stdin.flush()
            return process.stdout.readline(_ANSWER)
        except OSError:
            return b""
        finally:
            late.cancel()


def _kill(process: "subprocess.Popen[bytes]") -> None:
    process.kill()
    with suppress(OSError):
        process.communicate()


def serve_questions(questions: BinaryIO, answers: BinaryIO) -> None:
    """Answer line by line until the questions end."""
    decoder = msgspec.json.Decoder(TeamQuestion)
    answers.write(b"ready\n")
    answers.flush()
    for line in questions:
        answers.write(msgspec.json.encode(answered(decoder.decode(line))) + b"\n")
        answers.flush()


def main() -> None:
    """The process: bounded memory, and nothing that an import prints stands between the answers."""
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    serve_questions(sys.stdin.buffer, answers)


if __name__ == "__main__":
    main()
