"""All turns of a step, as people look at them: what was asked, every candidate with the probabilities of its tokens,
and what the update made of them.

    turns/step-000010.jsonl   one file per recorded step, written whole; per episode, in this order:
        {"episode": EpisodeHead}
        {"scenes": [Scene, …], "lines": [Line, …]}
        {"decision": RecordedDecision}    as often as the head says

A head comes first and is small, and a line says in its first bytes what it is: a reader finds the episodes of a large
file without parsing turns. Files, and not one that grows: old steps are deleted, a resume drops those that come again.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Literal

import msgspec

from mas.core.records import Line, Scene
from mas.observe.files import remove_leftovers, write_bytes_atomic

TURNS = "turns"
"""The folder of a run directory."""
HEAD, MORE, DECISION = b'{"episode":', b'{"scenes":', b'{"decision":'
"""What lines begin with."""


class EpisodeHead(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One episode in a list.

    Attributes:
        rewards: what the environment paid in all, by term. cause: why it failed.
        roles: of its turns, in order of appearance.
        decisions: lines that follow; turns: candidates in them.
        groups: that its turns are in and that have something to compare; flat: those whose returns are all equal.
        opponent: who played the other seats; empty: nobody.
    """

    step: int
    id: str
    task: str
    success: bool
    status: Literal["done", "failed"] = "done"
    cause: str | None = None
    rewards: dict[str, float | None] = {}
    roles: tuple[str, ...] = ()
    decisions: int = 0
    turns: int = 0
    groups: int = 0
    flat: int = 0
    opponent: str = ""


class GroupMark(msgspec.Struct, frozen=True, kw_only=True):
    """What turns are compared in. `number`: in its step; `kind`: see `mas.core.records.Group`; `size`: trajectories;
    `is_flat`: there are several, and all have the same return, so that nothing is learned from them."""

    number: int
    kind: str
    size: int
    is_flat: bool


class CandidateTurn(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One candidate of a decision.

    Attributes:
        reward: R of what this turn alone was paid; None: only its trajectory as a whole is paid.
        returned: R of its trajectory, which groups compare.
        advantage: the mean over its tokens, where an algorithm has one per token.
        terms: the unweighted terms that R adds up, of the trajectory.
        adapter: `name@version`; None: the bare base.
        tokens: the text of each token, empty where a character takes several; none where no tokenizer was at hand.
        logprobs: of each token, in nats, of the distribution that it was sampled from.
    """

    index: int
    chosen: bool
    text: str
    finish: str
    reward: float | None
    returned: float | None
    advantage: float | None
    terms: dict[str, float | None] = {}
    adapter: str | None = None
    failure: str | None = None
    temperature: float = 1.0
    is_replayed: bool = False
    tokens: tuple[str, ...] = ()
    logprobs: tuple[float | None, ...] = ()


class RecordedDecision(msgspec.Struct, frozen=True, kw_only=True):
    """One prompt and all that was sampled for it; `turn`, `visit`: see `mas.core.records.Turn`."""

    turn: int
    visit: int
    agent: str
    role: str
    group: GroupMark
    prompt: str
    candidates: tuple[CandidateTurn, ...]


class RecordedEpisode(msgspec.Struct, frozen=True, kw_only=True):
    """A whole episode. `lines`: what was said and is no turn of `decisions`, such as what opponents did."""

    head: EpisodeHead
    scenes: tuple[Scene, ...]
    lines: tuple[Line, ...]
    decisions: tuple[RecordedDecision, ...]


def step_file(run: Path, step: int) -> Path:
    """Where the turns of a step are."""
    return run / TURNS / f"step-{step:06d}.jsonl"


def step_files(run: Path) -> list[tuple[int, Path]]:
    """Every recorded step with its file, the oldest first; links and other names are left out."""
    found = []
    for path in (run / TURNS).glob("step-*.jsonl"):
        number = path.stem.removeprefix("step-")
        if number.isdecimal() and number.isascii() and path.is_file() and not path.is_symlink():
            found.append((int(number), path))
    return sorted(found)


def write_step(run: Path, step: int, episodes: Iterable[RecordedEpisode], *, keep: int) -> None:
    """Write the turns of a step, and delete the files of the oldest steps beyond `keep`.

    Raises:
        OSError: the directory cannot be written.
    """
    (run / TURNS).mkdir(exist_ok=True)
    write_bytes_atomic(step_file(run, step), b"".join(line for one in episodes for line in _lines(one)))
    for _, path in step_files(run)[:-keep]:
        path.unlink()


def drop_steps_after(run: Path, step: int) -> None:
    """Delete what a resumed run records again, and what a killed process had half written."""
    remove_leftovers(run / TURNS)
    for number, path in step_files(run):
        if number > step:
            path.unlink()


def _lines(episode: RecordedEpisode) -> Sequence[bytes]:
    more = {"scenes": episode.scenes, "lines": episode.lines}
    records = [{"episode": episode.head}, more, *({"decision": one} for one in episode.decisions)]
    return [msgspec.json.encode(record) + b"\n" for record in records]
