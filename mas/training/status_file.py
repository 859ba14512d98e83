"""The file RUN/cluster.json while a run trains: see `mas.training.cluster_status` for what it says."""

import asyncio
import os
import platform
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Any

from mas.cluster.contract import Cluster, open_clusters
from mas.cluster.environment import resident_bytes
from mas.cluster.records import ProcessStatus
from mas.core.errors import RunDirectoryError
from mas.core.host import this_process
from mas.core.printable import shortened
from mas.core.tracing import Counted
from mas.observe.files import write_json_file
from mas.training.cluster_status import EVERY_S, STATUS_FILE, ClusterStatus
from mas.training.trainer import Trainer, TrainingOutcome

_MOST = 300
"""Characters of an error that the file shows."""


class StatusFile:
    """Keeps the file of a run while it trains. `run`: its directory."""

    def __init__(self, run: Path, trainer: Trainer) -> None:
        self._run, self._trainer = run, trainer
        self._process = this_process()
        self._phase = ""
        self._clusters: list[Cluster] = []

    def following(self, on_phase: Counted) -> Counted:
        """The same function, of whose calls this remembers the last."""

        def both(what: str, done: int, of: int) -> None:
            self._phase = f"{what} {done}/{of}" if of else what
            on_phase(what, done, of)

        return both

    async def during(self, training: Callable[[], Coroutine[Any, Any, TrainingOutcome]]) -> TrainingOutcome:
        """What the training returns or raises. The file is replaced meanwhile, and says in the end how it ended."""
        with suppress(OSError):
            (self._run / STATUS_FILE).unlink(missing_ok=True)
        ending = asyncio.Event()
        keeping = asyncio.create_task(self._keep(ending), name="cluster-status")
        how = "interrupted"
        try:
            outcome = await training()
            how = outcome.reason
            return outcome
        except Exception as error:
            how = f"failed: {type(error).__name__}: {error}"
            raise
        finally:
            ending.set()
            await asyncio.wait({keeping})
            await self._write(how)

    async def _keep(self, ending: asyncio.Event) -> None:
        while not ending.is_set():
            await self._write("")
            with suppress(TimeoutError):
                async with asyncio.timeout(EVERY_S):
                    await ending.wait()

    async def _write(self, ended: str) -> None:
        """Write it, if there is something to say. What cannot be written is left out: metrics and checkpoints, which
        are needed, say why a directory takes no more files."""
        status = self.status(ended)
        if len(status.members) == 1 and not status.staleness:
            return
        with suppress(RunDirectoryError):
            await asyncio.to_thread(write_json_file, self._run / STATUS_FILE, status)

    def status(self, ended: str = "") -> ClusterStatus:
        """What is so now. `ended`: see `ClusterStatus`."""
        self._clusters += [one for one in open_clusters(self._run) if one not in self._clusters]
        trainer = self._trainer
        progress, train = trainer.progress, trainer.setup.train
        held = trainer.in_flight.held(progress.versions)
        return ClusterStatus(
            process=self._process,
            written_s=time.time(),
            ended=shortened(ended, _MOST),
            step=progress.step,
            steps=train.steps,
            phase=self._phase,
            kind=trainer.setup.cluster.kind,
            staleness=train.staleness,
            versions=dict(progress.versions),
            held=[str(ref) for ref in sorted(held, key=lambda one: (one.name, one.version))],
            batches=trainer.in_flight.batches(progress.versions),
            groups_dropped=trainer.in_flight.groups_dropped,
            members=[_driver(is_ended=bool(ended)), *(one for cluster in self._clusters for one in cluster.members())],
        )


def _driver(*, is_ended: bool) -> ProcessStatus:
    return ProcessStatus(
        name="driver",
        kind="driver",
        pid=os.getpid(),
        node=platform.node(),
        state="stopped" if is_ended else "alive",
        restarts=0,
        calls=0,
        rss_bytes=None if is_ended else resident_bytes(),
    )
