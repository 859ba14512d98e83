"""Options of sampling: which tasks a step of training plays, how candidates are drawn, who plays the seats that the
learner leaves to others, and what is imitated before the first step.
"""

from typing import Annotated, Any, Literal, Self

from pydantic import Field, StringConstraints, model_validator

from mas.core.options import Options, Positive, Share

SourceName = Literal["fresh", "epochs", "mixture", "curriculum", "progress"]
ArmName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_-]+$")]

WITH_ARMS: tuple[SourceName, ...] = ("mixture", "curriculum", "progress")
_SOURCES_WITH: dict[str, tuple[SourceName, ...]] = {
    "count": ("epochs",),
    "shuffle": ("epochs",),
    "give_up": ("epochs",),
    "arms": WITH_ARMS,
    "threshold": ("curriculum",),
    "patience": ("curriculum",),
    "explore": ("progress",),
    "fast": ("progress",),
    "slow": ("progress",),
    "signal": ("progress",),
}


class ArmOptions(Options):
    """Where some of the tasks come from: a scenario with options.

    `scenario`: its name; None: the run's own, whose `scenario.options` then hold where `options` does not say
    otherwise. `weight`: its share of a mixture is this by the sum of all weights.
    """

    scenario: str | None = None
    options: dict[str, Any] = Field(default_factory=dict)
    weight: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 1.0


class ReplayOptions(Options):
    """Failed tasks, played again.

    `share` of every step's tasks are such, as far as there are any; 0: none. A task has failed if less than `below` of
    its episodes were solved. It is played again until it is solved, `tries` times at most; of more than `memory` failed
    tasks the oldest are forgotten.
    """

    share: Annotated[float, Field(ge=0, lt=1)] = 0.0
    below: Annotated[float, Field(gt=0, le=1)] = 0.5
    tries: Positive = 4
    memory: Positive = 1000


class TaskOptions(Options):
    """Which tasks of the training split a step plays. What they do in full: docs/tasks.md.

    `source`: `fresh` takes tasks never seen before (of a finite scenario: drawn anew for every step), `epochs` all of
    the first `count` tasks once before any comes twice (None: all that a finite scenario has), in an order that
    changes from epoch to epoch if `shuffle`; with `give_up` a task is left out once no episode has solved it in its
    first so many plays. The others take theirs from `arms`: `mixture` by their weights,
    `curriculum` from one after the other, `progress` most from the one where most changes.

    `threshold`, `patience`: a curriculum goes on to the next arm when the mean success of a step's tasks was at least
    this for so many steps in a row. `fast`, `slow`: weights of the newest step in the two running means of `signal`
    whose distance is an arm's progress; `explore` of the tasks are drawn from all arms alike.
    """

    source: SourceName = "fresh"
    count: Annotated[Positive, Field(le=10**9)] | None = None
    shuffle: bool = True
    give_up: Positive | None = None
    arms: dict[ArmName, ArmOptions] = Field(default_factory=dict)
    threshold: Annotated[float, Field(gt=0, le=1)] = 0.8
    patience: Positive = 2
    explore: Share = 0.2
    fast: Annotated[float, Field(gt=0, le=1)] = 0.3
    slow: Annotated[float, Field(gt=0, le=1)] = 0.05
    signal: Literal["success", "reward"] = "success"
    replay: ReplayOptions = ReplayOptions()

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.source in WITH_ARMS and len(self.arms) < 2:
            raise ValueError(
                f"source={self.source} needs two arms or more, there are {len(self.arms)}: write "
                "train.tasks.arms.NAME.options.KEY=VALUE for each"
            )
        if self.arms and self.source not in WITH_ARMS:
            raise ValueError(f"source={self.source} has no arms; {', '.join(WITH_ARMS)} have")
        if self.slow >= self.fast:
            raise ValueError(f"slow={self.slow} must be below fast={self.fast}")
        return self

    def unused_reason(self, name: str) -> str | None:
        """Why a key below `train.tasks` has no effect beside the others; None: it has one."""
        wanted = _SOURCES_WITH.get(name)
        if wanted is not None and self.source not in wanted:
            return f"train.tasks.source={self.source}; only {', '.join(wanted)} has it"
        is_weight = name.startswith("arms.") and name.split(".")[2:] == ["weight"]
        if is_weight and self.source != "mixture":
            return f"train.tasks.source={self.source} has no weights; only mixture has"
        if name.startswith("replay.") and name != "replay.share" and self.replay.share == 0:
            return "train.tasks.replay.share=0 plays nothing again"
        return None
