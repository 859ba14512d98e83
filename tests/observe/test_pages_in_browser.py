"""The pages of a real run and of a real league in a browser: widths, modes, keyboard, accessibility, hostile texts."""

import csv
import json
import re
import shutil
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import msgspec
import pytest
from started import COMMAND

from mas.league import page_parts
from mas.league.demo import GAME
from mas.league.export import export_tournament
from mas.league.games import open_world
from mas.league.match import PlayedGame
from mas.observe.figures import COLUMNS
from mas.observe.palette import LIGHT

CHROMIUM = shutil.which("chromium")
if CHROMIUM is None:
    pytest.skip("no chromium on this machine", allow_module_level=True)
playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed (extra dev)")
axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe-playwright-python is not installed")

pytestmark = pytest.mark.nightly(of=16)
WIDTHS, SCHEMES = (390, 520, 768, 1400), ("light", "dark")
SHORT = (
    "train.steps=2", "train.tasks_per_step=2", "train.eval_tasks=4", "train.eval_every=1", "train.sample_every=1",
    "algorithm.sampler.candidates=2",
)  # fmt: skip
ATTACK = (
    "<script>alert(1)</script><img src='http://127.0.0.1:9/x' onerror='alert(2)'></pre><style>*{display:none}</style>"
    "\x1b[31mred\x1b[0m\u202egnp.exe " + "W" * 500
)
DEMO = """
import sys
from pathlib import Path
from rich.console import Console
from mas.league.demo import DemoTerms, run_demo
run_demo(Path(sys.argv[1]), Console(), DemoTerms(snapshots=(0, 1), every=1, games=4, overrides=sys.argv[2:]))
"""
COMMANDS = """
import json
import sys
from mas.cli import main
for words in json.loads(sys.argv[1]):
    sys.argv = ["mas", *words]
    try:
        main()
    except SystemExit as end:
        if end.code:
            raise
"""
Problems = Callable[..., list[str]]

CUT = """() => {
  const found = [], root = document.documentElement;
  document.querySelectorAll("details").forEach(part => { part.open = true; });
  if (root.scrollWidth > root.clientWidth) found.push(`the page is ${root.scrollWidth - root.clientWidth} too wide`);
  for (const part of document.querySelectorAll("main *")) {
    if (part.closest("svg")) continue;
    const wide = part.scrollWidth - part.clientWidth, shown = part.clientWidth > 0;
    if (shown && wide > 1 && getComputedStyle(part).display !== "inline" && !part.closest("[tabindex='0']"))
      found.push(`${part.tagName}.${part.className} is cut by ${wide}`);
  }
  for (const text of document.querySelectorAll("svg text")) {
    const inner = text.getBoundingClientRect(), outer = text.closest("svg").getBoundingClientRect();
    if (inner.left < outer.left - 1 || inner.right > outer.right + 1 || inner.bottom > outer.bottom + 1)
      found.push(`${text.textContent} stands outside of its chart`);
  }
  return found;
}"""
REACHED = """() => {
  const part = document.activeElement, box = part.getBoundingClientRect();
  const all = [...document.querySelectorAll("a[href], summary, [tabindex='0']")];
  return [all.indexOf(part), box.bottom > 0 && box.top < innerHeight];
}"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as started:
        running = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield running
        running.close()


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, small_overrides: tuple[str, ...], base_for: Any) -> Path:
    """A run with its page and figures, in a directory whose name a shell would read otherwise."""
    base_for("relay")
    folder = tmp_path_factory.mktemp("runs")
    words = ["train", "scenario=relay", *SHORT, *small_overrides, "run_dir='it\\'s $HOME run'"]
    both = json.dumps([words, ["report", "it's $HOME run", "--figures"]])  # in one process, which loads torch once
    command = [sys.executable, "-W", "error", "-c", COMMANDS, both]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return folder / "it's $HOME run"


@pytest.fixture(scope="module")
def attacked_run(run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same run after its model had said what attacks the page."""
    copy = tmp_path_factory.mktemp("attacked") / "run"
    shutil.copytree(run, copy)
    samples = [json.loads(line) for line in (copy / "samples.jsonl").read_text().splitlines()]
    for sample in samples:
        for line in sample["lines"]:
            line |= {"text": ATTACK, "prompt": ATTACK, "failure": ATTACK}
    (copy / "samples.jsonl").write_text("".join(json.dumps(sample) + "\n" for sample in samples))
    subprocess.run([*COMMAND, "report", str(copy)], check=True, capture_output=True)
    return copy


@pytest.fixture(scope="module")
def league(tmp_path_factory: pytest.TempPathFactory, small_overrides: tuple[str, ...], base_for: Any) -> Path:
    pytest.importorskip("pyspiel", reason="OpenSpiel is not installed (extra open-spiel)")
    base_for("two_player")
    out = tmp_path_factory.mktemp("league")
    short = ("train.tasks_per_step=2", "train.eval_tasks=2", "algorithm.sampler.candidates=2", *small_overrides)
    # In a process of its own: the browser's client occupies this thread's event loop.
    subprocess.run([sys.executable, "-W", "error", "-c", DEMO, str(out), *short], check=True, capture_output=True)
    return out


@pytest.fixture(scope="module")
def attacked_league(league: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of the same games after a player had said what attacks it, and boards had shown it."""
    from mas.league.standings import standings

    games = msgspec.json.Decoder(PlayedGame).decode_lines((league / "games.jsonl").read_bytes())
    attacked = [
        msgspec.structs.replace(
            game, moves=tuple(msgspec.structs.replace(move, text=ATTACK, is_legal=False) for move in game.moves)
        )
        for game in games
    ]
    names = sorted({name for game in games for name in game.players})
    terms = {"game": GAME, "players": dict.fromkeys(names, ATTACK), "games": 4, "seed": 0, "rounds": 0}
    out = tmp_path_factory.mktemp("attacked")
    with pytest.MonkeyPatch.context() as patch:  # in a replay, what is not legal ends the game
        patch.setattr(page_parts, "replay", lambda game, played: [ATTACK] * (2 + max(m.step for m in played.moves)))
        export_tournament(ATTACK, terms, standings(names, attacked), attacked, open_world(GAME).open(), out, 1)
    return out


@pytest.fixture
def problems(browser: Any) -> Problems:
    """All that is wrong with a page in the widths and modes; every part that can be opened is open."""

    def look(path: Path, width: int, scheme: str) -> list[str]:
        context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
        page, found = context.new_page(), list[str]()
        page.on("console", lambda message: found.append(f"console: {message.text}"))
        page.on("pageerror", lambda error: found.append(f"error: {error}"))
        page.on("dialog", lambda dialog: (found.append(f"dialog: {dialog.message}"), dialog.dismiss()))
        page.on("request", lambda request: asked.append(request.url))
        asked: list[str] = []
        page.goto(path.as_uri())
        found += page.evaluate(CUT)
        if width in (WIDTHS[0], WIDTHS[-1]):
            found += [
                f"axe: {one['id']} at {one['nodes'][0]['html'][:150]}"
                for one in axe.Axe().run(page).response["violations"]
                if one["impact"] in ("serious", "critical")
            ]
        found += [f"asks for {address}" for address in asked if address != path.as_uri() and address[:5] != "data:"]
        context.close()
        return [f"{width} {scheme}: {one}" for one in found]

    def all_of(path: Path, schemes: tuple[str, ...] = SCHEMES) -> list[str]:
        return [one for width in WIDTHS for scheme in schemes for one in look(path, width, scheme)]

    return all_of


def test_the_page_of_a_run_is_whole_and_accessible_at_every_width(run: Path, problems: Problems) -> None:
    assert problems(run / "report.html") == []


def test_the_page_of_a_league_is_whole_and_accessible_at_every_width(league: Path, problems: Problems) -> None:
    assert problems(league / "index.html") == []


def test_what_a_model_says_is_text_on_the_page_of_a_run(attacked_run: Path, browser: Any, problems: Problems) -> None:
    assert problems(attacked_run / "report.html", ("light",)) == []
    page = browser.new_page()
    page.goto((attacked_run / "report.html").as_uri())
    assert page.locator(".line > pre", has_text="<script>alert(1)</script><img src=").count() > 4
    assert page.locator("script, img[onerror]").count() == 0
    page.close()


def test_what_a_model_says_is_text_on_the_page_of_a_league(
    attacked_league: Path, browser: Any, problems: Problems
) -> None:
    assert problems(attacked_league / "index.html", ("dark",)) == []
    page = browser.new_page()
    page.goto((attacked_league / "index.html").as_uri())
    assert page.locator(".said", has_text="<script>alert(1)</script><img src=").count() > 4
    assert page.locator("script, img").count() == 0
    page.close()


def test_the_check_would_notice_each_kind_of_problem(tmp_path: Path, problems: Problems) -> None:
    page = tmp_path / "page.html"
    page.write_text(
        "<!doctype html><html lang=en><title>t</title><main><h1 style='width: 2000px'>wide</h1>"
        "<p style='color: #ccc; background: #fff'>pale</p><img src='http://127.0.0.1:9/x' alt='x'>"
        "<div style='overflow: hidden; width: 40px; white-space: nowrap'>much too long for its place</div>"
        "<svg width=50 height=20 viewBox='0 0 50 20'><text x=30 y=9>outside</text></svg>"
        "<script>alert(1)</script></main>"
    )
    found = "\n".join(problems(page))
    for kind in ("too wide", "is cut by", "color-contrast", "asks for http://127.0.0.1:9/x", "dialog: 1", "outside of"):
        assert kind in found


@pytest.mark.parametrize("name", ["run", "league"])
def test_the_keyboard_reaches_all_that_can_be_used(name: str, browser: Any, request: pytest.FixtureRequest) -> None:
    folder: Path = request.getfixturevalue(name)
    page = browser.new_page(viewport={"width": 390, "height": 900})
    page.goto((folder / {"run": "report.html", "league": "index.html"}[name]).as_uri())
    usable = page.evaluate(
        """() => [...document.querySelectorAll("a[href], summary, [tabindex='0']")]
            .flatMap((part, number) => part.checkVisibility() ? [number] : [])"""
    )
    reached = []
    for _ in usable:
        page.keyboard.press("Tab")
        reached.append(page.evaluate(REACHED))
    page.close()
    assert len(usable) > 5
    assert reached == [[number, True] for number in usable]


def test_the_page_says_how_fast_it_was_and_where_the_time_went(run: Path, browser: Any) -> None:
    page = browser.new_page()
    page.goto((run / "report.html").as_uri())
    cards = page.locator(".number").all_inner_texts()
    page.close()
    (time,) = [card for card in cards if card.startswith("time")]
    shares = [int(share) for share in re.findall(r"(\d+) %", time)]
    assert len(shares) == 5  # sampling, environment, learning, publishing, evaluation
    assert sum(shares) == pytest.approx(100, abs=2.5)  # five shares, each rounded by at most a half
    steps = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    steps = [line for line in steps if "completion_tokens" in line]
    rate = steps[-1]["completion_tokens"] / sum(line["seconds"]["sample"] for line in steps)
    (throughput,) = [card for card in cards if card.startswith("throughput")]
    assert round(rate) < 10_000  # else it reads 12.3k
    assert f"{round(rate)}/s" in throughput
    assert "s a step" in throughput


def test_the_command_of_the_page_trains_the_same_when_it_is_pasted(
    run: Path, browser: Any, mas: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    page = browser.new_page()
    page.goto((run / "report.html").as_uri())
    command = page.locator("pre.command").inner_text()
    page.close()
    # A real shell splits it into words.
    script = f'mas() {{ printf "%s\\0" "$@"; }}; {command}'
    said = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)
    monkeypatch.chdir(run.parent)
    again = mas(*said.stdout.split("\0")[:-1])
    assert again.code == 0, again.err
    rewards = [
        [json.loads(line).get("reward") for line in (folder / "metrics.jsonl").read_text().splitlines()]
        for folder in (run, run.parent / f"{run.name}-again")
    ]
    assert rewards[0] == rewards[1]
    assert len(rewards[0]) > 4


def points(run: Path) -> list[dict[str, str]]:
    """The rows of `curves.csv`."""
    return list(csv.DictReader((run / "figures" / "curves.csv").read_text().splitlines()))


def test_every_figure_lies_beside_the_page_as_svg_and_png_with_its_points(run: Path, browser: Any) -> None:
    page = browser.new_page()
    page.goto((run / "report.html").as_uri())
    links = page.locator("a[download]").evaluate_all("links => links.map(link => link.getAttribute('href'))")
    titles = page.locator("figure h3").all_inner_texts()
    page.close()
    assert sorted(links) == sorted(f"figures/{path.name}" for path in (run / "figures").iterdir())
    assert len(links) == 2 * len(titles) + 2
    for link in links:
        if link.endswith(".svg"):
            assert ElementTree.parse(run / link).getroot().tag.endswith("svg")
        if link.endswith(".png"):
            content = (run / link).read_bytes()
            assert content[:8] == b"\x89PNG\r\n\x1a\n"
            assert struct.unpack(">II", content[16:24]) == (1400, 840)  # 7 by 4.2 inches of 200 dots
    rows = points(run)
    assert tuple(rows[0]) == COLUMNS
    assert {row["figure"] for row in rows} == set(titles)
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    drawn = [float(row["y"]) for row in rows if row["figure"] == "Reward of the team"]
    assert drawn == [line["reward"] for line in lines if "reward" in line]


def test_the_points_are_the_same_as_parquet(run: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed (extra data)")
    rows = points(run)
    table = parquet.read_table(run / "figures" / "curves.parquet").to_pylist()
    assert [{name: "" if cell is None else str(cell) for name, cell in row.items()} for row in table] == rows


def test_a_role_has_its_colour_in_curves_files_conversations_and_the_drawing(run: Path, browser: Any) -> None:
    page = browser.new_page(color_scheme="light")
    page.goto((run / "report.html").as_uri())
    colours = dict.fromkeys(("planner", "executor"), "")
    for number, role in enumerate(colours):
        colours[role] = "rgb({}, {}, {})".format(*bytes.fromhex(LIGHT[number][1:]))
        seen = page.locator(".line", has=page.locator(".who", has_text=role)).evaluate_all(
            "lines => lines.map(line => getComputedStyle(line).borderLeftColor)"
        )
        seen += page.locator(".legend li", has_text=role).evaluate_all(
            "keys => keys.map(key => getComputedStyle(key.querySelector('i')).borderTopColor)"
        )
        assert set(seen) == {colours[role]}
        assert len(seen) > 6
        assert LIGHT[number] in (run / "figures" / "reward-of-each-role.svg").read_text()
        drawing = page.locator(".paper img").get_attribute("src")
        picture = page.evaluate("source => atob(source.split(',')[1])", drawing)
        assert LIGHT[number] in picture
    page.close()
