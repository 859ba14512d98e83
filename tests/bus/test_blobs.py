"""A store gives back exactly what was put there, or says why not; and it does not grow for ever."""

import hashlib
import os
import stat
from pathlib import Path

import pytest

from mas.bus.mqtt.blobs import BlobStore
from mas.core.errors import ConfigError, NoPayload

CONTENT = b"content" * 100
NAME = hashlib.sha256(CONTENT).hexdigest()


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "deep" / "payloads"


@pytest.fixture
def store(place: Path) -> BlobStore:
    return BlobStore(f"file://{place}", keep_s=1_000.0)


def test_what_was_put_comes_back_under_its_hash_and_only_its_user_may_read_it(store, place):
    before = os.umask(0)
    try:
        assert store.put(CONTENT) == NAME
    finally:
        os.umask(before)
    assert store.get(NAME, len(CONTENT)) == CONTENT
    assert [path.name for path in place.iterdir()] == [NAME], "no unfinished file is left"
    assert stat.S_IMODE(place.stat().st_mode) == 0o700
    assert stat.S_IMODE((place / NAME).stat().st_mode) == 0o600


def test_a_directory_that_is_there_keeps_its_mode(store, place):
    place.mkdir(parents=True, mode=0o750)
    mode = place.stat().st_mode
    store.put(CONTENT)
    assert place.stat().st_mode == mode


@pytest.mark.parametrize(
    "changed", [b"", CONTENT[:-1], CONTENT + b"x", b"X" + CONTENT[1:]], ids=["empty", "shorter", "longer", "other"]
)
def test_what_was_changed_is_refused_and_put_again_it_is_whole(store, place, changed):
    store.put(CONTENT)
    (place / NAME).write_bytes(changed)
    with pytest.raises(NoPayload, match=r"was changed|is not the 700 bytes long"):
        store.get(NAME, len(CONTENT))
    store.put(CONTENT)
    assert store.get(NAME, len(CONTENT)) == CONTENT


def test_what_is_not_there_is_said_with_the_time_that_it_would_have_been_kept(store):
    with pytest.raises(NoPayload, match=r"has no .*kept for 1000 s \(keep_s\)"):
        store.get(NAME, len(CONTENT))


@pytest.mark.parametrize("name", ["../../etc/passwd", "/etc/passwd", NAME.upper(), NAME[:-1], f"{NAME}\n", ""])
def test_a_name_that_is_no_hash_is_never_a_path(store, place, name):
    store.put(CONTENT)
    with pytest.raises(NoPayload, match="is no SHA-256"):
        store.get(name, len(CONTENT))


def test_a_size_that_lies_reads_no_more_than_it_says(store, monkeypatch):
    store.put(CONTENT)
    read: list[bytes] = []
    cat_file = store._files.cat_file

    def counted(*words, **options) -> bytes:
        read.append(cat_file(*words, **options))
        return read[-1]

    monkeypatch.setattr(store._files, "cat_file", counted)
    with pytest.raises(NoPayload, match="is not the 1 bytes long"):
        store.get(NAME, 1)
    assert [len(content) for content in read] == [2]


def test_what_is_old_is_removed_by_writers_and_nothing_else_is(store, place):
    store.put(CONTENT)
    old = place.stat().st_mtime - 2_000
    leftover, foreign, young = place / f".{NAME}.{'0' * 16}", place / "notes.txt", place / ("f" * 64)
    for path in (leftover, foreign, young):
        path.write_bytes(b"x")
    for path in (place / NAME, leftover, foreign):
        os.utime(path, (old, old))
    other = BlobStore(f"file://{place}", keep_s=1_000.0)
    other.put(b"new")
    assert {path.name for path in place.iterdir()} == {foreign.name, young.name, hashlib.sha256(b"new").hexdigest()}
    os.utime(young, (old, old))
    other.put(b"newer")
    assert young.exists(), "old ones are looked for ten times while a content is kept, not at every one"
    assert other.clean() == 1


def test_putting_a_content_again_renews_its_age(store, place):
    store.put(CONTENT)
    os.utime(place / NAME, (0, 0))
    store.put(CONTENT)
    assert store.clean() == 0


def test_a_store_need_not_be_a_directory():
    store = BlobStore("memory://payloads", keep_s=1_000.0)
    store.put(CONTENT)
    assert store.get(NAME, len(CONTENT)) == CONTENT
    assert store.clean() == 0
    with pytest.raises(NoPayload, match="has no"):
        store.get("0" * 64, 1)
    assert BlobStore("memory://payloads", keep_s=1e-9).clean() == 1


def test_errors_say_what_failed_and_not_where(store, place, monkeypatch):
    place.parent.mkdir(parents=True)
    place.write_bytes(b"in the way")
    with pytest.raises(NoPayload, match=r"700 bytes cannot be stored: FileExistsError: File exists$"):
        store.put(CONTENT)
    monkeypatch.setattr(store._files, "cat_file", lambda *words, **options: 1 / 0)
    with pytest.raises(NoPayload, match=r"cannot be read: ZeroDivisionError: its cause says more$"):
        store.get(NAME, 1)
    with pytest.raises(NoPayload) as missing:
        BlobStore(f"file://{place.parent}", keep_s=1.0).get("0" * 64, 1)
    assert str(place.parent) not in str(missing.value)


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("/shared/payloads", "says no kind of place"),
        ("nope://x", "cannot be opened here: Protocol not known"),
        ("file://", "names no directory"),
        ("file:///", "names no directory"),
        ("file://relative/path", "names no directory by its whole path"),
        ("memory://", "names no place"),
        ("ftp://user:secret@host/payloads", "holds a password"),
    ],
)
def test_a_wrong_url_is_one_clear_error(url, said):
    with pytest.raises(ConfigError, match=said) as caught:
        BlobStore(url, keep_s=1.0)
    assert "secret" not in str(caught.value)
