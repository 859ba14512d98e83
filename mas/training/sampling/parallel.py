"""Parallel sampling: K whole episodes per task, each compared with the others as a whole.

Every turn of an agent in an episode carries the episode's team reward and the agent's own terms summed over the
episode; the group is the task and the agent. The honest baseline of tree sampling, and of single-agent GRPO.
Source: GRPO, arXiv 2402.03300, applied to trajectories.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from mas.algorithms.parts.advantages.group import members
from mas.algorithms.parts.advantages.steps import Anchor, Wave
from mas.algorithms.parts.rewards.names import OUTCOME, TEAM
from mas.algorithms.parts.sampling.attempts import by_attempt
from mas.algorithms.parts.sampling.selection import ToolUse, resample_on_correct, transcript_penalty
from mas.core.concurrency import together
from mas.core.environment import Attempting, Environment, Step, Task, anchor_of
from mas.core.errors import MasError
from mas.core.messages import Failure, Payload
from mas.core.naming import agent_of
from mas.core.records import Episode, Group, Turn
from mas.core.seeds import derive_seed, digest
from mas.core.tracing import in_environment
from mas.runtime.flow import Flow
from mas.runtime.payloads import Candidate
from mas.runtime.play import DecisionPoint
from mas.training.sampling.chains import SingleDecision
from mas.training.sampling.episode_facts import AnswerWatch, Grounded, matched, scored, tool_use
from mas.training.sampling.sampler import EpisodeRecorder, Sampler, cost_terms, own_terms, record_turn


@dataclass(frozen=True, slots=True)
class ParallelSampler(Sampler):
    """Plays K episodes per task and records T x N x K turns in N groups of K trajectories.

    With `options.resample` more are played, and K are kept. `temperature`: of all roles; None: each role's own.
    """

    temperature: float | None = None

    async def sample(self, task: Task, environment: Environment, seed: int) -> tuple[Episode, ...]:
        """Play the task K times; an episode that cannot be played to its end is a record with status `failed`."""
        resample = self.options.resample
        count = self.options.candidates * (resample.factor if resample else 1)
        seeds = [derive_seed("episode", seed, k) for k in range(count)]
        try:
            with in_environment():
                environment.reset(task)
        except MasError as error:
            return tuple(EpisodeRecorder.open(task, one).failed(error) for one in seeds)
        with in_environment():
            worlds = [environment.clone() for _ in seeds]
        plays = zip(worlds, seeds, strict=True)
        watches = [None if self.reward_options.gain is None else AnswerWatch(self.runtime) for _ in seeds]
        calls = [self._play(task, world, k, s, watches[k]) for k, (world, s) in enumerate(plays)]
        episodes = await self._scored(await together(calls, "episode"), watches, environment)
        return episodes if resample is None else self._kept(episodes, resample.least, seed)

    async def _scored(
        self, episodes: Sequence[Episode], watches: Sequence[AnswerWatch | None], environment: Environment
    ) -> tuple[Episode, ...]:
        """With how likely the right answer was, where the reward reads that and there was one to give."""
        noted = {
            number: watch
            for number, (episode, watch) in enumerate(zip(episodes, watches, strict=True))
            if watch is not None and episode.status == "done"
        }
        if not noted:
            return tuple(episodes)
        found = await scored(self.runtime, [episodes[number] for number in noted], [*noted.values()], environment)
        by_number = dict(zip(noted, found, strict=True))
        return tuple(by_number.get(number, episode) for number, episode in enumerate(episodes))

    def _kept(self, episodes: Sequence[Episode], least: int, seed: int) -> tuple[Episode, ...]:
        """All as they cost, those that were not chosen without turns to train."""
        played = [number for number, episode in enumerate(episodes) if episode.status == "done"]
        keep = min(self.options.candidates, len(played))
        own = [episodes[number] for number in played]
        penalties = [_uncleanness(one) for one in own]
        chosen = resample_on_correct(
            [one.success for one in own], penalties, keep=keep, least=min(least, keep // 2), seed=seed
        )
        kept = {played[index] for index in chosen.kept}
        return tuple(
            episode if number in kept else msgspec.structs.replace(episode, turns=())
            for number, episode in enumerate(episodes)
        )

    async def _play(
        self, task: Task, environment: Environment, index: int, seed: int, watch: AnswerWatch | None
    ) -> Episode:
        recorder = EpisodeRecorder.open(task, seed)
        play = _ParallelPlay(
            self, recorder, SingleDecision(self.runtime, recorder, seed, self.temperature), index, watch
        )
        try:
            on_turn = recorder.looking(environment, play.on_turn) if self.has_scenes else play.on_turn
            await self.runtime.play(
                recorder.id,
                environment,
                play.decide,
                on_turn,
                on_attempt=recorder.on_attempt,
                in_step=True,
                turns=self.turns,
                opponents=self.opponent_policies(seed, recorder),
            )
            episode = recorder.close(environment, play.finished(is_success=environment.success()))
            return episode if self.reward_options.partial is None else matched(episode, environment)
        except MasError as error:
            return recorder.failed(error)


@dataclass(slots=True)
class _ParallelPlay:
    sampler: ParallelSampler
    recorder: EpisodeRecorder
    single: SingleDecision
    index: int
    watch: AnswerWatch | None = None
    waiting: dict[int, tuple[DecisionPoint, Environment, Candidate, int]] = field(default_factory=dict)
    begun: int = 0
    own: dict[str, dict[str, float]] = field(default_factory=dict)
    paid: list[Step] = field(default_factory=list)
    attempts: list[int] = field(default_factory=list)

    async def decide(self, point: DecisionPoint) -> Payload:
        with in_environment():
            before = point.environment.clone()
        wave = self.watch.wave(point) if self.watch is not None else 0
        self.begun += 1
        number = self.begun
        candidate = await self.single.draw(point)
        self.waiting[number] = (point, before, candidate, wave)
        return candidate.payload

    def on_turn(self, turn: int, flow: Flow, step: Step) -> None:
        """The team turn is over: judge its outputs with what became of them, in the order in which agents began."""
        self.recorder.on_turn(turn, flow, step)
        said = [self.waiting[number] for number in sorted(self.waiting)]
        world = said[0][1] if said else None
        self.attempts.append(world.attempt() if isinstance(world, Attempting) else max(self.attempts, default=0))
        self.paid.append(step)
        for point, before, candidate, wave in said:
            seat = self._seat_of[agent_of(point.agent)]
            is_legal = flow.seat_action(seat) is not None and seat not in step.illegal
            self._record(point, before, candidate, wave, flow, is_legal=is_legal)
        self.waiting.clear()

    def _record(
        self, point: DecisionPoint, before: Environment, candidate: Candidate, wave: int, after: Flow, *, is_legal: bool
    ) -> None:
        failure = self.sampler.reward_options.failure
        terms = own_terms(self.sampler.reward, point, before, candidate.payload, after, failure)
        price = point.flow.plan.roles[agent_of(point.agent)].spec.price
        terms |= cost_terms(self.sampler.reward_options.cost, candidate, price)
        sums = self.own.setdefault(point.agent, {})
        for name, value in terms.items():
            sums[name] = sums.get(name, 0.0) + value
        turn = record_turn(
            msgspec.structs.replace(point, environment=before),
            candidate,
            self.recorder,
            parent=self.recorder.parent,
            index=self.index,
            group=Group(kind="task", task=self.recorder.task, agent=point.agent),
            trajectory=self.recorder.id,
            chosen=True,
            paid=terms,
            facts=(
                Anchor(state=digest(anchor_of(before), point.flow.key())),
                tool_use(before, candidate.payload),
                Grounded(is_grounded=is_legal and not isinstance(candidate.payload, Failure)),
                Wave(number=wave),
            ),
        )
        self.recorder.parent = turn.id
        self.recorder.turns.append(turn)

    def finished(self, *, is_success: bool) -> tuple[Turn, ...]:
        """All turns with the rewards of the whole episode, and with what each was paid."""
        of, seat_of = self.sampler.reward_options.of, self._seat_of
        is_by_attempt = of in ("attempt", "improvement")
        own = self._shares(seat_of, self.attempts if is_by_attempt else [0] * len(self.paid))
        if is_by_attempt:
            # Attempts are of worlds with one seat.
            (seat,) = self.recorder.earned
            turns = [
                msgspec.structs.replace(turn, paid={**own[n], **turn.paid})
                for n, turn in enumerate(self.recorder.turns)
            ]
            paid = [_team_terms(step.rewards.get(seat, {})) for step in self.paid]
            return by_attempt(turns, paid, self.attempts, is_improvement=of == "improvement")
        team = {seat: _team_terms(terms) for seat, terms in self.recorder.earned.items()}
        if self.sampler.reward_options.source == "outcome":
            team, own = _with_outcome(team, own, self.recorder.turns, is_success=is_success)
        return tuple(
            msgspec.structs.replace(
                turn,
                rewards=team[seat_of[agent_of(turn.agent)]] | self.own.get(turn.agent, {}),
                paid={**own[number], **turn.paid},
            )
            for number, turn in enumerate(self.recorder.turns)
        )

    def _shares(self, seat_of: Mapping[str, str], spans: Sequence[int]) -> list[dict[str, float]]:
        """The team's terms per recorded turn: what the world paid from an agent's turn on to before its next one.

        Its first turn also has what was paid before, so that they add up to the span's for every agent with a turn in
        it. `spans`: of every team turn, the part of the episode that it is rewarded in; nothing is shared across parts.
        """
        turns = self.recorder.turns
        shares: list[dict[str, float]] = [{} for _ in turns]
        for numbers in members([(turn.agent, spans[turn.turn]) for turn in turns]).values():
            first = turns[numbers[0]]
            seat, span = seat_of[agent_of(first.agent)], spans[first.turn]
            for turn, step in enumerate(self.paid):
                if spans[turn] != span:
                    continue
                earlier = [number for number in numbers if turns[number].turn <= turn]
                share = shares[earlier[-1] if earlier else numbers[0]]
                for name, value in _team_terms(step.rewards.get(seat, {})).items():
                    share[name] = share.get(name, 0.0) + value
        return shares

    @property
    def _seat_of(self) -> Mapping[str, str]:
        return self.sampler.runtime.plan.seat_of


def _uncleanness(episode: Episode) -> float:
    """GRPO-RoC's penalty: the share of its tool calls that failed, and 1 where an output did not parse.

    A solved task has one answer, so the published penalty of further answers is 0.
    """
    used = [ToolUse.of(turn) for turn in episode.turns]
    errors = sum(one.errors for one in used)
    return transcript_penalty(
        calls=errors + sum(one.calls for one in used),
        errors=errors,
        has_form=all(turn.failure is None for turn in episode.turns),
    )


def _with_outcome(
    team: Mapping[str, Mapping[str, float]],
    shares: Sequence[Mapping[str, float]],
    turns: Sequence[Turn],
    *,
    is_success: bool,
) -> tuple[dict[str, dict[str, float]], list[dict[str, float]]]:
    """The team's terms and their shares with the outcome, which every agent is paid in its last turn."""
    last = {turn.agent: number for number, turn in enumerate(turns)}
    term = {OUTCOME: float(is_success)}
    paid = [{**share, **(term if last[turns[n].agent] == n else {})} for n, share in enumerate(shares)]
    return {seat: {**terms, **term} for seat, terms in team.items()}, paid


def _team_terms(terms: Mapping[str, float]) -> dict[str, float]:
    return {f"{TEAM}{name}": value for name, value in terms.items()}
