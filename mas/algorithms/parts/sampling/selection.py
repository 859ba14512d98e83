"""Which groups, tasks and episodes are worth training on: filters, resampling, and successes of earlier steps.

Nothing is dropped silently: every function returns what stays and what does not, or leaves the difference to be
counted. Leaves out on purpose: where to branch (`entropy_tree`).

Resampling on correct samples more than is trained on, and keeps the cleanest successes. Source: GRPO-RoC in
rStar2-Agent, arXiv 2508.20722. Replayed successes give groups in which every episode failed something to compare with.
A replayed trajectory keeps the log-probabilities of its time, so that the ratio of the loss is that to the policy that
sampled it. Source: ARPO, End-to-End Policy Optimization for GUI Agents with Experience Replay, arXiv 2505.16282.
"""

import math
from collections.abc import Container, Hashable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from statistics import fmean, stdev
from typing import Annotated, Generic, Literal, TypeVar

import msgspec
from pydantic import Field

from mas.algorithms.parts.advantages.group import check_finite
from mas.algorithms.parts.rewards.names import OWN
from mas.algorithms.parts.rewards.terms import RewardOptions, total_reward
from mas.core.errors import CheckpointError, TrainingError
from mas.core.options import Count, Options, Positive, Selective
from mas.core.records import Episode, Fact, Group, Turn
from mas.core.seeds import derive_seed

Key = TypeVar("Key", bound=Hashable)
GroupFilter = Literal["mean", "std", "dapo"]
Trajectories = list[tuple[Turn, ...]]
"""All turns of each episode, the oldest episode first."""


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


class ToolUse(Fact, frozen=True):
    """Of a turn. `calls`: that it made, where the environment can tell; `errors`: that failed, not among them."""

    calls: int = 0
    errors: int = 0


@dataclass(frozen=True, slots=True)
class Selected(Generic[Key]):
    """Keys of groups, both in the order in which they were given."""

    kept: tuple[Key, ...]
    dropped: tuple[Key, ...]


@dataclass(frozen=True, slots=True)
class Resampled:
    """Indices into the group: successes with the lowest penalty first, failures in their order."""

    successes: tuple[int, ...]
    failures: tuple[int, ...]

    @property
    def kept(self) -> tuple[int, ...]:
        """All, in the order of the group."""
        return tuple(sorted(self.successes + self.failures))


def drop_equal(groups: Mapping[Key, Sequence[float]]) -> Selected[Key]:
    """Drop groups whose rewards are all equal, groups of one included: they have nothing to teach.

    Source: DAPO, arXiv 2503.14476, section 3.2.

    Raises:
        ValueError: a group has no rewards, or one that is no number between -1e90 and 1e90.
    """
    return _split(groups, {key for key, rewards in groups.items() if _checked(key, rewards) and _is_equal(rewards)})


def filter_groups(groups: Mapping[Key, Sequence[float]], by: GroupFilter, *, share: float = 0.5) -> Selected[Key]:
    """AT-GRPO's filter of groups.

    `mean`, `std`: drop floor(share x groups) of them, those of the lowest mean reward, or of the lowest standard
    deviation (ddof 1; 0 for a group of one), of equals the later; `dapo`: drop the equal ones whatever the share.
    Source: the code of Stronger-MAS, arXiv 2510.11062: `mean` and 0.5.

    Raises:
        ValueError: a group has no rewards, or the share is outside of [0, 1).
    """
    if not 0 <= share < 1:
        raise ValueError(f"share {share} of groups to drop is outside of [0, 1)")
    if by == "dapo":
        return drop_equal(groups)
    values = {key: _value(by, _checked(key, rewards)) for key, rewards in groups.items()}
    keys = list(groups)
    order = sorted(range(len(keys)), key=lambda number: (values[keys[number]], -number))
    return _split(groups, {keys[number] for number in order[: math.floor(share * len(keys))]})


def solvable_tasks(accuracies: Mapping[Key, float], *, below: float = 0.75) -> Selected[Key]:
    """Keep tasks that less than such a share of the peers' proposals solves: the leader has something to add there.

    Source: MLPO, How to Train a Leader, arXiv 2507.08960: tasks with at least 75% correct proposals are dropped.

    Raises:
        ValueError: an accuracy is outside of [0, 1].
    """
    for task, accuracy in accuracies.items():
        if not 0 <= accuracy <= 1:
            raise ValueError(f"the accuracy of task {task!r} is {accuracy}; it must be from 0 to 1")
    return _split(accuracies, {task for task, accuracy in accuracies.items() if accuracy >= below})


def largest_multiple(count: int, ranks: int, seed: int) -> tuple[int, ...]:
    """Indices of the samples to keep so that every rank gets equally many: all but `count` modulo `ranks`.

    Which are left out is uniform (our reading), and depends on the seed alone; those kept stay in order. With fewer
    samples than ranks none is kept.
    Source: IterResearch, arXiv 2511.07327, adaptive down-sampling.

    Raises:
        ValueError: the count is negative, or there is no rank.
    """
    if count < 0 or ranks < 1:
        raise ValueError(f"{count} samples on {ranks} ranks: at least 0 and at least 1 are possible")
    return tuple(sorted(Random(seed).sample(range(count), count - count % ranks)))


def _split(groups: Mapping[Key, object], dropped: set[Key]) -> Selected[Key]:
    return Selected(tuple(key for key in groups if key not in dropped), tuple(key for key in groups if key in dropped))


def _checked(key: Hashable, rewards: Sequence[float]) -> Sequence[float]:
    if not rewards:
        raise ValueError(f"group {key!r} has no rewards: leave it out")
    check_finite(rewards)
    return rewards


def _is_equal(rewards: Sequence[float]) -> bool:
    return min(rewards) == max(rewards)


def _value(by: GroupFilter, rewards: Sequence[float]) -> float:
    if by == "mean":
        return fmean(rewards)
    return stdev(rewards) if len(rewards) > 1 else 0.0


def largest_remainder(sizes: Sequence[int], keep: int) -> list[int]:
    """How many to keep of each class, in proportion to the sizes; they add up to `keep`, and none is above its size.

    Each gets the whole part of size x keep / sum; what is left goes to the largest remainders, of equals to the first.
    Rounding each share instead, as published, may add up to one more or one less.

    Raises:
        ValueError: a size is negative, or `keep` is below 0 or above the sum of the sizes.
    """
    whole = sum(sizes)
    if any(size < 0 for size in sizes) or not 0 <= keep <= whole:
        raise ValueError(f"cannot keep {keep} of classes of {list(sizes)}: 0 to {whole} are possible")
    if not whole:
        return [0] * len(sizes)
    parts = [divmod(size * keep, whole) for size in sizes]
    counts = [part for part, _ in parts]
    by_remainder = sorted(range(len(parts)), key=lambda number: -parts[number][1])
    for number in by_remainder[: keep - sum(counts)]:
        counts[number] += 1
    return counts


def resample_on_correct(
    successes: Sequence[bool],
    penalties: Sequence[float],
    *,
    keep: int,
    least: int = 0,
    seed: int = 0,
) -> Resampled:
    """Keep `keep` samples of one group, successes and failures in proportion.

    Successes are those with the lowest penalty, of equals the first. Failures are drawn uniformly, whatever their
    penalty, so that their diversity stays. A class below `least` is raised to it as far as it has samples and the other
    can spare them (2 for 16 of 32 in the paper).

    Raises:
        ValueError: the two lengths differ, `keep` is not from 0 to the size of the group, or 2 `least` exceeds `keep`.
    """
    if len(successes) != len(penalties):
        raise ValueError(f"{len(successes)} samples but {len(penalties)} penalties: give one per sample")
    if least < 0 or 2 * least > keep:
        raise ValueError(f"at least {least} of each class do not fit in {keep}: 0 to {max(keep, 0) // 2} are possible")
    good = [number for number, is_success in enumerate(successes) if is_success]
    bad = [number for number, is_success in enumerate(successes) if not is_success]
    share, _ = largest_remainder([len(good), len(bad)], keep)
    of_good = min(max(share, min(least, len(good))), keep - min(least, len(bad)))
    of_bad = keep - of_good
    chosen = tuple(sorted(Random(seed).sample(bad, of_bad)))
    return Resampled(tuple(sorted(good, key=lambda number: penalties[number])[:of_good]), chosen)


def transcript_penalty(*, calls: int, errors: int, has_form: bool) -> float:
    """How unclean a transcript is, 0 to 2: the share of tool calls that failed, plus 1 where an answer lacks its form.

    The share is 0.5 where no tool was called. The published penalty of further answers is left out.

    Raises:
        ValueError: a number is negative, or more calls failed than were made.
    """
    if not 0 <= errors <= calls:
        raise ValueError(f"no transcript has {errors} errors in {calls} calls")
    return (errors / calls if calls else 0.5) + float(not has_form)


class SuccessReplay:
    """Holds up to `size` successful episodes of every task, the newest."""

    def __init__(self, size: int, seed: int) -> None:
        self._size, self._seed = size, seed
        self._kept: dict[str, Trajectories] = {}
        self.injected = 0

    def repaired(self, group: Sequence[Episode], step: int) -> Sequence[Episode]:
        """The episodes of one task; if all failed and a success of the task is known, one has its turns.

        Which one, and which success, are uniform draws by the seed. The episode stays what it was in every other
        respect: it failed and cost what it cost. A group with a success stays as it is, and is remembered.

        Args:
            step: how many are done.
        """
        played = [number for number, one in enumerate(group) if one.status == "done" and one.turns]
        successes = [group[number] for number in played if group[number].success]
        if successes:
            kept = self._kept.setdefault(successes[0].task, [])
            kept += [one.turns for one in successes]
            del kept[: -self._size]
            return group
        known = self._kept.get(group[0].task, []) if played else []
        if not known:
            return group
        random = Random(derive_seed("replay", self._seed, step, group[0].task))
        place, turns = random.choice(played), random.choice(known)
        self.injected += 1
        return [_with(one, turns) if number == place else one for number, one in enumerate(group)]

    def metrics(self) -> dict[str, float]:
        """`tasks` with a success in store, `stored` successes, and `injected` since the last call."""
        injected, self.injected = self.injected, 0
        stored = sum(len(kept) for kept in self._kept.values())
        return {"tasks": float(len(self._kept)), "stored": float(stored), "injected": float(injected)}

    def state(self) -> bytes:
        """Task -> its successes, as JSON. All of them: for a checkpoint, not for every step."""
        return msgspec.json.encode(self._kept)

    def restore(self, state: bytes) -> None:
        """Go on from `state()`.

        Raises:
            CheckpointError: it is none.
        """
        try:
            self._kept = msgspec.json.decode(state, type=dict[str, Trajectories])
        except msgspec.MsgspecError as error:
            raise CheckpointError(f"these are no successes to replay: {error}; train a new run elsewhere") from error


def _with(episode: Episode, turns: Sequence[Turn]) -> Episode:
    """The episode with the turns of another one of its task, under its own name."""
    old = turns[0].episode

    def named(name: str) -> str:
        return episode.id + name.removeprefix(old)

    replayed = [
        msgspec.structs.replace(
            turn,
            id=named(turn.id),
            parent=named(turn.parent) if turn.parent is not None else None,
            episode=episode.id,
            trajectory=named(turn.trajectory),
            is_replayed=True,
        )
        for turn in turns
    ]
    return msgspec.structs.replace(episode, turns=tuple(replayed))


def filtered(
    episodes: Sequence[Episode], options: FilterOptions, reward: RewardOptions, trained: Container[str]
) -> tuple[list[Episode], Selected[str] | None]:
    """The episodes without the turns of groups that the options drop; with `by=solved` also which tasks were kept."""
    if options.by == "solved":
        solved = unsolved(episodes, trained, options)
        kept_tasks = set(solved.kept)
        return [one if one.task in kept_tasks else msgspec.structs.replace(one, turns=()) for one in episodes], solved
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
    left = (tuple(turn for turn in episode.turns if turn.group in kept) for episode in episodes)
    return [msgspec.structs.replace(one, turns=turns) for one, turns in zip(episodes, left, strict=True)], None


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
