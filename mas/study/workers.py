"""Working through chains in lanes: this process, and worker processes beside it.

Every chain is one seed of one case and depends on no other, so results do not depend on who works through it. What a
spawned worker imports is in `mas.study.chain` and `mas.study.worker_pool`, and draws nothing.
"""

from collections.abc import Callable, Generator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from pathlib import Path
from typing import TypeVar

import msgspec

from mas.core.errors import RunDirectoryError
from mas.study.chain import ArmRun, Note, StudyChain, describe, run_chain
from mas.study.worker_pool import worker_pool

T = TypeVar("T")
Work = Callable[[StudyChain, Note], list[ArmRun]]


def run_chains(
    chains: Sequence[StudyChain], note: Note, work: Work, *, workers: int
) -> Generator[tuple[StudyChain, list[ArmRun]]]:
    """Every chain with its runs, as they are finished.

    Args:
        note: told of every finished arm.
        work: works through a chain in this process; workers use `run_chain`.
        workers: processes beside this one; 0 works through everything here.
    """
    if not workers:
        yield from ((chain, work(chain, note)) for chain in chains)
        return
    with worker_pool(workers) as pool:
        asked = {pool.submit(run_chain, chain): chain for chain in chains[1:]}
        own: StudyChain | None = chains[0]
        while own is not None or asked:
            if own is not None:
                yield own, work(own, note)
            for future in [future for future in asked if future.done() and not future.cancelled()]:
                yield asked.pop(future), _told(future, note)
            own = _take_back(asked)
            if own is None and asked:
                wait(asked, return_when=FIRST_COMPLETED)


def read_kept(path: Path, kind: type[T]) -> T:
    """What a finished part of a study left behind.

    Raises:
        RunDirectoryError: the file is damaged, or of another version of mas.
    """
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except (OSError, ValueError, msgspec.MsgspecError) as error:
        raise RunDirectoryError(
            f"{path} cannot be read ({error}): delete it, and the same command works through that part again"
        ) from error


def _told(future: Future[list[ArmRun]], note: Note) -> list[ArmRun]:
    runs = future.result()
    for run in runs:
        note(describe(run))
    return runs


def _take_back(asked: dict[Future[list[ArmRun]], StudyChain]) -> StudyChain | None:
    """The last chain that no worker has begun, for this process; None where all are begun."""
    for future in reversed(list(asked)):
        if future.cancel():
            return asked.pop(future)
    return None
