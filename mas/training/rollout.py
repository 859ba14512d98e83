"""A step's episodes: which tasks are played, how far, and which of them are worth learning from."""

from collections.abc import Sequence

import msgspec

from mas.config.algorithm import AlgorithmOptions
from mas.config.options import Config
from mas.core.errors import TrainingError
from mas.core.records import Episode, Turn
from mas.core.seeds import derive_seed
from mas.core.together import together
from mas.runtime.team import TeamRuntime
from mas.training.rewards import total_reward
from mas.training.sampling.parallel import ParallelSampler
from mas.training.sampling.selection import filter_groups
from mas.training.sampling.tree import TreeSampler
from mas.training.schedules import Horizon
from mas.training.tasks.plan import Planned, TaskPlan, outcome_of

_ROUNDS = 2**40
"""A refill draws as if it were a step that is this much later: tasks that no step draws."""


class Rollout:
    """Plays what a task plan draws as `algorithm.sampler` says."""

    def __init__(self, config: Config, tasks: TaskPlan) -> None:
        self._algorithm: AlgorithmOptions = config.algorithm
        self._train = config.train
        self._tasks = tasks
        horizon = config.algorithm.sampler.horizon
        self._horizon = Horizon(turns=horizon.turns, every=horizon.every) if horizon is not None else None

    async def sample(self, runtime: TeamRuntime, step: int) -> list[Episode]:
        """The episodes of a step, all tasks at once. A task that cannot be played is a recorded failure, not a crash.

        With `sampler.refill`, tasks that have nothing to teach are replaced by others, as often as it says; they stay
        in the record, without turns. If there is nothing to learn after the last round, that round's turns stay.

        Args:
            step: how many are done.

        Raises:
            TrainingError: no episode could be played.
        """
        wanted, episodes, useful = self._train.tasks_per_step, list[Episode](), 0
        refill = self._algorithm.sampler.refill
        for number in range(1 + refill):
            groups, flat = await self._round(runtime, step, number, wanted - useful)
            useful += len(groups) - sum(flat)
            is_last = number == refill or useful == wanted
            for group, is_flat in zip(groups, flat, strict=True):
                is_dropped = refill > 0 and is_flat and not (is_last and not useful)
                episodes += [msgspec.structs.replace(one, turns=()) for one in group] if is_dropped else group
            if is_last:
                break
        failed = [episode for episode in episodes if episode.status == "failed"]
        if len(failed) == len(episodes):
            raise TrainingError(f"none of the {len(episodes)} tasks of step {step} could be played: {failed[0].cause}")
        return self._filtered(episodes)

    async def _round(
        self, runtime: TeamRuntime, step: int, number: int, count: int
    ) -> tuple[Sequence[Sequence[Episode]], list[bool]]:
        """The episodes of so many tasks, and whether a task has nothing to teach."""
        planned = self._tasks.draw(step + number * _ROUNDS, count)
        seeds = [derive_seed("play", self._train.seed, step, *([number] if number else []), n) for n in range(count)]
        plays = [self._play(runtime, one, step, seed) for one, seed in zip(planned, seeds, strict=True)]
        played = await together(plays, "task")
        rewards = self._algorithm.reward
        ends = [outcome_of(one.pick, group, rewards) for one, group in zip(planned, played, strict=True)]
        self._tasks.tell([end for end in ends if end is not None])
        return played, [end is None or end.flat == 1 for end in ends]

    async def _play(self, runtime: TeamRuntime, planned: Planned, step: int, seed: int) -> tuple[Episode, ...]:
        algorithm, scenario = self._algorithm, planned.scenario
        kind = TreeSampler if algorithm.sampler.mode == "tree" else ParallelSampler
        turns = self._horizon(step) if self._horizon is not None else None
        sampler = kind(runtime, scenario.reward, algorithm.sampler, algorithm.reward, turns)
        return await sampler.sample(planned.task, scenario.environment(), seed)

    def _filtered(self, episodes: list[Episode]) -> list[Episode]:
        """Without the turns of groups that `sampler.filter` drops."""
        options = self._algorithm.sampler.filter
        if options is None:
            return episodes
        by_role: dict[str, dict[str, dict[str, float]]] = {}
        for turn in (turn for episode in episodes for turn in episode.turns):
            rewards = by_role.setdefault(turn.role, {}).setdefault(turn.group, {})
            rewards[turn.trajectory] = total_reward(turn.rewards, self._algorithm.reward)
        kept: set[str] = set()
        for groups in by_role.values():
            values = {group: list(rewards.values()) for group, rewards in groups.items()}
            by = "dapo" if options.by == "equal" else options.by
            # Where all are equal nothing can be learned, but a role without any turn could not even be measured.
            kept |= set(filter_groups(values, by, share=options.share).kept or values)
        return [msgspec.structs.replace(episode, turns=_of(episode.turns, kept)) for episode in episodes]


def _of(turns: Sequence[Turn], groups: set[str]) -> tuple[Turn, ...]:
    return tuple(turn for turn in turns if turn.group in groups)
