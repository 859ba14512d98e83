"""Reward terms that a judge says after turns were sampled, joined to them by turn id before anything is compared.

A round of turns waits until all its terms are there, the judge ends, or `wait_s` is over; then it goes on whole, with
defaults for what is missing. The judge is listened to until the next round is over, so that what comes late is counted;
it is never used, since its turns were learned from.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from importlib.metadata import entry_points
from types import MappingProxyType
from typing import Any

import msgspec

from mas.config.late import LateOptions
from mas.core.errors import ConfigError, TrainingError
from mas.core.late import Judge
from mas.core.naming import did_you_mean
from mas.core.records import Episode, Turn
from mas.training.advantages.members import members
from mas.training.rewards import OWN
from mas.training.shaping.late import LateRewards

_COUNTS = ("taken", "defaulted", "too_late", "refused")


def find_judge(name: str, judges: Mapping[str, Judge] = MappingProxyType({})) -> Judge:
    """The judge of this name: one of those given, or of an installed package's entry points `mas.judges`.

    Raises:
        ConfigError: there is none, or the package that offers it breaks.
    """
    if name in judges:
        return judges[name]
    offered = {point.name: point for point in entry_points(group="mas.judges")}
    if name not in offered:
        known = {*judges, *offered}
        raise ConfigError(
            f"algorithm.reward.late.judge is {name!r}, and there is no such judge. "
            f"{did_you_mean(name, known) if known else 'There is none at all:'} give one in Python "
            "(train_in_directory(..., judges={...})), or install a package with an entry point in mas.judges"
        )
    try:
        found: Judge = offered[name].load()
    except Exception as error:  # another package's code: whatever it is, it is that package's
        why = f"{offered[name].value} cannot be loaded: {type(error).__name__}: {error}"
        raise ConfigError(f"judge {name!r} comes with another package, and its {why}") from error
    return found


class LateTerms:
    """Asks the judge once a round, and joins what it answers."""

    def __init__(self, options: LateOptions, judge: Judge) -> None:
        self._options = options
        self._judge = judge
        self._before: _Round | None = None
        self._counts = dict.fromkeys(_COUNTS, 0)
        self._causes: list[str] = []

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[None]:
        """While it is open rounds can be joined; then nobody is listened to any more."""
        try:
            yield
        finally:
            before, self._before = self._before, None
            await self._close(before)

    async def join(self, groups: Sequence[Sequence[Episode]]) -> list[list[Episode]]:
        """The same episodes, whose turns have all late terms.

        Raises:
            TrainingError: the judge failed.
        """
        turns = [turn for group in groups for episode in group for turn in episode.turns]
        round_ = _Round(self._options, self._judge, turns)
        before, self._before = self._before, round_
        try:
            joined = {turn.id: turn for turn in await round_.join()}
        finally:
            await self._close(before)
        return [
            [msgspec.structs.replace(one, turns=tuple(joined[turn.id] for turn in one.turns)) for one in group]
            for group in groups
        ]

    def metrics(self) -> dict[str, Any]:
        """Counts of terms since this was asked before: `taken` in time, `defaulted`, `too_late` (after they were
        defaulted), and `refused`: no such turn or term, not finite, or said before."""
        self._count(self._before)
        counts, self._counts = self._counts, dict.fromkeys(_COUNTS, 0)
        return counts

    def causes(self) -> list[str]:
        """Why answers were refused, since this was asked before."""
        self._count(self._before)
        causes, self._causes = self._causes, []
        return causes

    async def _close(self, round_: "_Round | None") -> None:
        """Listen to it no longer."""
        if round_ is not None:
            await round_.close()
            self._count(round_)

    def _count(self, round_: "_Round | None") -> None:
        if round_ is not None:
            for name, count in round_.counted().items():
                self._counts[name] += count
            self._causes += round_.refused
            round_.refused.clear()


class _Round:
    """Turns that were sampled together, and the judge that was asked for them."""

    def __init__(self, options: LateOptions, judge: Judge, turns: Sequence[Turn]) -> None:
        self._options = options
        self._judge = judge
        self._turns = turns
        self._late = LateRewards({f"{OWN}{name}": value for name, value in options.terms.items()}, patience=1)
        self._late.hold(turns, {turn.id: [f"{OWN}{name}" for name in options.terms] for turn in turns}, step=0)
        self._told = dict.fromkeys(_COUNTS, 0)
        self._refused = 0
        self.refused: list[str] = []
        self._task: asyncio.Task[None] | None = None

    async def join(self) -> list[Turn]:
        """All turns in order, once nothing more is waited for."""
        if not self._turns:
            return []
        self._task = asyncio.create_task(self._listen(), name="late rewards")
        done, _ = await asyncio.wait({self._task}, timeout=self._options.wait_s)
        if done:
            self._check()
        return _summed(self._late.release(step=1), [f"{OWN}{name}" for name in self._options.terms])

    async def close(self) -> None:
        """Close the judge if it is still going on.

        Raises:
            TrainingError: it had failed.
        """
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})
            self._check()

    def counted(self) -> dict[str, int]:
        """What happened since this was asked before."""
        now = self._late.statistics()
        counts = {"taken": now.taken, "defaulted": now.defaulted, "too_late": now.too_late, "refused": self._refused}
        fresh = {name: count - self._told[name] for name, count in counts.items()}
        self._told = counts
        return fresh

    async def _listen(self) -> None:
        async with aclosing(self._judge(self._turns)) as answers:
            async for answer in answers:
                try:
                    self._late.take(answer.turn, f"{OWN}{answer.term}", answer.value)
                except TrainingError as error:  # the judge's mistake spoils one answer, not the run
                    self._refused += 1
                    self.refused.append(str(error))
                statistics = self._late.statistics()
                if statistics.taken + statistics.too_late == len(self._turns) * len(self._options.terms):
                    return

    def _check(self) -> None:
        assert self._task is not None
        if not self._task.cancelled() and (error := self._task.exception()) is not None:
            raise TrainingError(
                f"judge {self._options.judge!r} failed on {len(self._turns)} turns: {type(error).__name__}: {error}"
            ) from error


def _summed(turns: Sequence[Turn], terms: Sequence[str]) -> list[Turn]:
    """Rewards are those of whole trajectories: the sum over their turns, each of which was paid its own."""
    found = list(turns)
    for indices in members([(turn.group, turn.trajectory) for turn in turns]).values():
        own = [{term: turns[index].rewards[term] for term in terms} for index in indices]
        whole = {term: sum(one[term] for one in own) for term in terms}
        for index, paid in zip(indices, own, strict=True):
            turn = turns[index]
            is_part = turn.trajectory != turn.id
            found[index] = msgspec.structs.replace(
                turn, rewards={**turn.rewards, **whole}, paid={**turn.paid, **paid} if is_part else turn.paid
            )
    return found
