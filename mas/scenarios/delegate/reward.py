"""The own terms of `delegate`, penalties all.

MATPO (arXiv 2510.04678) pays 0.9 for a right answer and 0.1 for calls in the right form: 0.9 · `right` + 0.1 ·
(1 + `format`). `plan` and `report` are ours: they say whose fault a wrong answer is.
"""

from collections.abc import Mapping

from mas.core.messages import Failure, Items, Payload
from mas.core.naming import agent_of
from mas.core.reward import Move
from mas.scenarios.delegate.cases import DelegateCase, found, value
from mas.scenarios.delegate.environment import DelegateEnvironment

PLANNER, WORKER = "planner", "worker"


class DelegateReward:
    """`format`: -1 for output that cannot be read, of anybody. `plan`: F1 of the sub-questions and those that are
    needed, minus 1, for the planner. `report`: -1 for a number that the best find does not tell, for a worker."""

    terms: tuple[str, ...] = ("format", "plan", "report")

    def own(self, move: Move) -> Mapping[str, float]:
        world = move.environment
        assert isinstance(world, DelegateEnvironment)
        case = world.state.case
        terms = {"format": -float(isinstance(move.output, Failure))}
        if move.role == PLANNER:
            return terms | {"plan": plan_value(case, move.output) - 1}
        if move.role == WORKER:
            return terms | {"report": -float(_is_wrong(case, move))}
        return terms


def plan_value(case: DelegateCase, plan: Payload) -> float:
    """F1 = 2 · (needed entries that are the best find of some sub-question) / (sub-questions + needed entries)."""
    items = plan.items if isinstance(plan, Items) else ()
    best = {at for item in items for at in found(case.documents, item, case.style)[:1]}
    return 2 * len(best & set(case.needed)) / (len(items) + len(case.needed))


def _is_wrong(case: DelegateCase, move: Move) -> bool:
    """Whether a report differs from what the best find of the worker's sub-question tells; nothing found: never."""
    plan = move.before.get(PLANNER)
    number = int(move.agent.removeprefix(agent_of(move.agent)).strip("[]") or 0)
    if not isinstance(plan, Items) or number >= len(plan.items):
        return False
    best = found(case.documents, plan.items[number], case.style)[:1]
    return bool(best) and move.output.content.strip() != value(case.documents[best[0]])
