"""The command `mas sandbox`, and the example of the page."""

import sys
from collections.abc import Callable
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from pages import blocks

from mas.sandbox.mechanism import Mechanism

Mas = Callable[..., Any]


def test_it_says_what_works_and_how_fast(mas: Mas, walls: Mechanism) -> None:
    ran = mas("sandbox", "--walls", walls, "--measure", "5")
    assert ran.code == 0
    assert ran.out.startswith(f"{walls}\tworks")
    assert "programs per second" in ran.out
    assert "0 of 5 did not end well" in ran.out


def test_a_file_runs_with_its_input_and_ends_as_it_likes(
    mas: Mas, walls: Mechanism, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "program.py"
    path.write_text("import sys\nprint(input())\nsys.exit(int(input()))\n")
    for code in (0, 3):
        monkeypatch.setattr(sys, "stdin", StringIO(f"read\n{code}\n"))
        ran = mas("sandbox", str(path), "--walls", walls)
        assert (ran.code, ran.out, ran.err) == (code, "read\n", "")


class Terminal(StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("kind", [Terminal, StringIO])
def test_a_terminal_obeys_no_program_and_a_file_has_what_it_wrote(
    mas: Mas, walls: Mechanism, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: type[StringIO]
) -> None:
    said, path = "\x1b[31mred\x1b]52;c;aGk=\x07\tend\n", tmp_path / "program.py"
    path.write_text(f"import sys\nfor stream in (sys.stdout, sys.stderr): stream.write({said!r})")
    streams = {name: kind() for name in ("stdout", "stderr")}
    for name, stream in {"stdin": StringIO(), **streams}.items():
        monkeypatch.setattr(sys, name, stream)
    assert mas("sandbox", str(path), "--walls", walls).code == 0
    shown = "\\x1b[31mred\\x1b]52;c;aGk=\\x07\tend\n" if kind is Terminal else said
    assert [stream.getvalue() for stream in streams.values()] == [shown, shown]


def test_a_file_that_takes_too_long_says_so(
    mas: Mas, walls: Mechanism, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "program.py"
    path.write_text("while True: pass")
    monkeypatch.setattr(sys, "stdin", StringIO())
    ran = mas("sandbox", str(path), "--walls", walls, "--time", "0.3")
    assert ran.code == 1
    assert ran.err.startswith("timeout after 0.")


def test_what_cannot_be_read_and_what_does_not_exist_are_errors(mas: Mas, tmp_path: Path) -> None:
    binary = tmp_path / "binary"
    binary.write_bytes(b"\xff\xfe")
    for path in (binary, tmp_path / "none"):
        ran = mas("sandbox", str(path))
        assert ran.code == 2
        assert f"{path} cannot be read" in ran.err
    ran = mas("sandbox", "--walls", "paper")
    assert ran.code == 2
    assert "possible: namespaces, bubblewrap" in ran.err


def test_the_example_of_the_page_runs(walls: Mechanism) -> None:
    (block,) = blocks("docs/sandbox.md", "python")
    exec(compile(block.text, "docs/sandbox.md", "exec"), {})  # noqa: S102 - our own page
