"""Passwords: random, kept, or from the environment; hashed as mosquitto reads them."""

import shutil
import subprocess
from pathlib import Path

import pytest

from mas.broker.files import choose_passwords, password_file
from mas.core.errors import ConfigError

NAMES = ("team/planner", "team/walker-1", "coordinator")
GIVEN = "0123456789abcdef"


def test_every_principal_has_a_random_password_of_its_own_that_files_can_hold() -> None:
    first, second = (choose_passwords(NAMES, {}, {}) for _ in range(2))
    assert tuple(first) == NAMES
    assert len({*first.values(), *second.values()}) == 6
    for password in first.values():
        assert len(password) == 43  # 32 bytes in base64: ceil(256 / 6)
        assert password.replace("-", "").replace("_", "").isalnum()


def test_a_password_that_is_there_stays_and_the_environment_decides() -> None:
    kept = {"team/planner": "earlier", "team/walker-1": "earlier too"}
    chosen = choose_passwords(NAMES, kept, {"MAS_BUS_PASSWORD_WALKER_1": GIVEN, "MAS_BUS_PASSWORD_OTHER": "x"})
    assert chosen["team/planner"] == "earlier"
    assert chosen["team/walker-1"] == GIVEN
    assert len(chosen["coordinator"]) == 43


@pytest.mark.parametrize(
    "password", ["", "0123456789abcde", "0123456789abcdef ", "0123456789abcde$x", "0123456789abcde'\n"]
)
def test_a_password_that_is_not_possible_is_refused_and_not_shown(password: str) -> None:
    with pytest.raises(ConfigError, match="MAS_BUS_PASSWORD_COORDINATOR is not possible: at least 16") as caught:
        choose_passwords(NAMES, {}, {"MAS_BUS_PASSWORD_COORDINATOR": password})
    assert not password or password not in str(caught.value)


def test_a_password_that_could_be_meant_for_two_is_refused() -> None:
    names = ("team/a-b", "team/a.b")
    assert len(choose_passwords(names, {}, {})) == 2
    with pytest.raises(ConfigError, match=r"password of team/a-b or team/a\.b: unset it"):
        choose_passwords(names, {}, {"MAS_BUS_PASSWORD_A_B": GIVEN})


def test_the_file_holds_hashes_and_equal_passwords_make_an_equal_file() -> None:
    passwords = {"team/planner": GIVEN, "coordinator": GIVEN}
    text = password_file(passwords, "")
    planner, coordinator = text.splitlines()
    assert planner.startswith("team/planner:$7$1000$")
    assert GIVEN not in text
    assert planner.partition(":")[2] != coordinator.partition(":")[2], "salted"
    assert password_file(passwords, text) == text
    changed = password_file(passwords | {"coordinator": GIVEN + "0"}, text).splitlines()
    assert changed[0] == planner
    assert changed[1] != coordinator
    assert password_file({"coordinator": GIVEN}, text).splitlines() == [coordinator]


@pytest.mark.parametrize("before", ["coordinator", "coordinator:", "coordinator:$7$1$x$y", "coordinator:$6$salt$hash"])
def test_a_line_that_is_no_such_hash_is_made_anew(before: str) -> None:
    assert password_file({"coordinator": GIVEN}, before).startswith("coordinator:$7$1000$")


def test_a_hash_made_elsewhere_is_known() -> None:
    # openssl kdf -keylen 64 -kdfopt digest:SHA512 -kdfopt pass:0123456789abcdef -kdfopt salt:0123456789ab
    #   -kdfopt iter:1000 -binary PBKDF2 | base64 -w0
    found = "eIcdpCFZrvKSyrwm0tHLelc8sChmjrYniSs6vfSJ8/lS4xrDNQxWhhAP9slUf+4/HA7Qt0izFbvn3AQyOE+YhA=="
    line = f"coordinator:$7$1000$MDEyMzQ1Njc4OWFi${found}\n"
    assert password_file({"coordinator": GIVEN}, line) == line


@pytest.mark.skipif(shutil.which("mosquitto_passwd") is None, reason="mosquitto_passwd is not installed")
def test_mosquittos_own_tool_writes_lines_of_the_same_form(tmp_path: Path) -> None:
    theirs = tmp_path / "theirs"
    theirs.write_text(f"coordinator:{GIVEN}\n")
    subprocess.run(["mosquitto_passwd", "-U", str(theirs)], check=True, capture_output=True)
    ours = password_file({"coordinator": GIVEN}, "").strip().split("$")
    them = theirs.read_text().strip().split("$")
    assert [len(ours[1]), len(ours[3]), len(ours[4])] == [len(them[1]), len(them[3]), len(them[4])]
    assert ours[:2] == them[:2]
