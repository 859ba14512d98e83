"""What a training does in which process: RUN/cluster.json, which `mas cluster status` shows.

The process that trains replaces the file every two seconds; who reads it needs nothing else of that process. There is
none as long as the run has neither processes of a cluster nor batches that are sampled while the learner works.
"""

from pathlib import Path

import msgspec

from mas.cluster.records import ProcessStatus
from mas.core.errors import RunDirectoryError
from mas.core.host import ProcessId

STATUS_FILE = "cluster.json"
EVERY_S = 2.0


class BatchStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A batch in flight.

    Attributes:
        step: which learns from it, from 1.
        groups: tasks, each with all its candidates.
        is_sampled: whether all of them are played; the learner then works on the batch, or will.
        versions: adapter -> the version that it is sampled with.
        ages: adapter -> by how many updates that version is behind.
    """

    step: int
    groups: int
    is_sampled: bool
    versions: dict[str, int]
    ages: dict[str, int]


class ClusterStatus(msgspec.Struct, frozen=True, kw_only=True):
    """What the file says.

    Attributes:
        process: which trains.
        written_s: when, in seconds since 1970.
        ended: how training ended; empty: it goes on.
        step: how many are done, of `steps`. phase: of the next one, see `Trainer.run`.
        versions: adapter -> the version of now. held: `NAME@VERSION` that samples are made with, or can be.
        batches: in flight, oldest first. groups_dropped: as too old and played again, in this process.
        members: the process that trains, and all of its clusters, ended ones included.
    """

    process: ProcessId
    written_s: float
    ended: str
    step: int
    steps: int
    phase: str
    kind: str
    staleness: int
    versions: dict[str, int]
    held: list[str]
    batches: list[BatchStatus]
    groups_dropped: int
    members: list[ProcessStatus]


def read_status(run: Path) -> ClusterStatus:
    """What the file of a run says.

    Raises:
        RunDirectoryError: there is none, or it cannot be read.
    """
    path = run / STATUS_FILE
    try:
        return msgspec.json.decode(path.read_bytes(), type=ClusterStatus)
    except FileNotFoundError:
        raise RunDirectoryError(
            f"Run directory {run} has no {STATUS_FILE}: a training writes it while it has further processes, such as "
            "cluster.workers=N, or samples while the learner works (train.staleness=K)"
        ) from None
    except OSError as error:
        raise RunDirectoryError(f"{path} cannot be read: {error.strerror}") from error
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise RunDirectoryError(f"{path} is no status of a cluster ({error}): the next training replaces it") from error
