"""What every route module of the studio gets: the runs, the templates, the links, and the headers of every answer."""

from base64 import b64decode
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from secrets import compare_digest
from types import MappingProxyType

import jinja2
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mas.core.printable import printable
from mas.endpoint.address import check_host
from mas.endpoint.errors import Refused
from mas.observe.charts import SERIES_COLOURS
from mas.observe.progress import format_number
from mas.studio.leagues import LeagueFile, Leagues
from mas.studio.runs import Runs, StudioRun

FOLDER = Path(__file__).parent
HEADERS: Mapping[str, str] = MappingProxyType(
    {
        "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
        "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
        "x-content-type-options": "nosniff",
        "referrer-policy": "no-referrer",
        "cross-origin-opener-policy": "same-origin",
        "cross-origin-resource-policy": "same-origin",
        "cache-control": "no-cache",
    }
)
_READS = ("GET", "HEAD")


@dataclass(frozen=True, slots=True)
class Link:
    """An entry of the navigation.

    Attributes:
        title: as the reader sees it.
        path: of `Studio.links` from the root, such as `/compare`; of `Studio.run_links` below the page of a run, such
            as `/episodes`, empty for that page itself.
    """

    title: str
    path: str


@dataclass(slots=True, kw_only=True)
class Studio:
    """One studio.

    Attributes:
        runs: the run directories. leagues: the leagues beside them.
        hosts: names that the server is known by, see `known_hosts`.
        key: what browsers must send as the password of HTTP Basic authentication; None: all
            processes on this machine may ask.
        plays: whether people play games here.
        links: the navigation of all pages; run_links: that of the pages of one run.
    """

    runs: Runs
    hosts: frozenset[str]
    key: str | None = None
    plays: bool = False
    links: list[Link] = field(default_factory=list)
    run_links: list[Link] = field(default_factory=list)
    templates: jinja2.Environment = field(default_factory=lambda: environment())
    leagues: Leagues = field(init=False)

    def __post_init__(self) -> None:
        self.leagues = Leagues(self.runs.places)

    def page(self, request: Request, template: str, /, status: int = 200, **values: object) -> HTMLResponse:
        """A template as an answer; `run` among the values shows the navigation of that run."""
        frame = {"studio": self, "path": request.url.path, "run": None}
        return HTMLResponse(self.templates.get_template(template).render(frame | values), status)

    def run_of(self, request: Request) -> StudioRun:
        """The run that the path names: `{run}` in a route is its key.

        Raises:
            HTTPException: 404, there is none.
        """
        key = request.path_params["run"]
        run = self.runs.find(key)
        if run is None:
            raise HTTPException(404, f"there is no run {key[:80]!r} here; the first page lists all")
        return run

    def league_of(self, request: Request) -> LeagueFile:
        """The league that the path names: `{league}` in a route is its key.

        Raises:
            HTTPException: 404, there is none.
        """
        key = request.path_params["league"]
        league = self.leagues.find(key)
        if league is None:
            raise HTTPException(404, f"there is no league {key[:80]!r} here; the first page lists all")
        return league


def environment() -> jinja2.Environment:
    """Templates of the studio: what they show is escaped, and its control characters are written out."""
    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader([FOLDER / "templates", FOLDER.parent / "league"]),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=lambda value: printable(value) if type(value) is str else value,
    )
    made.filters["number"] = _number
    made.globals["SERIES_COLOURS"] = SERIES_COLOURS
    return made


def _number(value: float | None) -> str:
    """A number for people, whole ones without digits behind the point; `–` for None."""
    if value is None:
        return "–"
    return format_number(int(value) if value == value // 1 else value)


class Guard:
    """Middleware: refuses requests for other hosts and from pages of others, and sends the headers of every answer.

    What is no GET or HEAD must come from a page of this server: its `Origin` is exactly the address that is asked.
    """

    def __init__(self, app: ASGIApp, studio: Studio) -> None:
        self._app, self._studio = app, studio

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        if scope["type"] != "http":
            return
        request = Request(scope)
        try:
            check_host(request, self._studio.hosts)
            self._check(request)
        except Refused as refused:
            answer = self._studio.page(
                request, "error.html", refused.status, title="Refused", problem=str(refused), links=False
            )
            if refused.status == 401:
                answer.headers["www-authenticate"] = 'Basic realm="mas studio", charset="UTF-8"'
            await answer(scope, receive, guarded)
            return
        await self._app(scope, receive, guarded)

    def _check(self, request: Request) -> None:
        key = self._studio.key
        if key is not None and not compare_digest(_password(request).encode(), key.encode()):
            raise Refused(401, "this studio has a key: give MAS_API_KEY as the password, and any name")
        origin = request.headers.get("origin")
        if request.method not in _READS and origin != f"{request.url.scheme}://{request.headers['host']}":
            raise Refused(403, f"{request.method[:20]!r} is only for pages of this studio", code="wrong_origin")


def _password(request: Request) -> str:
    """Of HTTP Basic authentication; empty without one."""
    kind, _, coded = request.headers.get("authorization", "").partition(" ")
    try:
        return b64decode(coded).decode().partition(":")[2] if kind.lower() == "basic" else ""
    except (ValueError, UnicodeDecodeError):
        return ""
