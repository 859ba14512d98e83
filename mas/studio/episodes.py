"""The episodes that a run directory holds, as a list that is found quickly and as single turns that are read on demand.

There are two sources. `turns/` (`train.record_every`) has every turn of some steps, with probabilities and advantages;
`samples.jsonl` has the text of some conversations, and nothing else. Texts are those of models: nobody checked them.
"""

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Literal, TypeVar

import msgspec

from mas.core.naming import agent_of
from mas.core.records import Line, Scene
from mas.observe.turn_records import (
    DECISION,
    HEAD,
    CandidateTurn,
    EpisodeHead,
    GroupMark,
    RecordedDecision,
    step_files,
)
from mas.studio.line_index import DECODE_ERRORS, LineIndex
from mas.studio.runs import StudioRun

Source = Literal["recorded", "training", "greedy", "sampled", "other"]
SOURCES: Mapping[Source, str] = {
    "recorded": "training, all turns",
    "training": "training, text only",
    "greedy": "greedy evaluation",
    "sampled": "sampled evaluation",
    "other": "other",
}
_SAMPLED: Mapping[str, Source] = {"training": "training", "greedy": "greedy", "sampled": "sampled"}
_OUTLINES = 64
_T = TypeVar("_T")


class _Headed(msgspec.Struct, frozen=True):
    episode: EpisodeHead


class _More(msgspec.Struct, frozen=True):
    scenes: tuple[Scene, ...] = ()
    lines: tuple[Line, ...] = ()


class _Decided(msgspec.Struct, frozen=True):
    decision: RecordedDecision


class _Flags(msgspec.Struct, frozen=True):
    chosen: bool = False


class _Rough(msgspec.Struct, frozen=True):
    """A decision without its texts."""

    turn: int
    visit: int
    agent: str
    role: str
    group: GroupMark
    candidates: tuple[_Flags, ...] = ()


class _RoughlyDecided(msgspec.Struct, frozen=True):
    decision: _Rough


class _Speaker(msgspec.Struct, frozen=True):
    agent: str


class _SampleHead(msgspec.Struct, frozen=True):
    """A line of `samples.jsonl` without its texts; lines of editors and judges have no task."""

    step: int
    source: str
    task: str | None = None
    success: bool = False
    status: Literal["done", "failed"] = "done"
    cause: str | None = None
    rewards: dict[str, float | None] = {}
    lines: tuple[_Speaker, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Listed:
    """One episode of the list.

    Attributes:
        key: names it in addresses. number, of: its place among the episodes of its step and task.
        file, first, behind: its lines.
    """

    key: str
    source: Source
    head: EpisodeHead
    file: LineIndex[Any]
    first: int
    behind: int
    number: int = 1
    of: int = 1

    @property
    def outcome(self) -> str:
        """`solved`, `not solved` or `failed`."""
        return "failed" if self.head.status == "failed" else "solved" if self.head.success else "not solved"

    @property
    def is_whole(self) -> bool:
        """Whether all its turns are recorded, and not only the text of the conversation."""
        return self.source == "recorded"


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisodeStep:
    """One thing that was said in an episode.

    Attributes:
        line: of a decision the number of its line; else the place among the lines of the conversation.
        is_heard: somebody said it who is not of the team. is_read: the line could be read.
        is_committed: one of its candidates was.
    """

    line: int
    turn: int = -1
    visit: int = 0
    agent: str = ""
    role: str = ""
    group: GroupMark | None = None
    is_heard: bool = False
    is_read: bool = True
    is_committed: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Outline:
    """An episode without the texts of its decisions. `missing`: decisions that its head promises and the file lacks."""

    steps: Sequence[EpisodeStep]
    scenes: Sequence[Scene] = ()
    lines: Sequence[Line] = ()
    missing: int = 0

    def worlds(self, turn: int) -> tuple[Scene | None, Scene | None]:
        """The world before a team turn and after it; None where nothing shows it."""
        before = [scene for scene in self.scenes if scene.turn < turn]
        after = [scene for scene in self.scenes if scene.turn == turn]
        return (before[-1] if before else None), (after[-1] if after else None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """Which episodes are listed; None and empty: any. `task`: a part of its name. `is_flat`: with a group whose returns
    are all equal."""

    step: int | None = None
    source: str = ""
    role: str = ""
    outcome: str = ""
    task: str = ""
    is_flat: bool = False

    def has(self, one: Listed) -> bool:
        """Whether an episode is listed."""
        return (
            (self.step is None or one.head.step == self.step)
            and self.source in ("", one.source)
            and (not self.role or self.role in one.head.roles)
            and self.outcome in ("", one.outcome)
            and self.task in one.head.task
            and (not self.is_flat or one.head.flat > 0)
        )


class RunEpisodes:
    """All episodes of one run.

    Attributes:
        listed: newest step first, and in the order of their files.
        unreadable: lines that are no episode. is_cut: a file ends in the middle of a line.
    """

    def __init__(self, run: StudioRun) -> None:
        self._run = run
        self._lock = threading.Lock()
        self._samples: LineIndex[_SampleHead] = LineIndex(run.path / "samples.jsonl", b"", _read(_SampleHead))
        self._turns: dict[int, LineIndex[_Headed]] = {}
        self._outlines = lru_cache(_OUTLINES)(self._outlined)
        self._state: object = None
        self.listed: Sequence[Listed] = ()
        self.unreadable = 0
        self.is_cut = False

    def update(self) -> None:
        """Take in what was written since the last call."""
        with self._lock:
            there = dict(step_files(self._run.path)) if not (self._run.path / "turns").is_symlink() else {}
            self._turns = {
                step: self._turns.get(step) or LineIndex(path, HEAD, _read(_Headed)) for step, path in there.items()
            }
            files: list[LineIndex[Any]] = [self._samples, *self._turns.values()]
            for file in files:
                file.update()
            state = [(file.path, file.version) for file in files]
            if state != self._state:
                self._state = state
                self._outlines.cache_clear()
                self.listed = _numbered(sorted(self._all(), key=lambda one: (-one.head.step, not one.is_whole)))
                self.unreadable = sum(file.unreadable for file in files)
                self.is_cut = any(file.is_cut for file in files)

    def find(self, key: str) -> Listed | None:
        """The episode with this key; None: there is none."""
        return next((one for one in self.listed if one.key == key), None)

    def outline(self, one: Listed) -> Outline:
        """What an episode consists of."""
        return self._outlines(one)

    def _outlined(self, one: Listed) -> Outline:
        return self._recorded(one) if one.is_whole else self._sampled(one)

    def decision(self, one: Listed, outline: Outline, step: EpisodeStep) -> RecordedDecision | None:
        """One step with its texts; None: its line cannot be read. A line of text has one candidate without numbers."""
        if one.is_whole and not step.is_heard:
            found = _decoded(one.file.lines(step.line, step.line + 1), _Decided)
            return None if found is None else found.decision
        line = outline.lines[step.line]
        said = CandidateTurn(
            index=0, chosen=True, text=line.text, finish="", reward=None, returned=None, advantage=None,
            failure=line.failure,
        )  # fmt: skip
        group = GroupMark(number=0, kind="", size=1, is_flat=False)
        return RecordedDecision(
            turn=line.turn, visit=0, agent=line.agent, role=step.role, group=group, prompt=line.prompt,
            candidates=(said,),
        )  # fmt: skip

    def compared(self, one: Listed, step: EpisodeStep) -> Iterator[tuple[Listed, RecordedDecision | None]]:
        """The same turn in every episode of the task that it is compared with, the episode itself included."""
        for other in self.listed:
            if not other.is_whole or (other.head.step, other.head.task) != (one.head.step, one.head.task):
                continue
            outline = self.outline(other)
            for there in outline.steps:
                if there.group is not None and (there.turn, there.visit, there.agent, there.group.number) == (
                    *(step.turn, step.visit, step.agent),
                    step.group.number if step.group else -1,
                ):
                    yield other, self.decision(other, outline, there)
                    break

    def _all(self) -> Iterator[Listed]:
        recorded = {step for step, file in self._turns.items() if file.heads}
        for step, file in self._turns.items():
            behind = [line for line, _ in file.heads[1:]] + [file.count]
            for (line, found), end in zip(file.heads, behind, strict=True):
                key = f"{step}-{line}"
                yield Listed(key=key, source="recorded", head=found.episode, file=file, first=line, behind=end)
        role_of = self._role_of()
        for line, sample in self._samples.heads:
            if sample.task is None or (sample.source == "training" and sample.step in recorded):
                continue
            source = _SAMPLED.get(sample.source, "other")
            agents = dict.fromkeys(one.agent for one in sample.lines)
            head = EpisodeHead(
                step=sample.step,
                id="",
                task=sample.task,
                success=sample.success,
                status=sample.status,
                cause=sample.cause,
                rewards=sample.rewards,
                roles=tuple(dict.fromkeys(map(role_of, agents))),
                decisions=len(sample.lines),
                turns=len(sample.lines),
            )
            key = f"sample-{line}"
            yield Listed(key=key, source=source, head=head, file=self._samples, first=line, behind=line + 1)

    def _role_of(self) -> Callable[[str], str]:
        team = self._run.team
        members = {} if team is None else team.members()
        return lambda agent: members.get(agent_of(agent), agent)

    def _recorded(self, one: Listed) -> Outline:
        steps, more = list[EpisodeStep](), _More()
        for number, line in enumerate(one.file.lines(one.first + 1, one.behind), one.first + 1):
            if line is not None and not line.startswith(DECISION):
                more = _decoded([line], _More) or more
                continue
            found = _decoded([line], _RoughlyDecided)
            if found is None:
                steps.append(EpisodeStep(line=number, turn=steps[-1].turn if steps else 0, is_read=False))
                continue
            rough = found.decision
            steps.append(
                EpisodeStep(
                    line=number,
                    turn=rough.turn,
                    visit=rough.visit,
                    agent=rough.agent,
                    role=rough.role,
                    group=rough.group,
                    is_committed=any(candidate.chosen for candidate in rough.candidates),
                )
            )
        missing = max(0, one.head.decisions - len(steps))
        steps += _spoken(more.lines, self._role_of(), is_heard=True)
        steps.sort(key=lambda step: step.turn)
        return Outline(steps=steps, scenes=more.scenes, lines=more.lines, missing=missing)

    def _sampled(self, one: Listed) -> Outline:
        more = _decoded(one.file.lines(one.first, one.behind), _More) or _More()
        steps = _spoken(more.lines, self._role_of(), is_heard=False)
        return Outline(steps=steps, scenes=more.scenes, lines=more.lines)


def _read(kind: type[_T]) -> Callable[[bytes], _T]:
    return msgspec.json.Decoder(kind).decode


def _decoded(lines: Iterable[bytes | None], kind: type[_T]) -> _T | None:
    """The first of some lines; None where it is no such record."""
    line = next(iter(lines), None)
    try:
        return None if line is None else msgspec.json.decode(line, type=kind)
    except DECODE_ERRORS:
        return None


def _spoken(lines: Sequence[Line], role_of: Callable[[str], str], *, is_heard: bool) -> list[EpisodeStep]:
    return [
        EpisodeStep(line=number, turn=line.turn, agent=line.agent, role=role_of(line.agent), is_heard=is_heard)
        for number, line in enumerate(lines)
    ]


def _numbered(listed: Sequence[Listed]) -> list[Listed]:
    """With the place of each among the recorded episodes of its step and task."""
    places: dict[tuple[int, str], list[int]] = {}
    for place, one in enumerate(listed):
        if one.is_whole:
            places.setdefault((one.head.step, one.head.task), []).append(place)
    found = list(listed)
    for own in places.values():
        for number, place in enumerate(own, start=1):
            if len(own) > 1:
                found[place] = replace(listed[place], number=number, of=len(own))
    return found
