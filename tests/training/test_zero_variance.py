"""A team that has nothing left to compare is noticed, counted and told of."""

from typing import Any

import pytest

from mas.config.load import load_config
from mas.training.step_metrics import PATIENCE, ZeroVarianceWatch, flat_share


def role(
    groups: int, flat: int, *, single: int = 0, is_trained: bool = True, failures: float = 0.0
) -> dict[str, float]:
    counts = {"groups": groups, "groups_single": single, "groups_zero_variance": flat}
    return counts | {"is_trained": float(is_trained), "failures": failures}


def step(success: float = 0.5, **roles: Any) -> dict[str, Any]:
    return {"success": success, "roles": roles}


def test_the_share_counts_compared_groups_of_trained_roles() -> None:
    # (1 + 3) flat of (4 - 1) + 4 compared.
    roles = {"planner": role(4, 1, single=1), "executor": role(4, 3), "judge": role(9, 9, is_trained=False)}
    assert flat_share(roles) == pytest.approx(4 / 7)
    assert flat_share({"planner": role(2, 0, single=2)}) == 1.0


def test_a_role_is_named_once_after_flat_steps_in_a_row() -> None:
    watch = ZeroVarianceWatch()
    flat = step(planner=role(4, 4), executor=role(4, 3))
    told = [watch.warning(flat) for _ in range(2 * PATIENCE)]
    assert [number for number, text in enumerate(told, start=1) if text] == [PATIENCE]
    text = told[PATIENCE - 1]
    assert text is not None
    assert text.startswith("planner: nothing to compare")
    assert "executor" not in text


def test_a_role_whose_outputs_do_not_parse_is_told_so() -> None:
    watch = ZeroVarianceWatch()
    mute = step(0.0, planner=role(4, 4), feedback=role(4, 4, failures=1.0), verifier=role(4, 3, failures=0.998))
    texts = [watch.warning(mute) for _ in range(PATIENCE)]
    assert texts[: PATIENCE - 1] == [None] * (PATIENCE - 1)
    about_form, _, about_pay = (texts[-1] or "").partition(" planner: ")
    assert about_form.startswith("feedback, verifier: nothing to compare for 5 steps, as outputs do not parse")
    assert "constraint" in about_form
    assert "paid the same" in about_pay


def test_one_group_to_learn_from_begins_the_count_anew() -> None:
    watch = ZeroVarianceWatch()
    for _ in range(PATIENCE - 1):
        assert watch.warning(step(planner=role(4, 4))) is None
    assert watch.warning(step(planner=role(4, 3))) is None
    assert all(watch.warning(step(planner=role(4, 4))) is None for _ in range(PATIENCE - 1))
    assert watch.warning(step(planner=role(4, 4)))


def test_who_solves_everything_or_is_not_trained_is_left_alone() -> None:
    watch = ZeroVarianceWatch()
    frozen = role(4, 4, is_trained=False)
    assert not any(watch.warning(step(1.0, planner=role(4, 4), judge=frozen)) for _ in range(2 * PATIENCE))
    assert not any(watch.warning(step(judge=frozen, planner=role(2, 0, single=2))) for _ in range(2 * PATIENCE))


@pytest.mark.parametrize("name", ["at_grpo", "rloo", "dapo", "ppo", "rae", "reinforce_pp"])
def test_only_what_compares_inside_groups_is_watched(name: str) -> None:
    algorithm = load_config([f"algorithm={name}"]).algorithm
    assert ZeroVarianceWatch.suits(algorithm) == (name in ("at_grpo", "rloo", "dapo"))
