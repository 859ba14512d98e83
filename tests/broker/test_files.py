"""The files of a broker: secrets for their owner alone, nothing overwritten unasked, passwords that stay."""

import stat
from pathlib import Path
from typing import Any

import pytest
from brokers import needs_openssl, read_env

from mas.broker.files import BrokerFiles, write_broker
from mas.broker.options import BrokerOptions
from mas.core.errors import ConfigError, RunDirectoryError
from mas.protocols import plan_execute, solo

TEAM = plan_execute()


def write(
    directory: Path, *, overwrite: bool = False, environ: dict[str, str] | None = None, **given: Any
) -> BrokerFiles:
    """The files of a broker for planner and executor."""
    return write_broker(TEAM, BrokerOptions(directory=directory, **given), environ or {}, is_overwriting=overwrite)


def contents(directory: Path) -> dict[str, bytes]:
    """All files of a directory."""
    return {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def test_every_file_is_for_its_owner_alone_from_the_first_moment(tmp_path: Path) -> None:
    files = write(tmp_path / "broker")
    assert set(contents(tmp_path / "broker")) == {
        "mosquitto.conf",
        "acl",
        "users",
        ".gitignore",
        "passwords/plan_execute.planner.env",
        "passwords/plan_execute.executor.env",
        "passwords/coordinator.env",
        "passwords/operator.env",
    }
    for path in (tmp_path / "broker", *(tmp_path / "broker").rglob("*")):
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600), path
    assert files.conf == tmp_path / "broker" / "mosquitto.conf"


def test_git_leaves_the_directory_of_passwords_alone(tmp_path: Path) -> None:
    write(tmp_path / "broker")
    assert (tmp_path / "broker" / ".gitignore").read_text() == "*\n"
    (tmp_path / "broker" / ".gitignore").unlink()
    write(tmp_path / "broker")
    assert (tmp_path / "broker" / ".gitignore").read_text() == "*\n"


def test_a_directory_that_holds_other_things_or_ignores_already_is_not_hidden_from_git(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    write(tmp_path)
    assert not (tmp_path / ".gitignore").exists()
    (tmp_path / "notes.txt").unlink()
    (tmp_path / ".gitignore").write_text("passwords\n")
    write(tmp_path)
    assert (tmp_path / ".gitignore").read_text() == "passwords\n"


def test_a_host_gets_what_its_principal_needs_and_no_other_file_has_the_password(tmp_path: Path) -> None:
    files = write(tmp_path, port=1999, space="lab")
    found = read_env(files.handouts["plan_execute/planner"])
    password = found.pop("MAS_BUS_PASSWORD")
    assert found == {"MAS_BUS_URL": "mqtt://plan_execute%2Fplanner@127.0.0.1:1999/lab"}
    holding = [name for name, content in contents(tmp_path).items() if password.encode() in content]
    assert holding == ["passwords/plan_execute.planner.env"]


CONF = """\
# Written by `mas broker`.
listener 1883 127.0.0.1
max_connections 1024

allow_anonymous false
password_file {place}/users
acl_file {place}/acl

# Without it requests and their answers wait for each other's delayed acknowledgements, 40 ms at a time.
set_tcp_nodelay true
max_packet_size 8388608
max_inflight_messages 1024
max_queued_messages 10000
max_queued_bytes 67108864
# Retained messages have no limit of their own: whoever may write to a topic may leave one there.
memory_limit 536870912
# Sessions of processes that never come back would fill their queues for ever.
persistent_client_expiration 1h

persistence false
log_dest stderr
log_type error
log_type warning
log_type notice
log_timestamp_format %Y-%m-%dT%H:%M:%S
"""


@pytest.mark.parametrize("uid", [0, 1000])
def test_the_configuration_is_closed_quick_and_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, uid: int
) -> None:
    monkeypatch.setattr("os.geteuid", lambda: uid)
    text = write(tmp_path / "two words").conf.read_text()
    expected = CONF.format(place=tmp_path / "two words")
    assert text == expected + ("" if uid else "# As another user it could not read these files.\nuser root\n")


def test_limits_and_persistence_are_the_ones_that_were_asked_for(tmp_path: Path) -> None:
    given = {
        "max_packet_bytes": 11,
        "max_inflight_messages": 12,
        "max_queued_messages": 13,
        "max_queued_bytes": 14,
        "max_connections": 15,
        "max_memory_bytes": 16,
        "is_persistent": True,
    }
    lines = write(tmp_path, **given).conf.read_text().splitlines()
    for line in (
        "max_packet_size 11",
        "max_inflight_messages 12",
        "max_queued_messages 13",
        "max_queued_bytes 14",
        "max_connections 15",
        "memory_limit 16",
        "persistence true",
        f"persistence_location {tmp_path}/",
    ):
        assert line in lines


def test_the_same_again_changes_nothing(tmp_path: Path) -> None:
    write(tmp_path)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    write(tmp_path)
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before


def test_what_would_change_is_named_and_left_alone(tmp_path: Path) -> None:
    write(tmp_path)
    before = contents(tmp_path)
    (tmp_path / "acl").write_text("mine")
    with pytest.raises(ConfigError, match=r"operator\.env, .*mosquitto\.conf would change: --overwrite replaces"):
        write(tmp_path, port=1999)
    assert contents(tmp_path) == before | {"acl": b"mine"}


def test_overwriting_keeps_passwords_and_adds_those_of_new_agents(tmp_path: Path) -> None:
    write_broker(solo(name="plan_execute"), BrokerOptions(directory=tmp_path), {})
    before = read_env(tmp_path / "passwords" / "coordinator.env")
    users = (tmp_path / "users").read_text().splitlines()
    files = write(tmp_path, port=1999, overwrite=True)
    after = read_env(files.handouts["coordinator"])
    assert after == before | {"MAS_BUS_URL": "mqtt://coordinator@127.0.0.1:1999/default"}
    now = (tmp_path / "users").read_text().splitlines()
    assert [line.partition(":")[0] for line in now] == list(files.handouts)
    assert len(set(now) & set(users)) == 2  # coordinator and operator: their hashes stay as well


def test_a_password_that_was_deleted_is_made_anew(tmp_path: Path) -> None:
    path = write(tmp_path).handouts["operator"]
    before = path.read_text()
    path.unlink()
    with pytest.raises(ConfigError, match="users would change"):
        write(tmp_path)
    assert write(tmp_path, overwrite=True).handouts["operator"].read_text() != before


def test_a_password_from_the_environment_is_used_and_replaces_none_unasked(tmp_path: Path) -> None:
    environ = {"MAS_BUS_PASSWORD_PLANNER": "0123456789abcdef"}
    found = write(tmp_path / "new", environ=environ).handouts["plan_execute/planner"]
    assert read_env(found)["MAS_BUS_PASSWORD"] == "0123456789abcdef"
    write(tmp_path / "old")
    with pytest.raises(ConfigError, match=r"planner\.env, .*users would change"):
        write(tmp_path / "old", environ=environ)


def test_a_file_without_a_password_is_named(tmp_path: Path) -> None:
    path = write(tmp_path).handouts["operator"]
    path.write_text("MAS_BUS_URL=x\n")
    with pytest.raises(ConfigError, match=r"operator\.env holds no MAS_BUS_PASSWORD; delete it"):
        write(tmp_path, overwrite=True)


def test_a_directory_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(RunDirectoryError, match=r"/proc/broker cannot be written: .*Choose another --dir"):
        write(Path("/proc/broker"))
    (tmp_path / "file").write_text("")
    with pytest.raises(RunDirectoryError, match=r"file/passwords/.* cannot be read: Not a directory"):
        write(tmp_path / "file")


@needs_openssl
def test_tls_files_are_made_once(tmp_path: Path) -> None:
    files = write(tmp_path, is_tls=True)
    assert files.tls is not None
    lines = files.conf.read_text().splitlines()
    for line in (
        f"certfile {tmp_path}/tls/server.crt",
        f"keyfile {tmp_path}/tls/server.key",
        "listener 8883 127.0.0.1",
    ):
        assert line in lines
    assert stat.S_IMODE(files.tls.key.stat().st_mode) == 0o600
    before = contents(tmp_path)
    write(tmp_path, is_tls=True)
    assert contents(tmp_path) == before
    write(tmp_path, is_tls=True, port=1999, overwrite=True)
    assert contents(tmp_path)["tls/server.crt"] == before["tls/server.crt"], "still good, so nobody needs another CA"


@needs_openssl
def test_certificates_for_another_name_or_without_a_key_are_not_replaced_unasked(tmp_path: Path) -> None:
    files = write(tmp_path, is_tls=True)
    assert files.tls is not None
    with pytest.raises(ConfigError, match=r"tls/ca\.crt, .*tls/server\.crt, .*would change"):
        write(tmp_path, is_tls=True, name="bus.example.org")
    files.tls.key.unlink()
    with pytest.raises(ConfigError, match=r"tls/ca\.crt, .*tls/server\.crt would change"):
        write(tmp_path, is_tls=True)
    write(tmp_path, is_tls=True, overwrite=True)


@needs_openssl
def test_own_certificates_are_used_where_they_lie_and_checked(tmp_path: Path) -> None:
    made = write(tmp_path / "made", is_tls=True).tls
    assert made is not None
    assert made.ca is not None
    own = {"cert": made.cert, "key": made.key, "ca": made.ca}
    lines = write(tmp_path / "own", **own).conf.read_text().splitlines()
    assert [f"certfile {made.cert}", f"keyfile {made.key}", f"cafile {made.ca}"] == lines[3:6]
    assert not (tmp_path / "own" / "tls").exists()
    for given, text in (
        (own | {"name": "bus.example.org"}, "clients connect to 'bus.example.org', --name changes that"),
        (own | {"ca": None}, "an authority of your own needs --ca"),
        (own | {"key": made.ca}, "no certificate with its own key"),
        (own | {"key": tmp_path / "none"}, "none cannot be read"),
    ):
        with pytest.raises(ConfigError) as caught:
            write(tmp_path / "refused", **given)
        assert text in str(caught.value)
    assert not (tmp_path / "refused").exists()
