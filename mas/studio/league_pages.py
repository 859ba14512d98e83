"""The page of a league (ladder, win rates, games) and the page on which one of its games is stepped through."""

import time
from collections.abc import Mapping, Sequence
from math import comb
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from mas.core.printable import shortened
from mas.observe.durations import rough_time
from mas.studio.leagues import LeagueFile, TournamentRow, tournaments_of
from mas.studio.paging import page_of, query_of
from mas.studio.site import Studio

if TYPE_CHECKING:
    from mas.league.match import PlayedGame
    from mas.league.page_parts import GameStep, PairCell

ORDERS = ("rating", "payoff")
"""Of a ladder."""
_MOST_STEPS, _MOST_TEXT = 400, 20_000
"""Steps of a game that are shown, and characters of each text in them."""


def routes(studio: Studio) -> list[Route]:
    """`/leagues/{league}?tournament=NAME` and `/leagues/{league}/game?tournament=NAME&game=ID`."""
    pages = _LeaguePages(studio)
    return [
        Route("/leagues/{league}", pages.league, methods=["GET"]),
        Route("/leagues/{league}/game", pages.game, methods=["GET"]),
    ]


class _LeaguePages:
    """The pages of leagues."""

    def __init__(self, studio: Studio) -> None:
        self._studio = studio

    def league(self, request: Request) -> Response:
        """The page of a league, with one of its tournaments."""
        from mas.league.page_parts import difference_tables, payoffs, win_rates
        from mas.league.tables import command_again, notes

        league, query = self._studio.league_of(request), request.query_params
        with league.opened() as store:
            tournaments = tournaments_of(store)
            chosen = _chosen(tournaments, query.get("tournament"))
            if chosen is None:
                return self._studio.page(request, "league.html", league=league, tournaments=(), chosen=None)
            terms, table = (
                store.terms(chosen.name),
                self._studio.leagues.table(league, store, chosen.name, query.get("order")),
            )
        names = [row.name for row in table.standings.standings]
        wanted = {query.get(key, "") for key in ("player", "opponent")} & set(names)
        listed = [game for game in table.games if wanted <= set(game.players)]
        page = page_of(query.get("page", ""), len(listed))
        return self._studio.page(
            request,
            "league.html",
            league=league,
            tournaments=tournaments,
            chosen=chosen,
            whole=_games_due(terms, table.games),
            changed=f"{rough_time(max(time.time() - league.changed_s, 0))} ago",
            terms={"rounds": 0, "games": "?", "seed": "?", **terms},
            table=table.standings,
            names=names,
            left_out=table.left_out,
            notes=notes(table.standings),
            command=command_again(chosen.name, terms),
            rates=win_rates(table.standings, table.games),
            payoffs=payoffs(table.standings),
            differences=difference_tables(table.standings),
            listed=listed[page.first - 1 : page.last],
            page=page,
            wanted={key: query.get(key, "") for key in ("player", "opponent")},
            query=query_of(query),
            orders=[(order, f"?{urlencode({**query, 'tournament': chosen.name, 'order': order})}") for order in ORDERS],
            pair_link=_pair_link(chosen.name),
            play_link=_play_link(self._studio, league, chosen),
            game_link=lambda game: f"/leagues/{league.key}/game?{urlencode({'tournament': chosen.name, 'game': game})}",
        )

    def game(self, request: Request) -> Response:
        """The page of a game."""
        from mas.league.page_parts import game_steps
        from mas.league.stored_sources import stored_world

        league, query = self._studio.league_of(request), request.query_params
        name = query.get("tournament", "")
        with league.opened() as store:
            game = store.terms(name)["game"]
            played = store.game(name, query.get("game", ""))
        steps = game_steps(stored_world(game, str(league.path)).open(), played)
        return self._studio.page(
            request,
            "league_game.html",
            league=league,
            tournament=name,
            game=game,
            played=played,
            back=f"/leagues/{league.key}?{urlencode({'tournament': name})}#games",
            **shown_game(played, steps),
        )


def shown_game(played: "PlayedGame", steps: "Sequence[GameStep]") -> Mapping[str, Any]:
    """What `game_steps.html` shows of a game: its steps with texts that are not too long, and who has which colour."""
    looks = {player: number for number, player in enumerate(dict.fromkeys(played.players))}
    return {
        "steps": [_cut(step) for step in steps[: _MOST_STEPS + 1]],
        "left_out": max(0, len(steps) - 1 - _MOST_STEPS),
        "look": lambda player: looks.get(player, 7) % 8,
        "results": list(zip(played.players, played.returns, played.points, strict=True)),
    }


def _cut(step: "GameStep") -> "GameStep":
    from mas.league.page_parts import GameStep

    moves = (msgspec.structs.replace(move, text=shortened(move.text, _MOST_TEXT)) for move in step.moves)
    return GameStep(shortened(step.board, _MOST_TEXT), tuple(moves))


def _chosen(tournaments: Sequence[TournamentRow], name: str | None) -> TournamentRow | None:
    """The tournament of this name, without a name the first; None: the league has none.

    Raises:
        HTTPException: 404, there is none of that name.
    """
    if name is None:
        return tournaments[0] if tournaments else None
    named = next((one for one in tournaments if one.name == name), None)
    if named is None:
        raise HTTPException(404, f"this league has no tournament {name[:80]!r}; its page lists all")
    return named


def _games_due(terms: Mapping[str, Any], games: "Sequence[PlayedGame]") -> int | None:
    """How many games the tournament has at its end; None: that is not known before its first game."""
    each, rounds, players = terms.get("games"), terms.get("rounds", 0), len(terms["players"])
    if not games or type(each) is not int or type(rounds) is not int:
        return None
    if rounds:
        return rounds * (players // 2) * each
    return (players - 1 if terms.get("challenger") else comb(players, len(games[0].players))) * each


def _pair_link(tournament: str) -> Any:
    def link(cell: "PairCell") -> str:
        return f"?{urlencode({'tournament': tournament, 'player': cell.row, 'opponent': cell.column})}#games"

    return link


def _play_link(studio: Studio, league: LeagueFile, tournament: TournamentRow) -> Any:
    """Player -> the address at which a person begins a game against it; None: nobody plays here."""
    if not studio.plays:
        return None
    return lambda name: "/play?" + urlencode({"league": league.key, "game": tournament.game, "opponent": name})
