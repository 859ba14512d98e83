"""The site of the docs: built strictly, whole, and complete without a network."""

import functools
import http.server
import importlib.util
import os
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from built_site import COUNTED, PageHtml, broken_links, outside_loads, pages_of
from markdown_it import MarkdownIt
from pages import ROOT

CHROMIUM = Path("/usr/bin/chromium")
pytestmark = [
    pytest.mark.nightly(of=16),
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.skipif(
        any(importlib.util.find_spec(name) is None for name in ("material", "mkdocstrings_handlers")),
        reason="mkdocs-material and mkdocstrings-python are not both installed: pip install 'mas[docs]'",
    ),
]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built as `make docs` does."""
    path = tmp_path_factory.mktemp("built") / "site"
    words = [sys.executable, "-m", "mkdocs", "build", "--site-dir", str(path)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(words, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    said = done.stdout + done.stderr
    assert (done.returncode, [line for line in said.splitlines() if not line.startswith("INFO")]) == (0, [])
    return path


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, PageHtml]:
    return pages_of(site)


def test_a_link_or_a_page_that_is_missing_fails_the_build(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "index.md").write_text("# One\n\n[two](two.md) [below](#nowhere)\n")
    (tmp_path / "docs" / "unlisted.md").write_text("# Unlisted\n")
    settings = (ROOT / "mkdocs.yml").read_text()
    kept = settings[settings.index("validation:") : settings.index("markdown_extensions:")]
    (tmp_path / "mkdocs.yml").write_text(f"site_name: x\nstrict: true\nnav: [index.md]\n{kept}")
    words = [sys.executable, "-m", "mkdocs", "build"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert [said for said in ("'two.md'", "'#nowhere'", "unlisted.md") if said not in done.stderr] == []


@pytest.fixture(scope="module")
def hook() -> ModuleType:
    """The module docs/site/links.py, which mkdocs loads by its path."""
    spec = importlib.util.spec_from_file_location("links", ROOT / "docs" / "site" / "links.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_links_to_sources_lead_to_their_pages_and_code_stays_as_it_is(hook: ModuleType) -> None:
    text = "[a](../../mas/cli.py) [b](../teams.md#x) [c](../../README.md) [d](https://a.b/c.md) [e](#f)\n"
    code = "```text\n[a](../../mas/cli.py)\n```\n"
    wanted = "[a](../source/mas/cli.py.md) [b](../teams.md#x) [c](../index.md) [d](https://a.b/c.md) [e](#f)\n"
    assert hook.rewritten("docs/tutorials/x.md", text + code) == wanted + code
    assert hook.rewritten("CHANGELOG.md", "[g](docs/gateway.md#a)") == "[g](../gateway.md#a)"
    assert list(
        hook.linked("docs/x.md", "[a](../mas/cli.py) [b](teams.md) [c](../../etc/passwd) [d](../mas/no.py)")
    ) == ["mas/cli.py"]


def test_a_source_that_holds_fences_is_one_block(hook: ModuleType) -> None:
    page = hook.source_page("docs/quickstart.md")
    assert page.count("````") == 2
    assert "- `links.py`" in hook.source_page("docs/site")


def test_a_pattern_of_the_navigation_is_every_page_that_no_other_entry_names(hook: ModuleType) -> None:
    nav = [{"One": "a/x.md"}, {"All": ["a/*.md", {"Deep": ["b/*/c.md"]}]}]
    pages = ["a/x.md", "a/y.md", "a/z.md", "b/1/c.md", "b/c.md"]
    assert hook.expanded(nav, pages) == [{"One": "a/x.md"}, {"All": ["a/y.md", "a/z.md", {"Deep": ["b/1/c.md"]}]}]


def test_every_page_shows_what_commonmark_shows(pages: dict[Path, PageHtml], site: Path) -> None:
    markdown = MarkdownIt("commonmark").enable("table")
    differing = {}
    sources = [path for path in (ROOT / "docs").rglob("*.md") if path.parent.name != "reference"]
    for source in (ROOT / "README.md", *sources):
        name = "index.md" if source.name == "README.md" else source.relative_to(ROOT / "docs").as_posix()
        wanted = PageHtml(f"<article>{markdown.render(source.read_text(encoding='utf-8'))}</article>").shown
        shown = pages[(site / name).with_suffix(".html")].shown
        if wanted != shown:
            differing[name] = {tag: (wanted[tag], shown[tag]) for tag in COUNTED if wanted[tag] != shown[tag]}
    assert differing == {}
    assert len(sources) > 100


def test_every_link_and_anchor_of_the_site_resolves(pages: dict[Path, PageHtml]) -> None:
    assert broken_links(pages) == []
    assert sum(len(page.links) for page in pages.values()) > 5000


def test_the_site_loads_nothing_from_elsewhere(site: Path, pages: dict[Path, PageHtml]) -> None:
    assert outside_loads(site, pages) == []
    assert Counter(place.rpartition(".")[2] for page in pages.values() for place in page.loads)["css"] > 200


def test_docstrings_of_the_public_names_are_on_the_site(pages: dict[Path, PageHtml], site: Path) -> None:
    import mas

    anchors = pages[site / "reference" / "python.html"].anchors
    awaited = {f"{name}_async" for name in ("train", "evaluate")}
    assert {f"mas.{name}" for name in set(mas.__all__) - {"__version__"} - awaited} <= anchors
    assert {"mas.Run.evaluate", "mas.Team.load", "mas.League.play", "mas.protocols.vote"} <= anchors
    contracts = pages[site / "reference" / "contracts.html"].anchors
    for name in ("environment.Environment", "scenario.Scenario", "role.Role", "engine.Engine", "bus.Bus"):
        assert f"mas.core.{name}" in contracts


@pytest.fixture(scope="module")
def address(site: Path) -> Iterator[str]:
    handler = functools.partial(_Quiet, directory=str(site))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()
        thread.join()


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: Any) -> None: ...


SEEN = ("index.html", "concepts.html", "tutorials/1_first_team.html", "reference/contracts.html", "comparison.html")


@pytest.mark.skipif(not CHROMIUM.exists(), reason="there is no /usr/bin/chromium")
def test_in_a_browser_pages_fit_search_finds_and_no_request_leaves_the_site(address: str) -> None:
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    asked: list[str] = []
    said: list[str] = []
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=str(CHROMIUM), args=["--no-sandbox"])
        try:
            for width in (390, 1400):
                page = browser.new_page(viewport={"width": width, "height": 900})
                page.set_default_timeout(120_000)
                page.on("request", lambda request: asked.append(request.url))
                page.on("console", lambda message: said.append(message.text) if message.type == "error" else None)
                page.on("pageerror", lambda error: said.append(str(error)))
                for name in SEEN:
                    page.goto(address + name)
                    assert page.evaluate("document.documentElement.scrollWidth") == width, (name, width)
                page.goto(address + "index.html")
                if width == 390:
                    page.click("label.md-header__button[for=__search]")
                page.locator("input.md-search__input").press_sequentially("exploitability")
                page.wait_for_selector(".md-search-result__item a[href*='league']")
                page.close()
        finally:
            browser.close()
    assert said == []
    assert [url for url in asked if not url.startswith((address, "data:", "blob:"))] == []
    assert any("search_index.json" in url for url in asked)
