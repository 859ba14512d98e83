"""Who plays when nobody trains: a run's team, an untrained one, or what a server serves."""

from contextlib import AbstractAsyncContextManager
from pathlib import Path

from mas.config.options import Config
from mas.core.scenario import Scenario
from mas.runtime.human import HumanDesk
from mas.runtime.runlog import RunLog
from mas.training.compare import untrained
from mas.training.crew import Players, Shared, open_crew
from mas.training.libraries import open_taught
from mas.training.run import Note, open_base
from mas.training.saved import saved_adapters, saved_experiences
from mas.training.served import open_served


def open_players(
    config: Config,
    scenario: Scenario,
    run: Path | None,
    note: Note,
    desk: HumanDesk | None = None,
    *,
    shared: Shared | None = None,
    log: RunLog | None = None,
) -> AbstractAsyncContextManager[Players]:
    """The configured team with what a run has learned, or without a run untrained; with `engine=openai` the server's.

    Args:
        shared: as in `open_crew`; it may be opened after this is called, which loads the base.
        log: as in `open_crew`.

    Raises:
        ModelError: the base cannot be loaded. RunDirectoryError, CheckpointError: see `saved_adapters`.
    """
    experiences = saved_experiences(run, config.algorithm)
    if config.engine.name == "openai":
        return open_served(config, scenario, desk=desk, shared=shared, log=log, experiences=experiences)
    base = open_base(config, scenario, note)
    if config.algorithm.is_training_free:
        return open_taught(config, scenario, base, experiences, desk=desk, shared=shared, log=log)
    adapters = untrained(config, scenario, base) if run is None else saved_adapters(run, base.bank)
    return open_crew(config, scenario, base, adapters, desk=desk, shared=shared, log=log)
