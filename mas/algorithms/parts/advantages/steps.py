"""Steps of a trajectory: what follows each of them, their groups, and a step's own term beside its trajectory's.

A = A_episode + w A_step. A_step is `group_advantages` of the steps' values in groups of steps: of one state or step
index, or random. A_episode has its statistics once per trajectory (`once_per_trajectory`).
"""

import random
from collections.abc import Callable, Hashable, Sequence
from itertools import pairwise
from typing import Annotated, Any, Literal

from pydantic import Field

from mas.algorithms.parts.advantages.group import check_lengths, group_advantages, members
from mas.core.options import Options, Selective
from mas.core.records import Fact
from mas.core.seeds import Part, derive_seed


class Anchor(Fact, frozen=True):
    """Of a turn. `state`: fingerprint of where its task stands, whatever the time and the way there
    (`mas.core.environment.anchor_of`), and of the messages that its agent has."""

    state: str = ""


class StepOptions(Selective):
    """A term of each turn beside its trajectory's, added with `weight`.

    `value`: what was paid from this turn on, discounted (`return`), for this turn alone (`reward`), for it by its own
    terms (`own`), or by the reward model (`model`). `key`: compared with all turns of the `group`, with those that
    began in the same `state` (where the task stood, and what the agent had heard), or with the same number of turns
    behind them (`index`), or with `size` turns of the role drawn at `random` from the batch; `none`: with nothing.
    `baseline`: the mean of all of these, or of the others.
    """

    weight: Annotated[float, Field(gt=0)] = 1.0
    value: Literal["return", "reward", "own", "model"] = "return"
    discount: Annotated[float, Field(gt=0, le=1)] = 0.95
    key: Literal["group", "state", "index", "random", "none"] = "state"
    baseline: Literal["mean", "leave_one_out"] = "mean"
    size: Annotated[int, Field(ge=2)] = 16
    scale: Literal["std", "none"] = "std"

    def unused_reason(self, name: str) -> str | None:
        if name == "size" and self.key != "random":
            return "only key=random draws groups of a size"
        if name == "discount" and self.value != "return":
            return f"value={self.value} is what this turn alone was paid"
        if name in ("scale", "baseline") and self.key == "none":
            return "key=none compares with nothing"
        return None


class GainOptions(Options):
    """What a turn added to the right answer; see `RewardOptions`. `of`: to its `probability`, the geometric mean over
    its tokens, or to their mean log-probability (`logprob`). `discount`: of what comes later, per wave of turns."""

    of: Literal["probability", "logprob"] = "probability"
    discount: Annotated[float, Field(gt=0, le=1)] = 1.0


class AnswerKnowledge(Fact, frozen=True):
    """Of an episode. `logprobs`: of the right answer's tokens, their mean (nats) if the team's last member gave it
    then: before the agents that spoke first, before those that spoke when they had, and so on. Empty: not asked."""

    logprobs: tuple[float, ...] = ()


class Wave(Fact, frozen=True):
    """Of a turn. `number`: where it stands in its episode's `AnswerKnowledge`."""

    number: int = 0


def returns_to_go(rewards: Sequence[float], gamma: float = 1.0) -> list[float]:
    """G_t = sum over k >= t of gamma^(k-t) r_k. Source: GiGPO, arXiv 2505.10978."""
    carried = 0.0
    returns = []
    for reward in reversed(rewards):
        carried = reward + gamma * carried
        returns.append(carried)
    return returns[::-1]


def differences(values: Sequence[float]) -> list[float]:
    """v_(t+1) - v_t, one fewer than values: what each step changed; they add up to last - first.

    Source: information gain of IGPO, arXiv 2510.14967; improvement reward of WaltzRL, arXiv 2510.08240.
    """
    return [after - before for before, after in pairwise(values)]


def with_steps(episode: Sequence[float], step: Sequence[float], weight: float = 1.0) -> list[float]:
    """A = A_episode + weight x A_step.

    Source: GiGPO, arXiv 2505.10978; UI-S1, arXiv 2509.11543; SRGPO, arXiv 2512.02631; OPRL, arXiv
    2509.19199.

    Args:
        episode: of N rows, equal within a trajectory. step: of the same rows.

    Raises:
        ValueError: the two lengths differ.
    """
    check_lengths({"advantages of episodes": episode, "advantages of steps": step})
    return [own + weight * term for own, term in zip(episode, step, strict=True)]


def random_groups(
    labels: Sequence[str], size: int, *seed: Part, within: Sequence[Hashable] | None = None
) -> list[tuple[Hashable, int]]:
    """Group keys that put rows together at random, for step rewards that mean the same in every state.

    Depends on labels and seed alone, not on the order of the rows. The last group of a scope has what is left over;
    if that is one row alone, it is compared with nothing.
    Source: SRGPO, arXiv 2512.02631 (size 16, from the whole batch).

    Args:
        labels: N different names of rows. size: rows per group, at least 2. seed: names and numbers.
        within: the scope of each row, e.g. its task: groups lie inside one. None: the whole batch.

    Raises:
        ValueError: lengths differ, labels repeat, or the size is below 2.
    """
    within = within if within is not None else [None] * len(labels)
    check_lengths({"labels": labels, "scopes": within})
    if size < 2:
        raise ValueError(f"random groups of {size} have nothing to compare: the size must be 2 or more")
    if len(set(labels)) < len(labels):
        raise ValueError(f"{len(labels)} rows have only {len(set(labels))} labels: each row needs one of its own")
    keys: list[tuple[Hashable, int]] = [(None, 0)] * len(labels)
    for scope, indices in members(within).items():
        ordered = sorted(indices, key=lambda index: labels[index])
        random.Random(derive_seed("random groups", *seed, labels[ordered[0]])).shuffle(ordered)
        for place, i in enumerate(ordered):
            keys[i] = scope, place // size
    return keys


def once_per_trajectory(
    rewards: Sequence[float],
    keys: Sequence[Hashable],
    trajectories: Sequence[Hashable],
    estimate: Callable[[Sequence[float], Sequence[Hashable]], list[float]],
) -> list[float]:
    """Every trajectory enters the statistics of its group once, however long it is; all its rows get its advantage.

    Args:
        rewards: of N rows, equal within a trajectory. keys: their groups. trajectories: unique within a group.
        estimate: (rewards, keys) -> advantages, e.g. `group_advantages`.

    Raises:
        ValueError: lengths differ, or rows of one trajectory and group have different rewards.
    """
    check_lengths({"rewards": rewards, "group keys": keys, "trajectories": trajectories})
    rows = list(zip(keys, trajectories, strict=True))
    by_row: dict[tuple[Hashable, Hashable], float] = {}
    for row, reward in zip(rows, rewards, strict=True):
        if by_row.setdefault(row, reward) != reward:
            raise ValueError(
                f"trajectory {row[1]!r} of group {row[0]!r} has rows with rewards {by_row[row]} and {reward}: "
                "give each row the reward of the whole trajectory"
            )
    values = estimate(list(by_row.values()), [key for key, _ in by_row])
    advantages = dict(zip(by_row, values, strict=True))
    return [advantages[row] for row in rows]


def over_trajectories(
    values: Sequence[float],
    trajectories: Sequence[Hashable],
    steps: Sequence[Any],
    change: Callable[[Sequence[float]], Sequence[float]],
) -> list[float]:
    """`change`, e.g. discounting, applied to the values of every trajectory in the order of `steps`.

    Args:
        values: of N rows in any order. trajectories: of each row. steps: of each row, comparable and different
            within a trajectory.

    Raises:
        ValueError: lengths differ, or a trajectory has two rows of one step.
    """
    check_lengths({"values": values, "trajectories": trajectories, "steps": steps})
    changed = [0.0] * len(values)
    for trajectory, indices in members(trajectories).items():
        if len({steps[i] for i in indices}) < len(indices):
            raise ValueError(f"trajectory {trajectory!r} has two rows of one step: each row needs a step of its own")
        ordered = sorted(indices, key=lambda index: steps[index])
        for i, value in zip(ordered, change([values[i] for i in ordered]), strict=True):
            changed[i] = value
    return changed


def gain_advantages(
    knowledge: Sequence[Sequence[float]],
    outcomes: Sequence[float],
    keys: Sequence[Hashable],
    *,
    gamma: float = 1.0,
) -> list[list[float]]:
    """Information gains and outcomes, each normalised in the group by itself, then added up discounted to the end.

    With p_0 before the first turn and p_t after turn t, the gain of turn t is p_t - p_(t-1), of all turns but the last,
    whose reward is the outcome. A_t = sum over k >= t of gamma^(k-t) z_k. Gains enter their statistics once per turn,
    outcomes once per trajectory; raw gains add up to p_last - p_0.
    Source: IGPO, arXiv 2510.14967: p is the probability of the answer, exp of the mean log-probability of its tokens
    (v1 and its code), or that mean itself (v2).

    Args:
        knowledge: of N trajectories, each turns x p: before any turn and after every turn but the last.
        outcomes: of each trajectory. keys: their groups.

    Returns:
        N x turns of that trajectory.

    Raises:
        ValueError: lengths differ, or a trajectory has no probability.
    """
    check_lengths({"trajectories with probabilities": knowledge, "outcomes": outcomes, "group keys": keys})
    empty = [index for index, values in enumerate(knowledge) if not values]
    if empty:
        raise ValueError(f"trajectories {empty} have no probability of the answer: give at least the one at start")
    gains = [differences(values) for values in knowledge]
    owners = [key for key, own in zip(keys, gains, strict=True) for _ in own]
    compared = iter(group_advantages([gain for own in gains for gain in own], owners))
    ends = group_advantages(outcomes, keys)
    rows = [[*(next(compared) for _ in own), end] for own, end in zip(gains, ends, strict=True)]
    return [returns_to_go(row, gamma) for row in rows]
