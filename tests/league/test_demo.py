"""The league's demonstration at a small size: what it leaves behind, and that it goes on where it was."""

import io
from collections import defaultdict
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from parts import SKILLED
from rich.console import Console

from mas.core.errors import ConfigError, EnvironmentFault, RunDirectoryError
from mas.league import demo, match
from mas.league.demo import DemoTerms, run_demo
from mas.league.match import PlayedGame

pytest.importorskip("pyspiel")


@pytest.fixture(scope="module")
def terms(base_for: Callable[..., Any]) -> DemoTerms:
    base_for("two_player", SKILLED)
    tiny = [f"model.tiny.{name}={value}" for name, value in SKILLED.tiny.model_dump(exclude_defaults=True).items()]
    short = ("train.tasks_per_step=4", "train.eval_tasks=2", "train.eval_every=0", "model.lora.rank=4")
    return DemoTerms(snapshots=(0, 2, 4), every=2, games=10, overrides=(*short, *tiny))


class Outline(HTMLParser):
    """Headings, tables with their cells, and figures of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.headings, self.cells, self.figures = list[str](), defaultdict[str, list[str]](list), 0
        self._in, self._table, self.children = "", "", list[list[str]]()
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._in = tag
        self.figures += tag == "figure"
        if tag == "table":
            self._table = dict(attrs).get("class") or ""
            self.children.append([])
        elif tag in {"caption", "thead", "tbody"}:
            self.children[-1].append(tag)

    def handle_endtag(self, tag: str) -> None:
        self._in = ""

    def handle_data(self, data: str) -> None:
        if self._in == "h2":
            self.headings.append(data)
        elif self._in in {"td", "th"}:
            self.cells[self._table].append(data)


@pytest.mark.nightly(of=16)
def test_the_demo_leaves_a_page_and_plays_nothing_twice(
    terms: DemoTerms, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, said = tmp_path / "demo", io.StringIO()
    table = run_demo(out, Console(file=said, width=120), terms)
    names = {"step 0", "step 2", "step 4", "random", "solved"}
    assert {row.name for row in table.standings} == names
    assert [row.payoff for row in table.standings] == sorted((row.payoff for row in table.standings), reverse=True)
    assert all(row.paid.low < row.payoff < row.paid.high and row.games == 40 for row in table.standings)
    assert f"({table.standings[0].paid.low:+.2f} to {table.standings[0].paid.high:+.2f})" in said.getvalue()
    assert str(out / "index.html") in said.getvalue()

    page = Outline((out / "index.html").read_text())
    pairs = ["Who wins against whom", "Who gets what from whom", "Who differs from whom"]
    assert page.headings == ["Ladder", *pairs, "Games, move by move", "Play it again"]
    assert names <= set(page.cells["ladder"])
    assert names <= set(page.cells["heat"])
    assert sum(cell[:1] in "+-" for cell in page.cells["heat"]) == 5 * 4, "all pairs, and nobody against itself"
    assert sum(cell[-1:] == "%" for cell in page.cells["heat"]) == 5 * 4
    assert page.figures >= 10 * 3, "a game of each pairing has two moves or three"
    assert all("caption" not in children[1:] for children in page.children), "a caption comes first in its table"
    assert "<script" not in (out / "index.html").read_text()
    assert list(out.glob("league.db-*")) == [], "the league is closed"

    async def refused(*given: Any) -> PlayedGame:
        raise AssertionError("a game is played again")

    files = [out / "games.jsonl", out / "ladder.csv", *sorted((out / "train" / "checkpoints").rglob("*"))]
    before = [(path.read_bytes(), path.stat().st_mtime_ns) for path in files if path.is_file()]
    monkeypatch.setattr(match, "play", refused)
    monkeypatch.chdir(tmp_path)
    run_demo(Path("demo"), Console(file=io.StringIO()), terms)
    after = [(path.read_bytes(), path.stat().st_mtime_ns) for path in files if path.is_file()]
    assert [content for content, _ in after] == [content for content, _ in before]
    assert after[2:] == before[2:], "nothing is trained again"


@pytest.mark.nightly(of=16)
def test_a_demo_that_broke_off_goes_on(terms: DemoTerms, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    played, whole = list[str](), match.play

    async def dies(game: Any, fixture: Any, players: Any) -> PlayedGame:
        found = await goes_on(game, fixture, players)
        if len(played) > 30:
            raise EnvironmentFault("out of cards")
        return found

    async def goes_on(game: Any, fixture: Any, players: Any) -> PlayedGame:
        found = await whole(game, fixture, players)
        played.append(fixture.id)
        return found

    monkeypatch.setattr(match, "play", dies)
    with pytest.raises(EnvironmentFault, match="out of cards"):
        run_demo(tmp_path, Console(file=io.StringIO()), terms)
    assert not (tmp_path / "index.html").exists()

    begun = len(played)
    monkeypatch.setattr(match, "play", goes_on)
    run_demo(tmp_path, Console(file=io.StringIO()), terms)
    assert (tmp_path / "index.html").exists()
    assert len(set(played)) == 100
    assert len(played) == 100 + begun - 30, "what was kept is not played again"


def test_a_demo_of_other_terms_is_refused(terms: DemoTerms, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RunDirectoryError, match="file"):
        run_demo(tmp_path / "file", Console(file=io.StringIO()), terms)


def test_a_demo_without_open_spiel_trains_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> Any:
        raise ConfigError("needs mas[open-spiel]")

    monkeypatch.setattr(demo, "open_world", missing)
    with pytest.raises(ConfigError, match="open-spiel"):
        run_demo(tmp_path / "x", Console(file=io.StringIO()))
    assert not (tmp_path / "x").exists()
