"""The contract of editors, the lessons that they are shown, and `QuoteEditor`, which asks no model.

For one role an editor is shown the episodes of one task next to each other. Only some groups of episodes have something
to tell: Training-Free GRPO, arXiv 2510.08191, has groups with 0 < mean reward < 1, for rewards of 0 and 1.

`QuoteEditor` quotes how a role answered in an episode that did better than another one. That is an example to imitate
and no insight: it helps where situations come back, and models that learn from examples.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Annotated, Literal, Protocol, TypeVar

from pydantic import Field

from mas.algorithms.parts.experience.library import Library, Operation, Refusal, name_of, one_line
from mas.algorithms.parts.rewards.terms import RewardOptions, total_reward
from mas.core.naming import agent_of
from mas.core.options import NonNegative, Options, Positive
from mas.core.records import NO_COST, Cost, Episode

Plain = Callable[[str, str], str]
"""(agent, prompt) -> what the prompt shows beside what every prompt of the agent says."""
Key = TypeVar("Key", bound=Hashable)
ARROW = " -> "
"""Stands between what was shown and what was answered."""


BUILT_IN_EDITORS = ("base", "quote")
"""Editors that are no peer."""


class ExperienceOptions(Options):
    """How libraries of experiences are written.

    `editor`: `base` asks the run's own base LLM, any other name the peer of that name (`peers.NAME.url`); `quote` asks
    no model, and copies the role's answers of an episode that did better than others of its group.
    `score`: whether an episode was solved, or the role's reward as `algorithm.reward` adds it up.
    `sees`: an editor is shown the role's `own` turns alone, or those of the whole `team`.

    `most` experiences of `characters` characters each are in a library, and at most `per_group` come of one group.
    `max_tokens`, `temperature`: of each of the editor's answers.
    """

    editor: Annotated[str, Field(min_length=1)] = "base"
    score: Literal["success", "reward"] = "success"
    sees: Literal["own", "team"] = "own"
    most: Positive = 32
    characters: Positive = 400
    per_group: Positive = 2
    max_tokens: Positive = 1024
    temperature: NonNegative = 0.0

    @property
    def peer(self) -> str | None:
        """The peer that edits; None: it is no peer."""
        return None if self.editor in BUILT_IN_EDITORS else self.editor

    def unused_reason(self, name: str) -> str | None:
        if self.editor == "quote" and name in ("sees", "max_tokens", "temperature"):
            return "editor=quote asks no model"
        return None


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


def telling(scores: Mapping[Key, Sequence[float]]) -> list[Key]:
    """The groups to learn from, in order. `scores`: group -> one per episode."""
    return [key for key, values in scores.items() if is_telling(values)]


def is_telling(scores: Sequence[float]) -> bool:
    """Whether some did better than others and, of scores from 0 to 1, neither all are 0 nor all are 1.

    For scores of 0 and 1 this is 0 < mean < 1. For others it is our reading: a group of equal ones compares nothing.
    """
    return bool(scores) and min(scores) < max(scores)


@dataclass(frozen=True, slots=True)
class Proposal:
    """Operations that an editor wants, what of its answers could not be read, and what asking it cost."""

    operations: tuple[Operation, ...] = ()
    refused: tuple[Refusal, ...] = ()
    cost: Cost = NO_COST


class Editor(Protocol):
    """Proposes changes of a role's library; equal arguments give equal proposals."""

    async def propose(self, group: LessonGroup, library: Library, *, seed: int) -> Proposal:
        """What one group teaches its role, as operations on the library."""

    async def consolidate(self, role: str, library: Library, proposals: Sequence[Proposal], *, seed: int) -> Proposal:
        """One list of operations out of those of all groups of a step, each made without knowing the others."""


class QuoteEditor:
    """Satisfies `Editor`. An experience is `SHOWN -> ANSWER`."""

    def __init__(self, options: ExperienceOptions) -> None:
        self._options = options

    async def propose(self, group: LessonGroup, library: Library, *, seed: int) -> Proposal:
        """Answers of the role in the best rollout that the worst one does not have, the first `per_group` of them."""
        ranked = sorted(group.rollouts, key=lambda rollout: rollout.score)
        worse = set(_quotes(ranked[0]))
        quotes = [quote for quote in dict.fromkeys(_quotes(ranked[-1])) if quote not in worse]
        most = self._options.characters
        wanted = tuple(Operation("ADD", None, quote) for quote in quotes if len(quote) <= most)
        refused = [
            Refusal(quote[:120], f"the quotation has {len(quote)} characters, at most {most} are allowed")
            for quote in quotes
            if len(quote) > most
        ]
        return Proposal(wanted[: self._options.per_group], tuple(refused))

    async def consolidate(self, role: str, library: Library, proposals: Sequence[Proposal], *, seed: int) -> Proposal:
        """Of quotations of one situation the last one counts, in place of the library's; the oldest ones make room."""
        held = {_situation(text): number for number, text in enumerate(library.experiences)}
        wanted = {_situation(one.text): one.text for proposal in proposals for one in proposal.operations}
        updates = {
            held[key]: text for key, text in wanted.items() if key in held and text != library.experiences[held[key]]
        }
        added = [text for key, text in wanted.items() if key not in held][-self._options.most :]
        kept = {held[key] for key in wanted if key in held}
        old = [number for number in range(len(library.experiences)) if number not in kept]
        room = self._options.most - len(library.experiences) - len(added)
        gone = old[: max(-room, 0)]
        added = added[: len(added) + min(room + len(gone), 0)]
        return Proposal(
            (
                *(Operation("DELETE", name_of(number)) for number in gone),
                *(Operation("UPDATE", name_of(number), text) for number, text in updates.items()),
                *(Operation("ADD", None, text) for text in added),
            )
        )


def _quotes(rollout: LessonRollout) -> list[str]:
    own = [said for said in rollout.said if said.is_own and said.failure is None]
    return [one_line(said.shown) + ARROW + one_line(said.answer) for said in own]


def _situation(quote: str) -> str:
    return quote.rpartition(ARROW)[0]
