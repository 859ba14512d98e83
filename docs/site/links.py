"""A hook of mkdocs: files of the repository that pages link to become pages of the site, and README.md its first page.

The pages in docs/ are read in the repository, too, so that their links to sources are paths there. The site holds each
such file below `source/`: Markdown as a page, everything else as a code block, a folder as a list of its files.
"""

import posixpath
import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[2]
HOME = "README.md"
ALWAYS = (
    *("CONTRIBUTING.md", "CHANGELOG.md"),
    *sorted(path.relative_to(ROOT).as_posix() for path in ROOT.glob("mas/scenarios/*/README.md")),
)
"""Pages of the site beside those of docs/, linked or not."""
LANGUAGES = {".py": "python", ".yaml": "yaml", ".sbatch": "bash", ".ipynb": "json", ".jsonl": "json", ".toml": "toml"}
_FENCED = re.compile(r"^( *)(```+).*?^\1\2 *$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"(?<=\]\()(?!https?://|mailto:|#)([^)\s#]+)(#[^)\s]*)?(?=\))")


def site_path(path: str) -> str:
    """Where a file of the repository is among the sources of the site."""
    if path == HOME:
        return "index.md"
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    return f"source/{path if path.endswith('.md') else f'{path}.md'}"


def target(page: str, link: str) -> str:
    """The path in the repository that a link of a page names."""
    return posixpath.normpath(posixpath.join(posixpath.dirname(page), link))


def rewritten(page: str, text: str) -> str:
    """A page with its links as the site has them. `page`: its path in the repository."""
    here = posixpath.dirname(site_path(page))

    def rewrite(match: re.Match[str]) -> str:
        return posixpath.relpath(site_path(target(page, match[1])), here or ".") + (match[2] or "")

    return "".join(part if is_code else _LINK.sub(rewrite, part) for part, is_code in _parts(text))


def linked(page: str, text: str) -> Iterator[str]:
    """Paths of files outside of docs/ that a page links to."""
    for part, is_code in _parts(text):
        for match in () if is_code else _LINK.finditer(part):
            path = target(page, match[1])
            if not path.startswith(("docs/", "..")) and (ROOT / path).exists():
                yield path


def _parts(text: str) -> Iterator[tuple[str, bool]]:
    end = 0
    for match in _FENCED.finditer(text):
        yield text[end : match.start()], False
        yield match[0], True
        end = match.end()
    yield text[end:], False


def source_page(path: str) -> str:
    """The page that shows a file or a folder of the repository."""
    file = ROOT / path
    head = f"---\nsearch:\n  exclude: true\n---\n# {path}\n\n"
    if file.is_dir():
        names = sorted(each.name for each in file.iterdir() if not each.name.startswith((".", "_")))
        return head + "".join(f"- `{name}`\n" for name in names)
    text = file.read_text(encoding="utf-8")
    fence = "`" * max([3, *(len(run) + 1 for run in re.findall("`{3,}", text))])
    return f"{head}{fence}{LANGUAGES.get(file.suffix, 'text')}\n{text.rstrip()}\n{fence}\n"


def expanded(nav: Any, pages: list[str]) -> Any:
    """A navigation with every pattern, such as `algorithms/*.md`, in place of it the pages that match and that no other
    entry names."""
    named = set(_strings(nav))

    def expand(entry: Any) -> list[Any]:
        if isinstance(entry, dict):
            return [{title: expand_all(below) for title, below in entry.items()}]
        if "*" not in entry:
            return [entry]
        return [page for page in pages if PurePosixPath(page).match(entry) and page not in named]

    def expand_all(below: Any) -> Any:
        return below if isinstance(below, str) else [new for entry in below for new in expand(entry)]

    return expand_all(nav)


def _strings(nav: Any) -> Iterator[str]:
    if isinstance(nav, str):
        yield nav
        return
    for below in nav.values() if isinstance(nav, dict) else nav:
        yield from _strings(below)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the first page, the files that pages link to and those that these link to; then write out the navigation."""
    waiting = [HOME, *ALWAYS]
    waiting += [f"docs/{file.src_uri}" for file in files.documentation_pages()]
    seen = set[str]()
    while waiting:
        path = waiting.pop()
        if path in seen:
            continue
        seen.add(path)
        is_page = path.endswith(".md")
        text = (ROOT / path).read_text(encoding="utf-8") if is_page else source_page(path)
        if not path.startswith("docs/"):
            files.append(File.generated(config, site_path(path), content=rewritten(path, text) if is_page else text))
        if is_page:
            waiting += linked(path, text)
    config.nav = expanded(config.nav, sorted(file.src_uri for file in files.documentation_pages()))
    return files


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Links of the pages in docs/; those of the others are rewritten where they are made."""
    if page.file.generated_by is None:
        return rewritten(f"docs/{page.file.src_uri}", markdown)
    return markdown
