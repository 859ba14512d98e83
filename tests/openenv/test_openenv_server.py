"""`mas openenv`: seats, matches, policies and limits, and OpenEnv's own client, where a Python with it is named."""

import asyncio
import json
import os
import re
import signal
import socket
import subprocess
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import replace
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from conftest import SMALL, TINY, BaseFor, Ran
from loopback import in_thread
from started import COMMAND, greeting_of
from test_openenv import PYTHON, real

from mas.config.load import load_config
from mas.core.environment import Environment, Task
from mas.core.errors import EnvironmentFault
from mas.endpoint.client_keys import Entrance
from mas.league.match import Chance
from mas.league.players import AtRandom
from mas.openenv.command import offered_world
from mas.openenv.game import OfferedWorld
from mas.openenv.server import OpenEnvLimits, openenv_server
from mas.runs.resolve import resolve_training
from mas.scenarios import build_scenario
from mas.scenarios.bridges import open_bridge
from mas.testing.environment import EnvironmentContract
from mas.training.trainer import Trainer
from mas.training.watch import Silent

pytest.importorskip("websockets")
pytest.importorskip("pyspiel")
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

CLIENT = Path(__file__).with_name("openenv_client.py")
KUHN, RELAY = offered_world("two_player", []), offered_world("relay", [])
PLAYED = replace(KUHN, others=AtRandom())


class Talker:
    """A session as any client has it."""

    def __init__(self, connection: ClientConnection) -> None:
        self.connection = connection

    async def raw(self, text: str) -> dict[str, Any]:
        await self.connection.send(text)
        return dict(json.loads(await self.connection.recv()))

    async def ask(self, kind: str, **data: Any) -> dict[str, Any]:
        """The data of an answer."""
        answer = await self.raw(json.dumps({"type": kind, "data": data}))
        assert answer["type"] == ("state" if kind == "state" else "observation"), answer
        return dict(answer["data"])

    async def fails(self, kind: str, **data: Any) -> tuple[str, str]:
        """Code and message of an error."""
        answer = await self.raw(json.dumps({"type": kind, "data": data}))
        assert answer["type"] == "error", answer
        return answer["data"]["code"], answer["data"]["message"]


@asynccontextmanager
async def sessions(
    offered: OfferedWorld, count: int, limits: OpenEnvLimits | None = None
) -> AsyncIterator[list[Talker]]:
    """So many sessions of a server of this loop."""
    async with openenv_server(offered, limits=limits) as address, AsyncExitStack() as stack:
        url = address.replace("http", "ws") + "/ws"
        yield [Talker(await stack.enter_async_context(connect(url, proxy=None))) for _ in range(count)]


async def test_a_session_plays_a_scenario_of_one_seat_task_by_task() -> None:
    async with sessions(RELAY, 1) as (one,):
        begun = await one.ask("reset", seed=4)
        assert begun["reward"] is None
        assert begun["observation"]["to_move"] == ["team"]
        environment = RELAY.world.open()
        environment.reset(RELAY.task("train", 4))
        fields = dict(environment.observe("solo").fields)
        assert (await one.ask("state"))["fields"] == fields
        assert all(text in begun["observation"]["seen"] for text in fields.values())
        assert await one.ask("reset", seed=4) == begun
        assert await one.ask("reset", seed=5) != begun
        answers = [await _answered(one, 4, action) for action in "0123456789abcdefghijklmnop"]
        assert all(answer["done"] for answer in answers)
        assert max(answer["reward"] for answer in answers) > min(answer["reward"] for answer in answers)
        state = await one.ask("state")
        assert (state["done"], state["success"], state["step_count"]) == (True, False, 1)
        assert await one.fails("step", action="a") == (
            "EXECUTION_ERROR", "the episode is over: reset begins another"
        )  # fmt: skip
        held_out = await one.ask("reset", seed=4, split="eval")
        assert held_out != begun


async def _answered(one: Talker, seed: int, action: str) -> dict[str, Any]:
    await one.ask("reset", seed=seed)
    return await one.ask("step", action=action)


async def play(one: Talker, choice: int, **asked: Any) -> list[dict[str, Any]]:
    """All that a session is shown when it takes the same of its legal actions each time."""
    told = [await one.ask("reset", **asked)]
    while not told[-1]["done"]:
        told.append(await one.ask("step", action=told[-1]["observation"]["legal"][choice]))
    return told


async def test_two_sessions_of_a_match_play_each_other_and_no_card_reaches_the_other_seat() -> None:
    async with sessions(KUHN, 2) as (first, second):
        for seed in range(6):
            seats = (
                play(first, 1, seed=seed, seat="player_0", match="m"),
                play(second, 1, seat="player_1", match="m"),
            )
            told = await asyncio.gather(*seats)
            assert told[0][0]["observation"]["to_move"] == ["player_0"]
            paid = [sum(one["reward"] or 0 for one in seat) for seat in told]
            assert paid[0] == -paid[1] != 0
            environment = KUHN.world.open()
            environment.reset(KUHN.task("train", seed))
            cards = [dict(environment.observe(seat).fields)["seen"] for seat in ("player_0", "player_1")]
            assert cards[0] != cards[1]
            for number, seat in enumerate(told):
                card = re.search(r"Your card is \d", seat[0]["observation"]["seen"])
                assert card
                other = re.search(r"Your card is \d", told[1 - number][0]["observation"]["seen"])
                assert other
                assert all(other[0] not in json.dumps(one) for one in seat)
            states = await asyncio.gather(first.ask("state"), second.ask("state"))
            assert [sum(state["terms"].values()) for state in states] == paid
            assert all(state["done"] and state["to_move"] == [] for state in states)


async def test_seats_that_move_at_once_wait_for_each_other() -> None:
    async with sessions(offered_world("open_spiel:matrix_rps", []), 2) as (first, second):
        begun = await asyncio.gather(
            first.ask("reset", seed=1, seat="player_0", match="m"), second.ask("reset", seat="player_1", match="m")
        )
        assert [one["observation"]["to_move"] for one in begun] == [["player_0", "player_1"], ["player_0", "player_1"]]
        legal = begun[0]["observation"]["legal"]
        moves = asyncio.gather(first.ask("step", action=legal[0]), second.ask("step", action=legal[1]))
        ended = await moves
        assert {one["reward"] for one in ended} == {1.0, -1.0}
        assert all(one["done"] for one in ended)


async def test_without_waiting_one_loop_drives_all_seats() -> None:
    async with sessions(KUHN, 2) as (first, second):
        await first.ask("reset", seed=2, seat="player_0", match="m", wait=False)
        seen = await second.ask("reset", seat="player_1", match="m", wait=False)
        assert seen["observation"]["to_move"] == ["player_0"]
        code, why = await second.fails("step", action="Pass")
        assert (code, why) == (
            "EXECUTION_ERROR",
            "seat 'player_1' has no move now, to move: 'player_0'. state says when it has",
        )
        order = []
        while seen["observation"]["to_move"]:
            (name,) = seen["observation"]["to_move"]
            order.append(name)
            one = (first, second)[int(name[-1])]
            seen = await one.ask("step", action=(await one.ask("state"))["legal"][0])
        assert order == ["player_0", "player_1"]
        assert sum([sum((await one.ask("state"))["terms"].values()) for one in (first, second)]) == 0


async def test_a_policy_plays_the_other_seats_and_the_same_seed_is_the_same_game() -> None:
    async with sessions(PLAYED, 2) as (one, other):
        games = set()
        for seed in range(12):
            told = await play(one, 0, seed=seed, seat="player_1")
            assert told == await play(other, 0, seed=seed, seat="player_1")
            games.add(json.dumps(told))
        assert len(games) > 3
        assert (await one.ask("reset", seed=1))["observation"]["seat"] == "player_0"


class Lost:
    """A policy that breaks."""

    async def move(self, asked: Chance) -> str:
        raise EnvironmentFault("the policy is lost")


async def test_a_policy_that_breaks_ends_the_episode_and_not_the_session() -> None:
    async with sessions(replace(KUHN, others=Lost()), 1) as (one,):
        assert (await one.fails("reset", seat="player_1", seed=1))[1].startswith("the policy is lost: reset begins")
        assert (await one.ask("reset", seat="player_0", seed=1))["done"] is False


@pytest.mark.parametrize(
    ("offered", "kind", "data", "code", "why"),
    [
        (KUHN, "step", {"action": "x"}, "EXECUTION_ERROR", "no episode has begun in this session"),
        (KUHN, "state", {}, "EXECUTION_ERROR", "no episode has begun in this session"),
        (KUHN, "reset", {}, "VALIDATION_ERROR", "nobody plays the other seats of player_0, player_1: reset with"),
        (KUHN, "reset", {"match": "m"}, "VALIDATION_ERROR", "a match needs seat=NAME. Possible: player_0, player_1"),
        (PLAYED, "reset", {"seat": "player_2"}, "VALIDATION_ERROR", "there is no seat 'player_2'"),
        (PLAYED, "reset", {"seed": -1}, "VALIDATION_ERROR", "reset: seed is '-1': Input should be greater than"),
        (PLAYED, "reset", {"seed": "1"}, "VALIDATION_ERROR", "reset: seed is '1': Input should be a valid integer"),
        (PLAYED, "reset", {"colour": 1}, "VALIDATION_ERROR", "reset: colour: Extra inputs .*Possible: seed, episode"),
        (PLAYED, "reset", {"split": "test"}, "VALIDATION_ERROR", "split is 'test': Input should be 'train' or 'eval'"),
        (PLAYED, "fly", {}, "UNKNOWN_TYPE", "no message of type 'fly'. Possible: reset, step, state, close"),
    ],
)  # fmt: skip
async def test_what_is_asked_wrongly_is_one_error_and_the_session_goes_on(
    offered: OfferedWorld, kind: str, data: dict[str, Any], code: str, why: str
) -> None:
    async with sessions(offered, 1) as (one,):
        found = await one.fails(kind, **data)
        assert found[0] == code
        assert re.search(why, found[1])
        assert (await one.raw('{"type": "state"}'))["type"] == "error"


@pytest.mark.parametrize(
    ("message", "code"),
    [
        ("{", "INVALID_JSON"),
        ("[" * 60_000, "INVALID_JSON"),
        ("3", "VALIDATION_ERROR"),
        ('{"type": "reset", "data": 3}', "VALIDATION_ERROR"),
        ('{"type": ["reset"]}', "UNKNOWN_TYPE"),
        ('{"type": "step", "data": {"action": 1}}', "VALIDATION_ERROR"),
        ('{"type": "step", "data": {"action": "a", "move": "b"}}', "VALIDATION_ERROR"),
    ],
)
async def test_a_message_of_another_form_is_one_error_and_the_game_goes_on(message: str, code: str) -> None:
    async with sessions(PLAYED, 1) as (one,):
        await one.ask("reset", seed=1)
        assert (await one.raw(message))["data"]["code"] == code
        answer = await one.ask("step", action="\ud800" * 9)
        assert answer["done"] or answer["observation"]["illegal"]


async def test_a_match_that_is_full_left_or_late_says_so() -> None:
    async with sessions(KUHN, 3, OpenEnvLimits(turn_s=0.3)) as (first, second, third):
        await first.ask("reset", seed=1, seat="player_0", match="m")
        why = "seat 'player_0' of this match is taken. Free: 'player_1'"
        assert await third.fails("reset", seat="player_0", match="m") == ("VALIDATION_ERROR", why)
        assert "has begun with another task" in (await third.fails("reset", seed=2, seat="player_1", match="m"))[1]
        late = await second.fails("reset", seat="player_1", match="m")
        assert late == ("EXECUTION_ERROR", "seat 'player_0' did not move within 0.3 s: reset begins another episode")
        assert (await first.fails("step", action="Pass"))[1].startswith("seat 'player_0' did not move within")
        await first.ask("reset", seed=1, seat="player_0", match="m")
        waiting = asyncio.create_task(second.fails("reset", seat="player_1", match="m"))
        await third.ask("reset", seed=1, seat="player_0", match="n")
        await first.connection.close()
        assert (await waiting)[1].startswith("the session in seat 'player_0' has left the game")


async def test_sessions_bytes_and_time_are_bounded() -> None:
    limits = OpenEnvLimits(sessions=2, idle_s=0.4)
    async with sessions(PLAYED, 2, limits) as (first, second):
        await asyncio.gather(first.ask("reset"), second.ask("reset"))
        host, port = first.connection.remote_address[:2]
        async with connect(f"ws://{host}:{port}/ws", proxy=None) as third:
            full = json.loads(await third.recv())["data"]
            assert full["code"] == "CAPACITY_REACHED"
            assert "2 of 2 sessions are open" in full["message"]
        await first.connection.send("x" * 100_000)
        with pytest.raises(ConnectionClosed) as closed:
            await first.connection.recv()
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 1009
        idle = json.loads(await second.connection.recv())["data"]
        assert (idle["code"], idle["message"]) == ("SESSION_ERROR", "no message for 0.4 s: the session has ended")
        async with connect(f"ws://{host}:{port}/ws", proxy=None) as third:
            assert (await Talker(third).ask("reset"))["done"] is False


def page(address: str, path: str, **headers: str) -> tuple[int, dict[str, Any]]:
    place = urlsplit(address)
    connection = HTTPConnection(place.hostname or "", place.port, timeout=10)
    try:
        connection.request("GET", path, headers=headers)
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())
    finally:
        connection.close()


def status_of(address: str, request: bytes) -> bytes:
    """The first line of the answer to a request as it stands."""
    place = urlsplit(address)
    with socket.create_connection((place.hostname or "", place.port or 0), timeout=10) as connection:
        connection.sendall(request)
        with connection.makefile("rb") as answer:
            return answer.readline().strip()


async def test_pages_say_what_is_served_and_strangers_are_sent_away() -> None:
    async with openenv_server(RELAY, entrance=Entrance(key="s3cret")) as address:

        async def get(path: str, **headers: str) -> tuple[int, dict[str, Any]]:
            return await asyncio.to_thread(page, address, path, **headers)

        own = {"Authorization": "Bearer s3cret"}
        assert await get("/health") == (200, {"status": "healthy"})
        status, schema = await get("/schema", **own)
        assert (status, schema["action"]["required"]) == (200, ["action"])
        status, about = await get("/metadata", **own)
        assert (status, about["name"]) == (200, "relay")
        assert about["description"]
        assert (await get("/schema"))[0] == 401
        assert (await get("/docs", **own))[0] == 404
        assert (await get("/schema", Host="evil.example", **own))[0] == 421
        assert (await get("/schema", Origin="https://evil.example", **own))[0] == 403
        assert (await get("/schema", Authorization="Bearer s3cr\xe9t"))[0] == 401
        twice = b"GET /health HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n"
        assert (await asyncio.to_thread(status_of, address, twice)) == b"HTTP/1.1 400 Bad Request"
        url = address.replace("http", "ws") + "/ws"
        for headers in ({}, {"Authorization": "Bearer other"}):
            with pytest.raises(InvalidStatus):
                await connect(url, additional_headers=headers, proxy=None)
        with pytest.raises(InvalidStatus):
            await connect(url, additional_headers=own, origin="https://evil.example", proxy=None)  # type: ignore[arg-type]
        async with connect(url, additional_headers=own, proxy=None) as connection:
            assert (await Talker(connection).ask("reset", seed=1))["done"] is False


@contextmanager
def served(offered: OfferedWorld) -> Iterator[str]:
    """The id of a server in another thread, for our own client, which blocks."""
    with in_thread(lambda: openenv_server(offered)) as address:
        yield f"openenv:{address}"


class TestOwnClient(EnvironmentContract):
    @pytest.fixture(autouse=True)
    def _served(self) -> Iterator[None]:
        with served(PLAYED) as name:
            self.id = f"{name}(seat=player_1)"
            yield

    def make_environment(self) -> Environment:
        return open_bridge(self.id)

    def task(self, number: int) -> Task:
        return Task(id=f"train-{number}", seed=number)

    # Any text is an action of a server; games of three cards begin alike.
    def test_a_pass_is_legal_and_nonsense_is_not(self) -> None:
        assert self.started(1).step({"player": ""}).illegal == ()

    def test_tasks_differ(self) -> None:
        assert len({self.started(number).observe("player").fields["seen"] for number in range(20)}) > 2

    def test_somebody_idle_fails(self) -> None:
        environment = self.started(1)
        while environment.to_move():
            environment.step({"player": "no such action"})
        assert not environment.success()


TEAM = """
name: short
roles:
  solo: {type: executor, view: player, template: "{seen}>", max_tokens: 1}
edges: [start -> solo, solo -> done]
output: solo
seat: player
"""


async def test_a_team_is_trained_on_a_scenario_that_is_served(base_for: BaseFor, tmp_path: Path) -> None:
    (tmp_path / "team.yaml").write_text(TEAM)
    model = SMALL.model_copy(update={"tiny": TINY})
    with served(RELAY) as name:
        words = ["scenario=bridge", f'scenario.options.id="{name}"', "scenario.options.style=words"]
        few = ["train.steps=2", "train.tasks_per_step=2", "train.eval_tasks=2", "train.eval_every=0"]
        config = load_config([*words, *few, "algorithm=parallel_grpo", f"algorithm.team={tmp_path}/team.yaml"])
        config = config.model_copy(update={"model": model.model_copy(update={"path": "anything"})})
        setup = resolve_training(config, build_scenario(config.scenario))
        outcome = await Trainer(setup, base_for("relay", model)).run(Silent())
    assert len(outcome.history) == 2
    assert all(metrics["episodes"]["failed"] == 0 < metrics["tokens"] for metrics in outcome.history)


def test_the_command_serves_until_it_is_interrupted(tmp_path: Path) -> None:
    words = [*COMMAND, "openenv", "two_player", "scenario.options.game=kuhn_poker", "--others", "random", "--port", "0"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(words, **pipes, text=True) as process:  # type: ignore[call-overload]
        try:
            greeting = greeting_of(process)
            found = re.search(r"http://127\.0\.0\.1:\d+", greeting)
            assert found, greeting
            environment = open_bridge(f"openenv:{found[0]}")
            environment.reset(Task(id="train-1", seed=1))
            assert "Your card is" in environment.observe("player").fields["seen"]
            while environment.to_move():
                environment.step({"player": "Bet"})
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=60)
        finally:
            process.kill()
    assert (process.returncode, err) == (0, "")
    assert "closing" in out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["relay", "--others", "random"], "--others random: relay has one seat (team); leave it out"),
        (["two_player", "--others", "nobody"], "no player 'nobody'"),
        (["two_player", "train.steps=3"], "'train.steps=3' has no effect on `mas openenv`"),
        (["two_plaier"], "no scenario 'two_plaier'"),
        (["relay", "--host", "0.0.0.0"], "lets other machines ask, and there is no key"),
    ],
)
def test_what_the_command_cannot_do_is_said_at_once(words: list[str], said: str, mas: Callable[..., Ran]) -> None:
    ended = mas("openenv", *words, "--port", "0")
    assert ended.code == 2
    assert said in ended.err


@pytest.fixture(scope="module")
def package() -> dict[str, Any]:
    """What OpenEnv's own client saw, in a process of its Python."""
    with in_thread(lambda: openenv_server(RELAY)) as relay, in_thread(lambda: openenv_server(KUHN)) as kuhn:
        words = [PYTHON, str(CLIENT), relay, kuhn]
        environment = {**os.environ, "PYTHONPATH": ""}
        done = subprocess.run(words, capture_output=True, text=True, timeout=290, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


@real
def test_the_client_of_the_package_plays_a_scenario(package: dict[str, Any]) -> None:
    begun, state, ended = package["rows"]["told"]
    assert begun["observation"]["to_move"] == ["team"]
    assert begun == package["rows"]["again"]
    assert (state["episode_id"], state["step_count"], state["done"]) == ("e1", 0, False)
    assert ended["done"]
    assert isinstance(ended["reward"], float)


@real
def test_clients_of_the_package_play_matches_at_the_same_time(package: dict[str, Any]) -> None:
    assert len(package["match"]) == 4
    for game in package["match"]:
        paid = [sum(one["reward"] or 0 for one in seat) for seat in game]
        assert paid[0] == -paid[1] != 0
        cards = [re.findall(r"Your card is \d", json.dumps(seat)) for seat in game]
        assert all(len(set(seen)) == 1 for seen in cards)
        assert cards[0][0] != cards[1][0]


@real
def test_one_loop_of_the_package_drives_both_seats(package: dict[str, Any]) -> None:
    assert package["loop"]["order"] == ["player_0", "player_1"]
    assert sum(sum(state["terms"].values()) for state in package["loop"]["states"]) == 0


@real
def test_errors_reach_the_client_of_the_package_and_its_session_goes_on(package: dict[str, Any]) -> None:
    reasons = ("no episode has begun", "no seat 'nobody'", "seed is '-1'", "colour: Extra", "a match needs seat=NAME")
    for said, why in zip(package["wrong"]["said"], (*reasons, "step: action: Field required"), strict=True):
        assert why in said
    assert package["wrong"]["goes on"]["done"]
