"""Parallel sampling: K whole episodes per task, each compared with the others as a whole.

Every turn of an agent in an episode carries the episode's team reward and the agent's own terms summed over the
episode; the group is the task and the agent. The honest baseline of tree sampling, and of single-agent GRPO.
Source: GRPO, arXiv 2402.03300, applied to trajectories.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import fmean

import msgspec

from mas.core.environment import Environment, Step, Task
from mas.core.errors import MasError
from mas.core.messages import Failure, Payload
from mas.core.records import Episode, Turn
from mas.core.seeds import derive_seed, digest
from mas.core.together import together
from mas.runtime.agents import Candidate
from mas.runtime.flow import Flow
from mas.runtime.point import Point
from mas.training.advantages.members import members
from mas.training.rewards import TEAM
from mas.training.sampling.ledger import Ledger, own_terms, record_turn
from mas.training.sampling.resample import resample_on_correct
from mas.training.sampling.sampler import Sampler
from mas.training.sampling.single import SingleDecision


@dataclass(frozen=True, slots=True)
class ParallelSampler(Sampler):
    """Plays K episodes per task and records T x N x K turns in N groups of K trajectories.

    With `options.resample` more are played, and K are kept.
    """

    async def sample(self, task: Task, environment: Environment, seed: int) -> tuple[Episode, ...]:
        """Play the task K times; an episode that cannot be played to its end is a record with status `failed`."""
        resample = self.options.resample
        count = self.options.candidates * (resample.factor if resample else 1)
        seeds = [derive_seed("episode", seed, k) for k in range(count)]
        try:
            environment.reset(task)
        except MasError as error:
            return tuple(Ledger.open(task, one).failed(error) for one in seeds)
        worlds = [environment.clone() for _ in seeds]
        plays = zip(worlds, seeds, strict=True)
        calls = [self._play(task, world, k, s) for k, (world, s) in enumerate(plays)]
        episodes = await together(calls, "episode")
        return tuple(episodes) if resample is None else self._kept(episodes, resample.least, seed)

    def _kept(self, episodes: Sequence[Episode], least: int, seed: int) -> tuple[Episode, ...]:
        """All as they cost, those that were not chosen without turns to train."""
        played = [number for number, episode in enumerate(episodes) if episode.status == "done"]
        keep = min(self.options.candidates, len(played))
        own = [episodes[number] for number in played]
        unparsed = [fmean([turn.failure is not None for turn in one.turns] or [0.0]) for one in own]
        chosen = resample_on_correct(
            [one.success for one in own], unparsed, keep=keep, least=min(least, keep // 2), seed=seed
        )
        kept = {played[index] for index in chosen.kept}
        return tuple(
            episode if number in kept else msgspec.structs.replace(episode, turns=())
            for number, episode in enumerate(episodes)
        )

    async def _play(self, task: Task, environment: Environment, index: int, seed: int) -> Episode:
        ledger = Ledger.open(task, seed)
        play = _ParallelPlay(self, ledger, SingleDecision(self.runtime, ledger, seed), index)
        try:
            await self.runtime.play(
                ledger.id,
                environment,
                play.decide,
                play.on_turn,
                on_attempt=ledger.on_attempt,
                in_step=True,
                turns=self.turns,
            )
        except MasError as error:
            return ledger.failed(error)
        return ledger.close(environment, play.finished())


@dataclass(slots=True)
class _ParallelPlay:
    sampler: ParallelSampler
    ledger: Ledger
    single: SingleDecision
    index: int
    waiting: list[tuple[Point, Environment, Candidate]] = field(default_factory=list)
    own: dict[str, dict[str, float]] = field(default_factory=dict)
    paid: list[dict[str, float]] = field(default_factory=list)

    async def decide(self, point: Point) -> Payload:
        before = point.environment.clone()
        candidate = await self.single.draw(point)
        self.waiting.append((point, before, candidate))
        return candidate.payload

    def on_turn(self, turn: int, flow: Flow, step: Step) -> None:
        """The team turn is over: judge its outputs with what became of them."""
        self.ledger.on_turn(turn, flow, step)
        self.paid.append({f"{TEAM}{name}": value for name, value in step.rewards[flow.plan.spec.seat].items()})
        is_legal = flow.action() is not None and flow.plan.spec.seat not in step.illegal
        for point, before, candidate in self.waiting:
            self._record(point, before, candidate, flow, is_legal=is_legal)
        self.waiting.clear()

    def _record(self, point: Point, before: Environment, candidate: Candidate, after: Flow, *, is_legal: bool) -> None:
        failure = self.sampler.rewards.failure
        terms = own_terms(self.sampler.reward, point, before, candidate.payload, after, failure)
        sums = self.own.setdefault(point.agent, {})
        for name, value in terms.items():
            sums[name] = sums.get(name, 0.0) + value
        turn = record_turn(
            point,
            candidate,
            self.ledger,
            parent=self.ledger.parent,
            index=self.index,
            group=f"{self.ledger.task}/{point.agent}",
            trajectory=self.ledger.id,
            state=digest(before.state_key(), point.flow.key()),
            rewards={},
            chosen=True,
            paid=terms,
            grounded=is_legal and not isinstance(candidate.payload, Failure),
        )
        self.ledger.parent = turn.id
        self.ledger.turns.append(turn)

    def finished(self) -> tuple[Turn, ...]:
        """All turns with the rewards of the whole episode, and with what each was paid."""
        team = {f"{TEAM}{name}": value for name, value in self.ledger.rewards.items()}
        own = self._shares()
        return tuple(
            msgspec.structs.replace(
                turn, rewards=team | self.own.get(turn.agent, {}), paid={**own[number], **turn.paid}
            )
            for number, turn in enumerate(self.ledger.turns)
        )

    def _shares(self) -> list[dict[str, float]]:
        """The team's terms per recorded turn: what the world paid from an agent's turn on to before its next one.

        Its first turn also has what was paid before, so that they add up to the episode's for every agent.
        """
        shares: list[dict[str, float]] = [{} for _ in self.ledger.turns]
        for numbers in members([turn.agent for turn in self.ledger.turns]).values():
            for turn, terms in enumerate(self.paid):
                earlier = [number for number in numbers if self.ledger.turns[number].turn <= turn]
                share = shares[earlier[-1] if earlier else numbers[0]]
                for name, value in terms.items():
                    share[name] = share.get(name, 0.0) + value
        return shares
