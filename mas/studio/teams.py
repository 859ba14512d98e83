"""Pages about teams: the teams of all runs, the messages of a run's episodes on the team's drawing, and the editor.

Whatever is read of a team, of a run's as of one in the editor, is read by `TeamChecker`. Nothing is written.
"""

from collections.abc import Mapping, Sequence
from functools import cache
from importlib import resources
from typing import Any

import msgspec
from markupsafe import Markup
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from mas.config.access import TEAM_FILE
from mas.core.errors import MasError
from mas.core.naming import agent_of
from mas.core.printable import printable, shortened
from mas.core.records import Line, Scene
from mas.observe.files import read_lines
from mas.studio.runs import StudioRun
from mas.studio.site import Link, Studio
from mas.studio.team_changes import ROLE_FIELDS
from mas.studio.team_checker import TeamAnswer, TeamChecker, TeamQuestion
from mas.studio.team_svg import SERIES
from mas.studio.team_text import MOST_CHARACTERS

SAMPLES_FILE = "samples.jsonl"
_MOST_SAMPLES = 64 * 2**20
"""Bytes of a file of samples that is read."""
_MOST_LINES, _MOST_TEXT = 400, 20_000
"""Messages of one episode that are shown, and characters of each."""
_PREVIEWS = 24
_BODY = 4 * MOST_CHARACTERS
FIRST_TEAM = """\
name: my_team
roles:
  planner:
    type: planner
    instructions: Say in one sentence how to solve the task.
  executor:
    type: executor
edges:
  - start -> planner
  - planner -> executor
  - executor -> done
output: executor
"""


class PlaybackStep(msgspec.Struct, frozen=True, kw_only=True):
    """One moment of an episode: an answer, or the world between two turns, where `agent` is empty.

    Attributes:
        edges: positions of the edges that light up, as a text with blanks between them.
        to: whom the answer reached. look: the number of the agent's colour.
    """

    turn: int
    agent: str = ""
    look: int = 0
    text: str = ""
    prompt: str = ""
    failure: str | None = None
    event: str = ""
    edges: str = ""
    to: str = ""


def routes(studio: Studio) -> list[Route]:
    """`/teams`, `/teams/edit`, `/teams/check` and `/runs/{run}/team`."""
    studio.links.append(Link("Teams", "/teams"))
    studio.run_links.append(Link("Team", "/team"))
    pages = _TeamPages(studio, TeamChecker())
    return [
        Route("/teams", pages.every, methods=["GET"]),
        Route("/teams/edit", pages.edit, methods=["GET"]),
        Route("/teams/check", pages.check, methods=["POST"]),
        Route("/runs/{run}/team", pages.of_run, methods=["GET"]),
    ]


class _TeamPages:
    """The pages, with the one process that checks teams."""

    def __init__(self, studio: Studio, checker: TeamChecker) -> None:
        self._studio, self._checker = studio, checker

    def every(self, request: Request) -> Response:
        """All runs, the first ones with the drawing of their team."""
        runs = self._studio.runs.all()
        drawn = {run.key: self._drawn(run) for run in runs[:_PREVIEWS]}
        return self._studio.page(request, "teams.html", runs=runs, drawn=drawn, shipped=_groups())

    def _drawn(self, run: StudioRun) -> Markup:
        """The drawing of a run's team; nothing where it cannot be read, which the run's own page explains."""
        try:
            answer = self._checker.ask(TeamQuestion(text=_team_text(run), prefix=f"{run.key}-"))
        except MasError:
            return Markup()
        return Markup(answer.svg)

    def of_run(self, request: Request) -> Response:
        """A run's team, with the messages of one recorded episode."""
        run = self._studio.run_of(request)
        samples = _samples(run)
        number = _number(request.query_params.get("episode", ""), len(samples))
        sample: Mapping[str, Any] = samples[number] if samples else {}
        lines, scenes = _conversation(sample)
        answer = self._checker.ask(TeamQuestion(text=_team_text(run), lines=lines))
        return self._studio.page(
            request,
            "team_run.html",
            run=run,
            answer=answer,
            svg=Markup(answer.svg),
            samples=[_episode_title(one) for one in samples],
            number=number,
            outcome=_outcome(sample),
            steps=_steps(answer, lines, scenes, run.looks),
            is_exact=all(one.is_exact for one in answer.travels),
            cut=max(len(all_lines) - _MOST_LINES, 0) if isinstance(all_lines := sample.get("lines"), list) else 0,
        )

    def edit(self, request: Request) -> Response:
        """The editor, with a shipped team (`from`), a run's (`run`), or a first one in it."""
        chosen, key = request.query_params.get("from"), request.query_params.get("run")
        text = FIRST_TEAM
        if key is not None:
            run = self._studio.runs.find(key)
            if run is None:
                raise HTTPException(404, f"there is no run {key[:80]!r} here; the first page lists all")
            text = _team_text(run)
        elif chosen is not None:
            if chosen not in _shipped():
                raise HTTPException(404, f"mas has no team {chosen[:80]!r}; the page Teams lists all")
            text = _shipped()[chosen]
        answer = self._checker.ask(TeamQuestion(text=text))
        form = self._form(answer)
        return self._studio.page(
            request, "team_edit.html", text=text, answer=answer, svg=Markup(answer.svg), form=form, shipped=_groups(),
            chosen=chosen or "", most=MOST_CHARACTERS,
        )  # fmt: skip

    def _form(self, answer: TeamAnswer) -> Markup:
        if answer.form is None:
            return Markup()
        template = self._studio.templates.get_template("team_form.html")
        return Markup(template.render(form=answer.form, fields=ROLE_FIELDS))

    async def check(self, request: Request) -> Response:
        """A text, and perhaps a change of it, checked."""
        body = b""
        async for part in request.stream():
            body += part
            if len(body) > _BODY:
                raise HTTPException(413, f"the team is longer than {_BODY:,} bytes")
        if request.headers.get("content-type", "").partition(";")[0] != "application/json":
            raise HTTPException(415, "a team is checked as JSON")
        try:
            question = msgspec.json.decode(body, type=TeamQuestion)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise HTTPException(400, f"this is no question about a team: {str(error)[:200]}") from None
        question = TeamQuestion(text=question.text, change=question.change)
        answer = await run_in_threadpool(self._checker.ask, question)
        return JSONResponse(
            {
                "problems": [
                    {"text": printable(one.text), "line": one.line, "place": one.place} for one in answer.problems
                ],
                "refused": None if answer.refused is None else printable(answer.refused),
                "text": answer.text,
                "svg": answer.svg,
                "form": await run_in_threadpool(self._form, answer),
                "name": "team" if answer.form is None else answer.form.name,
            }
        )


def _team_text(run: StudioRun) -> str:
    """What the run's team file holds, one character more than is read at most; empty where it cannot be read.

    Raises:
        RunDirectoryError: it is no regular file.
        TrustError: it is a link that leads out of the run, which the user has not allowed.
    """
    path = run.file(TEAM_FILE)
    try:
        with path.open("rb") as file:
            return file.read(4 * MOST_CHARACTERS).decode(errors="replace")[: MOST_CHARACTERS + 1]
    except OSError:
        return ""


@cache
def _shipped() -> dict[str, str]:
    """The text of every team that comes with mas, by its place below `mas/scenarios`."""
    found = {}
    folder = resources.files("mas.scenarios")
    with resources.as_file(folder) as root:
        for path in sorted(root.rglob("*.yaml")):
            text = path.read_text("utf-8")
            if "\nroles:" in text and ("\nedges:" in text or "\nprotocol:" in text):
                found[path.relative_to(root).with_suffix("").as_posix()] = text
    return found


def _groups() -> dict[str, list[str]]:
    """Scenario -> its teams, as `_shipped` names them."""
    groups: dict[str, list[str]] = {}
    for name in _shipped():
        groups.setdefault(name.partition("/")[0], []).append(name)
    return groups


def _samples(run: StudioRun) -> list[dict[str, Any]]:
    path = run.file(SAMPLES_FILE)
    try:
        if path.stat().st_size > _MOST_SAMPLES:
            return []
    except OSError:
        return []
    return read_lines(path)


def _number(text: str, count: int) -> int:
    """The episode that the address names; without one the last, which is of the latest step."""
    return min(int(text[:9]), count - 1) if text.isdecimal() and count else max(count - 1, 0)


def _conversation(sample: Mapping[str, Any]) -> tuple[tuple[Line, ...], tuple[Scene, ...]]:
    """Lines and scenes of a sample, cut; none where the file holds something else."""
    try:
        lines = msgspec.convert(sample.get("lines", []), tuple[Line, ...])
        scenes = msgspec.convert(sample.get("scenes", []), tuple[Scene, ...])
    except msgspec.ValidationError:
        return (), ()
    cut = tuple(
        msgspec.structs.replace(line, text=shortened(line.text, _MOST_TEXT), prompt=shortened(line.prompt, _MOST_TEXT))
        for line in lines[:_MOST_LINES]
    )
    return cut, scenes


def _episode_title(sample: Mapping[str, Any]) -> str:
    outcome = "solved" if sample.get("success") else "not solved"
    return f"step {sample.get('step')}, {sample.get('source')}, task {sample.get('task')}: {outcome}"[:160]


def _outcome(sample: Mapping[str, Any]) -> str:
    rewards = sample.get("rewards")
    parts = [f"{name} {value}" for name, value in rewards.items()] if isinstance(rewards, dict) else []
    return ", ".join([*([str(cause)] if (cause := sample.get("cause")) else []), *parts])[:500]


def _steps(
    answer: TeamAnswer, lines: Sequence[Line], scenes: Sequence[Scene], looks: Mapping[str, int]
) -> list[PlaybackStep]:
    """The world at the beginning, then of every turn its answers and the world after it."""

    def said(line: Line, edges: Sequence[int]) -> PlaybackStep:
        reached = dict.fromkeys(answer.ends[edge] for edge in edges if edge < len(answer.ends))
        return PlaybackStep(
            turn=line.turn,
            agent=line.agent,
            look=looks.get(agent_of(line.agent), SERIES - 1) % SERIES,
            text=line.text,
            prompt=line.prompt,
            failure=line.failure,
            edges=" ".join(map(str, edges)),
            to=", ".join(reached),
        )

    steps = [_world(scene) for scene in scenes if scene.turn < 0][:1] or [PlaybackStep(turn=-1)]
    rest = list(lines)
    for travel in answer.travels:
        steps[-1] = msgspec.structs.replace(steps[-1], edges=" ".join(map(str, travel.began)))
        here, rest = rest[: len(travel.edges)], rest[len(travel.edges) :]
        steps += [said(line, edges) for line, edges in zip(here, travel.edges, strict=True)]
        steps += [_world(scene) for scene in scenes if scene.turn == travel.turn][:1] or [
            PlaybackStep(turn=travel.turn)
        ]
    steps += [said(line, ()) for line in rest]
    last = steps[-1]
    return steps if last.agent or last.text or last.event or not lines else steps[:-1]


def _world(scene: Scene) -> PlaybackStep:
    return PlaybackStep(
        turn=scene.turn, text=shortened(scene.world, _MOST_TEXT), event=shortened(scene.event, _MOST_TEXT)
    )
