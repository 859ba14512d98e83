"""Questions to people over HTTP: who has the key sees them and answers them."""

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
from clients import client, echo, offer, problem

from mas.bus.journal import Journal
from mas.bus.memory import MemoryBus
from mas.endpoint import TeamModel, build_app
from mas.endpoint.client_keys import Entrance
from mas.graph.load import load_team
from mas.graph.plan import compile_team
from mas.roles import build_roles
from mas.runtime.human import HumanDesk
from mas.runtime.replay_log import ReplayLog
from mas.runtime.team import TeamRuntime

TEAM = {
    "name": "judged",
    "roles": {"judge": {"type": "executor", "voice": "human", "trainable": False, "choices": ["U", "D"]}},
    "edges": ["start -> judge", "judge -> done"],
    "output": "judge",
}
ASKED = {"model": "team:judged", "messages": [{"role": "user", "content": "Up or down?"}]}


async def open_questions(asking: httpx.AsyncClient) -> list[dict[str, Any]]:
    for _ in range(100):
        answer = await asking.get("/v1/questions")
        assert answer.status_code == 200, answer.text
        if answer.json()["data"]:
            break
        await asyncio.sleep(0)  # asking an application in the same process lets nobody else run
    data: list[dict[str, Any]] = answer.json()["data"]
    return data


async def test_a_person_answers_for_a_team_over_http() -> None:
    desk, engine, bus = HumanDesk(), echo(), MemoryBus()
    spec = load_team(TEAM)
    async with TeamRuntime(compile_team(spec, build_roles(spec)), engine, bus, adapters={}, desk=desk) as runtime:
        model = TeamModel(runtime, {"judge": {"task": "?"}})
        async with client(build_app(offer(engine, teams=[model]), desk=desk)) as asking:
            turn = asyncio.create_task(asking.post("/v1/chat/completions", json=ASKED), name="turn")
            (question,) = await open_questions(asking)
            assert question["agent"] == "judge"
            assert "Up or down?" in question["text"]
            assert question["choices"] == ["U", "D"]
            place = f"/v1/questions/{question['id']}"
            assert "none of the choices" in problem(await asking.post(place, json={"text": "L"}), 400)["message"]
            assert "text" in problem(await asking.post(place, json={"txt": "U"}), 400)["message"]
            assert "no question" in problem(await asking.post("/v1/questions/none", json={"text": "U"}), 404)["message"]
            assert (await asking.post(place, json={"text": "U"})).json() == {"id": question["id"], "object": "answer"}
            assert (await turn).json()["choices"][0]["message"]["content"] == "U"
            assert (await asking.get("/v1/questions")).json()["data"] == []
    await bus.close()


async def test_an_answer_is_on_the_disk_when_its_sender_hears_that_it_was_taken(tmp_path: Path) -> None:
    engine, bus, spec = echo(), MemoryBus(), load_team(TEAM)
    with Journal.open(tmp_path / "bus.sqlite") as journal:
        log = ReplayLog(journal)
        desk = HumanDesk(log=log)
        async with TeamRuntime(compile_team(spec, build_roles(spec)), engine, bus, adapters={}, desk=desk) as runtime:
            model = TeamModel(runtime, {"judge": {"task": "?"}})
            async with client(build_app(offer(engine, teams=[model]), desk=desk)) as asking:
                turn = asyncio.create_task(asking.post("/v1/chat/completions", json=ASKED), name="turn")
                (question,) = await open_questions(asking)
                await asking.post(f"/v1/questions/{question['id']}", json={"text": "U"})
                with closing(sqlite3.connect(tmp_path / "bus.sqlite")) as reading:
                    assert reading.execute("SELECT * FROM reply").fetchall() == [(question["id"], "U")]
                await turn
        await bus.close()


async def test_without_the_key_nobody_sees_or_answers_questions() -> None:
    async with client(build_app(offer(echo()), entrance=Entrance(key="secret"), desk=HumanDesk())) as asking:
        problem(await asking.get("/v1/questions"), 401)
        problem(await asking.post("/v1/questions/1", json={"text": "U"}), 401)
