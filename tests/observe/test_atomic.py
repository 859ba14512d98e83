import os
from pathlib import Path

import pytest

from mas.observe import files
from mas.observe.files import remove_leftovers, write_bytes_atomic, write_directory_atomic, write_text_atomic


def names(directory: Path) -> list[str]:
    return sorted(entry.name for entry in directory.iterdir())


def test_a_written_file_replaces_the_old_one_and_leaves_nothing_else(tmp_path: Path) -> None:
    write_text_atomic(tmp_path / "a.txt", "old")
    write_text_atomic(tmp_path / "a.txt", "néw")
    assert (tmp_path / "a.txt").read_bytes() == "néw".encode()
    assert names(tmp_path) == ["a.txt"]


def test_a_write_that_fails_keeps_the_old_file_and_leaves_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_bytes_atomic(tmp_path / "a", b"old")

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files.os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        write_bytes_atomic(tmp_path / "a", b"new")
    assert (tmp_path / "a").read_bytes() == b"old"
    assert names(tmp_path) == ["a"]


def test_the_content_is_on_disk_before_the_name_and_the_directory_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    order: list[str] = []
    real_sync, real_replace = os.fsync, Path.replace

    def sync(descriptor: int) -> None:
        order.append(Path(f"/proc/self/fd/{descriptor}").readlink().name.split(".")[0] or "temporary")
        real_sync(descriptor)

    def replace(self: Path, target: Path) -> Path:
        order.append("rename")
        return real_replace(self, target)

    monkeypatch.setattr(files.os, "fsync", sync)
    monkeypatch.setattr(Path, "replace", replace)
    write_bytes_atomic(tmp_path / "a", b"x")
    assert order == ["temporary", "rename", tmp_path.name]


def test_a_directory_holds_exactly_its_files_with_folders(tmp_path: Path) -> None:
    write_directory_atomic(tmp_path / "step-1", {"state.json": b"{}", "planner/adapter.bin": b"\x00\x01"})
    assert names(tmp_path) == ["step-1"]
    assert (tmp_path / "step-1" / "planner" / "adapter.bin").read_bytes() == b"\x00\x01"
    write_directory_atomic(tmp_path / "step-1", {"other": b"1"})
    assert names(tmp_path) == ["step-1"]
    assert names(tmp_path / "step-1") == ["other"]


def test_a_directory_that_cannot_take_its_name_leaves_the_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_directory_atomic(tmp_path / "c", {"old": b"1"})
    real_rename = Path.rename

    def refuse_new(self: Path, target: Path) -> Path:
        if target == tmp_path / "c" and (self / "new").exists():
            raise OSError(5, "Input/output error")
        return real_rename(self, target)

    monkeypatch.setattr(Path, "rename", refuse_new)
    with pytest.raises(OSError, match="Input/output"):
        write_directory_atomic(tmp_path / "c", {"new": b"1"})
    assert names(tmp_path) == ["c"]
    assert names(tmp_path / "c") == ["old"]


def test_a_directory_whose_files_cannot_be_written_never_appears(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files.os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        write_directory_atomic(tmp_path / "c", {"a": b"1"})
    assert names(tmp_path) == []


@pytest.mark.parametrize("name", ["", "/etc/passwd", "../outside", "a/../../outside"])
def test_a_name_outside_the_directory_is_refused_before_anything_is_written(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match="relative name"):
        write_directory_atomic(tmp_path / "c", {"fine": b"1", name: b"1"})
    assert names(tmp_path) == []


def test_leftovers_of_a_killed_writer_are_cleared_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / ".a.1234.tmp").write_text("torn")
    (tmp_path / ".c.1234.tmp").mkdir()
    (tmp_path / ".c.1234.tmp" / "file").write_text("torn")
    (tmp_path / "kept.tmp").write_text("visible")
    assert remove_leftovers(tmp_path) == 2
    assert names(tmp_path) == ["kept.tmp"]
