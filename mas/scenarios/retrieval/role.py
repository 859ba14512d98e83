"""The rewriter of `retrieval`: writes a query, or says that enough was found."""

from typing import ClassVar

from mas.core.messages import Payload, Plan
from mas.roles.planner import Planner

ENOUGH = ("=", "enough")


class Rewriter(Planner):
    """Emits a plan whose route is `enough` where it says so, and `search` else."""

    default_routes: ClassVar[tuple[str, ...]] = ("search", "enough")
    default_failure_route: ClassVar[str | None] = "search"
    emittable: ClassVar[frozenset[str]] = frozenset({"plan"})

    def answer(self, text: str) -> Payload:
        return Plan(text=text, chosen_route="enough" if text.casefold().rstrip(".") in ENOUGH else "search")
