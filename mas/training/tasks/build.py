"""The source that the options name."""

from collections.abc import Mapping

from mas.config.options import TrainOptions
from mas.core.errors import ConfigError
from mas.core.scenario import TaskSource
from mas.training.tasks.curriculum import Curriculum
from mas.training.tasks.cursors import Cursors, Fresh
from mas.training.tasks.epochs import Epochs
from mas.training.tasks.learning_progress import LearningProgress
from mas.training.tasks.mixture import Mixture
from mas.training.tasks.replay import Replay


def build_source(train: TrainOptions, sizes: Mapping[str, int | None]) -> TaskSource:
    """The source of `train.tasks`, with failed tasks played again where that is asked for.

    Args:
        sizes: arm -> how many training tasks it has, None where they never end.

    Raises:
        ConfigError: the tasks are not as many as the options want.
    """
    source = _source(train, sizes)
    return Replay(source, train.tasks.replay) if train.tasks.replay.share else source


def _source(train: TrainOptions, sizes: Mapping[str, int | None]) -> TaskSource:
    tasks, seed = train.tasks, train.seed
    if tasks.source in ("fresh", "epochs"):
        ((arm, size),) = sizes.items()
        if tasks.source == "fresh":
            _check_enough(size, train.tasks_per_step, "train.tasks_per_step")
            return Fresh(arm, size, seed)
        if tasks.count is None and size is None:
            raise ConfigError(
                "train.tasks.source=epochs plays all tasks of a scenario; those of this one never end: set "
                "train.tasks.count"
            )
        _check_enough(size, tasks.count or 0, "train.tasks.count")
        return Epochs(arm, tasks.count or size or 0, shuffle=tasks.shuffle, seed=seed, give_up=tasks.give_up)
    cursors = Cursors(sizes, seed)
    if tasks.source == "mixture":
        return Mixture(cursors, {name: arm.weight for name, arm in tasks.arms.items()})
    if tasks.source == "curriculum":
        return Curriculum(cursors, threshold=tasks.threshold, patience=tasks.patience)
    return LearningProgress(
        cursors, explore=tasks.explore, fast=tasks.fast, slow=tasks.slow, signal=tasks.signal, seed=seed
    )


def _check_enough(size: int | None, wanted: int, key: str) -> None:
    if size is not None and wanted > size:
        raise ConfigError(f"{key} is {wanted}, but there are {size} training tasks: set it to {size} at most")
