"""What an editor is shown: for one role, the episodes of one task next to each other."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from mas.config.options import RewardOptions
from mas.config.updates import ExperienceOptions
from mas.core.naming import agent_of
from mas.core.records import Episode
from mas.training.experience.groups import telling
from mas.training.rewards import total_reward

Plain = Callable[[str, str], str]
"""(agent, prompt) -> what the prompt shows beside what every prompt of the agent says."""


@dataclass(frozen=True, slots=True)
class Said:
    """One output: by whom, what it was shown, what it answered. `failure`: why that did not parse; None: it did."""

    agent: str
    shown: str
    answer: str
    failure: str | None
    is_own: bool


@dataclass(frozen=True, slots=True)
class LessonRollout:
    """One episode as a role lived through it. `score`: how good it was; of its group, more is better."""

    score: float
    said: tuple[Said, ...]


@dataclass(frozen=True, slots=True)
class LessonGroup:
    """Episodes of one task, for one role, of which some are better than others."""

    role: str
    task: str
    rollouts: tuple[LessonRollout, ...]


def groups_of(
    episodes: Sequence[Episode],
    role: str,
    members: Mapping[str, str],
    options: ExperienceOptions,
    rewards: RewardOptions,
    plain: Plain,
) -> tuple[list[LessonGroup], int]:
    """The groups that have something to tell a role, and how many there were before.

    An episode that failed, or in which the role did not speak, is in no group. With `sees=own` others' outputs are left
    out: an editor then knows nothing that the role could not.

    Args:
        members: agent -> the role that it plays.
    """
    rollouts: dict[str, list[LessonRollout]] = {}
    for episode in episodes:
        said = tuple(
            Said(line.agent, plain(agent_of(line.agent), line.prompt), line.text, line.failure, is_own)
            for line in episode.lines
            if (is_own := members.get(agent_of(line.agent)) == role) or options.sees == "team"
        )
        if episode.status == "done" and any(one.is_own for one in said):
            rollouts.setdefault(episode.task, []).append(LessonRollout(_score(episode, role, options, rewards), said))
    kept = telling({task: [one.score for one in group] for task, group in rollouts.items()})
    return [LessonGroup(role, task, tuple(rollouts[task])) for task in kept], len(rollouts)


def _score(episode: Episode, role: str, options: ExperienceOptions, rewards: RewardOptions) -> float:
    """Success as 0 or 1; or R of the role, the mean over the agents that play it (all turns of one have the same)."""
    if options.score == "success":
        return float(episode.success)
    own = {turn.agent: total_reward(turn.rewards, rewards) for turn in episode.turns if turn.role == role}
    return fmean(own.values()) if own else 0.0
