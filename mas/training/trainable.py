"""What the training loop needs of what is trained: adapters of a base, or libraries of experiences."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, Protocol

from mas.algorithms.parts.experience.library import Library
from mas.core.records import Episode
from mas.serving.adapter_weights import AdapterWeights
from mas.training.checkpoint import NO_FILES, Progress
from mas.training.session import TeamSession
from mas.training.stages import AdapterAssignment
from mas.training.updates.update import UpdateResult


class Trainable(Protocol):
    """Holds what is trained, improves it by a step's episodes, and lets the team play with it."""

    assignment: AdapterAssignment
    """Which adapter each role samples with and trains, step by step."""

    def serving(self, session: TeamSession, versions: Mapping[str, int]) -> AbstractAsyncContextManager[None]:
        """While it is open the team plays with what is held. `versions`: of everything that is trained, by its name."""

    async def improve(
        self,
        session: TeamSession,
        episodes: Sequence[Episode],
        trained: Mapping[str, str],
        *,
        step: int,
        lr_scale: float,
    ) -> UpdateResult:
        """One step, as `Update.improve`. The team plays on with what it had before."""

    async def publish(self, session: TeamSession, improved: UpdateResult) -> Mapping[str, Any]:
        """Let the team play with what was learned; what there is to tell, at the top of the step's metrics."""

    def versions(self, session: TeamSession) -> Mapping[str, int]:
        """Name -> the version that the team plays with."""

    def state(self) -> Mapping[str, Any]:
        """What the next step depends on beside what `save` writes and the progress, as JSON; by default nothing."""
        return {}

    def save(self, directory: Path, progress: Progress, keep: int, more: Mapping[str, bytes] = NO_FILES) -> Path:
        """Write a checkpoint below the directory. `more`: further files of it, relative names to contents."""

    def load(self, checkpoint: Path) -> Progress:
        """Go on from a checkpoint.

        Raises:
            CheckpointError: it is corrupt, or of a run that trains something else.
        """

    @property
    def adapters(self) -> Mapping[str, AdapterWeights]:
        """Name -> weights as they are now, which are not to be changed; by default none, as of what is not here."""
        return {}

    @property
    def libraries(self) -> Mapping[str, Library]:
        """Role -> what it has learned as text; by default nothing."""
        return {}
