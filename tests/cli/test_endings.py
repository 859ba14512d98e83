"""How a command ends where its environment fails: a full disk, a reader that is gone, a signal, a missing character."""

import errno
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from mas import cli
from mas.core.errors import RunDirectoryError
from mas.observe import files

Mas = Callable[..., Any]
FULL = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def fails(error: BaseException) -> Callable[..., None]:
    def failing(*_: object, **__: object) -> None:
        raise error

    return failing


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (FULL, "error: No space left on device. Change that, then give the same command again\n"),
        (PermissionError(errno.EACCES, "Permission denied", "a/b"), "error: a/b: Permission denied. Change that"),
        (OSError(errno.ENOENT, "No such file", b"no\xffname"), r"error: no\udcffname: No such file. Change that"),
        (ExceptionGroup("tasks", [ExceptionGroup("play", [FULL])]), "error: No space left on device. Change that"),
    ],
)
def test_what_the_system_refuses_is_one_line_and_exit_code_2(
    error: Exception, text: str, mas: Mas, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cli, "_load", fails(error))
    ran = mas("graph", "relay")
    assert (ran.code, ran.err.count("\n")) == (2, 1)
    assert ran.err.startswith(text)


def test_a_group_of_other_errors_is_no_line(mas: Mas, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli, "_load", fails(ExceptionGroup("tasks", [ZeroDivisionError()])))
    with pytest.raises(ExceptionGroup):
        mas("graph", "relay")


def printed(out: Any, *words: str, **environment: str) -> tuple[int, str]:
    """Exit code and standard error of a command that prints there."""
    command = [sys.executable, "-m", "mas", *words]
    done = subprocess.run(
        command, stdout=out, stderr=subprocess.PIPE, env=os.environ | environment, check=False, encoding="utf-8"
    )
    return done.returncode, done.stderr


def test_an_output_that_takes_nothing_is_one_line_and_one_that_nobody_reads_is_141(tmp_path: Path) -> None:
    with Path("/dev/full").open("w") as full:
        code, err = printed(full, "--version")
    assert (code, err) == (2, "error: No space left on device. Change that, then give the same command again\n")
    end, begin = os.pipe()
    os.close(end)
    assert printed(begin, "--help") == (141, "")
    os.close(begin)
    with (tmp_path / "out").open("wb") as out:  # as a terminal that lacks the letter
        assert printed(out, "config", "run_dir=rŁ", PYTHONIOENCODING="latin-1") == (0, "")
    assert b"run_dir: r\\u0141\n" in (tmp_path / "out").read_bytes()


def test_a_file_never_takes_the_place_of_an_output_that_was_closed() -> None:
    code = (
        "import os, sys\n"
        "from mas import cli\n"
        "cli._load = lambda *_: print(os.open('/dev/zero', os.O_RDONLY), sys.stdin.read(1), file=sys.stderr)\n"
        "sys.argv = ['mas', 'graph', 'relay']\n"
        "cli.main()"
    )
    command = ["sh", "-c", f"exec '{sys.executable}' -c \"$0\" <&- >&-", code]
    done = subprocess.run(command, stderr=subprocess.PIPE, check=False, text=True)
    number = done.stderr.split()[0]
    assert int(number) > 2, done.stderr


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_a_training_as_ctrl_c_does(
    number: signal.Signals, mas: Mas, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = signal.getsignal(number)

    def signalled(*_: object, **__: object) -> None:
        os.kill(os.getpid(), number)
        time.sleep(10)

    monkeypatch.setattr("mas.runs.train.train_in_directory", signalled)
    ran = mas("train", "scenario=relay", "run_dir=runs/a_b")
    assert ran.code == 128 + number
    assert "mas train scenario=relay run_dir=runs/a_b" in ran.err
    assert signal.getsignal(number) is before


def test_a_signal_that_is_ignored_stays_so(mas: Mas, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mas.runs.train.train_in_directory", lambda *_, **__: os.kill(os.getpid(), signal.SIGHUP))
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with pytest.raises(AttributeError):  # of the outcome that is None: training went on
            mas("train", "scenario=relay", "--json", "-")
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_drawing_that_cannot_be_written_leaves_the_one_before(
    mas: Mas, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "relay.svg").write_text("the one before")
    monkeypatch.setattr(files, "_write_synced", fails(FULL))
    ran = mas("graph", "relay", "--out", str(tmp_path))
    assert ran.code == 2
    assert [path.read_text() for path in tmp_path.iterdir()] == ["the one before"]


def test_a_base_that_cannot_be_kept_names_the_cache(
    mas: Mas, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, small_overrides: tuple[str, ...]
) -> None:
    (tmp_path / "file").touch()
    for cache in (tmp_path / "file" / "cache", tmp_path / "cache"):
        monkeypatch.setenv("MAS_CACHE", str(cache))
        ran = mas("base", "scenario=relay", *small_overrides)
        assert ran.code == 2
        assert f"cannot be written to {cache}" in ran.err
        assert "set MAS_CACHE to another directory" in ran.err
        assert ran.err.count("\n") == 1 + (cache.parent == tmp_path)  # which tells its progress first
        monkeypatch.setattr("transformers.PreTrainedModel.save_pretrained", fails(FULL))  # of the second cache
    assert list((tmp_path / "cache" / "bases").iterdir()) == []


def named(error: OSError) -> Mapping[str, object]:
    return {"filename": error.filename, "errno": error.errno}


def test_what_is_written_whole_names_its_path_on_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", fails(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))))
    for write, content in ((files.write_bytes_atomic, b"x"), (files.write_directory_atomic, {"a": b"x"})):
        with pytest.raises(OSError, match="No space") as failed:
            write(tmp_path / "it", content)  # type: ignore[operator]
        assert named(failed.value) == {"filename": str(tmp_path / "it"), "errno": errno.ENOSPC}
    assert list(tmp_path.iterdir()) == []


def test_a_directory_that_a_killed_process_was_making_is_deleted_and_one_that_is_being_made_is_not(
    tmp_path: Path,
) -> None:
    hours_ago = time.time() - 7200
    left, young, other = (tmp_path / name for name in (".it-left", ".it-young", ".else-left"))
    for path in (left, young, other):
        (path / "in").mkdir(parents=True)
    with files.making_directory(tmp_path / "it") as first:
        for path in (left, other, first):
            os.utime(path, (hours_ago, hours_ago))
        with files.making_directory(tmp_path / "it") as second:
            assert {path.name for path in tmp_path.iterdir()} == {".it-young", ".else-left", first.name, second.name}
            (second / "content").write_text("of the faster one")
        (first / "content").write_text("of the slower one")
    assert (tmp_path / "it" / "content").read_text() == "of the faster one"
    with pytest.raises(RunDirectoryError), files.making_directory(tmp_path / "more"):
        raise RunDirectoryError("it cannot be made")
    assert {path.name for path in tmp_path.iterdir()} == {"it", ".it-young", ".else-left"}
