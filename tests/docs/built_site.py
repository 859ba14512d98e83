"""What a page of the built site holds and asks for, read from its HTML."""

import re
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag

COUNTED = ("h1", "h2", "h3", "h4", "table", "tr", "th", "td", "li", "pre", "img", "em", "strong", "blockquote")
"""Elements that a page shows as often on the site as CommonMark says."""
_LOADED = {**dict.fromkeys(("script", "img", "iframe", "source", "video"), "src"), "object": "data", "link": "href"}
_NOT_LOADED = {"canonical", "prev", "next", "alternate"}
_FROM_ELSEWHERE = re.compile(r"(?:url\(|@import\s)['\"]?((?:https?:)?//[^'\")]+)")


class PageHtml(HTMLParser):
    """One page. `shown`: how often its article has each element; `links`, `loads`, `anchors`: as written."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.shown: Counter[str] = Counter()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.anchors: set[str] = set()
        self._in_article = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.anchors |= {value for name in ("id", "name") if (value := given.get(name))}
        self._in_article |= tag == "article"
        if self._in_article and tag in COUNTED:
            self.shown[tag] += 1
        if tag == "a" and (link := given.get("href")):
            self.links.append(link)
        place = given.get(_LOADED.get(tag, ""))
        if place and given.get("rel") not in _NOT_LOADED:
            self.loads.append(place)

    def handle_endtag(self, tag: str) -> None:
        if tag == "article":
            self._in_article = False


def pages_of(site: Path) -> dict[Path, PageHtml]:
    """Every page of a built site; not the one for addresses that do not exist, whose links begin at the root."""
    paths = [path for path in site.rglob("*.html") if path.name != "404.html"]
    return {path: PageHtml(path.read_text(encoding="utf-8")) for path in paths}


def broken_links(pages: dict[Path, PageHtml]) -> list[tuple[str, str]]:
    """Each page with each of its links within the site that leads to no file, or to no anchor of one."""
    broken = []
    for path, page in pages.items():
        for link in (*page.links, *page.loads):
            if re.match(r"[a-z]+:|//", link):
                continue
            file, anchor = urldefrag(link)
            target = (path.parent / unquote(file)).resolve() if file else path
            if target.is_dir():
                target /= "index.html"
            has_anchor = not anchor or target not in pages or unquote(anchor) in pages[target].anchors
            if not target.is_file() or not has_anchor:
                broken.append((path.name, link))
    return broken


def outside_loads(site: Path, pages: dict[Path, PageHtml]) -> list[tuple[str, str]]:
    """Each file of the site with what it loads from elsewhere: by an element, or by a style sheet."""
    loads = [(path.name, place) for path, page in pages.items() for place in page.loads]
    found = [(name, place) for name, place in loads if re.match(r"https?:|//", place)]
    for path in (*site.rglob("*.css"), *site.rglob("*.svg")):
        text = path.read_text(encoding="utf-8")
        found += [(path.name, place) for place in _FROM_ELSEWHERE.findall(text)]
    return found
