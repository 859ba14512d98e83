"""Requests to teams that outlive their client and their process, with what people have answered."""

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import kept_worker
import pytest
from clients import client
from kept_lives import ASKED, CHAT, KEY, answer, life, open_questions, said, until


async def undisturbed(path: Path) -> tuple[str, dict[str, int]]:
    """What the request comes to when nothing happens in between."""
    async with life(path) as served, client(served.app) as asking:
        turn = asyncio.create_task(asking.post(CHAT, json=ASKED), name="turn")
        asked = await open_questions(served, 2)
        await answer(asking, asked["left"], "U")
        await answer(asking, asked["right"], "D")
        return said(await turn)


@contextmanager
def process(journal: Path) -> Iterator[tuple[subprocess.Popen[str], str, list[str]]]:
    """A server in a process of its own, which is killed at the end: the process, its address, what it prints."""
    command = [sys.executable, kept_worker.__file__, str(journal)]
    names = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    lines: list[str] = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=names) as server:
        assert server.stdout is not None
        try:
            for line in server.stdout:
                if line.startswith("http"):
                    yield server, line.strip(), lines
                    break
                lines.append(line.strip())
        finally:
            server.kill()
            lines += [line.strip() for line in server.stdout]


def questions_at(address: str, number: int) -> dict[str, str]:
    """Agent -> id of its question, once so many are open."""
    end = time.monotonic() + 30
    while len(found := httpx.get(f"{address}/v1/questions").json()["data"]) != number:
        assert time.monotonic() < end, found
        time.sleep(0.01)
    return {question["agent"]: question["id"] for question in found}


def test_a_kill_between_two_answers_loses_nothing_and_asks_nobody_twice(tmp_path: Path) -> None:
    wanted = asyncio.run(undisturbed(tmp_path / "undisturbed.sqlite"))
    journal = tmp_path / "bus.sqlite"
    with process(journal) as (_, address, first), httpx.Client(base_url=address) as asking:
        with pytest.raises(httpx.ReadTimeout):  # the client gives up while two people think
            asking.post(CHAT, json=ASKED, headers=KEY, timeout=0.5)
        asked = questions_at(address, 2)
        assert asking.post(f"/v1/questions/{asked['left']}", json={"text": "U"}).status_code == 200
    with process(journal) as (server, address, second), httpx.Client(base_url=address, timeout=30) as asking:
        assert questions_at(address, 1) == {"right": asked["right"]}, "open again before any client has come"
        assert asking.post(f"/v1/questions/{asked['left']}", json={"text": "D"}).status_code == 404
        assert asking.post(f"/v1/questions/{asked['right']}", json={"text": "D"}).status_code == 200
        assert said(asking.post(CHAT, json=ASKED, headers=KEY)) == wanted
        assert said(asking.post(CHAT, json=ASKED, headers=KEY)) == wanted
        assert server.poll() is None
    assert (first, second) == (["asked writer"], ["asked closer"])


async def test_a_request_goes_on_without_its_client_and_the_same_key_joins_it(tmp_path: Path) -> None:
    wanted = await undisturbed(tmp_path / "undisturbed.sqlite")
    async with life(tmp_path / "bus.sqlite") as served, client(served.app) as asking:
        leaving = asyncio.create_task(asking.post(CHAT, json=ASKED, headers=KEY), name="leaving")
        asked = await open_questions(served, 2)
        leaving.cancel()
        await asyncio.wait([leaving])
        joining = [asyncio.create_task(asking.post(CHAT, json=ASKED, headers=KEY), name="joining") for _ in range(2)]
        await answer(asking, asked["left"], "U")
        assert await open_questions(served, 1) == {"right": asked["right"]}
        await answer(asking, asked["right"], "D")
        assert [said(response) for response in await asyncio.gather(*joining)] == [wanted, wanted]
        assert served.engine.asked == ["writer", "closer"]
        assert served.kept.under_way == 0


async def test_a_request_without_a_key_goes_on_after_a_restart_too(tmp_path: Path) -> None:
    journal = tmp_path / "bus.sqlite"
    async with life(journal) as served, client(served.app) as asking:
        leaving = asyncio.create_task(asking.post(CHAT, json=ASKED), name="leaving")
        before = await open_questions(served, 2)
        leaving.cancel()
        await asyncio.wait([leaving])
    async with life(journal) as served, client(served.app) as asking:
        assert await open_questions(served, 2) == before
        for question in before.values():
            await answer(asking, question, "U")
        await until(lambda: served.kept.under_way == 0)
        assert served.engine.asked == ["closer"]
    async with life(journal) as served:
        assert (served.kept.under_way, served.engine.asked) == (0, [])
