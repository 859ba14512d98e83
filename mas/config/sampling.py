"""Options of sampling: which tasks a step of training plays, how candidates are drawn, who plays the seats that the
learner leaves to others, and what is imitated before the first step.
"""

from typing import Annotated, Any, Literal, Self

from pydantic import Field, StringConstraints, model_validator

from mas.config.base import Count, NonNegative, Options, Positive, Selective, Share
from mas.core.naming import did_you_mean

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
SELF = "self"
"""Stands in mixes and shares for the policy in training, in all seats: self-play."""
PlayerName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]*$")]
Weight = Annotated[NonNegative, Field(allow_inf_nan=False, le=1e6)]
"""Bounded, so that sums of them are, too."""


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
    count: Positive | None = None
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


class HorizonOptions(Options):
    """An episode ends after so many team turns: the first of `turns` for `every` steps, then the next, and so on."""

    turns: Annotated[tuple[Positive, ...], Field(min_length=1)]
    every: Positive = 100


class ResampleOptions(Options):
    """`factor` times K episodes are played, and K of them kept: failures as they come, successes by the share of their
    tool calls that failed (0.5 without a call), + 1 where an output did not parse, the lowest first; in proportion, but
    `least` of each where there are so many."""

    factor: Annotated[int, Field(ge=2)] = 2
    least: Count = 2


class FilterOptions(Selective):
    """Groups that are not trained: `share` of each role's, those of the lowest `mean` reward or of the lowest `std`, or
    all whose rewards are `equal`; or all of a task that `share` of its frozen members' answers solve (`solved`), which
    leaves nothing to add. `term`: the own term of theirs that is 1 for a right answer."""

    by: Literal["mean", "std", "equal", "solved"] = "mean"
    share: Annotated[float, Field(ge=0, lt=1)] = 0.5
    term: str = "answer"

    def unused_reason(self, name: str) -> str | None:
        if name == "term" and self.by != "solved":
            return f"by={self.by} compares rewards; only by=solved reads a term"
        return "by=equal drops all groups of equal rewards" if name == "share" and self.by == "equal" else None


class SuccessReplayOptions(Options):
    """Where all episodes of a task fail, one of them gives its place to an earlier success of the same task; up to
    `size` successes of every task are kept, the newest."""

    size: Positive = 4


class BranchOptions(Selective):
    """Where an entropy tree branches, by the mean entropy a token of turns that were drawn (of their first `tokens`).

    `rank`: `chains` whole episodes, then rounds in which the `expand` turns of the greatest entropy - `penalty` x
    (siblings - 1) are drawn again. `chance`: so many whole episodes as the entropy of the first turn against that of
    the others says; then a turn is drawn again where (u + `weight` (H - H of its episode's first turn)) x
    (1 - `penalty` x branches right before it) is at least 0.5, u uniform.
    """

    by: Literal["rank", "chance"] = "rank"
    chains: Positive = 4
    expand: Positive = 2
    penalty: NonNegative = 0.05
    weight: NonNegative = 0.2
    tokens: Positive | None = None

    def unused_reason(self, name: str) -> str | None:
        if name in ("chains", "expand") and self.by == "chance":
            return "by=chance chooses how many by entropies"
        return "by=rank compares entropies alone" if name == "weight" and self.by == "rank" else None


class AttemptOptions(Options):
    """A task is attempted again from the same start, `most` times in all.

    `stop`: once it is `solved`, which the environment says, so that later attempts are guided by an oracle; success is
    that of the first one. Or `never`: it is not told whether it was, and success is that of the last attempt.
    `guide`: what a new attempt is told: what was `tried` before (`none`), and what the `environment` says about it; or
    what a role `reflector`, which sees what was tried, says (`reflector`). `repair`: the reflector makes it itself.
    """

    most: Annotated[int, Field(ge=2)] = 2
    guide: Literal["none", "environment", "reflector", "repair"] = "none"
    stop: Literal["solved", "never"] = "solved"

    @model_validator(mode="after")
    def _guides_what_failed(self) -> Self:
        if self.stop == "never" and self.guide != "none":
            raise ValueError(
                f"guide={self.guide} tells of failures, which stop=never does not tell apart: leave one out"
            )
        return self


class SamplerOptions(Options):
    """How candidates are drawn.

    `tree`: at each decision K `candidates` from one prompt and state, each scored on its own clone, one committed.
    `parallel`: K whole episodes per task, each compared with the others.
    `full_tree`: K candidates at each decision, and all of them are carried on, to `max_leaves` ends of a task at most.
    `entropy_tree`: K whole episodes per task, some of which `branch` off from others where entropy is high.
    `lookahead`: how far a candidate is played on before the team's reward is read: not at all (`action`), to the end
    of the team turn (`turn`), or of the episode (`episode`); `continuations` play-outs are averaged.
    `commit_best`: probability that the best candidate is committed; otherwise one is drawn uniformly.
    `attempts`: an episode is several attempts at its task.
    `refill`: a task none of whose groups has anything to teach is replaced by another one, so many times a step.
    """

    mode: Literal["tree", "parallel", "full_tree", "entropy_tree"] = "tree"
    candidates: Annotated[int, Field(ge=2)] = 8
    lookahead: Literal["action", "turn", "episode"] = "turn"
    continuations: Positive = 1
    commit_best: Share = 1.0
    max_leaves: Positive = 256
    branch: BranchOptions = BranchOptions()
    attempts: AttemptOptions | None = None
    horizon: HorizonOptions | None = None
    resample: ResampleOptions | None = None
    refill: Count = 0
    filter: FilterOptions | None = None
    replay: SuccessReplayOptions | None = None


class OpponentsOptions(Options):
    """In every training game one seat is the learner's, and one opponent, drawn for the game, plays the others.

    `players`: name -> source, as `mas league run` takes them (`random`, `cfr:500`, `run:DIR@STEP`). `league`: its
    members are opponents, too. `mix`: how often which, as `0.5*self+0.3*latest+0.2*pfsp:2`; or `shares`: by name,
    divided by their sum. In both `self` is the present policy in all seats.
    `seats`: those that the learner plays, one after the other; empty: all that it trains. `decay`: of what happened
    against an opponent a game before, in the running means that `pfsp` and `even` read.
    """

    players: dict[PlayerName, Annotated[str, Field(min_length=1)]] = Field(default_factory=dict)
    league: Annotated[str, Field(min_length=1)] | None = None
    mix: Annotated[str, Field(min_length=1)] = "uniform"
    shares: dict[str, Weight] = Field(default_factory=dict)
    seats: tuple[str, ...] = ()
    decay: Annotated[float, Field(ge=0, lt=1)] = 0.99

    @model_validator(mode="after")
    def _names_somebody(self) -> Self:
        if not self.players and self.league is None:
            raise ValueError(
                "nobody is named: write algorithm.opponents.players.NAME=SOURCE, such as best=cfr:500 or "
                "old=run:runs/kuhn@20, or algorithm.opponents.league=FILE"
            )
        if SELF in self.players:
            raise ValueError(f"players has {SELF!r}, which is the present policy: choose another name")
        if self.shares and self.mix != "uniform":
            raise ValueError(f"mix={self.mix} and shares both say how often who plays: leave one of them out")
        if self.shares and not sum(self.shares.values()):
            raise ValueError("shares are all 0, so that nobody would play: give somebody more")
        unknown = [name for name in self.shares if self.league is None and name not in {*self.players, SELF}]
        if unknown:
            raise ValueError(
                f"shares has {unknown[0]!r}, who is no player. {did_you_mean(unknown[0], {*self.players, SELF})}"
            )
        return self


class WarmStartOptions(Options):
    """Before the first step every role imitates what it said in episodes that went well.

    Of the first `tasks` training tasks `attempts` whole episodes each are sampled from the team as it begins. Kept are
    the turns, of roles that are trained, whose trajectory has a reward R (`RewardOptions`) of at least `threshold`;
    None: of episodes that succeeded. What does not parse is not kept.
    `temperature`: of all roles in these episodes; None: each role's own.
    The kept turns are learned from by cross-entropy, `epochs` times in optimiser steps of `batch` turns for each
    adapter; the optimisers of the steps begin anew behind it.
    """

    tasks: Positive = 64
    attempts: Annotated[int, Field(ge=2)] = 8
    threshold: float | None = None
    temperature: Annotated[float, Field(gt=0)] | None = None
    epochs: Positive = 2
    batch: Positive = 32
