"""Every team, expert and demonstration of every variant of a scenario does what the record has.

The first two tasks are played here; `python tests/scenarios/scenario_records.py` plays all of the record.
"""

import sys

import pytest
from scenario_records import TASKS, differences, read, recorded_scenarios, records, variants

from mas.core.errors import ConfigError, SandboxError
from mas.sandbox.mechanism import probe
from mas.scenarios.relay import RelayEnvironment

HOW_TO_WRITE = (
    "If that is meant to change, write the record anew with `python tests/scenarios/scenario_records.py --write`, and "
    "give the reason in CHANGELOG.md."
)


def differing(name: str, tasks: int) -> str:
    try:
        found = records(name, tasks)
    except ConfigError as error:
        if not isinstance(error.__cause__, SandboxError):
            raise
        try:
            probe()
        except SandboxError:
            pytest.skip(str(error))
        raise
    lines = differences(name, found, read()[name])
    return "\n".join([*lines, HOW_TO_WRITE]) if lines else ""


@pytest.mark.parametrize("name", recorded_scenarios())
def test_a_scenario_does_in_every_variant_what_the_record_has(name: str) -> None:
    assert not differing(name, 2)


@pytest.mark.nightly(shard=False)
@pytest.mark.parametrize("name", recorded_scenarios())
def test_all_recorded_tasks_are_as_before(name: str) -> None:
    assert not differing(name, TASKS)


def test_the_record_has_every_scenario_that_can_be_played() -> None:
    assert set(recorded_scenarios()) <= set(read())


def test_no_two_variants_have_equal_options() -> None:
    found = variants("sudoku")
    assert found["small"] == {}
    assert found["size=9"] == {"size": 9}
    assert len(found) == len({str(options) for options in found.values()})


def test_a_difference_is_named_by_scenario_variant_team_and_task(monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = records("relay", 3)
    assert differences("relay", wanted, wanted) == []
    monkeypatch.setattr(RelayEnvironment, "render", lambda self: "other")
    lines = differences("relay", records("relay", 3), wanted)
    assert lines[0] == "relay, small, team solo: tasks 0, 1, 2 differ"
    assert "relay, style=words, expert: tasks 0, 1, 2 differ" in lines
    assert differences("relay", {}, {"small, expert": "a"}) == ["relay, small, expert: not there any more"]
    assert differences("relay", {"small, expert": "a"}, {}) == ["relay, small, expert: not in the record"]


@pytest.mark.parametrize(
    ("cause", "has_sandbox", "raised"),
    [
        (None, False, ConfigError),
        (SandboxError("the server is gone"), True, ConfigError),
        (SandboxError("none"), False, pytest.skip.Exception),
    ],
)
def test_only_a_missing_sandbox_is_a_reason_to_skip(
    monkeypatch: pytest.MonkeyPatch, cause: SandboxError | None, has_sandbox: bool, raised: type[BaseException]
) -> None:
    def broken(name: str, tasks: int) -> dict[str, str]:
        raise ConfigError("broken") from cause

    def probed() -> None:
        if not has_sandbox:
            raise SandboxError("none here")

    monkeypatch.setattr(sys.modules[__name__], "records", broken)
    monkeypatch.setattr(sys.modules[__name__], "probe", probed)
    with pytest.raises(raised, match="broken"):
        differing("relay", 1)
