"""Every algorithm preset makes of fixed rollouts what the golden record has: advantages, losses and gradients.

Advantages that no model is asked for are float64 and compared to 1e-9 of a role's largest. The others, losses and
gradients are float32: on one processor they are equal to the last bit, for one thread and for two; between instruction
sets (none, SSE, AVX2, AVX-512, and MKL's compatible mode) advantages were seen to differ by 2e-6, losses by 4e-6 and
gradients, of which a sum may cancel, by 3e-5. `python tests/golden/record.py` compares every bit.
"""

import pytest
from golden import record
from golden.presets import ASK_THE_MODEL, base_of, found_of

from mas.config.load import presets
from mas.serving.model import BaseModel

TOLERANCES = {"advantages": 1e-9, "tokens": 2e-5, "losses": 4e-5, "gradients": 2e-4}


@pytest.fixture(scope="module")
def base() -> BaseModel:
    return base_of()


def test_the_record_has_every_preset_and_no_other() -> None:
    assert set(record.read()["presets"]) == set(presets("algorithm"))


def test_advantages_losses_and_gradients_are_those_of_the_record(base: BaseModel) -> None:
    wanted, differences = record.read()["presets"], []
    for name in presets("algorithm"):
        tolerances = TOLERANCES | ({"advantages": 2e-5} if name in ASK_THE_MODEL else {})
        if lines := record.differences(record.rounded(found_of(name, base)), wanted.get(name, {}), tolerances):
            differences.append(record.message(name, lines))
    assert not differences, "\n".join(differences)


@pytest.mark.parametrize("name", ["at_grpo", "ppo", "oprl"])
def test_on_one_machine_they_are_equal_to_the_last_bit(name: str, base: BaseModel) -> None:
    assert found_of(name, base) == found_of(name, base)


def test_a_difference_is_named_by_preset_step_and_role() -> None:
    wanted = {"after 1": {"advantages": {"planner": [0.5, -0.5], "executor": [1.0]}, "losses": {"all": [0.25]}}}
    found = {"after 1": {"advantages": {"planner": [0.5, 0.5], "executor": [1.0 + 1e-12]}, "losses": {"all": []}}}
    lines = record.differences(found, wanted, TOLERANCES)
    assert lines == [
        "after 1, advantages of planner: 1 of 2 differ; number 1 is 0.5, the record has -0.5",
        "after 1, losses of all: 0 of them, the record has 1",
    ]
    assert record.message("rloo", lines).splitlines()[0] == f"rloo, {lines[0]}"
    assert record.differences(wanted, wanted, {}) == []
    assert record.differences({}, wanted, TOLERANCES)[0] == "after 1, advantages of planner: not there any more"
