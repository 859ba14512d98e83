"""Runs that go on while the studio shows them, and what a killed studio does to them: nothing."""

import asyncio
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from started import COMMAND, greeting_of
from studio_site import studio_over, watched_page

from mas.core.errors import RunDirectoryError
from mas.observe.metrics import MetricsLog
from mas.observe.run_directory import RunDirectory
from mas.studio.run_status import owner_of
from mas.studio.runs import Runs

pytestmark = pytest.mark.nightly(of=16)

WITHOUT_KEY = {name: value for name, value in os.environ.items() if name != "MAS_API_KEY"}
SHORT = ("train.tasks_per_step=2", "train.eval_tasks=2", "train.eval_every=0", "train.eval_first=false")


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.asyncio(loop_scope="session")
async def test_the_curves_of_a_run_grow_while_it_trains(
    browser: Any, small_overrides: tuple[str, ...], finished_run: Path, tmp_path: Path
) -> None:
    words = [*COMMAND, "train", "scenario=relay", *SHORT, *small_overrides]
    async with studio_over(tmp_path) as address, watched_page(browser) as (page, problems):
        await page.goto(address)
        assert "There is no run here yet" in await page.locator("#runs").inner_text()
        training = await asyncio.create_subprocess_exec(
            *words, "train.steps=5000", f"run_dir={tmp_path}/live", stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
        )
        try:
            await page.get_by_role("link", name="live", exact=True).wait_for(timeout=240_000)
            await page.get_by_text("running", exact=True).wait_for()
            await page.get_by_role("link", name="live", exact=True).click()
            await page.locator("figure svg").first.wait_for(timeout=240_000)
            steps = page.locator(".where .steps")
            before = int((await steps.inner_text()).split()[0])
            path = page.locator("figure", has=page.get_by_role("heading", name="Reward of the team")).locator("path")
            shape = await path.get_attribute("d")
            await page.wait_for_function(
                "before => Number(document.querySelector('.where .steps').textContent.split(' ')[0]) > before + 1",
                arg=before,
                timeout=240_000,
            )
            await page.wait_for_function(
                "shape => ![...document.querySelectorAll('figure path')].some(one => one.getAttribute('d') === shape)",
                arg=shape,
                timeout=120_000,
            )
            training.kill()
            await training.wait()
            await page.locator(".badge", has_text="stopped").wait_for(timeout=120_000)
        finally:
            if training.returncode is None:
                training.kill()
            await training.communicate()
        assert problems == []


@pytest.mark.asyncio(loop_scope="session")
async def test_lines_that_a_run_writes_appear_and_a_kill_in_the_middle_of_one_harms_nothing(
    browser: Any, tmp_path: Path
) -> None:
    folder = tmp_path / "grows"
    config = {"scenario": {"name": "relay"}, "train": {"steps": 9}}
    async with studio_over(tmp_path) as address, watched_page(browser) as (page, problems):
        with RunDirectory.open(folder, config, resume=False) as run, MetricsLog(run.metrics_path) as log:
            (found,) = Runs([tmp_path]).all()
            await page.goto(f"{address}/runs/{found.key}")
            assert await page.locator(".badge").inner_text() == "running"
            assert await page.locator("[data-empty]").is_visible()
            log.append(1, {"reward": 0.25, "tokens": 10})
            legend = page.locator("figure", has=page.get_by_role("heading", name="Reward of the team")).locator("b")
            await page.locator(".legend b", has_text="0.25").wait_for()
            log.append(2, {"reward": 0.75, "tokens": 20})
            await page.locator(".legend b", has_text="0.75").wait_for()
            assert await legend.first.inner_text() == "0.75"
            with run.metrics_path.open("ab") as file:
                file.write(b'{"step":3,"reward":0.')
        await page.locator(".badge", has_text="stopped").wait_for()
        assert "2 of 9" in await page.locator(".where").inner_text()
        assert await page.locator(".problem:visible").count() == 0
        with RunDirectory.open(folder, config, resume=True) as run, MetricsLog(run.metrics_path) as log:
            log.truncate_after(1)
            log.append(2, {"reward": -0.5, "tokens": 20})
            await page.locator(".legend b", has_text="-0.5").wait_for()
        assert problems == []


def test_a_killed_studio_leaves_the_run_as_it_was(finished_run: Path) -> None:
    files = {path: path.stat() for path in sorted(finished_run.rglob("*"))}
    studio = subprocess.Popen(
        [*COMMAND, "studio", str(finished_run), "--port", "0"], stdout=subprocess.PIPE, text=True, env=WITHOUT_KEY
    )
    try:
        address = next(line.rpartition(" ")[2].strip() for line in greeting_of(studio).splitlines() if "http" in line)
        for path in (
            "",
            *(f"/runs/{run.key}{page}" for run in Runs([finished_run]).all() for page in ("", "/metrics")),
        ):
            assert subprocess.run(["curl", "-sf", address + path], capture_output=True, check=False).returncode == 0
        assert owner_of(finished_run / "relay") is None
    finally:
        studio.kill()
        studio.communicate()
    after = {path: path.stat() for path in sorted(finished_run.rglob("*"))}
    assert files.keys() == after.keys()
    assert [path for path in files if files[path].st_mtime_ns != after[path].st_mtime_ns] == []


def test_a_run_is_running_exactly_while_its_lock_is_held(tmp_path: Path) -> None:
    path = tmp_path / "run"
    assert owner_of(path) is None
    with RunDirectory.open(path, {"train": {"steps": 3}}, resume=False):
        assert owner_of(path) == os.getpid()
        (run,) = Runs([tmp_path]).all()
        assert run.status().state == "running"
        with pytest.raises(RunDirectoryError, match="in use"):
            RunDirectory.open(path, {"train": {"steps": 3}}, resume=True)
    assert owner_of(path) is None
    assert run.status().state == "stopped"
    (path / "metrics.jsonl").write_text('{"step":3,"reward":1.0}\n')
    assert run.status().state == "finished"
