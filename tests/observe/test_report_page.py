"""The page as text, and as a real browser shows it (where one is installed)."""

import html
import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import msgspec
import pytest
from matplotlib.image import imread

from mas.core.errors import RunDirectoryError
from mas.core.records import Line, Scene
from mas.observe.report import render_report, write_report
from mas.observe.report_records import (
    Chart,
    Conversation,
    ConversationPair,
    KeyNumber,
    Report,
    Series,
    baseline_tables,
)

ATTACK = "<script>document.title='owned'</script><img src='{address}/text.png'>"
needs_browser = pytest.mark.skipif(shutil.which("chromium") is None, reason="no chromium on this machine")


def conversation(label: str, text: str, *, is_success: bool) -> Conversation:
    lines = (
        Line(turn=0, agent="planner", prompt=f"plan {text}", text=text, failure="no step parsed"),
        Line(turn=1, agent="executor", prompt="", text=""),
    )
    return Conversation(
        label=label,
        lines=lines,
        outcome="ended",
        is_success=is_success,
        scenes=(
            Scene(turn=-1, event="", world="a world at the beginning"),
            Scene(turn=0, event="the team does 'x'", world=f"the tool said no {text}"),
        ),
    )


def report(address: str = "https://evil.example") -> Report:
    attack = ATTACK.format(address=address)
    before, after = conversation("before", attack, is_success=False), conversation("after", "fine", is_success=True)
    series = Series(name=f"team {attack}", xs=(0, 1, 2), ys=(0.1, 0.5, 0.97))
    svg = f'<svg xmlns="http://www.w3.org/2000/svg" width="9" height="9"><image href="{address}/graph.png"/></svg>'
    return Report(
        title="It learns",
        numbers=(KeyNumber(label="success", before="0.12", after="0.97"),),
        headline=("The team solves 97 of 100 tasks.",),
        curves=(Chart(title="Reward", x_label="training step", y_label="reward", series=(series,)),),
        tables=baseline_tables({"two_hop": {"team": {"mean": 0.97}, attack: {"mean": 0.4}}}),
        conversations=(ConversationPair(title="task 7", before=before, after=after),),
        graph_svg=svg,
        graph_mermaid="graph LR; planner --> executor",
        command="mas train scenario=two_hop",
        configuration=f"note: {attack}",
    )


def test_a_page_says_all_that_the_report_does_with_the_numbers_first() -> None:
    page = render_report(report())
    parts = [
        "It learns", "0.12", "0.97", "97 of 100", "training step", "two_hop", "task 7", "a world at the beginning",
        "no step parsed", "the team does &#39;x&#39;", "the tool said no", "(nothing)", "data:image/svg+xml",
        "graph LR", "mas train", "note:",
    ]  # fmt: skip
    places = [page.index(part, page.index("<main>")) for part in parts]
    assert places == sorted(places)


def test_texts_of_models_are_escaped_everywhere() -> None:
    page = render_report(report())
    assert "<script" not in page
    assert "<img src='" not in page
    assert page.count("&lt;script&gt;document.title=") >= 5


def colour_of(page: str, name: str) -> set[str]:
    """The colours of a role's curves in legends, and of the agent's lines."""
    legends = re.findall(rf"border-top-color: ([^\"]+)\"></i>{name}<b>", page)
    return {*legends, *re.findall(rf"--agent: ([^\"]+)\">\s*<div class=\"who\">{name} ", page)}


def test_a_role_has_one_colour_in_all_curves_and_conversations() -> None:
    """Charts in which a role is missing, or stands elsewhere, do not pass its colour on to another."""
    of = {name: Series(name=name, xs=(0, 1), ys=(0.1, 0.5)) for name in ("planner", "executor", "team", "greedy")}
    charts = [("planner", "executor"), ("executor",), ("team", "executor", "planner"), ("greedy",)]
    page = render_report(
        msgspec.structs.replace(
            report(),
            roles={"planner": "planner", "executor": "executor"},
            curves=tuple(
                Chart(title=str(names), x_label="x", y_label="y", series=tuple(of[name] for name in names))
                for names in charts
            ),
        )
    )
    found = [colour_of(page, name) for name in ("planner", "executor", "team", "greedy")]
    assert found == [{"var(--series-0)"}, {"var(--series-1)"}, {"var(--series-2)"}, {"var(--series-2)"}]
    drawn = re.findall(r"stroke: var\(--series-(\d)\)", page)
    assert list(dict.fromkeys(drawn)) == ["0", "1", "2"], "the curves themselves have these colours, too"


def test_agents_of_one_role_have_its_colour() -> None:
    page = render_report(msgspec.structs.replace(report(), roles={"x": "first", "planner": "p", "executor": "p"}))
    assert colour_of(page, "planner") == {"var(--series-1)"} == colour_of(page, "executor")


def test_an_empty_report_is_a_page_with_its_title_and_no_section() -> None:
    page = render_report(Report(title="Nothing yet"))
    assert "<h1>Nothing yet</h1>" in page
    assert "<h2" not in page


def test_the_same_report_gives_the_same_page() -> None:
    assert render_report(report()) == render_report(report())


def test_a_page_is_written_with_its_parents_and_replaced_whole(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "report.html"
    write_report(path, report())
    write_report(path, Report(title="Second"))
    assert "Second" in path.read_text()
    assert [entry.name for entry in path.parent.iterdir()] == ["report.html"]


def test_a_page_that_cannot_be_written_says_where(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(RunDirectoryError, match=r"report\.html cannot be written"):
        write_report(tmp_path / "file" / "report.html", Report(title="t"))


class Listener:
    """A local server that notes what is asked of it."""

    def __init__(self) -> None:
        asked: list[str] = []

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                asked.append(self.path)
                self.send_response(404)
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None:
                pass

        self.asked = asked
        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self.server.server_port}"


@pytest.fixture
def listener() -> Iterator[Listener]:
    listener = Listener()
    thread = Thread(target=listener.server.serve_forever, name="listener")
    thread.start()
    yield listener
    listener.server.shutdown()
    thread.join()
    listener.server.server_close()


def browse(page: Path, *options: str) -> str:
    command = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
               "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update",
               "--disable-sync",
               f"--user-data-dir={page.parent / 'profile'}", *options, page.as_uri()]  # fmt: skip
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=100).stdout


@needs_browser
def test_a_browser_runs_nothing_of_the_texts_and_asks_nobody(tmp_path: Path, listener: Listener) -> None:
    page = tmp_path / "report.html"
    write_report(page, report(listener.address))
    seen = browse(page, "--dump-dom")
    assert "<title>It learns</title>" in seen
    assert "<script" not in seen
    assert seen.count("<svg") == 2
    assert listener.asked == []


@needs_browser
def test_the_listener_would_notice_a_page_that_loads_something(tmp_path: Path, listener: Listener) -> None:
    page = tmp_path / "report.html"
    page.write_text(f"<img src='{listener.address}/text.png'>")
    browse(page, "--dump-dom")
    assert listener.asked == ["/text.png"]


FRAME = """<!doctype html><meta charset="utf-8">
<iframe style="border: 0; height: 900px" srcdoc="{page}"></iframe><pre></pre>
<script>
const frame = document.querySelector("iframe"), found = [];
frame.onload = () => {{
  const page = frame.contentDocument, all = (within, names) => [...within.querySelectorAll(names)];
  all(page, "details").forEach(part => {{ part.open = true; }});
  for (const width of [375, 500, 600, 680, 768, 1200]) {{
    frame.style.width = `${{width}}px`;
    const say = (what, by) => {{ if (by > 1) found.push(`${{width}}: ${{what}} by ${{by}}`); }};
    const root = page.documentElement;
    say("page", root.scrollWidth - root.clientWidth);
    const right = part => Math.round(part.getBoundingClientRect().right);
    for (const card of all(page, ".card"))
      for (const part of all(card, "table, .value, figure, .talk, .world"))
        say(part.tagName, right(part) - right(card));
    for (const part of all(page, ".scroll, .value")) say(part.className, part.scrollWidth - part.clientWidth);
  }}
  document.querySelector("pre").textContent = `measured ${{JSON.stringify(found)}}`;
}};
</script>"""


def overflows(page: str, folder: Path) -> list[str]:
    """What does not fit into its card, its table or the page at several widths, as a browser lays it out."""
    (folder / "frame.html").write_text(FRAME.format(page=html.escape(page)))
    seen = browse(folder / "frame.html", "--window-size=1400,1000", "--virtual-time-budget=5000", "--dump-dom")
    (measured,) = re.findall(r"<pre>measured (.*?)</pre>", seen)
    found: list[str] = json.loads(html.unescape(measured))
    return found


@needs_browser
def test_tables_and_numbers_fit_into_their_cards_at_every_width(tmp_path: Path) -> None:
    arms = {
        "team_at_grpo": {"mean": 0.9712, "std": 0.0213, "seeds": [1, 2, 3, 4, 5], "tokens": 1_250_000},
        "leader_alone with what it learned": {"mean": 0.5, "std": 0.1, "seeds": [1, 2, 3], "tokens": 12},
    }
    page = render_report(
        msgspec.structs.replace(
            report(),
            numbers=(KeyNumber(label="tokens", before="12,345,678", after="123,456,789"),) * 5,
            tables=baseline_tables({"plan_path": arms}, told="exploitability"),
        )
    )
    assert overflows(page, tmp_path) == []


@needs_browser
def test_the_measure_would_notice_what_does_not_fit(tmp_path: Path) -> None:
    page = "<div class='card' style='width: 300px'><div class='scroll'><table style='width: 400px'></table></div></div>"
    assert "500: TABLE by 100" in overflows(page, tmp_path)


@needs_browser
@pytest.mark.parametrize(("scheme", "is_dark"), [("1", False), ("0", True)])
def test_a_browser_shows_the_page_light_or_dark_as_the_reader_prefers(
    tmp_path: Path, scheme: str, is_dark: bool
) -> None:
    page, picture = tmp_path / "report.html", tmp_path / "page.png"
    write_report(page, report())
    browse(page, f"--blink-settings=preferredColorScheme={scheme}", f"--screenshot={picture}", "--window-size=420,1500")
    pixels = imread(picture)
    # The corner is the page's ground: --page is #0f1216 in dark mode and #f6f7f9 in light mode.
    assert pixels[2, 2, :3].tolist() == pytest.approx([c / 255 for c in ((15, 18, 22) if is_dark else (246, 247, 249))])
    assert len({tuple(pixel) for pixel in pixels[::7, ::7, :3].reshape(-1, 3).tolist()}) > 20, "the page is not empty"
