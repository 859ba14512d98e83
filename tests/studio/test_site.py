"""Who may ask the studio, what it answers with, and texts of strangers in it."""

import json
from base64 import b64encode
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from studio_site import studio_over, watched_page

from mas.config.plain_values import read_stored
from mas.studio import runs
from mas.studio.runs import Runs

HOSTILE = "<img src=x onerror=alert(1)><script>alert(2)</script>\x1b[31m\u202e'\"&"
pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_other_hosts_pages_and_methods_are_refused(finished_run: Path) -> None:
    (run,) = Runs([finished_run]).all()
    async with studio_over(finished_run) as address, httpx.AsyncClient(base_url=address) as client:
        assert (await client.get("/", headers={"host": "evil.example"})).status_code == 421
        assert (await client.get("/", headers={"host": f"evil.example:{client.base_url.port}"})).status_code == 421
        assert (await client.get("/", headers={"origin": "https://evil.example"})).status_code == 403
        for method in ("POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"):
            for path in ("/", f"/runs/{run.key}", "/compare", "/static/studio.css"):
                assert (await client.request(method, path)).status_code in (403, 405), (method, path)
                own = await client.request(method, path, headers={"origin": address})
                assert own.status_code == 405, (method, path)
        assert (await client.get("/", headers={"host": f"localhost:{client.base_url.port}"})).status_code == 200


async def test_every_answer_forbids_scripts_of_others_and_sets_no_cookie(finished_run: Path) -> None:
    (run,) = Runs([finished_run]).all()
    paths = (
        *("/", "/compare", "/none", "/runs/none", "/static/studio.js", f"/runs/{run.key}"),
        *(f"/runs/{run.key}/{name}" for name in ("metrics", "metrics.csv", "figures.json")),
    )
    async with studio_over(finished_run) as address, httpx.AsyncClient(base_url=address) as client:
        for path in paths:
            answer = await client.get(path)
            policy = answer.headers["content-security-policy"]
            assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self';"), path
            assert "unsafe" not in policy
            assert answer.headers["x-content-type-options"] == "nosniff"
            assert "set-cookie" not in answer.headers
            assert "access-control-allow-origin" not in answer.headers


@pytest.mark.parametrize("path", ["/static/../app.py", "/static/%2e%2e/app.py", "/runs/..%2f..", "/static//etc/passwd"])
async def test_no_other_file_is_served(finished_run: Path, path: str) -> None:
    async with studio_over(finished_run) as address:
        reader, writer = await asyncio_connection(address)
        writer.write(f"GET {path} HTTP/1.1\r\nHost: {address.removeprefix('http://')}\r\n\r\n".encode())
        assert (await reader.readline()).split()[1] == b"404"
        writer.close()
        await writer.wait_closed()


async def asyncio_connection(address: str) -> tuple[Any, Any]:
    """A connection whose paths nobody makes plain."""
    import asyncio

    host, _, port = address.removeprefix("http://").partition(":")
    return await asyncio.open_connection(host, int(port))


async def test_with_a_key_nobody_reads_without_it(finished_run: Path) -> None:
    async with studio_over(finished_run, key="s3cret é") as address, httpx.AsyncClient(base_url=address) as client:
        for path in ("/", "/static/studio.css", "/none"):
            refused = await client.get(path)
            assert refused.status_code == 401
            assert refused.headers["www-authenticate"].startswith("Basic ")
        for wrong in ("Basic x", "Bearer s3cret", f"Basic {b64encode(b'a:b').decode()}"):
            assert (await client.get("/", headers={"authorization": wrong})).status_code == 401
        right = f"Basic {b64encode('me:s3cret é'.encode()).decode()}"
        assert (await client.get("/", headers={"authorization": right})).status_code == 200


async def test_texts_of_strangers_are_shown_as_text(browser: Any, tmp_path: Path) -> None:
    for name in (HOSTILE.replace("/", ""), "plain"):
        run = tmp_path / name
        run.mkdir()
        (run / "config.yaml").write_text(
            yaml.safe_dump({"scenario": {"name": HOSTILE + name}, "algorithm": {"name": HOSTILE}, "model": "x" * 5000})
        )
        line = {"step": 1, HOSTILE: 1.0, "roles": {HOSTILE: {"reward": 2.0}}, "adapters": {HOSTILE: {"entropy": 1.0}}}
        (run / "metrics.jsonl").write_text(json.dumps(line) + "\n" + json.dumps({**line, "step": 2}) + "\n")
    runs = Runs([tmp_path]).all()
    addresses = ["/", "/compare?" + "&".join(f"run={run.key}" for run in runs)]
    for run in runs:
        addresses += [f"/runs/{run.key}", f"/runs/{run.key}/metrics"]
    async with studio_over(tmp_path) as address, watched_page(browser) as (page, problems):
        page.on("dialog", lambda dialog: problems.append(dialog.message))
        for path in addresses:
            await page.goto(address + path)
            await page.wait_for_load_state("networkidle")
            assert await page.locator("main img").count() == 0, path
            assert "\x1b" not in await page.content(), path
            assert "\u202e" not in await page.locator("h1").inner_text()
        await page.goto(f"{address}/compare?run={runs[0].key}&metric={HOSTILE.replace('&', '%26')}")
        await page.wait_for_load_state("networkidle")
        await page.goto(f"{address}/runs/<script>alert(3)</script>")
        assert await page.locator("main script").count() == 0
    assert [said for said in problems if "404" not in said] == []


async def test_a_run_that_cannot_be_read_does_not_hide_the_others(finished_run: Path, tmp_path: Path) -> None:
    (tmp_path / "relay").symlink_to(finished_run / "relay")
    for name in ("link", "folder", "torn"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.yaml").write_text("a: &b [1]\nc: *b\n" if name == "torn" else "scenario: [1, 2]\n")
    (tmp_path / "link" / "metrics.jsonl").symlink_to("/etc/passwd")
    (tmp_path / "folder" / "metrics.jsonl").mkdir()
    (tmp_path / "torn" / "metrics.jsonl").write_text('{"step": 1, "reward": 1}\nnonsense\n{"step": 2, "rew')
    runs = {run.name: run for run in Runs([tmp_path, finished_run]).all()}
    async with studio_over(tmp_path, finished_run) as address, httpx.AsyncClient(base_url=address) as client:
        page = (await client.get("/")).text
        assert "is no file" in page
        assert "You have not allowed this" in page
        assert 'href="/runs/relay-' in page
        for name, code in (("link", 422), ("folder", 422), ("torn", 200)):
            assert (await client.get(f"/runs/{runs[name].key}")).status_code == code
        assert "root:" not in (await client.get(f"/runs/{runs['link'].key}/metrics.csv")).text
        assert "1 line of metrics.jsonl could not be read" in (await client.get(f"/runs/{runs['torn'].key}")).text


async def test_a_configuration_that_cannot_be_read_is_tried_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[Path] = []

    def read(path: Path) -> dict[Any, Any]:
        tried.append(path)
        return read_stored(path)

    monkeypatch.setattr(runs, "read_stored", read)
    (tmp_path / "config.yaml").write_text("[" * 5000)
    run = runs.StudioRun(tmp_path, "run")
    assert [run.option("train.steps"), run.config, len(tried)] == [None, {}, 1]
    (tmp_path / "config.yaml").write_text("train: {steps: 3}")
    assert [run.option("train.steps"), run.option("train.steps"), len(tried)] == [3, 3, 2]


async def test_while_a_configuration_is_read_nobody_else_is_told_that_there_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "config.yaml").write_text("train: {steps: 3}")
    run, seen = runs.StudioRun(tmp_path, "run"), list[Any]()

    def read(path: Path) -> dict[Any, Any]:
        monkeypatch.setattr(runs, "read_stored", read_stored)
        seen.append(run.option("train.steps"))  # as another thread does meanwhile
        return read_stored(path)

    monkeypatch.setattr(runs, "read_stored", read)
    seen.append(run.option("train.steps"))
    assert seen == [3, 3]
