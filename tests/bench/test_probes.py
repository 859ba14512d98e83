"""Probes: what mas makes of every graph, how outcomes are told from what nodes did, and the page that is written."""

import asyncio
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar

import pytest

from benchmarks.probes import child, judge, run
from benchmarks.probes.judge import Endless, Failed, Outcome, Trace, first_line
from benchmarks.probes.options import ProbesBench
from benchmarks.probes.page import BEGIN, END, check_page, markdown, write_page
from benchmarks.probes.run import WANTED, Cell, Report, run_probes
from benchmarks.probes.shapes import PROBES, Edge
from benchmarks.probes.systems import SYSTEMS, of_mas
from mas.core.errors import ConfigError, RunError

Mas = Callable[..., Any]

MODULES = {
    "langgraph": "langgraph",
    "agentchat": "autogen_agentchat",
    "agent_framework": "agent_framework",
    "google_adk": "google.adk",
    "crewai": "crewai",
    "pydantic_graph": "pydantic_graph",
}


def is_there(module: str) -> bool:
    """Whether a module can be imported; a package that it is in may be missing as well."""
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        return False


@pytest.mark.parametrize("probe", PROBES)
async def test_mas_keeps_its_promises(probe: str) -> None:
    outcome = await child.run_probe(of_mas, probe)
    assert outcome.kind == WANTED[probe], outcome.evidence


@pytest.mark.parametrize("system", MODULES)
async def test_a_framework_that_is_installed_is_understood(system: str) -> None:
    if not is_there(MODULES[system]):
        pytest.skip(f"{system} is not installed")
    module = import_module(f"benchmarks.probes.systems.of_{system}")
    assert (await child.run_probe(module, "depths")).kind == "right"


def test_every_probe_and_every_system_has_its_code() -> None:
    assert set(WANTED) == set(PROBES) == set(judge._JUDGES)
    folder = Path(of_mas.__file__).parent
    assert {path.stem.removeprefix("of_") for path in folder.glob("of_*.py")} == set(SYSTEMS)


def traced(probe: str, *steps: str) -> Trace:
    """A run whose nodes did this: `+a` begins, `-a` ends."""
    trace = Trace(PROBES[probe])
    for step in steps:
        name = step[1:]
        trace.steps.append(f"{'begin' if step[0] == '+' else 'end'} {name}")
        trace.visits[name] += step[0] == "+"
    return trace


@pytest.mark.parametrize(
    ("probe", "steps", "kind"),
    [
        ("unreachable", ("+root", "+b"), "wrong"),
        ("unreachable", ("+root", "+lost"), "wrong"),
        ("endless", ("+a", "+b"), "wrong"),
        ("untaken", ("+b", "-b", "+other", "-other", "+d"), "right"),
        ("untaken", ("+b", "-b", "+other", "-other"), "silent stall"),
        ("untaken", ("+b", "-b", "+d", "+other", "-other", "+d"), "wrong"),
        ("untaken", ("+other", "-other", "+d", "+b", "-b"), "wrong"),
        ("depths", ("+c", "-c", "+d"), "right"),
        ("depths", ("+c", "-c"), "silent stall"),
        ("depths", ("+d", "+c", "-c", "+d"), "wrong"),
        ("depths", ("+c", "+d", "-c"), "wrong"),
        ("slow", ("+slow", "+after", "-slow"), "right"),
        ("slow", ("+slow", "-slow", "+after"), "wrong"),
        ("slow", ("+slow", "-slow"), "silent stall"),
        ("route", ("+choice",), "silent stall"),
        ("route", ("+choice", "+c"), "wrong"),
        ("type", ("+giver", "+taker"), "wrong"),
        ("type", ("+giver",), "silent stall"),
        ("failing", ("+good", "+bad", "-good", "+after"), "right"),
        ("failing", ("+good", "+bad"), "wrong"),
    ],
)
def test_an_outcome_follows_from_what_the_nodes_did(probe: str, steps: tuple[str, ...], kind: str) -> None:
    assert judge.judge(probe, traced(probe, *steps), None).kind == kind


def test_errors_and_cycles_without_end_are_told_apart() -> None:
    trace = traced("depths", "+c", "-c", "+d")
    assert judge.judge("depths", trace, ValueError("no")) == Outcome("error at run", "ValueError: no")
    assert judge.judge("depths", trace, Endless()).kind == "wrong"


async def test_a_node_works_fails_and_ends_a_cycle_that_nothing_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judge, "MOST_VISITS", 2)
    trace = Trace(PROBES["failing"])
    assert await trace.work("root") == "ok"
    with pytest.raises(Failed, match="bad fails on purpose"):
        await trace.work("bad")
    assert trace.steps == ["begin root", "end root", "begin bad"]
    await trace.work("root")
    with pytest.raises(Endless):
        await trace.work("root")


class Refusing:
    """A framework that refuses every graph, or whose probe has a bug."""

    NOT_OFFERED: ClassVar = {"route": "no names"}

    def __init__(self, error: Exception) -> None:
        self.error = error

    def build(self, shape: object, work: object) -> object:
        raise self.error


async def test_a_refusal_is_an_outcome_and_a_bug_of_a_probe_is_not() -> None:
    assert (await child.run_probe(Refusing(ValueError("no")), "type")).kind == "refused at build"
    assert (await child.run_probe(Refusing(ValueError("no")), "route")) == Outcome("not offered", "no names")
    with pytest.raises(NameError):
        await child.run_probe(Refusing(NameError("typo")), "type")


class Hanging:
    """A framework whose run never ends."""

    NOT_OFFERED: ClassVar[dict[str, str]] = {}

    def build(self, shape: object, work: object) -> Callable[[], Any]:
        return lambda: asyncio.Event().wait()


async def test_a_run_that_never_ends_is_a_silent_stall(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child, "RUN_LIMIT_S", 0.01)
    assert (await child.run_probe(Hanging(), "type")).kind == "silent stall"


def test_an_error_is_one_short_line_without_its_traceback_or_group() -> None:
    assert first_line(ValueError("a\n  b Traceback (most recent call last): File x")) == "ValueError: a b"
    assert first_line(ExceptionGroup("group", [KeyError("k")])) == "KeyError: 'k'"
    assert len(first_line(ValueError("x" * 500))) == 160


async def test_every_probe_runs_in_a_process_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "PROBES", {"type": PROBES["type"]})
    report = await run_probes(ProbesBench(systems=("mas",)), lambda text: None)
    ((cell),) = report.cells
    assert (cell.system, cell.probe, cell.kind) == ("mas", "type", "refused at build")
    assert report.versions == {"mas": "0.1.0"}
    assert report.exit_code == 0


@pytest.mark.skipif(is_there("crewai"), reason="CrewAI is installed")
async def test_a_framework_that_is_not_there_is_said_to_be_missing() -> None:
    report = await run_probes(ProbesBench(systems=("crewai",)), lambda text: None)
    assert report.absent == {"crewai": "No module named 'crewai'"}
    assert (report.cells, report.versions) == ((), {})


async def test_a_probe_that_breaks_or_hangs_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RunError, match=r"(?s)probe 'none' of 'mas' broke: .*KeyError"):
        await run._probe(ProbesBench().python("mas"), "mas", "none")
    monkeypatch.setattr(run, "LIMIT_S", 0.0)
    with pytest.raises(RunError, match="was not over after 0 s"):
        await run._probe(ProbesBench().python("mas"), "mas", "type")


def report(kind: judge.Kind = "refused at build") -> Report:
    """Every probe of mas, and CrewAI missing."""
    cells = [Cell(system="mas", probe=probe, kind=wanted, evidence="a | b") for probe, wanted in WANTED.items()]
    cells[0] = Cell(system="mas", probe="unreachable", kind=kind, evidence="x")
    return Report(
        python="3.11", versions={"mas": "0.1.0"}, absent={"crewai": "gone"}, cells=tuple(cells), date="2026-01-02T"
    )


def test_the_exit_code_is_1_where_mas_breaks_a_promise() -> None:
    assert report().exit_code == 0
    assert report("wrong").exit_code == 1


def test_the_page_keeps_what_stands_around_the_tables(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"# Above\n{BEGIN}\nold\n{END}\nbelow\n")
    check_page(page)
    write_page(page, report())
    once = page.read_text()
    write_page(page, report())
    assert page.read_text() == once
    assert once.startswith(f"# Above\n{BEGIN}\n")
    assert once.endswith(f"{END}\nbelow\n")
    assert "old" not in once
    for part in (
        "On 2026-01-02, Python 3.11",
        "CrewAI: not probed, gone",
        "| type | mas | *refused at build*: a \\| b |",
    ):
        assert part in once


def test_the_page_links_every_probe_and_system_to_its_code() -> None:
    text = markdown(report())
    docs = Path(__file__).parents[2] / "docs"
    for link in ("../benchmarks/probes/shapes.py", "../benchmarks/probes/systems/of_mas.py"):
        assert f"]({link})" in text
        assert (docs / link).is_file()


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("--system", "langraph"), "--system langraph: no such system. Did you mean 'langgraph'"),
        (("--venvs", "none"), "--venvs none: no such directory"),
        (("--page", "none.md"), "--page none.md: name a page with one line '<!-- probes -->'"),
        (("--json", "none/found.json"), "none/found.json cannot be written"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(
    words: tuple[str, ...], text: str, mas: Mas, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    ran = mas("bench", "probes", *words)
    assert ran.code == 2
    assert text in ran.err
    assert ran.err.count("\n") == 1


def test_the_command_prints_the_table_and_writes_the_file(
    mas: Mas, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def found(options: ProbesBench, tell: Callable[[str], None]) -> Report:
        assert options.systems == ("mas", "crewai")
        return report("wrong")

    monkeypatch.setattr(run, "run_probes", found)
    ran = mas("bench", "probes", "--system", "mas", "--system", "crewai", "--json", str(tmp_path / "found.json"))
    assert (ran.code, ran.err) == (1, "")
    assert "refused at build" in ran.out
    assert '"probe": "unreachable"' in (tmp_path / "found.json").read_text()


def test_a_system_runs_in_its_own_environment_if_it_has_one(tmp_path: Path) -> None:
    own = tmp_path / "crewai" / "bin" / "python"
    own.parent.mkdir(parents=True)
    own.touch()
    options = ProbesBench(venvs=tmp_path)
    assert options.python("crewai") == str(own)
    assert options.python("mas") == ProbesBench().python("mas") != str(own)


def test_shapes_name_no_node_that_is_not_there() -> None:
    for shape in PROBES.values():
        names = {node.name for node in shape.nodes}
        assert {name for edge in shape.edges for name in (edge.source, edge.target)} <= names
    assert PROBES["route"].out_of("choice") == (Edge("choice", "b", "left"), Edge("choice", "c", "rihgt"))


def test_a_misuse_of_the_options_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no such system"):
        ProbesBench(systems=("x",))
