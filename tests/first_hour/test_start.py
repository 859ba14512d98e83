"""How soon the command says something: what its start imports, and how much of the processor it has used by then."""

import os
import pty
import resource
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from mas.cli import PLACES, CommandsByName, app

HEAVY = {
    *("torch", "transformers", "pydantic", "hydra", "omegaconf", "networkx", "numpy", "matplotlib", "tensorboard"),
    *("jinja2", "starlette", "httpx", "openai", "opentelemetry"),
}
MAIN = "from mas.cli import main\nmain()\n"


def loaded(code: str, *words: str) -> set[str]:
    code = f"import sys\ntry:\n    {code}\nexcept SystemExit: pass\nprint('LOADED', *sys.modules)"
    done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, check=True)
    return set(done.stdout.partition("LOADED")[2].split())


def cpu_s(*words: str) -> float:
    """The least processor time of three runs, seconds; other work on the machine does not count."""
    found = []
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, *words], capture_output=True, check=False)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        found.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return min(found)


def test_importing_mas_loads_nothing_heavy() -> None:
    assert not loaded("import mas") & HEAVY
    assert cpu_s("-c", "import mas") < 0.3


@pytest.mark.parametrize("words", [("--help",), ("--version",), ("trian",)])
def test_help_and_a_typo_load_nothing_heavy(words: tuple[str, ...]) -> None:
    typers_own = {"pydantic"} if words == ("trian",) else set[str]()  # typer reads options with it
    assert not loaded("from mas.cli import main; main()", *words) & (HEAVY - typers_own)
    assert cpu_s("-c", MAIN, *words) < 0.5


def test_a_command_that_trains_loads_what_draws_and_logs_only_when_it_needs_it() -> None:
    assert not loaded("import mas.commands.train") & {"torch", "transformers", "matplotlib", "tensorboard", "jinja2"}


def test_the_help_of_all_commands_is_what_each_command_says_of_itself() -> None:
    commands = CommandsByName()
    own = {name: " ".join((commands[name].help or "").split("\n\n")[0].split()) for name in PLACES}
    assert {name: place.help for name, place in PLACES.items()} == own


def all_commands() -> list[tuple[str, ...]]:
    """The words of every command, those within others too."""
    commands = CommandsByName()
    below = {name: getattr(commands[name], "commands", {}) for name in PLACES}
    return [(), *((name,) for name in PLACES), *((name, one) for name, inner in below.items() for one in inner)]


def test_the_help_of_a_flag_names_no_type_and_usage_lines_have_single_brackets() -> None:
    found = {words: CliRunner().invoke(app, [*words, "--help"]).output for words in all_commands()}
    assert [words for words, text in found.items() if "Usage: " not in text or "--help" not in text] == []
    assert [words for words, text in found.items() if "<bool>" in text or "[[" in text or "...]" in text] == []


def cpu_of_s(pid: int) -> float:
    """Processor seconds that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="processor time of a process is read from /proc")
@pytest.mark.parametrize(
    "words",
    [
        ("train", "scenario=relay"),
        ("eval", "runs/none"),
        ("demo", "--tiny"),
        ("league", "table"),
        ("doctor", "scenario=relay"),
        ("check", "at2po"),
    ],
)
def test_a_terminal_gets_its_first_word_within_a_second(words: tuple[str, ...], tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", MAIN, *words], stdin=theirs, stdout=theirs, stderr=theirs, cwd=tmp_path
    )
    try:
        first = os.read(ours, 1)
        used_s = cpu_of_s(process.pid)
        rest = os.read(ours, 100)
    finally:
        process.kill()
        process.wait()
        os.close(ours)
        os.close(theirs)
    assert f"mas {words[0]}: loading" in (first + rest).decode(errors="replace")
    assert used_s < 1.0
    assert list(tmp_path.iterdir()) == []


def test_what_is_no_terminal_is_told_nothing_before_the_command_speaks(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", MAIN, "eval", "none"], capture_output=True, text=True, cwd=tmp_path, check=False
    )
    assert done.returncode == 2
    assert "loading" not in done.stdout + done.stderr
