"""What a client may take before and behind its requests, over real sockets with small bounds."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

import pytest
from clients import Stuck, echo, offer
from uvicorn.protocols.http.h11_impl import H11Protocol

from mas.core.engine import Engine
from mas.endpoint import Bounds, build_app, running
from mas.testing.scripted import ScriptedEngine

HEALTH = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"
BODY = b'{"model": "a", "prompt": "hello", "stream": true}'
POST = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
LONG = 60.0


@dataclass
class Raw:
    """A connection, byte by byte."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def ask(self, data: bytes) -> bytes:
        """Send, and read what comes until the head of an answer is complete."""
        self.writer.write(data)
        return await self.reader.readuntil(b"\r\n\r\n")

    async def is_ended(self) -> bool:
        """Wait until the server has closed it."""
        try:
            while await self.reader.read(65_536):
                pass
        except ConnectionError:
            pass
        return True


async def silent(raw: Raw, seconds: float) -> asyncio.Task[bytes]:
    """The next byte, which has not come within this time, nor has the end."""
    reading = asyncio.create_task(raw.reader.read(1), name="read")
    done, _ = await asyncio.wait([reading], timeout=seconds)
    assert not done
    return reading


@asynccontextmanager
async def served(engine: Engine | None = None, **bounds: float) -> AsyncIterator["Address"]:
    """A server whose connections have these bounds."""
    usual = {"head_s": LONG, "rest_s": LONG, "read_s": LONG, "connections": 99, "per_address": 99} | bounds
    app = build_app(offer(engine or echo()))
    async with AsyncExitStack() as stack:
        url = await stack.enter_async_context(running(app, bounds=Bounds(**usual), drain_s=0.01))
        yield Address(int(url.rpartition(":")[2]), stack)


@dataclass
class Address:
    port: int
    stack: AsyncExitStack

    async def open(self, host: str = "127.0.0.1") -> Raw:
        """A new connection to the server, from `host`."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port, local_addr=(host, 0))
        self.stack.callback(writer.close)
        return Raw(reader, writer)


@pytest.mark.parametrize("begun", [b"", b"GET /health HT", b"GET /health HTTP/1.1\r\nHost: localhost\r\nX-A: b"])
async def test_a_head_that_does_not_come_ends_its_connection(begun: bytes) -> None:
    async with asyncio.timeout(20), served(head_s=0.05) as server:
        slow = await server.open()
        slow.writer.write(begun)
        assert await slow.is_ended()


async def test_the_second_head_of_a_connection_has_the_same_time_and_a_pause_before_it_none() -> None:
    async with asyncio.timeout(20), served(head_s=0.2) as server:
        slow = await server.open()
        assert b" 200 " in await slow.ask(HEALTH)
        assert await slow.reader.readexactly(len('{"status":"ok"}')) == b'{"status":"ok"}'
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(
                asyncio.shield(waiting := asyncio.create_task(slow.reader.read(1), name="read")), 0.4
            )
        slow.writer.write(HEALTH)
        assert await waiting == b"H", "an idle connection is kept"
        slow.writer.write(b"GET /hea")
        assert await slow.is_ended()


async def test_a_head_byte_by_byte_is_read_in_a_few_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[bytes] = []
    receive = H11Protocol.data_received
    monkeypatch.setattr(H11Protocol, "data_received", lambda self, data: read.append(data) or receive(self, data))
    async with asyncio.timeout(20), served(pause_s=0.05) as server:
        slow = await server.open()
        for byte in HEALTH[:-1].replace(b"Host", b"X-A: " + b"a" * 200 + b"\r\nHost"):
            slow.writer.write(bytes([byte]))
            await asyncio.sleep(0)  # the server may read each byte by itself
        assert b" 200 " in await slow.ask(HEALTH[-1:])
    assert len(b"".join(read)) > 200
    assert len(read) < 20


async def test_of_too_many_connections_the_oldest_that_waits_gives_way_to_a_new_one() -> None:
    async with asyncio.timeout(20), served(connections=4) as server:
        slow = [await server.open() for _ in range(4)]
        for one in slow:
            one.writer.write(b"GET /health HTTP/1.1\r\nHost:")
        for ended in slow[:3]:
            assert b" 200 " in await (await server.open()).ask(HEALTH)
            assert await ended.is_ended()


async def test_one_address_does_not_take_the_places_of_others() -> None:
    async with asyncio.timeout(20), served(connections=6, per_address=3) as server:
        quiet = [await server.open("127.0.0.2") for _ in range(3)]
        for one in quiet:
            await one.ask(HEALTH)
        for _ in range(9):
            (await server.open()).writer.write(b"GET")
        assert b" 200 " in await (await server.open()).ask(HEALTH)
        for one in quiet:
            await one.reader.readexactly(len('{"status":"ok"}'))
            assert b" 200 " in await one.ask(HEALTH), "still there"


async def test_a_request_that_runs_does_not_give_way() -> None:
    engine = Stuck()
    async with asyncio.timeout(20), served(engine, connections=2) as server:
        busy = [await server.open() for _ in range(2)]
        for one in busy:
            assert b" 200 " in await one.ask(POST + b"Content-Length: %d\r\n\r\n" % len(BODY) + BODY)
            await engine.asked.acquire()
        assert await (await server.open()).is_ended(), "the new one has no place"
        engine.released.set()
        for one in busy:
            assert b"[DONE]" in await one.reader.readuntil(b"[DONE]")


async def test_an_answer_that_is_not_read_ends_its_connection_and_its_generation() -> None:
    engine = ScriptedEngine(lambda *_: "x" * 4000, ("a",))
    body = b'{"model": "a", "prompt": "hello", "stream": true, "n": 128, "max_tokens": 4000, "return_token_ids": true}'
    async with asyncio.timeout(60), served(engine, read_s=0.3) as server:
        deaf = await server.open()
        assert b" 200 " in await deaf.ask(POST + b"Content-Length: %d\r\n\r\n" % len(body) + body)
        other = await server.open()
        running = b""
        while b"mas_requests_running 0.0" not in running:
            other.writer.write(HEALTH.replace(b"health", b"metrics"))
            running = await other.reader.readuntil(b"mas_uptime_seconds ")


async def test_a_body_that_goes_on_behind_its_answer_ends_its_connection() -> None:
    async with asyncio.timeout(20), served(rest_s=0.05) as server:
        slow = await server.open()
        assert b" 404 " in await slow.ask(b"POST /nowhere HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99\r\n\r\n{")
        assert await slow.is_ended()


async def test_a_body_that_ends_behind_its_answer_keeps_its_connection() -> None:
    async with asyncio.timeout(20), served(rest_s=0.1) as server:
        slow = await server.open()
        head = b"POST /nowhere HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n"
        answer = await slow.ask(head)
        assert b" 404 " in answer
        length = int(answer.lower().partition(b"content-length: ")[2].split()[0])
        await slow.reader.readexactly(length)
        slow.writer.write(b"{}")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(
                asyncio.shield(waiting := asyncio.create_task(slow.reader.read(1), name="read")), 0.3
            )
        slow.writer.write(HEALTH)
        assert await waiting == b"H"


async def test_a_body_in_tiny_chunks_is_refused_and_one_in_some_is_not() -> None:
    async with asyncio.timeout(20), served() as server:
        few, many = await server.open(), await server.open()
        head = POST + b"Transfer-Encoding: chunked\r\n\r\n"
        parts = b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in (BODY[:7], BODY[7:]))
        assert b" 200 " in await few.ask(head + parts + b"0\r\n\r\n")
        assert b" 400 " in await many.ask(head + b"1\r\n \r\n" * 5000)
        assert await many.is_ended()


@pytest.mark.parametrize(
    "garbage",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"GET /health HTTP/1.1\r\n\r\n",
        b"GET /health HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n",
        b"GET /health HTTP/1.1\r\nHost: localhost\r\nX: " + b"a" * 70_000,
        b"GET /health HTTP/1.1\r\nHost: localhost\r\n" + b"X: a\r\n" * 12_000,
        b"GET /\xff HTTP/1.1\r\nHost: localhost\r\n\r\n",
        POST + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\n",
        POST + b"Content-Length: -1\r\n\r\n",
        POST + b"Transfer-Encoding: gzip, chunked\r\n\r\n",
        POST + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n",
    ],
)
async def test_what_is_no_http_is_refused_and_harms_nobody(garbage: bytes, capfd: pytest.CaptureFixture[str]) -> None:
    async with asyncio.timeout(20), served() as server:
        broken, other = await server.open(), await server.open()
        broken.writer.write(garbage)
        try:
            answer = await broken.reader.read(65_536)
        except ConnectionError:
            answer = b""
        assert not answer or answer.split()[1] in (b"400", b"501"), answer
        assert b" 200 " in await other.ask(HEALTH)
    assert capfd.readouterr().err == ""


async def test_requests_behind_each_other_are_answered_in_order() -> None:
    async with asyncio.timeout(20), served() as server:
        many = await server.open()
        many.writer.write((HEALTH + HEALTH.replace(b"health", b"nowhere")) * 50)
        for _ in range(50):
            for status in (b" 200 ", b" 404 "):
                head = await many.reader.readuntil(b"\r\n\r\n")
                assert status in head
                await many.reader.readexactly(int(head.lower().partition(b"content-length: ")[2].split()[0]))


async def test_an_upgrade_is_not_made_and_other_methods_are_answered() -> None:
    async with asyncio.timeout(20), served() as server:
        upgrade = b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: x\r\n\r\n"
        assert b" 200 " in await (await server.open()).ask(HEALTH.replace(b"\r\n\r\n", b"\r\n" + upgrade))
        for method, status in ((b"HEAD", b" 200 "), (b"OPTIONS", b" 405 "), (b"TRACE", b" 405 "), (b"BREW", b" 405 ")):
            assert status in await (await server.open()).ask(HEALTH.replace(b"GET", method)), method
        for target in (b"/v1/models/../../etc/passwd", b"/v1/models/%2e%2e%2f%2e%2e%2fetc%2fpasswd", b"//etc/passwd"):
            assert b" 404 " in await (await server.open()).ask(HEALTH.replace(b"/health", target)), target
