"""A team as an agent of A2A clients, asked by the client of the SDK over loopback, and by clients that do wrong."""

import asyncio
import json
import math
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest

pytest.importorskip("a2a", reason="needs the extra a2a")

from a2a.client import Client, ClientConfig, create_client
from a2a.types import (
    CancelTaskRequest,
    GetTaskRequest,
    ListTasksRequest,
    Message,
    Part,
    Role,
    SendMessageConfiguration,
    SendMessageRequest,
    TaskState,
)
from a2a.utils.errors import (
    ContentTypeNotSupportedError,
    InvalidParamsError,
    TaskNotCancelableError,
    TaskNotFoundError,
    UnsupportedOperationError,
)
from clients import Stuck, offer, playing
from google.protobuf.json_format import ParseDict
from google.protobuf.struct_pb2 import Value
from served import serving, trained

import mas.endpoint.a2a_server as a2a_server
from mas.commands.serve import check_protocols
from mas.core.engine import Engine, Request, Sampling
from mas.core.errors import ConfigError
from mas.core.remote_agent import RemoteAgent
from mas.endpoint import build_app
from mas.endpoint.a2a_server import a2a_routes
from mas.endpoint.client_keys import ANYBODY, ClientLimits, Entrance
from mas.endpoint.server import running
from mas.serving.remote_a2a import A2aEngine
from mas.testing.scripted import ScriptedEngine

SITUATION = {"goal": "23", "cell": "00", "last": "-", "around": "#.#."}
CARD = "/.well-known/agent-card.json"
BINDINGS = ["JSONRPC", "HTTP+JSON"]


def member(prompt: str, adapter: str | None, seed: int) -> str:
    """A team of plan_path that accepts the first proposal."""
    return {"P": "23", "E": "D", "V": "y", "F": "U"}[prompt[0]]


class Served(NamedTuple):
    address: str
    engine: ScriptedEngine


@asynccontextmanager
async def team(
    engine: ScriptedEngine | None = None, max_seconds: float | None = None, entrance: Entrance = ANYBODY, **app: Any
) -> AsyncIterator[Served]:
    engine = engine or ScriptedEngine(member)
    async with playing(engine) as model:
        served = offer(engine, teams=[model])
        made = build_app(served, entrance=entrance, **app)
        about = ("plan_path", "A way on a grid.")
        opened = a2a_routes(served, made.state.gate, max_seconds, *about, has_key=entrance.has_key)
        async with opened as routes:
            made.router.routes.extend(routes)
            async with running(made, drain_s=0.1) as address:
                yield Served(address, engine)


@asynccontextmanager
async def client(address: str, key: str = "", binding: str = "JSONRPC", **options: Any) -> AsyncIterator[Client]:
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    async with httpx.AsyncClient(headers=headers) as http:
        config = ClientConfig(
            httpx_client=http, supported_protocol_bindings=[binding], use_client_preference=True, **options
        )
        yield await create_client(address, config)


def asked(*parts: Any, configuration: SendMessageConfiguration | None = None, **more: Any) -> SendMessageRequest:
    sent = [one if isinstance(one, Part) else Part(text=one) for one in parts] or [Part(text=json.dumps(SITUATION))]
    message = Message(message_id="1", role=Role.ROLE_USER, parts=sent, **more)
    return SendMessageRequest(message=message, configuration=configuration)


async def sent(asking: Client, request: SendMessageRequest) -> list[Any]:
    return [event async for event in asking.send_message(request)]


def told(task: Any) -> str:
    return "".join(part.text for artifact in task.artifacts for part in artifact.parts)


@pytest.mark.parametrize("binding", BINDINGS)
async def test_the_answer_is_the_teams_action_and_nothing_else_leaves(binding: str) -> None:
    async with team() as served, client(served.address, binding=binding, streaming=False) as asking:
        for part in (json.dumps(SITUATION), Part(data=ParseDict(SITUATION, Value()))):
            ((event),) = await sent(asking, asked(part))
            assert event.task.status.state == TaskState.TASK_STATE_COMPLETED
            assert told(event.task) == "D"
        found = await asking.get_task(GetTaskRequest(id=event.task.id))
        assert found == event.task
        assert [message.role for message in found.history] == [Role.ROLE_USER], "what members say stays in the team"
    assert len(served.engine.requests) == 6


@pytest.mark.parametrize("binding", BINDINGS)
async def test_a_stream_tells_the_states_of_the_task(binding: str) -> None:
    async with team() as served, client(served.address, binding=binding) as asking:
        first, *states = await sent(asking, asked())
    assert first.task.status.state == TaskState.TASK_STATE_SUBMITTED
    assert [event.WhichOneof("payload") for event in states] == ["status_update", "artifact_update", "status_update"]
    assert states[0].status_update.status.state == TaskState.TASK_STATE_WORKING
    assert states[1].artifact_update.artifact.parts[0].text == "D"
    assert states[2].status_update.status.state == TaskState.TASK_STATE_COMPLETED


async def test_the_card_says_who_it_is_at_the_address_that_the_client_knows() -> None:
    async with team(entrance=Entrance(key="sesame")) as served, httpx.AsyncClient() as asking:
        card = (await asking.get(served.address + CARD)).json()
        port = served.address.rpartition(":")[2]
        other = (await asking.get(served.address + CARD, headers={"Host": f"localhost:{port}"})).json()
        assert (await asking.get(served.address + CARD, headers={"Host": "evil.example"})).status_code == 421
        assert (await asking.post(f"{served.address}/a2a/rpc", json={})).status_code == 401
    assert (card["name"], card["capabilities"]["streaming"]) == ("plan_path", True)
    assert {one["url"] for one in card["supportedInterfaces"]} == {f"{served.address}/a2a/rpc", f"{served.address}/a2a"}
    assert other["supportedInterfaces"][0]["url"] == f"http://localhost:{port}/a2a/rpc"
    (skill,) = card["skills"]
    assert (skill["id"], skill["description"], skill["tags"]) == (
        "plan_path",
        "A way on a grid.",
        ["plan_path", "team"],
    )
    assert json.loads(skill["examples"][0]).keys() == SITUATION.keys()
    assert card["securitySchemes"]["key"]["httpAuthSecurityScheme"]["scheme"] == "bearer"
    assert card["securityRequirements"] == [{"schemes": {"key": {}}}]


WRONG = {
    "a field is missing": (asked("{}"), InvalidParamsError, "field 'goal' is missing"),
    "too long": (asked(json.dumps(SITUATION | {"goal": "x" * 5000})), InvalidParamsError, "exceed the context"),
    "a file": (asked(Part(raw=b"\x89PNG")), ContentTypeNotSupportedError, "no files"),
    "a place": (asked(Part(url="http://127.0.0.1/")), ContentTypeNotSupportedError, "no files"),
    "text and data": (asked("a", Part(data=Value(number_value=1))), InvalidParamsError, "one part with data"),
    "data that is no object": (asked(Part(data=Value(number_value=1))), InvalidParamsError, "JSON object"),
    "a picture as answer": (
        asked(configuration=SendMessageConfiguration(accepted_output_modes=["image/png"])),
        ContentTypeNotSupportedError,
        "text/plain alone",
    ),
    "a task that is not there": (asked(task_id="none"), TaskNotFoundError, "none"),
}


@pytest.mark.parametrize("binding", BINDINGS)
async def test_what_the_team_cannot_read_is_an_error_of_the_protocol_and_no_task(binding: str) -> None:
    async with team() as served, client(served.address, binding=binding, streaming=False) as asking:
        for request, kind, why in WRONG.values():
            with pytest.raises(kind, match=why):
                await sent(asking, request)
        assert (await asking.list_tasks(ListTasksRequest())).total_size == 0
    assert served.engine.requests == []


async def test_a_task_takes_one_message_and_contexts_are_kept_apart() -> None:
    async with team() as served, client(served.address, streaming=False) as asking:
        ((first),) = await sent(asking, asked())
        ((second),) = await sent(asking, asked(context_id=first.task.context_id))
        await sent(asking, asked())
        assert second.task.context_id == first.task.context_id
        found = await asking.list_tasks(ListTasksRequest(context_id=first.task.context_id))
        assert {task.id for task in found.tasks} == {first.task.id, second.task.id}
        with pytest.raises(UnsupportedOperationError, match="one message"):
            await sent(asking, asked(task_id=first.task.id))
        with pytest.raises(TaskNotCancelableError):
            await asking.cancel_task(CancelTaskRequest(id=first.task.id))


async def test_a_cancelled_task_stops_its_members() -> None:
    engine = Stuck()
    request = asked(configuration=SendMessageConfiguration(return_immediately=True))
    async with team(engine) as served, client(served.address, streaming=False) as asking:
        ((event),) = await sent(asking, request)
        await engine.asked.acquire()
        found = await asking.get_task(GetTaskRequest(id=event.task.id))
        assert found.status.state == TaskState.TASK_STATE_WORKING
        cancelled = await asking.cancel_task(CancelTaskRequest(id=event.task.id))
        assert cancelled.status.state == TaskState.TASK_STATE_CANCELED
        async with asyncio.timeout(30):
            await engine.cancelled.acquire()


async def test_too_long_and_too_many_tasks_end_with_a_sentence() -> None:
    engine = Stuck()
    later = asked(configuration=SendMessageConfiguration(return_immediately=True))
    limits = {"max_running": 1, "max_waiting": 1}
    async with team(engine, max_seconds=2.0, **limits) as served, client(served.address, streaming=False) as asking:
        ((first),) = await sent(asking, later)
        await engine.asked.acquire()
        ((second),) = await sent(asking, later)
        ((third),) = await sent(asking, asked())
        assert third.task.status.state == TaskState.TASK_STATE_REJECTED
        assert "come again later" in third.task.status.message.parts[0].text
        async with asyncio.timeout(60):
            for event in (first, second):
                while True:
                    found = await asking.get_task(GetTaskRequest(id=event.task.id))
                    if found.status.state == TaskState.TASK_STATE_FAILED:
                        break
                    await asyncio.sleep(0.1)
        assert found.status.message.parts[0].text == "a task may take 2 s here"


async def test_a_team_that_cannot_play_fails_the_task_without_its_members_words() -> None:
    async with team(ScriptedEngine(member, context=1)) as served, client(served.address, streaming=False) as asking:
        ((event),) = await sent(asking, asked())
    assert event.task.status.state in (TaskState.TASK_STATE_FAILED, TaskState.TASK_STATE_REJECTED)
    assert "plan_path" in event.task.status.message.parts[0].text


async def test_clients_see_their_own_tasks_and_use_up_their_own_quota() -> None:
    sums = {  # of the keys "a" and "b"
        "alice": "ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb",
        "bob": "3e23e8160039594a33894f6564e1b1348bbd7a0088d42c4acb73eeaed59c009d",
    }
    clients = [ClientLimits(name=name, sha256=one, tokens_per_day=30) for name, one in sums.items()]
    async with (
        team(entrance=Entrance(clients=clients)) as served,
        client(served.address, "a", streaming=False) as alice,
        client(served.address, "b", streaming=False) as bob,
    ):
        ((event),) = await sent(alice, asked())
        with pytest.raises(TaskNotFoundError):
            await bob.get_task(GetTaskRequest(id=event.task.id))
        with pytest.raises(TaskNotFoundError):
            await bob.cancel_task(CancelTaskRequest(id=event.task.id))
        assert (await bob.list_tasks(ListTasksRequest())).total_size == 0
        await sent(alice, asked())  # 23 tokens each
        with pytest.raises(Exception, match="429"):
            await sent(alice, asked())
        await sent(bob, asked())


async def test_the_oldest_tasks_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(a2a_server, "KEPT", 2)
    async with team() as served, client(served.address, streaming=False) as asking:
        names = [(await sent(asking, asked()))[0].task.id for _ in range(3)]
        with pytest.raises(TaskNotFoundError):
            await asking.get_task(GetTaskRequest(id=names[0]))
        assert (await asking.list_tasks(ListTasksRequest())).total_size == 2
        monkeypatch.setattr(a2a_server, "KEPT_BYTES", 10)
        await sent(asking, asked())
        assert (await asking.list_tasks(ListTasksRequest())).total_size == 0


def rpc(method: str, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}


def old(text: str) -> dict[str, Any]:
    return {"messageId": "1", "role": "user", "parts": [{"kind": "text", "text": text}]}


async def test_clients_of_the_older_protocol_are_understood_and_wrong_requests_have_the_protocols_codes() -> None:
    async with team() as served, httpx.AsyncClient(base_url=served.address) as asking:

        async def answer(body: Any, **headers: str) -> Any:
            return (await asking.post("/a2a/rpc", json=body, headers=headers)).json()

        task = (await answer(rpc("message/send", message=old(json.dumps(SITUATION)))))["result"]
        assert (task["status"]["state"], task["artifacts"][0]["parts"][0]["text"]) == ("completed", "D")
        assert (await answer(rpc("tasks/get", id=task["id"])))["result"]["id"] == task["id"]
        assert (await answer(rpc("tasks/cancel", id=task["id"])))["error"]["code"] == -32002
        assert (await answer(rpc("tasks/get", id="none")))["error"]["code"] == -32001
        assert (await answer(rpc("message/send", message=old("{}"))))["error"]["code"] == -32602
        message = {"messageId": "1", "role": "ROLE_USER", "parts": [{"data": {"goal": math.inf}}]}
        endless = json.dumps(rpc("SendMessage", message=message)).replace("Infinity", "1e999")
        read = (await asking.post("/a2a/rpc", content=endless, headers={"A2A-Version": "1.0"})).json()
        assert (read["error"]["code"], "are not JSON" in read["error"]["message"]) == (-32602, True)
        assert (await answer(rpc("Surprise")))["error"]["code"] == -32601
        assert (await answer([]))["error"]["code"] == -32600
        assert (await answer(rpc("GetTask", id="1"), **{"A2A-Version": "7.0"}))["error"]["code"] == -32009
        pushed = {"taskId": task["id"], "url": "http://127.0.0.1:9/"}
        wanted = await answer(rpc("CreateTaskPushNotificationConfig", **pushed), **{"A2A-Version": "1.0"})
        assert wanted["error"]["code"] == -32003
        assert (await asking.post("/a2a/rpc", content=b"{")).json()["error"]["code"] == -32700
        async with asking.stream(
            "POST", "/a2a/rpc", json=rpc("message/stream", message=old(json.dumps(SITUATION)))
        ) as it:
            lines = [json.loads(line[5:]) async for line in it.aiter_lines() if line.startswith("data:")]
        assert [line["result"]["kind"] for line in lines] == [
            "task",
            "status-update",
            "artifact-update",
            "status-update",
        ]

        async def unknown() -> AsyncIterator[bytes]:
            yield b"{}"

        assert (await asking.post("/a2a/rpc", content=unknown())).status_code == 413, "of a length that it does not say"
        assert (await asking.post("/a2a/rpc", content=b" " * 9_000_000)).status_code == 413
        assert (
            await asking.post("/a2a/rpc", json=rpc("x"), headers={"Origin": "http://evil.example"})
        ).status_code == 403
        assert (await asking.get("/tenant/tasks")).status_code == 404


async def test_a_served_team_plays_a_role_of_another_team(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEAM_KEY", "sesame")
    async with team(entrance=Entrance(key="sesame")) as served:
        engine: Engine = await A2aEngine.start(RemoteAgent(url=served.address, key_env="TEAM_KEY"), "mover")
        ids = engine.tokenizer.chat("", json.dumps(SITUATION))
        (said,) = await engine.generate(Request(prompt_ids=ids, sampling=Sampling(), seeds=(1,)))
        assert engine.tokenizer.decode(said.token_ids) == "D"
        await engine.close()


def test_a_journal_does_not_go_with_it(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="--a2a and --journal do not go together"):
        check_protocols(a2a=True, journal=tmp_path / "bus.sqlite")


@pytest.mark.slow
@pytest.mark.nightly
async def test_a_trained_run_is_served_with_its_key(tmp_path: Path, small_overrides: Sequence[str]) -> None:
    run = trained(tmp_path / "relay", small_overrides)
    with serving(str(run), "--port", "0", "--a2a", MAS_API_KEY="sesame") as served:
        async with client(served.address, "sesame", streaming=False) as asking:
            ((event),) = await sent(asking, asked(json.dumps({"goal": "A", "table": "0123"})))
        assert event.task.status.state == TaskState.TASK_STATE_COMPLETED
        assert len(told(event.task)) <= 1, "a digit, or a pass"
        async with httpx.AsyncClient() as http:
            card = (await http.get(served.address + CARD)).json()
        assert (card["name"], card["skills"][0]["id"]) == ("relay", "relay")
        assert len(card["skills"][0]["description"]) > 20
