"""The report as Markdown, between two marks of a page, and as a table for the terminal."""

from pathlib import Path

from rich.table import Table

from benchmarks.probes.run import Report
from benchmarks.probes.shapes import PROBES
from benchmarks.probes.systems import SYSTEMS
from mas.core.errors import ConfigError
from mas.observe.files import write_bytes_atomic

BEGIN = "<!-- probes -->"
END = "<!-- end of probes -->"
_CODE = "../benchmarks/probes"


def check_page(path: Path) -> None:
    """Find out before minutes of probing whether there is a place for the tables.

    Raises:
        ConfigError: the page is not there, or does not have both marks once.
    """
    text = path.read_text(encoding="utf-8") if path.is_file() else ""
    if text.count(BEGIN) != 1 or text.count(END) != 1 or text.index(BEGIN) > text.index(END):
        raise ConfigError(f"--page {path}: name a page with one line {BEGIN!r} and, below it, one line {END!r}")


def write_page(path: Path, report: Report) -> None:
    """Put the tables between the marks; what stands around them stays."""
    text = path.read_text(encoding="utf-8")
    before, after = text.partition(BEGIN)[0], text.partition(END)[2]
    write_bytes_atomic(path, f"{before}{BEGIN}\n{markdown(report)}{END}{after}".encode())


def markdown(report: Report) -> str:
    """One table of outcomes, one of what was seen."""
    systems = list(report.versions)
    kinds = {(cell.system, cell.probe): cell.kind for cell in report.cells}
    names = [f"[{SYSTEMS[name]}]({_CODE}/systems/of_{name}.py) {report.versions[name]}" for name in systems]
    lines = [
        f"On {report.date[:10]}, Python {report.python}:",
        "",
        _row("probe", *names),
        _row(*["---"] * (len(systems) + 1)),
    ]
    for probe, shape in PROBES.items():
        title = f"[{probe}]({_CODE}/shapes.py): {shape.asks}"
        lines.append(_row(title, *(kinds[system, probe] for system in systems)))
    lines += [f"\n{SYSTEMS[name]}: not probed, {reason}" for name, reason in report.absent.items()]
    lines += ["", "What was seen:", "", _row("probe", "system", "evidence"), _row("---", "---", "---")]
    for probe in PROBES:
        for cell in report.cells:
            if cell.probe == probe:
                lines.append(_row(probe, SYSTEMS[cell.system], f"*{cell.kind}*: {_escaped(cell.evidence)}"))
    return "\n".join(lines) + "\n"


def table(report: Report) -> Table:
    """Outcomes for the terminal."""
    kinds = {(cell.system, cell.probe): cell.kind for cell in report.cells}
    found = Table(title="mas bench probes")
    found.add_column("probe")
    for name, version in report.versions.items():
        found.add_column(f"{SYSTEMS[name]}\n{version}", overflow="fold")
    for probe in PROBES:
        found.add_row(probe, *(kinds[system, probe] for system in report.versions))
    return found


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def _escaped(text: str) -> str:
    """Text of others, so that no character of it is Markdown."""
    return "".join(f"\\{character}" if character in r"\|*_`[]<>" else character for character in text)
