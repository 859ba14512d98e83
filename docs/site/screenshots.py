"""The pictures of pages in docs/images, taken of real runs in a headless Chromium: `make screenshots`.

Two teams and a card game are trained on the tiny base in a folder that is removed at the end, which takes some minutes.
`--runs DIR` keeps it: a second call trains nothing again. Times and speeds in the pictures are this machine's.
"""

import argparse
import asyncio
import base64
import os
import shutil
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

IMAGES = Path(__file__).parents[1] / "images"
WIDTH = 1100
"""Of most windows, in CSS pixels."""
SCALE = 1.5
"""Pixels of a picture for each of them."""
MOST_BYTES = 150_000
_WAIT_MS = 300_000
"""Longest wait for a page, on a machine that does other work, too."""
_MAS = (sys.executable, "-m", "mas")
_STEPS = ("train.steps=30", "train.target=null")
TRAININGS: dict[str, tuple[str, ...]] = {
    "relay": ("scenario=relay", *_STEPS, "train.record_every=15"),
    "grpo": ("scenario=relay", "algorithm=parallel_grpo", *_STEPS),
    "kuhn": ("scenario=two_player", "algorithm=spiral", "train.steps=10", "train.eval_tasks=20"),
}
"""Name of a run -> the words of its `mas train`."""
LEAGUE = (
    *("--game", "kuhn", "--games", "40", "--player", "random", "--player", "solver"),
    *("--player", "trained=run:runs/kuhn", "--player", "untrained=run:runs/kuhn@0"),
)
Act = Callable[[Any], Awaitable[None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """One picture.

    Attributes:
        path: of the page, below the studio's address, or a file of the folder of runs after `file:`.
        height: of the picture in CSS pixels.
        act: what is done on the page before the picture is taken.
        width: of the window in CSS pixels.
        scheme: `light` or `dark`.
    """

    path: str
    height: int
    act: Act | None = None
    width: int = WIDTH
    scheme: str = "light"


async def _curves(page: Any) -> None:
    await page.locator("figure svg").first.wait_for()


async def _tokens(page: Any) -> None:
    """The candidates of the first message, which are below its prompt."""
    await page.locator(".candidates").first.wait_for()


async def _message(page: Any) -> None:
    """The second message, which lights its edge of the drawing."""
    await page.locator(".controls").wait_for()
    for _ in range(2):
        await page.keyboard.press("ArrowRight")
    await page.locator("svg.team .courier.moves").wait_for(state="detached")


async def _checked(page: Any) -> None:
    await page.locator("#state").get_by_text("No problems").wait_for()


async def _talk(page: Any) -> None:
    """One answer of the team, which is the first of what is served."""
    await page.get_by_role("button", name="Fill in the example").click()
    await page.get_by_role("button", name="Send").click()
    await page.locator("#send:enabled").wait_for()
    await page.locator("#log li").nth(1).wait_for()


async def _first_episode(page: Any) -> None:
    """The newest episode whose turns were all recorded."""
    await page.locator(".episodes a").first.click()
    await _tokens(page)


async def _ladder(page: Any) -> None:
    await page.get_by_role("heading", name="Ladder").wait_for()


PICTURES = {
    "runs": Picture(path="/", height=460),
    "curves": Picture(path="/runs/{relay}", height=1000, act=_curves),
    "curves-dark": Picture(path="/runs/{relay}", height=1000, act=_curves, scheme="dark"),
    "metrics": Picture(path="/runs/{relay}/metrics", height=700),
    "compare": Picture(path="/compare?run={relay}&run={grpo}", height=900, act=_curves),
    "episodes": Picture(path="/runs/{relay}/episodes?source=recorded", height=620),
    "episode": Picture(path="/runs/{relay}/episodes?source=recorded", height=1000, act=_first_episode),
    "teams": Picture(path="/teams", height=640),
    "team": Picture(path="/runs/{relay}/team", height=700, act=_message),
    "editor": Picture(path="/teams/edit?from=plan_path/team", height=900, act=_checked, width=1300),
    "chat": Picture(path="/chat", height=900, act=_talk),
    "report": Picture(path="file:runs/relay/report.html", height=1000),
    "league": Picture(path="file:cup/index.html", height=900, act=_ladder),
}
"""Name of a file in docs/images, without `.webp` -> what it shows."""


async def run(*words: str, folder: Path) -> None:
    """A command of mas in a folder.

    Raises:
        RuntimeError: it failed.
    """
    print(f"mas {' '.join(words)}", flush=True)
    process = await asyncio.create_subprocess_exec(*_MAS, *words, cwd=folder, stdout=asyncio.subprocess.DEVNULL)
    if await process.wait():
        raise RuntimeError(f"mas {' '.join(words)} ended with exit code {process.returncode}")


async def prepare(folder: Path) -> None:
    """The runs, the report and the league's page, or what of them is missing."""
    for name, words in TRAININGS.items():
        await run("train", *words, f"run_dir=runs/{name}", folder=folder)
    await run("report", "runs/relay", folder=folder)
    await run("league", "run", *LEAGUE, "--league", "cup.db", folder=folder)
    if not (folder / "cup").exists():
        await run("league", "export", "--league", "cup.db", "--out", "cup", "--replays", "1", folder=folder)


@asynccontextmanager
async def server(*words: str, folder: Path) -> AsyncIterator[str]:
    """The address of a `mas` command that serves while the block runs."""
    process = await asyncio.create_subprocess_exec(
        *_MAS, *words, "--port", "0", cwd=folder, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    try:
        printed = ""
        async for line in process.stdout:
            printed += line.decode()
            found = [word for word in printed.split() if word.startswith("http://127.0.0.1:")]
            if found and "Ctrl-C ends it" in printed:
                yield found[0].removesuffix("/v1")
                return
        raise RuntimeError(f"mas {words[0]} ended before it served: {printed}")
    finally:
        process.terminate()
        await process.wait()


async def take(browser: Any, name: str, address: str, folder: Path, out: Path) -> None:
    """One picture, as WebP.

    Raises:
        RuntimeError: the file would be too large.
    """
    picture = PICTURES[name]
    context = await browser.new_context(
        viewport={"width": picture.width, "height": picture.height},
        color_scheme=picture.scheme,
        reduced_motion="reduce",
    )
    page = await context.new_page()
    page.set_default_timeout(_WAIT_MS)
    is_file = picture.path.startswith("file:")
    path = picture.path if is_file else picture.path.format_map(await _keys(page, address))
    await page.goto((folder / path.removeprefix("file:")).as_uri() if is_file else address + path)
    if picture.act is not None:
        await picture.act(page)
    session = await context.new_cdp_session(page)
    clip = {"x": 0, "y": 0, "width": picture.width, "height": picture.height, "scale": SCALE}
    shot = await session.send("Page.captureScreenshot", {"format": "webp", "quality": 82, "clip": clip})
    await context.close()
    image = base64.b64decode(shot["data"])
    if len(image) > MOST_BYTES:
        raise RuntimeError(f"{name} takes {len(image):,} bytes; at most {MOST_BYTES:,}: lower its height")
    (out / f"{name}.webp").write_bytes(image)
    print(f"{name}.webp  {len(image):,} bytes", flush=True)


async def _keys(page: Any, address: str) -> dict[str, str]:
    """Name of a run -> its key in addresses."""
    await page.goto(address)
    links = await page.locator("td.name a").evaluate_all("all => all.map(one => [one.textContent, one.pathname])")
    return {name: path.removeprefix("/runs/") for name, path in links}


async def picture_all(folder: Path, out: Path, names: list[str]) -> None:
    """Take pictures of these names, of all if there are none."""
    from playwright.async_api import async_playwright

    await prepare(folder)
    async with (
        server("serve", "runs/relay", "--show-messages", folder=folder) as served,
        server("studio", "runs", "--serve", served, folder=folder) as studio,
        async_playwright() as playwright,
    ):
        browser = await playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        for name in names or PICTURES:
            await take(browser, name, studio, folder, out)
        await browser.close()


def main() -> None:
    """Read the command line and take the pictures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", choices=[*PICTURES, []], help="pictures; default: all")
    parser.add_argument("--runs", type=Path, metavar="DIR", help="folder of runs that is kept; default: removed")
    parser.add_argument("--out", type=Path, default=IMAGES, metavar="DIR", help="default: docs/images")
    words = parser.parse_args()
    if shutil.which("chromium") is None:
        parser.exit(1, "chromium is not installed: make chromium installs it\n")
    os.environ.pop("MAS_API_KEY", None)  # the studio would ask the browser for it
    with tempfile.TemporaryDirectory() as made:
        folder = (words.runs or Path(made)).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        words.out.mkdir(parents=True, exist_ok=True)
        asyncio.run(picture_all(folder, words.out, words.names))


if __name__ == "__main__":
    main()
