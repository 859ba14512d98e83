"""Reward terms that a judge says after turns were sampled, joined to them by turn id before anything is compared.

A step waits until all terms are there, the judge ends, or `wait_s` is over. What is missing then has its default at
once (`steps` 0), or its group waits, at most so many further steps, and is trained in the step in which it is complete.
The judge is listened to for one step more, so that what comes too late is counted; it is never used.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager, nullcontext
from types import MappingProxyType
from typing import Any, Final, cast

import msgspec

from mas.algorithms.parts.advantages.group import members
from mas.algorithms.parts.rewards.late import LateOptions, LateRewards
from mas.algorithms.parts.rewards.names import OWN
from mas.core.errors import CheckpointError, ConfigError, TrainingError
from mas.core.naming import did_you_mean
from mas.core.plugins import find_offer, load_offer, offered_names
from mas.core.records import Answer, Cost, Episode, Judge, Turn
from mas.runtime.agents import ModelEndpoint
from mas.training.judges import BASE, PATTERN, ModelJudge, PatternJudge
from mas.training.setup import Setup


def find_judge(options: LateOptions, setup: Setup, judges: Mapping[str, Judge] = MappingProxyType({})) -> Judge:
    """The judge of this name: one of those given, that ships, a peer, or of a package's entry points `mas.judges`.

    Raises:
        ConfigError: there is none, it cannot judge as the options say, or the package that offers it breaks.
    """
    name = options.judge
    if name not in judges and name == PATTERN:
        return PatternJudge(options)
    if name not in judges and (name == BASE or name in setup.peers):
        return ModelJudge(options, setup)
    if options.asks:
        raise ConfigError(
            f"algorithm.reward.late.asks is read by judge=pattern, judge=base and peers, and not by {name!r}: leave it "
            "out"
        )
    if name in judges:
        return judges[name]
    point = find_offer("judge", "mas.judges", name)
    if point is None:
        known = {*judges, *offered_names("mas.judges"), *setup.peers, PATTERN, BASE}
        raise ConfigError(
            f"algorithm.reward.late.judge is {name!r}, and there is no such judge. {did_you_mean(name, known)} Name a "
            "peer (peers.NAME.url), give one in Python (train_in_directory(..., judges={...})), or install a package "
            "with an entry point in mas.judges"
        )
    loaded = load_offer("judge", point)
    if not callable(loaded):
        raise ConfigError(f"judge {name!r}: {point.value} of another package is a {type(loaded).__name__}, no function")
    return cast(Judge, loaded)


class LateTerms:
    """Asks the judge once a round, and joins what it answers.

    Attributes:
        FILE: the file of a checkpoint that holds what waits for its terms.
    """

    FILE: Final = "late.json"

    def __init__(self, options: LateOptions, judge: Judge) -> None:
        self._options = options
        self._judge = judge
        self._names = [f"{OWN}{name}" for name in options.terms]
        defaults = {f"{OWN}{name}": value for name, value in options.terms.items()}
        self._late = LateRewards(defaults, patience=max(options.steps, 1))
        self._shells: dict[str, Episode] = {}
        self._rounds: list[_Round] = []
        self._arrived: list[Episode] = []
        self._told = _counts(self._late)
        self._refused = 0
        self._causes: list[str] = []

    @asynccontextmanager
    async def listening(self, base: ModelEndpoint | None = None) -> AsyncIterator[None]:
        """While it is open rounds can be joined; then the judge is not listened to any more.

        Turns that waited when a checkpoint was written are asked for again. `base`: what a `ModelJudge` may ask.
        """
        opened = self._judge.opened(base) if isinstance(self._judge, ModelJudge) and base is not None else nullcontext()
        async with opened:
            missing = [turn for turn, terms in self._late.waiting().values() if terms]
            if missing:
                self._ask(missing)
            try:
                yield
            finally:
                rounds, self._rounds = self._rounds, []
                await self._close(rounds)

    async def join(self, groups: Sequence[Sequence[Episode]], step: int = 0) -> list[list[Episode]]:
        """The same episodes, with those of their turns whose terms are complete; turns of earlier steps: `arrived`.

        Args:
            step: how many are done.

        Raises:
            TrainingError: the judge failed.
        """
        episodes = [episode for group in groups for episode in group]
        turns = [turn for episode in episodes for turn in episode.turns]
        if self._options.steps:  # a task may come again while its group waits, and is another group then
            turns = [_of_step(turn, step) for turn in turns]
        self._late.hold(turns, {turn.id: self._names for turn in turns}, step=step)
        if turns:
            self._ask(turns)
        try:
            await self._wait()
        finally:
            old, self._rounds = self._rounds[: -self._options.steps - 1], self._rounds[-self._options.steps - 1 :]
            await self._close(old)
        released = _summed(self._late.release(step=step + (self._options.steps == 0)), self._names)
        self._keep(episodes, released)
        joined = {turn.id: turn for turn in released}
        return [[_with(one, [joined[turn.id] for turn in one.turns if turn.id in joined]) for one in g] for g in groups]

    def arrived(self) -> list[Episode]:
        """What is trained in this step and was sampled in an earlier one, at most `steps` ago: turns with their terms,
        in the episodes that they are of.

        They keep the log-probabilities of their time, so that the ratio of the loss is that to the policy that sampled
        them.
        """
        return self._arrived

    def metrics(self) -> dict[str, Any]:
        """Counts of terms since this was asked before: `taken` in time, `defaulted`, `too_late` (after they were
        defaulted), and `refused`: no such turn or term, not finite, or said before. With `steps`, of turns: those that
        are `waiting` now, and `learned_late`, in a later step than the one that sampled them."""
        counts, told = _counts(self._late), self._told
        self._told = counts
        found = {name: count - told[name] for name, count in counts.items()} | {"refused": self._refused}
        self._refused = 0
        if self._options.steps:
            found["waiting"] = self._late.statistics().waiting
            found["learned_late"] = sum(len(episode.turns) for episode in self._arrived)
        return found

    def spent(self) -> Cost:
        """What judging has cost since this was asked before, where a model of ours judges."""
        return self._judge.spent() if isinstance(self._judge, ModelJudge) else Cost()

    def causes(self) -> list[str]:
        """Why answers were refused, since this was asked before."""
        causes, self._causes = self._causes, []
        return causes

    def state(self) -> bytes:
        """What waits, as JSON, for a checkpoint."""
        shells = [msgspec.to_builtins(shell) for shell in self._shells.values()]
        return msgspec.json.encode({"late": self._late.state(), "episodes": shells})

    def restore(self, state: bytes) -> None:
        """Go on from `state()`.

        Raises:
            CheckpointError: it is none, or waits for other terms.
        """
        try:
            found = msgspec.json.decode(state, type=dict[str, Any])
            self._late.restore(found["late"])
            shells = msgspec.convert(found["episodes"], list[Episode])
        except (msgspec.MsgspecError, KeyError, TrainingError) as error:
            raise CheckpointError(f"these are no turns that wait for late rewards: {error}") from error
        self._shells = {shell.id: shell for shell in shells}
        self._told = _counts(self._late)

    def _ask(self, turns: Sequence[Turn]) -> None:
        self._rounds.append(_Round(self._judge, turns, self._take, len(self._names)))

    def _take(self, answer: Answer) -> bool:
        """Whether the answer is one that was waited for, in time or not."""
        try:
            self._late.take(answer.turn, f"{OWN}{answer.term}", answer.value)
        except TrainingError as error:  # the judge's mistake spoils one answer, not the run
            self._refused += 1
            self._causes.append(str(error))
            return False
        return True

    async def _wait(self) -> None:
        """Until nothing is missing of this step's turns, nor of those that still wait; `wait_s` at most."""
        waited_for = self._rounds[-self._options.steps - 1 :] if self._options.steps else self._rounds[-1:]
        tasks = {one.task for one in waited_for}
        if tasks:
            await asyncio.wait(tasks, timeout=self._options.wait_s)
        for one in waited_for:
            one.check(self._options.judge)

    async def _close(self, rounds: Sequence["_Round"]) -> None:
        for one in rounds:
            await one.close(self._options.judge)
            self._late.forget(one.ids)

    def _keep(self, episodes: Sequence[Episode], released: Sequence[Turn]) -> None:
        """Note what arrived, and the episodes that turns which still wait are of."""
        here = {turn.id for episode in episodes for turn in episode.turns}
        arrived: dict[str, list[Turn]] = {}
        for turn in released:
            if turn.id not in here:
                arrived.setdefault(turn.episode, []).append(msgspec.structs.replace(turn, is_replayed=True))
        self._arrived = [_with(self._shells[name], turns) for name, turns in arrived.items()]
        known = self._shells | {episode.id: _with(episode, ()) for episode in episodes}
        waiting = {turn.episode for turn, _ in self._late.waiting().values()}
        self._shells = {name: shell for name, shell in known.items() if name in waiting}


class _Round:
    """Turns that were handed to the judge together. `take`: is given each answer, and says whether it counts."""

    def __init__(self, judge: Judge, turns: Sequence[Turn], take: Callable[[Answer], bool], terms: int) -> None:
        self.ids = [turn.id for turn in turns]
        self._judge, self._turns, self._take = judge, turns, take
        self._missing = len(turns) * terms
        self.task = asyncio.create_task(self._listen(), name="late rewards")

    async def close(self, judge: str) -> None:
        """Close the judge if it is still going on.

        Raises:
            TrainingError: it had failed.
        """
        self.task.cancel()
        await asyncio.wait({self.task})
        self.check(judge)

    def check(self, judge: str) -> None:
        """Raises TrainingError: it has failed. `judge`: its name."""
        if self.task.done() and not self.task.cancelled() and (error := self.task.exception()) is not None:
            raise TrainingError(
                f"judge {judge!r} failed on {len(self._turns)} turns: {type(error).__name__}: {error}"
            ) from error

    async def _listen(self) -> None:
        async with aclosing(self._judge(self._turns)) as answers:
            async for answer in answers:
                self._missing -= self._take(answer)
                if not self._missing:
                    return


def _counts(late: LateRewards) -> dict[str, int]:
    now = late.statistics()
    return {"taken": now.taken, "defaulted": now.defaulted, "too_late": now.too_late}


def _with(episode: Episode, turns: Sequence[Turn]) -> Episode:
    return msgspec.structs.replace(episode, turns=tuple(turns))


def _of_step(turn: Turn, step: int) -> Turn:
    return msgspec.structs.replace(turn, group=msgspec.structs.replace(turn.group, step=step))


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
