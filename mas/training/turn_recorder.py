"""What `train.record_every` writes: all turns of a step with their advantages, for people; see
`mas.observe.turn_records`. Nothing of it is read by training."""

from collections import defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence
from pathlib import Path

from mas.algorithms.parts.advantages.group import members
from mas.algorithms.parts.rewards.terms import RewardOptions, total_reward
from mas.core.records import Episode, Group, Turn
from mas.observe.turn_records import (
    CandidateTurn,
    EpisodeHead,
    GroupMark,
    RecordedDecision,
    RecordedEpisode,
    write_step,
)
from mas.serving.detokenizer import Detokenizer
from mas.training.setup import Setup
from mas.training.stages import rewards_of

Decode = Callable[[Sequence[int]], str]


class TurnRecorder:
    """Writes the turns of the steps that are due into a run directory.

    Args:
        decode: from token ids to text; None: no tokenizer is at hand, so that prompts and tokens have no text.
    """

    def __init__(self, run: Path, setup: Setup, decode: Decode | None) -> None:
        self._run, self._setup, self._decode = run, setup, decode

    def __call__(self, step: int, episodes: Sequence[Episode], advantages: Sequence[float]) -> None:
        """Take one step, from 1, which is written down if it is due.

        Args:
            advantages: of every turn of the episodes, in order.

        Raises:
            OSError: the directory cannot be written.
        """
        every = self._setup.train.record_every
        if every and step % every == 0:
            rewards = rewards_of(self._setup.algorithm, step - 1)
            found = recorded_step(step, episodes, advantages, rewards, self._decode)
            write_step(self._run, step, found, keep=self._setup.train.record_keep)


def recorded_step(
    step: int,
    episodes: Sequence[Episode],
    advantages: Sequence[float],
    rewards: RewardOptions,
    decode: Decode | None,
) -> list[RecordedEpisode]:
    """The episodes of a step as they are written.

    Args:
        advantages: of every turn of the episodes, in order.

    Raises:
        ValueError: there are not as many advantages as turns.
    """
    turns = [turn for episode in episodes for turn in episode.turns]
    advantage_of = {id(turn): value for turn, value in zip(turns, advantages, strict=True)}
    marks, texts = _marks(turns, rewards), _Texts(decode)

    def candidate(turn: Turn) -> CandidateTurn:
        return _candidate(turn, advantage_of[id(turn)], rewards, texts)

    return [_episode(step, episode, marks, candidate, texts) for episode in episodes]


def _marks(turns: Sequence[Turn], rewards: RewardOptions) -> dict[Group, GroupMark]:
    """Every group of the step; returns are compared as `mas.training.step_metrics` does it."""
    returned: dict[Group, dict[str, float]] = defaultdict(dict)
    for turn in turns:
        returned[turn.group][turn.trajectory] = total_reward(turn.rewards, rewards)
    return {
        group: GroupMark(
            number=number, kind=group.kind, size=len(own), is_flat=len(own) > 1 and len(set(own.values())) == 1
        )
        for number, (group, own) in enumerate(returned.items())
    }


def _episode(
    step: int,
    episode: Episode,
    marks: Mapping[Group, GroupMark],
    candidate: Callable[[Turn], CandidateTurn],
    texts: "_Texts",
) -> RecordedEpisode:
    keys: list[Hashable] = [(one.turn, one.agent, one.visit, one.group, one.prompt_ids) for one in episode.turns]
    together = [[episode.turns[number] for number in numbers] for numbers in members(keys).values()]
    own = {turn.group: marks[turn.group] for turn in episode.turns}
    taken = {(turn.turn, turn.agent) for turn in episode.turns}
    head = EpisodeHead(
        step=step,
        id=episode.id,
        task=episode.task,
        success=episode.success,
        status=episode.status,
        cause=episode.cause,
        rewards=dict(episode.rewards),
        roles=tuple(dict.fromkeys(turn.role for turn in episode.turns)),
        decisions=len(together),
        turns=len(episode.turns),
        groups=sum(mark.size > 1 for mark in own.values()),
        flat=sum(mark.is_flat for mark in own.values()),
        opponent=episode.opponent,
    )
    decisions = tuple(
        RecordedDecision(
            turn=first.turn,
            visit=first.visit,
            agent=first.agent,
            role=first.role,
            group=marks[first.group],
            prompt=texts.whole(first.prompt_ids),
            candidates=tuple(candidate(turn) for turn in (first, *others)),
        )
        for first, *others in together
    )
    lines = tuple(line for line in episode.lines if (line.turn, line.agent) not in taken)
    return RecordedEpisode(head=head, scenes=episode.scenes, lines=lines, decisions=decisions)


def _candidate(turn: Turn, advantage: float, rewards: RewardOptions, texts: "_Texts") -> CandidateTurn:
    return CandidateTurn(
        index=turn.candidate,
        chosen=turn.chosen,
        text=turn.text,
        finish=turn.finish,
        reward=total_reward(turn.paid, rewards) if turn.paid else None,
        returned=total_reward(turn.rewards, rewards),
        advantage=advantage,
        terms=dict(turn.rewards),
        adapter=None if turn.adapter is None else str(turn.adapter),
        failure=turn.failure,
        temperature=turn.temperature,
        is_replayed=turn.is_replayed,
        tokens=texts.pieces(turn.completion_ids),
        logprobs=tuple(round(value, 4) for value in turn.logprobs),
    )


class _Texts:
    """Texts of tokens; each one is decoded once, unless characters are of several tokens."""

    def __init__(self, decode: Decode | None) -> None:
        self._decode = decode
        self._single: dict[int, str] = {}

    def whole(self, ids: Sequence[int]) -> str:
        return "" if self._decode is None else self._decode(ids)

    def pieces(self, ids: Sequence[int]) -> tuple[str, ...]:
        """One text per token; joined they are the text of all."""
        if self._decode is None:
            return ()
        for token in ids:
            if token not in self._single:
                self._single[token] = self._decode((token,))
        single = tuple(self._single[token] for token in ids)
        if "".join(single) == self._decode(ids):
            return single
        detokenizer = Detokenizer(self._decode)
        pieces = [detokenizer.add(token) for token in ids]
        return (*pieces[:-1], pieces[-1] + detokenizer.end())
