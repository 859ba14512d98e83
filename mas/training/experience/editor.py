"""The contract of editors: who writes down what the better episodes of a group did."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from mas.core.records import NO_COST, Cost
from mas.training.experience.library import Library
from mas.training.experience.operations import Operation, Refusal
from mas.training.experience.rollouts import LessonGroup


@dataclass(frozen=True, slots=True)
class Proposal:
    """Operations that an editor wants, what of its answers could not be read, and what asking it cost."""

    operations: tuple[Operation, ...] = ()
    refused: tuple[Refusal, ...] = ()
    cost: Cost = NO_COST


class Editor(Protocol):
    """Proposes changes of a role's library; equal arguments give equal proposals."""

    async def propose(self, group: LessonGroup, library: Library, *, seed: int) -> Proposal:
        """What one group teaches its role, as operations on the library."""

    async def consolidate(self, role: str, library: Library, proposals: Sequence[Proposal], *, seed: int) -> Proposal:
        """One list of operations out of those of all groups of a step, each made without knowing the others."""
