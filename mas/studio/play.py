"""Games that a person plays in the browser: a seat against a player of a league, or against a baseline.

The pages exist where the studio was started for it. What may be sent comes from a page of this studio, see
`PageRequests`; which games and opponents there are is looked up here, and never taken from a request.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from mas.core.errors import MasError
from mas.core.printable import printable
from mas.league.games import LeagueWorld, open_world
from mas.league.players import SOLVER, has_solver, scripted
from mas.league.pool import pool_game
from mas.league.stored_sources import stored_world
from mas.scenarios.two_player.games import GAMES
from mas.studio.league_pages import shown_game
from mas.studio.leagues import LeagueFile
from mas.studio.page_requests import PageRequests
from mas.studio.play_session import YOU, PlaySession, PlaySessions, PlayTerms, PlayView
from mas.studio.site import Link, Studio

if TYPE_CHECKING:
    from mas.league.store import LeagueStore

RANDOM = "random"
_WAIT_S = 8.0
"""How long an answer waits for the opponent; the page then asks again."""
_BUTTONS = 100
"""Legal moves that have a button; with more, a move is written."""


class PlayWish(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The game that a person wants to begin. `league`: its key; empty: none."""

    game: str
    opponent: str
    seat: str
    league: str = ""


class PersonMove(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A move in a version of the game's view."""

    text: str
    version: int


class Nothing(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A request without values."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlayOffer:
    """A game that can be played. `league` None: against baselines alone."""

    game: str
    league: LeagueFile | None = None


def routes(studio: Studio) -> list[Route]:
    """`/play`, `/play/begin`, and of a game its page, its state, and what a person sends."""
    studio.links.append(Link("Play", "/play"))
    studio.plays = True
    pages = _PlayPages(studio)
    return [
        Route("/play", pages.choice, methods=["GET"]),
        Route("/play/begin", pages.begin, methods=["POST"]),
        Route("/play/{key}", pages.game, methods=["GET"]),
        Route("/play/{key}/stage", pages.stage, methods=["GET"]),
        Route("/play/{key}/move", pages.move, methods=["POST"]),
        Route("/play/{key}/end", pages.end, methods=["POST"]),
    ]


class _PlayPages:
    """The pages, with the games that are on."""

    def __init__(self, studio: Studio) -> None:
        self._studio, self._sessions, self._requests = studio, PlaySessions(), PageRequests()

    def choice(self, request: Request) -> Response:
        """Which games there are; with `game` and perhaps `league` in the address, against whom and in which seat."""
        query = request.query_params
        offers, wanted = self._offers(), None
        seats: Sequence[str] = ()
        opponents: Mapping[str, str] = {}
        if query.get("game"):
            wanted = self._offer(query.get("league", ""), query["game"])
            seats, opponents = _choices(wanted)
        return self._studio.page(
            request,
            "play.html",
            offers=offers,
            wanted=wanted,
            seats=seats,
            opponents=opponents,
            opponent=query.get("opponent", ""),
            games=self._sessions.on(),
            token=self._requests.token,
        )

    def _offers(self) -> list[PlayOffer]:
        offers = []
        for row in self._studio.leagues.rows():
            names = dict.fromkeys(one.game for one in row.tournaments)
            offers += [PlayOffer(game=name, league=row.league) for name in names]
        return [*offers, *(PlayOffer(game=f"two_player:{name}") for name in GAMES)]

    def _offer(self, league: str, game: str) -> PlayOffer:
        """One of the offers.

        Raises:
            HTTPException: 404, there is no such offer.
        """
        for offer in self._offers():
            if offer.game == game and ("" if offer.league is None else offer.league.key) == league:
                return offer
        raise HTTPException(404, f"there is no game {game[:80]!r} to play here; the page Play lists all")

    async def begin(self, request: Request) -> Response:
        """Begin a game: its address, or why there is none."""
        wish = await self._requests.read(request, PlayWish)
        try:
            key = await run_in_threadpool(self._begun, wish)
        except MasError as error:
            return JSONResponse({"problem": printable(str(error))})
        return JSONResponse({"path": f"/play/{key}"})

    def _begun(self, wish: PlayWish) -> str:
        offer = self._offer(wish.league, wish.game)
        seats, opponents = _choices(offer)
        if wish.seat not in seats or wish.opponent not in opponents:
            raise HTTPException(400, "this game has no such seat or no such opponent: load the page Play again")
        return self._sessions.begin(
            PlayTerms(
                game=offer.game,
                seat=wish.seat,
                league="" if offer.league is None else str(offer.league.path),
                opponent=wish.opponent,
                source=opponents[wish.opponent],
            )
        )

    def game(self, request: Request) -> Response:
        """The page of a game."""
        session = self._session(request)
        view = session.view
        league = next((one for one in self._studio.leagues.all() if str(one.path) == session.terms.league), None)
        return self._studio.page(
            request,
            "play_game.html",
            league=league,
            token=self._requests.token,
            key=request.path_params["key"],
            **_shown(session, view),
            **(shown_game(view.played, view.steps) if view.played is not None else {}),
        )

    def stage(self, request: Request) -> Response:
        """How the game stands, later than the version that the page shows."""
        after = request.query_params.get("after", "")
        session = self._session(request)
        view = session.settled(int(after) if after.isdecimal() and len(after) < 12 else -1, _WAIT_S)
        return self._studio.page(request, "play_stage.html", **_shown(session, view))

    async def move(self, request: Request) -> Response:
        """The person's move, and how the game stands then."""
        moved = await self._requests.read(request, PersonMove)
        return await run_in_threadpool(self._moved, request, moved)

    def _moved(self, request: Request, moved: PersonMove) -> Response:
        session, refused = self._session(request), ""
        try:
            session.say(moved.text, moved.version)
            view = session.settled(moved.version, _WAIT_S)
        except MasError as error:
            refused, view = str(error), session.view
        return self._studio.page(request, "play_stage.html", **{**_shown(session, view), "refused": refused})

    async def end(self, request: Request) -> Response:
        """The person gives up."""
        await self._requests.read(request, Nothing)
        self._session(request).end()
        return JSONResponse({})

    def _session(self, request: Request) -> PlaySession:
        session = self._sessions.find(request.path_params["key"])
        if session is None:
            raise HTTPException(404, "this game is not kept any more; the page Play begins another one")
        return session


def _shown(session: PlaySession, view: PlayView) -> dict[str, Any]:
    """What `play_stage.html` shows."""
    asked = view.asked
    legal = None if asked is None else asked.legal
    has_buttons = legal is not None and len(legal) <= _BUTTONS
    hidden = ("seat", *(("legal",) if has_buttons else ()))  # the head of the page and the buttons say the same
    fields = {} if asked is None else asked.observation.fields
    return {
        "view": view,
        "terms": session.terms,
        "fields": {name: text for name, text in fields.items() if text.strip() and name not in hidden},
        "moves": (legal or ("",)) if has_buttons and legal is not None else None,
        "refused": "",
        "you": YOU,
    }


def _choices(offer: PlayOffer) -> tuple[Sequence[str], Mapping[str, str]]:
    """The seats of a game, and who can play the others: name -> source.

    Raises:
        TrustError: the league's game reads files that the user has not allowed. ConfigError: it cannot be opened.
    """
    if offer.league is None:
        world = open_world(offer.game)
        return world.open().spec.seats, _with_baselines({}, world)
    world = stored_world(offer.game, str(offer.league.path))
    with offer.league.opened() as store:
        known = players_of(store, offer.game)
    return world.open().spec.seats, _with_baselines(known, world)


def players_of(store: "LeagueStore", game: str) -> dict[str, str]:
    """Name -> source of a league's members, where they play this game, and of the players of its tournaments."""
    found = {one.name: one.source for one in store.members()} if pool_game(store) == game else {}
    for tournament, terms in store.tournaments().items():
        for name, source in terms["players"].items() if terms["game"] == game else ():
            named = name if found.get(name, source) == source else f"{name} ({tournament})"
            found[named] = str(source)
    return found


def _with_baselines(players: Mapping[str, str], world: LeagueWorld) -> dict[str, str]:
    baselines = [SOLVER] if has_solver(world) else []
    try:
        scripted(RANDOM, world)
        baselines.append(RANDOM)
    except MasError:
        pass
    missing = [source for source in baselines if source not in players.values()]
    return {**players, **{(f"{one} (baseline)" if one in players else one): one for one in missing}}
