"""What the episode player makes of files: large, growing, cut, replaced or hostile ones."""

import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import msgspec
import pytest
from large_runs import candidate, decision, episode_lines, large_run, large_samples, line, plain_run

from mas.core.records import Line
from mas.observe.turn_records import EpisodeHead, step_file
from mas.studio.app import build_app
from mas.studio.line_index import LONGEST, LineIndex
from mas.studio.runs import Runs

Get = Callable[..., Awaitable[httpx.Response]]
NASTY = "<script>alert(1)</script><img src=x onerror=alert(2)>\x1b[31mred\u202e{{ 7 * 7 }}"


@asynccontextmanager
async def pages_of(run: Path) -> AsyncIterator[Get]:
    """Asks for addresses below the episodes of a run, without a network."""
    runs = Runs([run.parent])
    (key,) = [one.key for one in runs.all() if one.path == run]
    transport = httpx.ASGITransport(build_app(runs))
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
        yield lambda address="", **query: client.get(f"/runs/{key}/episodes{address}", params=query)


def index_of(path: Path) -> LineIndex[bytes]:
    return LineIndex(path, b"+", lambda text: text)


@pytest.mark.parametrize("make", [large_run, large_samples])
async def test_a_run_of_100_000_turns_opens_in_two_seconds(make: Callable[[Path], Path], tmp_path: Path) -> None:
    """Seconds of computing: what else the machine does is not counted."""
    run = make(tmp_path / "run")
    async with pages_of(run) as get:
        began = time.process_time()
        first = await get()
        opened_s = time.process_time() - began
        began = time.process_time()
        last = await get(page="100")
        episode = await get("/50-0" if make is large_run else "/sample-4999", at="4")
        again_s = time.process_time() - began
    assert "1–50 of 5,000 episodes" in first.text
    assert "4,951–5,000 of 5,000 episodes" in last.text
    assert "message" in episode.text
    assert episode.status_code == 200
    assert opened_s < 2
    assert again_s < 1


async def test_an_index_reads_only_what_was_appended(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    path.write_bytes(b"+one\n-two\n+three")
    index = index_of(path)
    index.update()
    assert (index.heads, index.count, index.is_cut) == ([(0, b"+one")], 2, True)
    with path.open("ab") as file:
        file.write(b" and more\n+four\n")
    index.update()
    assert (index.heads[1:], index.count, index.is_cut) == ([(2, b"+three and more"), (3, b"+four")], 4, False)
    assert list(index.lines(1, 3)) == [b"-two", b"+three and more"]


async def test_an_index_of_a_file_that_was_replaced_or_cut_begins_anew(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    path.write_bytes(b"+one\n+two\n")
    index = index_of(path)
    index.update()
    (tmp_path / "new").write_bytes(b"+three\n+four\n+five\n")
    (tmp_path / "new").rename(path)
    index.update()
    assert [text for _, text in index.heads] == [b"+three", b"+four", b"+five"]
    path.write_bytes(b"+six\n")
    assert list(index.lines(0, 3)) == [None, None, None]  # as it was indexed, they are gone
    index.update()
    assert index.heads == [(0, b"+six")]
    path.unlink()
    index.update()
    assert index.count == 0


@pytest.mark.parametrize("size", [LONGEST + 1, 9 << 20])
async def test_a_line_over_many_blocks_is_one_line(size: int, tmp_path: Path) -> None:
    path = tmp_path / "lines"
    path.write_bytes(b"+" + b"x" * size + b"\n+end\n-" + b"y" * size + b"\n+last\n")
    index = index_of(path)
    index.update()
    is_long = size + 1 > LONGEST
    assert index.unreadable == is_long
    assert [number for number, _ in index.heads] == ([1, 3] if is_long else [0, 1, 3])
    assert [one is None for one in index.lines(0, 4)] == [is_long, False, is_long, False]


async def test_a_link_a_pipe_and_a_folder_are_not_opened(tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(b"+secret\n")
    (tmp_path / "link").symlink_to(tmp_path / "secret")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    for name in ("link", "pipe", "folder", "missing"):
        index = index_of(tmp_path / name)
        index.update()
        assert index.count == 0, name


async def test_a_file_of_turns_that_is_cut_shows_what_is_there(tmp_path: Path) -> None:
    run = plain_run(tmp_path / "run")
    (run / "turns").mkdir()
    whole = episode_lines(7, "first", 2) + episode_lines(7, "second", 3)
    step_file(run, 7).write_bytes(whole[:-200])  # in the middle of the last decision
    async with pages_of(run) as get:
        assert "second" in (await get()).text
        page = await get("/7-4", at="2")
    assert "1 of 3 decisions are not there" in page.text
    assert "of 2" in page.text


async def test_damaged_lines_are_counted_and_the_others_are_shown(tmp_path: Path) -> None:
    run = plain_run(tmp_path / "run")
    (run / "turns").mkdir()
    deep = b'{"episode":' + b"[" * 200_000 + b"\n"
    wrong = line("episode", {"step": "seven", "id": 3})
    bad = b'{"decision":{"turn":"x"}}\n'
    step_file(run, 7).write_bytes(deep + wrong + episode_lines(7, "good", 2) + bad)
    (run / "samples.jsonl").write_bytes(b"\xff\xfe\n\n[]\n" + b'{"step": 7, "source": "editor", "role": "a"}\n')
    async with pages_of(run) as get:
        page = await get()
        assert "4 lines are damaged or too long" in page.text
        assert "1–1 of 1 episodes" in page.text
        assert "This line cannot be read" in (await get("/7-2", at="3")).text
        assert (await get("/7-0")).status_code == (await get("/..%2f..%2fetc")).status_code == 404


async def test_hostile_texts_and_a_line_of_5_mb_are_shown_as_text(tmp_path: Path) -> None:
    run = plain_run(tmp_path / "run")
    (run / "turns").mkdir()
    large = "long " * 1_000_000
    tokens, logprobs = (NASTY, large, ""), (-0.1, None, float("nan"))
    own = candidate(0, failure=NASTY, adapter=NASTY, finish=NASTY, tokens=tokens, logprobs=logprobs, terms={NASTY: 1.0})
    said = msgspec.structs.replace(decision(0, 1, agent=NASTY, prompt=large + NASTY), candidates=(own,))
    head = EpisodeHead(step=7, id="x", task=NASTY, success=False, cause=NASTY, rewards={NASTY: 1e308}, decisions=1)
    more = msgspec.json.encode(
        {"scenes": [{"turn": -1, "event": NASTY, "world": NASTY}], "lines": [], "more": 1}
    )  # a field of a later version
    step_file(run, 7).write_bytes(line("episode", head) + more + b"\n" + line("decision", said))
    sample = {"step": 8, "source": NASTY, "task": NASTY, "lines": [Line(turn=0, agent=NASTY, prompt=large, text=large)]}
    (run / "samples.jsonl").write_bytes(msgspec.json.encode(sample) + b"\n")
    async with pages_of(run) as get:
        pages = [await get(), await get("/7-0"), await get("/sample-0"), await get(role=NASTY, task=NASTY, step=NASTY)]
    for page in pages:
        assert page.status_code == 200
        assert len(page.text) < 200_000
        assert "<script>alert" not in page.text
        assert "<img src=x" not in page.text
        assert "\x1b" not in page.text
        assert "\u202e" not in page.text
        assert "{{ 7 * 7 }}" in page.text
    assert "&lt;script&gt;alert(1)" in pages[1].text
    assert f"{5_000_000 + len(NASTY) - 20_000:,} more characters" in pages[1].text
