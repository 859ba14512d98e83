"""`sampler.filter`: which groups, or tasks, of a step are worth learning from."""

from collections.abc import Container, Sequence
from statistics import fmean

import msgspec

from mas.config.rewards import RewardOptions
from mas.config.sampling import FilterOptions
from mas.core.errors import TrainingError
from mas.core.records import Episode, Group, Turn
from mas.training.rewards import OWN, total_reward
from mas.training.sampling.selection import GroupFilter, Selected, filter_groups, solvable_tasks


def filtered(
    episodes: Sequence[Episode], options: FilterOptions, reward: RewardOptions, trained: Container[str]
) -> tuple[list[Episode], Selected[str] | None]:
    """The episodes without the turns of groups that the options drop; with `by=solved` also which tasks were kept."""
    if options.by == "solved":
        solved = unsolved(episodes, trained, options)
        return [_only(one, one.task in solved.kept) for one in episodes], solved
    by: GroupFilter = "dapo" if options.by == "equal" else options.by
    by_role: dict[str, dict[Group, dict[str, float]]] = {}
    for turn in (turn for episode in episodes for turn in episode.turns):
        rewards = by_role.setdefault(turn.role, {}).setdefault(turn.group, {})
        rewards[turn.trajectory] = total_reward(turn.rewards, reward)
    kept: set[Group] = set()
    for groups in by_role.values():
        values = {group: list(rewards.values()) for group, rewards in groups.items()}
        # Where all are equal nothing can be learned, but a role without any turn could not even be measured.
        kept |= set(filter_groups(values, by, share=options.share).kept or values)
    return [msgspec.structs.replace(episode, turns=_of(episode.turns, kept)) for episode in episodes], None


def unsolved(episodes: Sequence[Episode], trained: Container[str], options: FilterOptions) -> Selected[str]:
    """Tasks by id that the members who are not trained solve by less than `share`; the others are dropped, be it all.

    Raises:
        TrainingError: nobody beside the trained roles is paid the term.
    """
    answers: dict[str, list[float]] = {}
    for turn in (turn for episode in episodes for turn in episode.turns):
        if turn.role not in trained and (value := turn.rewards.get(f"{OWN}{options.term}")) is not None:
            answers.setdefault(turn.task, []).append(value)
    if not answers:
        raise TrainingError(
            f"the filter of tasks reads the own term {options.term!r} of roles that are not trained, and none has it: "
            "name one that the scenario pays them in the algorithm's option (`mas algorithms NAME`), or choose another"
        )
    return solvable_tasks({task: fmean(values) for task, values in answers.items()}, below=options.share)


def _only(episode: Episode, is_kept: bool) -> Episode:
    return episode if is_kept else msgspec.structs.replace(episode, turns=())


def _of(turns: Sequence[Turn], groups: set[Group]) -> tuple[Turn, ...]:
    return tuple(turn for turn in turns if turn.group in groups)
