"""Players whose model a server elsewhere has."""

import re
from pathlib import Path
from typing import Any

import pytest
from loopback import served
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from mas.core.errors import ConfigError, EngineError
from mas.league.games import open_world
from mas.league.match import PlayedGame
from mas.league.players import move_in, open_chat, open_players
from mas.league.store import LeagueStore
from mas.league.tournament import Terms, run_tournament

pytest.importorskip("pyspiel")


class Server:
    """Thinks aloud and says the last of the legal moves that it is shown, or what it is told to."""

    def __init__(self, says: str = "") -> None:
        self.says, self.bodies = says, list[dict[str, Any]]()
        self.app = Starlette(
            routes=[Route("/v1/models", self.models), Route("/v1/chat/completions", self.chat, methods=["POST"])]
        )

    async def models(self, request: Request) -> JSONResponse:
        return JSONResponse({"object": "list", "data": [{"id": "wise", "object": "model"}]})

    async def chat(self, request: Request) -> JSONResponse:
        body = await request.json()
        self.bodies.append(body)
        shown = body["messages"][-1]["content"]
        last = shown.partition("legal: ")[2].splitlines()[-1]
        said = self.says or f"If I MOVE Pass I lose, perhaps.\nMOVE {last}"
        return JSONResponse({"choices": [{"message": {"content": said}, "finish_reason": "stop"}]})


async def cup(server: Server, place: Path, game: str) -> list[PlayedGame]:
    world = open_world(game)
    async with served(server.app) as url:
        sources = {"wise": f"openai:wise@{url}", "luck": "random"}
        async with open_players(sources, world, print) as players:
            terms = Terms(game=game, players=sources, games=6)
            return await run_tournament("cup", terms, LeagueStore.open(place), world.open, players)


@pytest.mark.parametrize("game", ["two_player:kuhn_poker", "open_spiel:kuhn_poker"])
async def test_a_model_elsewhere_is_shown_its_view_and_its_move_is_read(game: str, tmp_path: Path) -> None:
    server = Server()
    games = await cup(server, tmp_path / "x.db", game)
    moves = [move for one in games for move in one.moves if move.player == "wise"]
    assert len(games) == 6
    assert {(move.text, move.is_legal) for move in moves} == {("Bet", True)}
    assert len(server.bodies) == len(moves)
    shown = [body["messages"][-1]["content"] for body in server.bodies]
    assert all(re.search(r"^seat: player_[01]$", text, re.MULTILINE) for text in shown)
    assert all(text.endswith("legal: Pass\nBet") for text in shown)
    assert len({body["seed"] for body in server.bodies}) == len(moves), "every move has a seed of its own"


async def test_an_answer_that_is_no_move_loses_by_the_games_rule(tmp_path: Path) -> None:
    games = await cup(Server("I would rather not."), tmp_path / "x.db", "two_player:kuhn_poker")
    lost = [game for game in games if game.illegal]
    assert lost
    for game in lost:
        assert dict(zip(game.players, game.returns, strict=True)) == {"wise": -2, "luck": 2}


@pytest.mark.parametrize(
    ("answer", "move"),
    [
        ("MOVE Bet", "Bet"),
        ("MOVE Pass\nno, wait\nMOVE Bet  ", "Bet"),
        ("**MOVE:** x(1,1)", "x(1,1)"),
        ("**MOVE -1**", "-1"),
        ("  Bet\n", "Bet"),
        ("I MOVE Bet", "I MOVE Bet"),
        ("", ""),
        ("9" * 2000, "9" * 1000),
    ],
)
def test_the_move_of_an_answer(answer: str, move: str) -> None:
    assert move_in(answer) == move


@pytest.mark.parametrize(
    ("source", "error", "message"),
    [
        ("openai:wise", ConfigError, "write openai:MODEL@URL"),
        ("openai:wise@ftp://x", ConfigError, "write openai:MODEL@URL"),
        ("openai:wise@http://me:pw@host/v1", ConfigError, "a url with a user"),
        ("openai:wise@http://127.0.0.1:9/v1#NO_SUCH_KEY", ConfigError, "NO_SUCH_KEY"),
    ],
)
async def test_sources_that_do_not_fit_are_refused(source: str, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        async with open_chat(source):
            pass


async def test_a_model_that_the_server_does_not_have_is_refused() -> None:
    async with served(Server().app) as url:
        with pytest.raises((ConfigError, EngineError), match="wise"):
            async with open_chat(f"openai:unwise@{url}"):
                pass
