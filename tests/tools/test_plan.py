"""Plans of tool calls: how far they are, what a failed step makes of them, and what their parameters are bound to."""

import pytest

from mas.core.errors import ToolRefused
from mas.tools import ToolCall
from mas.tools.plan import LAST, PlanState, bound

STEPS = (ToolCall("look_up", {"item": "a"}), ToolCall("add", {"a": LAST, "b": 4}))


def test_a_step_that_is_done_leaves_the_rest_of_the_plan() -> None:
    plan = PlanState().revised(STEPS)
    assert plan.after(is_done=True).pending == STEPS[1:]
    assert plan.after(is_done=True).after(is_done=True).pending == ()


def test_a_step_that_failed_voids_the_rest_until_a_revision_which_is_counted() -> None:
    failed = PlanState().revised(STEPS).after(is_done=True).after(is_done=False)
    assert (failed.pending, failed.is_failed, failed.revisions) == ((), True, 0)
    again = failed.revised(STEPS[1:])
    assert (again.pending, again.is_failed, again.revisions) == (STEPS[1:], False, 1)


def test_a_first_plan_and_one_after_a_plan_that_was_carried_out_are_no_revisions() -> None:
    assert PlanState().revised(STEPS).revisions == 0
    assert PlanState().revised(STEPS[:1]).after(is_done=True).revised(STEPS[1:]).revisions == 0


def test_parameters_are_bound_to_the_last_result_and_to_nothing_else() -> None:
    assert bound(STEPS[1], 7) == ToolCall("add", {"a": 7, "b": 4})
    assert bound(STEPS[0], 7) == STEPS[0]
    with pytest.raises(ToolRefused, match="step 'add' needs the result of a step before it, and there is none"):
        bound(STEPS[1], None)
