"""An episode as a program played it, and the record that training gets of it.

Nothing is tokenized again: a turn has the ids that the engine was given and drew, with the log-probabilities and
supports that it drew them with. A role's turns in one episode are rows of one trajectory, or each is its own; see
`scenario.options.compare`.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, model_validator

from mas.algorithms.parts.advantages.steps import Anchor
from mas.algorithms.parts.rewards.names import OUTCOME, OWN, TEAM
from mas.core.engine import Tokenizer
from mas.core.environment import LARGEST
from mas.core.records import Attempt, Cost, Episode, Group, Line, Turn, facts_of
from mas.core.seeds import digest
from mas.endpoint.completions import Completion, Wanted
from mas.scenarios.program import NAME, OWN_TERM, TERM

PROGRAM = "program"
"""Whose failed attempts are noted."""
Amount = Annotated[float, Field(allow_inf_nan=False, ge=-LARGEST, le=LARGEST)]


class EpisodeEnd(BaseModel):
    """What a program says at the end of an episode.

    Attributes:
        reward: of the whole team. rewards: role -> what it alone is paid besides.
        success: whether the task is solved; None: if the reward is 1 or more.
        failed: why the episode could not be played; it is played again, and nothing of it is learned.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")
    reward: Amount | None = None
    rewards: dict[str, Amount] = Field(default_factory=dict)
    success: bool | None = None
    failed: Annotated[str, Field(min_length=1, max_length=4096)] | None = None

    @model_validator(mode="after")
    def _is_one(self) -> "EpisodeEnd":
        if (self.reward is None) == (self.failed is None):
            raise ValueError("say how it went with reward, or with failed why it could not be played")
        if self.failed is not None and (self.rewards or self.success is not None):
            raise ValueError("an episode that failed has no rewards and no success")
        return self


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedCall:
    """One answered call. `number`: of the calls of its role, from 0, as they began; `place`: of all calls likewise."""

    role: str
    number: int
    place: int
    wanted: Wanted
    completion: Completion

    @property
    def cost(self) -> Cost:
        """Of the call."""
        return Cost(
            calls=1,
            prompt_tokens=len(self.wanted.prompt_ids),
            completion_tokens=len(self.completion.token_ids),
        )


@dataclass(slots=True, kw_only=True)
class ProgramEpisode:
    """An episode under way.

    Attributes:
        key: what its program calls it by.
        calls: those that were answered. under_way: how many are not answered yet. quiet: set when the last of them is.
        cut: calls whose client left before the whole answer was sent.
        order: of the next call among all. begun: role -> calls that have begun.
        unanswered: role and fingerprint of the request -> the numbers of such calls that came to nothing.
        touched: when it was last heard of, monotonic seconds.
    """

    key: str
    calls: list[RecordedCall] = field(default_factory=list)
    under_way: int = 0
    quiet: asyncio.Event = field(default_factory=asyncio.Event)
    cut: int = 0
    order: int = 0
    begun: Counter[str] = field(default_factory=Counter)
    unanswered: dict[tuple[str, str], list[int]] = field(default_factory=dict)
    touched: float = field(default_factory=time.monotonic)

    @contextmanager
    def calling(self) -> Iterator[None]:
        """Within the block one more call is under way."""
        self.under_way += 1
        self.quiet.clear()
        try:
            yield
        finally:
            self.under_way -= 1
            if not self.under_way:
                self.quiet.set()

    def number_of(self, role: str, asked: str, *, is_retry: bool) -> int:
        """The number of a call that begins; a retry has that of an equal call that came to nothing.

        Args:
            asked: fingerprint of the request.
        """
        lost = self.unanswered.get((role, asked), [])
        if is_retry and lost:
            return lost.pop(0)
        self.begun[role] += 1
        return self.begun[role] - 1

    def lose(self, role: str, asked: str, number: int) -> None:
        """A call came to nothing."""
        self.unanswered.setdefault((role, asked), []).append(number)

    @property
    def cost(self) -> Cost:
        """Of what is noted."""
        return sum((call.cost for call in self.calls), Cost())


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisodeBuilder:
    """Makes the records of one place: of a task, one of those that are compared.

    Attributes:
        id, task: as `Episode` has them. seed: of the place.
        compare: see `mas.scenarios.program.ProgramOptions`.
    """

    id: str
    task: str
    seed: int
    number: int
    compare: str
    tokenizer: Tokenizer

    def played(self, played: ProgramEpisode, end: EpisodeEnd, attempts: Sequence[Attempt], spent: Cost) -> Episode:
        """The record of an episode that was played. `spent`: on attempts before it."""
        calls = sorted(played.calls, key=lambda call: call.place)
        assert end.reward is not None
        team = {f"{TEAM}{TERM}": end.reward}
        own = {role: {f"{OWN}{OWN_TERM}": paid} for role, paid in end.rewards.items()}
        success = end.reward >= 1 if end.success is None else end.success
        paid = {**team, OUTCOME: float(success)}
        turns = self._turns(calls, {call.role: paid | own.get(call.role, {}) for call in calls})
        measures = {"calls_cut": float(played.cut)}
        return self._episode(
            calls, attempts, spent, success=success, turns=turns, rewards={TERM: end.reward}, measures=measures
        )

    def failed(self, played: ProgramEpisode | None, cause: str, attempts: Sequence[Attempt], spent: Cost) -> Episode:
        """The record of an episode that could not be played. `spent`: on all attempts but the last, `played`."""
        calls = [] if played is None else sorted(played.calls, key=lambda call: call.place)
        return self._episode(calls, attempts, spent, success=False, turns=(), rewards={}, status="failed", cause=cause)

    def _turns(self, calls: Sequence[RecordedCall], rewards: Mapping[str, Mapping[str, float]]) -> tuple[Turn, ...]:
        """The turns of calls in the order in which they began. By turn each is paid what the episode is worth; else the
        last of each role is."""
        turns: list[Turn] = []
        visits = Counter[str]()
        last = {call.role: call for call in calls}
        for call in calls:
            is_paid = self.compare == "turn" or last[call.role] is call
            parent = turns[-1].id if turns else None
            paid = rewards[call.role] if is_paid else {}
            turns.append(self._turn(call, len(turns), visits[call.role], parent, rewards[call.role], paid))
            visits[call.role] += 1
        return tuple(turns)

    def _turn(
        self,
        call: RecordedCall,
        place: int,
        visit: int,
        parent: str | None,
        rewards: Mapping[str, float],
        paid: Mapping[str, float],
    ) -> Turn:
        by_turn, said = self.compare == "turn", call.completion
        return Turn(
            id=f"{self.id}/{place}/{call.role}/{visit}",
            episode=self.id,
            task=self.task,
            agent=call.role,
            role=call.role,
            turn=place,
            visit=visit,
            candidate=self.number,
            parent=parent,
            group=Group(kind="task", task=self.task, agent=call.role, visit=visit if by_turn else 0),
            trajectory=f"{self.id}/{call.role}/{visit}" if by_turn else self.id,
            prompt_ids=call.wanted.prompt_ids,
            completion_ids=tuple(said.token_ids),
            logprobs=tuple(said.logprobs),
            supports=tuple(said.supports),
            temperature=call.wanted.sampling.temperature,
            adapter=said.adapter,
            seed=call.wanted.seeds[0],
            finish=said.finish,
            text=said.text,
            rewards=dict(rewards),
            chosen=True,
            world=NAME,
            paid=dict(paid),
            facts=facts_of(Anchor(state=digest(str(call.wanted.prompt_ids)))),
        )

    def _episode(
        self, calls: Sequence[RecordedCall], attempts: Sequence[Attempt], spent: Cost, **outcome: Any
    ) -> Episode:
        cost = sum((call.cost for call in calls), spent)
        prompts, lines = dict[str, int](), list[Line]()
        for place, call in enumerate(calls):
            ids, said = call.wanted.prompt_ids, call.completion
            prompts[digest("" if said.adapter is None else said.adapter.name, str(ids))] = len(ids)
            lines.append(Line(turn=place, agent=call.role, prompt=self.tokenizer.decode(ids), text=said.text))
        if spent.prompt_tokens:
            prompts[f"{self.id}/attempts"] = spent.prompt_tokens
        return Episode(
            id=self.id,
            task=self.task,
            lines=tuple(lines),
            prompt_tokens=cost.prompt_tokens,
            completion_tokens=cost.completion_tokens,
            calls=cost.calls,
            prompts=prompts,
            length=len(calls),
            attempts=tuple(attempts),
            **outcome,
        )


def failed_attempt(number: int, cause: str) -> Attempt:
    """A try at an episode that came to nothing."""
    return Attempt(turn=0, agent=PROGRAM, asked=PROGRAM, number=number, purpose="answer", cause=cause)
