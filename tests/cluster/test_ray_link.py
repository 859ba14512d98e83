"""What an actor of Ray is given and how it is ended, without a Ray: the parts of `RayLink` that a real one hides."""

import asyncio
import os
import ssl
import subprocess
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from hashlib import sha256
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from cluster_cases import FACTORY, needs_ray, until

from mas.cluster import ClusterOptions
from mas.cluster.connection import WorkerConnection
from mas.cluster.frames import PingRequest
from mas.cluster.ray_actor import tls_context
from mas.cluster.records import Done, WorkerSpec
from mas.core.errors import CallExpired, ClusterError, WorkerLost

pytestmark = needs_ray
SPEC = WorkerSpec(
    kind="rollout", factory="a:make", arguments=b"", cpus=1.0, gpus=0.0, threads=1, environment=("PEER_KEY", "NOT_SET")
)


TOKEN = bytes(range(32))


class Session:
    """Of a cluster whose Ray is slow as often as `slow` says."""

    def __init__(self, slow: int = 0) -> None:
        self.options = ClusterOptions(kind="ray", environment=("HF_TOKEN",))
        self.logs, self.host, self.slow = Path("logs"), "", slow

    def placing(self, name: str) -> str:
        return "DEFAULT"

    async def blocking(self, what: str, work: Callable[[], Any]) -> Any:
        self.slow -= 1
        if self.slow >= 0:
            raise CallExpired(f"Ray: {what} took longer than start_s=120")
        return work()


def link(session: Session) -> Any:
    from mas.cluster.ray_link import RayLink  # Ray may be missing

    return RayLink("rollout-0", SPEC, session)  # type: ignore[arg-type]


async def test_an_actor_that_was_not_killed_in_time_is_killed_by_the_next_call(monkeypatch: pytest.MonkeyPatch) -> None:
    killed = list[object]()
    made = link(Session(slow=1))
    monkeypatch.setattr("mas.cluster.ray_link.ray.kill", killed.append)
    made._actor = actor = object()
    with pytest.raises(CallExpired, match="killing rollout-0 took longer"):
        await made.kill()
    assert killed == []
    for _ in range(2):  # the second does nothing
        await made.kill()
    assert killed == [actor]


def test_named_variables_reach_an_actor_but_not_the_arguments_that_ray_stores(monkeypatch: pytest.MonkeyPatch) -> None:
    made, given = link(Session()), list[object]()
    monkeypatch.setenv("HF_TOKEN", "a token")
    monkeypatch.setenv("PEER_KEY", "a key")
    monkeypatch.setenv("OTHER_KEY", "not asked for")
    monkeypatch.delenv("NOT_SET", raising=False)

    def options(**chosen: object) -> object:
        given.extend(chosen.values())
        return SimpleNamespace(remote=lambda *arguments: given.extend(arguments))

    monkeypatch.setattr("mas.cluster.ray_link.ray.remote", lambda _: SimpleNamespace(options=options))
    made._make()
    assert ["HF_TOKEN", "PEER_KEY", "NOT_SET"] in given
    assert not any(secret in repr(given) for secret in ("a token", "a key"))
    assert msgspec.msgpack.decode(made._variables()) == {"HF_TOKEN": "a token", "PEER_KEY": "a key"}


async def test_an_actor_has_the_drivers_values_and_keeps_those_that_the_driver_does_not_have(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As on a node that has other values than the driver, or has one that the driver does not have."""
    node = {"HF_TOKEN": "of the node", "NOT_SET": "of the node", "OTHER_KEY": "not asked for"}
    monkeypatch.setattr(os, "environ", node)
    names = ["HF_TOKEN", "PEER_KEY", "NOT_SET"]
    async with placed(monkeypatch, tmp_path, names, {"HF_TOKEN": "a token", "PEER_KEY": "a key"}):
        kept = {name: node.get(name) for name in (*names, "OTHER_KEY")}
    assert kept == {"HF_TOKEN": "a token", "PEER_KEY": "a key", "NOT_SET": "of the node", "OTHER_KEY": None}


@asynccontextmanager
async def placed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, names: list[str], variables: dict[str, str]
) -> AsyncIterator[tuple[Any, Any]]:
    """An actor's object in this process, and where it waits for its driver; its process is not ended."""
    from mas.cluster import ray_actor

    monkeypatch.setattr(ray_actor, "_redirect", lambda _: None)
    monkeypatch.setattr(ray_actor, "get_node_ip_address", lambda: "127.0.0.1")
    monkeypatch.setattr(ray_actor, "get_runtime_context", lambda: SimpleNamespace(get_node_id=lambda: "a node"))
    monkeypatch.setattr("mas.cluster.worker._end", lambda: None)
    actor = ray_actor.RayWorker(1, 0.0, names, str(tmp_path / "rollout-0"))
    where = msgspec.msgpack.decode(await actor.place(msgspec.msgpack.encode(variables), TOKEN), type=ray_actor.Placed)
    try:
        yield actor, where
    finally:
        assert actor._listening is not None
        actor._listening.close()
        if actor._serving is not None:
            await asyncio.wait_for(actor._serving, 10)


async def test_only_who_says_the_token_is_served_and_only_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("mas.cluster.ray_actor._TOKEN_S", 1.0)
    async with placed(monkeypatch, tmp_path, [], {}) as (_, where):
        for said in (b"", TOKEN[:-1], bytes(len(TOKEN)), TOKEN[:-1] + b"?" + packed_call()):
            reader, writer = await asyncio.open_connection(where.host, where.port)
            writer.write(said)
            with suppress(ConnectionResetError):
                assert await asyncio.wait_for(reader.read(), 10) == b""
            writer.close()
        early = [await asyncio.open_connection(where.host, where.port) for _ in range(2)]
        made = await open_link(where)
        assert (await made.ping()).rss_bytes
        for reader, writer in early:  # they were there first, and say it too late
            writer.write(TOKEN + packed_call())
            with suppress(ConnectionResetError):
                assert await asyncio.wait_for(reader.read(), 10) == b""
            writer.close()
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection(where.host, where.port)
        await made.close()


async def test_clients_that_say_nothing_are_sent_away(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("mas.cluster.ray_actor._CLIENTS", 2)
    monkeypatch.setattr("mas.cluster.ray_actor._TOKEN_S", 1.0)
    async with placed(monkeypatch, tmp_path, [], {}) as (actor, where):
        silent = [await asyncio.open_connection(where.host, where.port) for _ in range(3)]
        assert await asyncio.wait_for(silent[2][0].read(), 5) == b""
        assert await asyncio.wait_for(silent[0][0].read(), 5) == b""
        for _, writer in silent:
            writer.close()
        assert await until(lambda: actor._clients == 0, 5)


async def test_what_a_worker_is_brought_is_dropped_also_if_the_call_was_cancelled(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async with placed(monkeypatch, tmp_path, [], {}) as (actor, where):
        arrives = asyncio.Event()

        async def bring(names: list[str], *contents: bytes) -> None:
            await arrives.wait()
            await actor.bring(names, *contents)

        made = link(Session())
        made._actor = SimpleNamespace(
            bring=SimpleNamespace(remote=bring),
            ping=SimpleNamespace(remote=asyncio.Event().wait),
            drop=SimpleNamespace(remote=lambda names: asyncio.ensure_future(actor.drop(names))),
        )
        made._session.object_refs = lambda refs: [b"an object" for _ in refs]
        made._connection = await open_link(where)
        await made._connection.start(msgspec.structs.replace(SPEC, factory=FACTORY))
        digests = [sha256(content).hexdigest().encode() for content in (b"a payload", b"an object", b"an object")]
        calls = [asyncio.create_task(made.call("digest", b"a payload", ["ref", "ref"])) for _ in range(2)]
        await asyncio.sleep(0)
        calls[0].cancel()
        arrives.set()
        assert await asyncio.wait_for(calls[1], 10) == Done(b" ".join(digests))
        assert await until(lambda: not made._tasks and not actor._objects, 10)
        await made._connection.close()


async def test_a_worker_that_cannot_be_reached_is_one_sentence(tmp_path: Path) -> None:
    from mas.cluster.ray_actor import Placed

    made = link(Session())
    with pytest.raises(ClusterError, match=r"^rollout-0 waits at 127\.0\.0\.1:1 .*let this machine connect to"):
        await made._connect(Placed(pid=1, node="a", host="127.0.0.1", port=1))


async def test_connections_are_encrypted_where_those_of_ray_are(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    words = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=ray"
    files = {"SERVER_KEY": tmp_path / "key.pem", "SERVER_CERT": tmp_path / "cert.pem", "CA_CERT": tmp_path / "cert.pem"}
    made = ["openssl", *words.split(), "-keyout", str(files["SERVER_KEY"]), "-out", str(files["SERVER_CERT"])]
    await asyncio.to_thread(subprocess.run, made, check=True, capture_output=True)
    monkeypatch.setenv("RAY_USE_TLS", "1")
    with pytest.raises(ClusterError, match=r"RAY_USE_TLS is on, and a file of RAY_TLS_SERVER_CERT=\(not set\)"):
        tls_context(ssl.PROTOCOL_TLS_CLIENT)
    for name, path in files.items():
        monkeypatch.setenv(f"RAY_TLS_{name}", str(path))
    async with placed(monkeypatch, tmp_path, [], {}) as (_, where):
        monkeypatch.delenv("RAY_USE_TLS")
        reader, writer = await asyncio.open_connection(where.host, where.port)
        writer.write(TOKEN)  # in clear: it is no handshake
        with suppress(ConnectionResetError):
            assert TOKEN not in await asyncio.wait_for(reader.read(), 10)
        writer.close()
        bare = ssl.create_default_context(cafile=str(files["CA_CERT"]))
        bare.check_hostname = False
        with suppress(ssl.SSLError, ConnectionResetError):  # it has no certificate to show
            reader, writer = await asyncio.open_connection(where.host, where.port, ssl=bare)
            writer.write(TOKEN + packed_call())
            assert await asyncio.wait_for(reader.read(), 10) == b""
        monkeypatch.setenv("RAY_USE_TLS", "1")
        encrypted = await open_link(where)
        assert (await encrypted.ping()).rss_bytes
        await encrypted.close()


class Gone:
    """An actor of which Ray says something."""

    def __init__(self, error: Exception | None) -> None:
        self.ping = self
        self._error = error

    async def remote(self) -> None:
        if self._error is not None:
            raise self._error


@pytest.mark.parametrize("case", ["it lives", "ray knows", "ray has troubles", "no frame"])
async def test_the_end_of_a_connection_has_a_reason(monkeypatch: pytest.MonkeyPatch, case: str) -> None:
    from ray.exceptions import ActorDiedError, RaySystemError

    errors = {"ray knows": ActorDiedError(), "ray has troubles": RaySystemError(client_exc=OSError("no room"))}
    made, lost, killed = link(Session()), list[str](), list[object]()
    made._actor = Gone(errors.get(case))
    monkeypatch.setattr("mas.cluster.ray_link.ray.kill", killed.append)
    how = await made._explain(lost.append, "it sent nothing; it was killed. " if case == "no frame" else "")
    expected = "its process is gone: The actor died" if case == "ray knows" else "its connection was closed; its output"
    assert how.startswith(expected)
    assert lost == [("it sent nothing; it was killed. " if case == "no frame" else "") + how]
    assert killed == ([made._actor] if case == "no frame" else [])


async def test_a_connection_that_says_nothing_is_given_up_when_ray_knows_that_the_process_is_gone(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from ray.exceptions import ActorDiedError

    async with placed(monkeypatch, tmp_path, [], {}) as (_, where):
        made = link(Session())
        monkeypatch.setattr("mas.cluster.ray_link._WATCH_S", 0.05)
        made._actor = Gone(ActorDiedError())
        connection = await open_link(where)
        await asyncio.wait_for(made._watch(connection), 10)
        with pytest.raises(WorkerLost):
            await asyncio.wait_for(connection.ping(), 10)
        await connection.close()


def packed_call() -> bytes:
    body = msgspec.msgpack.encode(PingRequest(id=0))
    return len(body).to_bytes(4) + body


async def open_link(where: Any) -> WorkerConnection:
    """The driver's end."""
    made = link(Session())
    made._token = TOKEN
    reader, writer = await made._connect(where)

    async def explain(fault: str) -> str:
        return fault or "closed"

    return WorkerConnection("rollout-0", reader, writer, 1 << 20, explain)
