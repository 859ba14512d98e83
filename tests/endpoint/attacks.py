"""What may come at a server: `python attacks.py NAME PORT` attacks one for a few seconds, as a program of its own.

It prints nothing; an answer that should not have come is an AssertionError.
"""

import http.client
import json
import socket
import sys
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field

LASTS_S = 4.0
HEAD = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"


@dataclass
class Attacker:
    """Connections to one server that are closed at the end."""

    port: int
    until: float
    stack: ExitStack
    statuses: list[int] = field(default_factory=list)

    def open(self, per_second: float = 400.0) -> socket.socket:
        """A new connection, not more often than so: that many whole requests take a core, whoever sends them."""
        time.sleep(1 / per_second)
        made = socket.create_connection(("127.0.0.1", self.port), timeout=10)
        self.stack.callback(made.close)
        return made

    def post(self, body: bytes, path: str = "/v1/completions") -> int:
        """A whole request; returns the status of its answer."""
        client = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            client.request("POST", path, body, {"Content-Type": "application/json"})
            answer = client.getresponse()
            answer.read()
        except (ConnectionError, TimeoutError):
            return 0
        finally:
            client.close()
        self.statuses.append(answer.status)
        return answer.status

    def send(self, sockets: list[socket.socket], data: bytes) -> None:
        """The same to all that are still open."""
        for one in sockets:
            with suppress(OSError):
                one.sendall(data)

    def stream(self, data: bytes) -> None:
        """As much of the same as goes, on one connection."""
        connection = self.open()
        with suppress(OSError):
            while time.monotonic() < self.until:
                connection.sendall(data)

    def together(self, count: int, work: Callable[[], object]) -> None:
        """The same from several threads."""
        threads = [threading.Thread(target=work, name=f"attack-{n}") for n in range(count)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()


def prompt(text: object, **more: object) -> bytes:
    return json.dumps({"model": "executor", "prompt": text, **more}).encode()


def slow_heads(attacker: Attacker) -> None:
    """400 connections whose head never ends, a byte at a time."""
    slow = [attacker.open() for _ in range(400)]
    attacker.send(slow, b"GET /health HTTP/1.1\r\nHost: localhost\r\nX: ")
    while time.monotonic() < attacker.until:
        attacker.send(slow, b"a")


def silent_connections(attacker: Attacker) -> None:
    """More connections than there are places, from which nothing comes."""
    for _ in range(2500):
        attacker.open(per_second=1000)
    time.sleep(max(attacker.until - time.monotonic(), 0))


def slow_bodies(attacker: Attacker) -> None:
    """More requests than one address has places, whose bodies never end."""
    slow = [attacker.open() for _ in range(1000)]
    attacker.send(slow, HEAD + b"Content-Length: 9999\r\n\r\n{")
    while time.monotonic() < attacker.until:
        attacker.send(slow, b" ")


def large_prompts(attacker: Attacker) -> None:
    """Texts of 7.9 MiB."""
    body = prompt("a" * int(7.9 * 2**20))
    attacker.together(4, lambda: attacker.post(body))
    assert set(attacker.statuses) <= {413}


def prompts_that_just_fit(attacker: Attacker) -> None:
    """The longest bodies that are read, whole and in pieces of every kind."""
    bodies = [
        prompt("a" * 250_000),
        prompt("\\" * 120_000),
        prompt([7] * 80_000),
        prompt("a", stop=["b" * 3000] * 64),
        prompt("a", stop_token_ids=[1] * 80_000),
        json.dumps({"model": "executor", "messages": [{"role": "user", "content": "a"}] * 6000}).encode(),
        json.dumps({"model": "m" * 250_000, "prompt": "a"}).encode(),
        json.dumps({"n" * 250_000: 1}).encode(),
        json.dumps({"model": "team:relay", "messages": [{"role": "user", "content": "g" * 250_000}]}).encode(),
        json.dumps({"model": "team:relay", "prompt": json.dumps({"g" * 240_000: "a"})}).encode(),
    ]
    while time.monotonic() < attacker.until:
        for body in bodies:
            path = "/v1/chat/completions" if b"messages" in body else "/v1/completions"
            attacker.post(body, path)
    assert set(attacker.statuses) <= {400, 404}


def broken_json(attacker: Attacker) -> None:
    """Bodies that are no request: nested, cut, of other characters, with numbers that are none."""
    bodies = [
        b"[" * 200_000,
        b"{" + b",".join(b'"%d":1' % n for n in range(20_000)) + b"}",
        b'{"a":' * 50_000,
        b"[" + b"[]," * 80_000 + b"[]]",
        b"\xff\xfe" * 100_000,
        b'{"model": "\\ud800"}',
        prompt("a", temperature=1)[:-1],
        b'{"model": "executor", "prompt": "a", "seed": ' + b"9" * 200_000 + b"}",
        b'{"model": "executor", "prompt": "a", "temperature": NaN}',
        b'{"model": "executor", "prompt": "a", "max_tokens": 1e400}',
        prompt("a", n=10**9),
        prompt("a", max_tokens=10**18),
        prompt("a", max_tokens=10**30, seed=-(10**30)),
    ]
    while time.monotonic() < attacker.until:
        for body in bodies:
            attacker.post(body)
    assert set(attacker.statuses) <= {400}


def tiny_chunks(attacker: Attacker) -> None:
    """Bodies without a length in chunks of one byte."""
    chunks = b"1\r\n \r\n" * 50_000

    def flood() -> None:
        while time.monotonic() < attacker.until:
            connection = attacker.open(per_second=20)
            with suppress(OSError):
                connection.sendall(HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + chunks)
            connection.close()

    attacker.together(8, flood)


def endless_chunks(attacker: Attacker) -> None:
    """A body without a length and without an end."""
    chunk = b"10000\r\n" + b" " * 65_536 + b"\r\n"

    def flood() -> None:
        connection = attacker.open()
        with suppress(OSError):
            connection.sendall(HEAD + b"Transfer-Encoding: chunked\r\n\r\n")
            while time.monotonic() < attacker.until:
                connection.sendall(chunk)

    attacker.together(8, flood)


def many_headers(attacker: Attacker) -> None:
    """Heads without an end, at full speed."""
    attacker.together(8, lambda: attacker.stream(b"GET /health HTTP/1.1\r\nHost: localhost\r\n" + b"X: y\r\n" * 9000))


def pipelined(attacker: Attacker) -> None:
    """Requests one behind the other whose answers are not read."""
    attacker.together(8, lambda: attacker.stream(b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n" * 100))


def streams_that_are_not_read(attacker: Attacker) -> None:
    """As many streams of as many completions as there are, which nobody reads."""
    body = prompt("a", stream=True, n=128, max_tokens=200, return_token_ids=True, ignore_eos=True)
    deaf = [attacker.open() for _ in range(300)]
    attacker.send(deaf, HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body)
    time.sleep(max(attacker.until - time.monotonic(), 0))


def clients_that_leave(attacker: Attacker) -> None:
    """Requests whose clients close at once."""
    body = prompt("a", n=128, max_tokens=200)
    while time.monotonic() < attacker.until:
        connection = attacker.open(per_second=100)
        connection.sendall(HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body)
        connection.close()


def foreign_names(attacker: Attacker) -> None:
    """What a web page sends whose name leads here."""
    for header in (b"Host: evil.example", b"Host: localhost\r\nOrigin: http://evil.example"):
        connection = attacker.open()
        connection.sendall(b"GET /v1/models HTTP/1.1\r\n" + header + b"\r\n\r\n")
        assert connection.recv(65_536).split()[1] in (b"421", b"403")


ATTACKS: tuple[Callable[[Attacker], None], ...] = (
    *(slow_heads, silent_connections, slow_bodies, large_prompts, prompts_that_just_fit, broken_json, tiny_chunks),
    *(endless_chunks, many_headers, pipelined, streams_that_are_not_read, clients_that_leave, foreign_names),
)


if __name__ == "__main__":
    name, port = sys.argv[1:]
    attack = next(one for one in ATTACKS if one.__name__ == name)
    with ExitStack() as stack:
        attack(Attacker(int(port), time.monotonic() + LASTS_S, stack))
