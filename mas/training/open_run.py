"""Opens the team of a run where nobody trains: trained, untrained, or as a server serves it."""

from contextlib import AbstractAsyncContextManager
from pathlib import Path

from mas.runtime.human import HumanDesk
from mas.runtime.replay_log import ReplayLog
from mas.training.base import Note, open_base
from mas.training.saved import initial_adapters, saved_adapters, saved_experiences, saved_samplers
from mas.training.session import Shared, TeamSession, open_team
from mas.training.setup import Setup


def open_run(
    setup: Setup,
    run: Path | None,
    note: Note,
    desk: HumanDesk | None = None,
    *,
    shared: Shared | None = None,
    log: ReplayLog | None = None,
) -> AbstractAsyncContextManager[TeamSession]:
    """The team with what a run has learned, or without a run untrained; with `engine=openai` the server's. With
    `engine=tinker` the service has what the run has learned.

    Args:
        shared: as in `open_team`; it may be opened after this is called, which loads the base.
        log: as in `open_team`.

    Raises:
        ModelError: the base cannot be loaded. RunDirectoryError, CheckpointError: see `saved_adapters`.
    """
    setup = setup.with_experiences(saved_experiences(run, setup.algorithm))
    base = None if setup.is_served_elsewhere else open_base(setup, note)
    if base is None or setup.algorithm.is_training_free:
        saved = {} if run is None else saved_samplers(run, setup)
        return open_team(setup, base, desk=desk, shared=shared, log=log, saved=saved)
    adapters = initial_adapters(setup, base) if run is None else saved_adapters(run, base)
    return open_team(setup, base, adapters, desk=desk, shared=shared, log=log)
