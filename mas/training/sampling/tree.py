"""Tree sampling: K candidates per agent and turn from one prompt and state, each scored on its own clone, all
recorded, and only then one committed; the next agent acts after it.

Source: AT-GRPO, arXiv 2510.11062, section 3. The order is what the published code gets wrong: there the winner is
committed before the later agents are scored.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from mas.algorithms.parts.rewards.names import TEAM
from mas.algorithms.parts.rewards.terms import total_reward
from mas.core.concurrency import together
from mas.core.environment import Environment, Task
from mas.core.errors import MasError
from mas.core.messages import Payload
from mas.core.naming import agent_of
from mas.core.records import Episode, Turn
from mas.core.seeds import derive_seed, digest
from mas.core.tracing import in_environment
from mas.runtime.agents import environment_step
from mas.runtime.episodes import opponent_actions
from mas.runtime.flow import Flow
from mas.runtime.payloads import Candidate
from mas.runtime.play import DecisionPoint, look, play_turn, seat_actions, silent_agents
from mas.runtime.team import TeamRuntime
from mas.training.sampling.sampler import (
    EpisodeRecorder,
    Sampler,
    add_rewards,
    cost_terms,
    decision_group,
    own_terms,
    record_turn,
)


@dataclass(frozen=True, slots=True)
class TreeSampler(Sampler):
    """Plays one episode per task and records T x N groups of exactly K comparable turns."""

    async def sample(self, task: Task, environment: Environment, seed: int) -> tuple[Episode, ...]:
        """Play the task; the episode's turns hold every candidate of every decision.

        A task that cannot be played to its end is a record with status `failed`.
        """
        recorder = EpisodeRecorder.open(task, seed)
        play = _TreePlay(self, recorder, seed)
        try:
            with in_environment():
                environment.reset(task)
            on_turn = recorder.looking(environment, recorder.on_turn) if self.has_scenes else recorder.on_turn
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
        except MasError as error:
            return (recorder.failed(error),)
        return (recorder.close(environment, tuple(turn for at in sorted(play.drawn) for turn in play.drawn[at])),)


@dataclass(frozen=True, slots=True)
class _TreePlay:
    """`drawn`: the turns of every decision, by the order in which agents began."""

    sampler: TreeSampler
    recorder: EpisodeRecorder
    seed: int
    drawn: dict[int, list[Turn]] = field(default_factory=dict)

    async def decide(self, point: DecisionPoint) -> Payload:
        """Draw K, score each on its own clone, record all, commit one. A role that its team freezes speaks once."""
        options, recorder = self.sampler.options, self.recorder
        is_frozen = not point.flow.plan.roles[agent_of(point.agent)].spec.trainable
        parent, place = self._parent(), recorder.begin()
        with in_environment():
            key = point.environment.state_key()
        state = digest(key, point.flow.key())
        visit = point.flow.visits(point.agent)
        here = derive_seed("decision", self.seed, point.turn, point.agent, visit)
        seeds = tuple(derive_seed("candidate", here, k) for k in range(1 if is_frozen else options.candidates))
        candidates = await self.sampler.runtime.ask(point, seeds, episode=recorder.id)
        recorder.count(candidates)
        scored = [self._own(point, candidates[0])] if is_frozen else await self._scores(point, candidates)
        if costs := self.sampler.reward_options.cost:
            price = point.flow.plan.roles[agent_of(point.agent)].spec.price
            scored = [terms | cost_terms(costs, one, price) for terms, one in zip(scored, candidates, strict=True)]
        totals = [total_reward(terms, self.sampler.reward_options) for terms in scored]
        winner = self._winner(totals, here)
        group = decision_group(point, recorder, state)
        self.drawn[place] = [
            record_turn(
                point,
                candidate,
                recorder,
                parent=parent,
                index=k,
                group=group,
                rewards=scored[k],
                chosen=k == winner,
            )
            for k, candidate in enumerate(candidates)
        ]
        recorder.say(point, candidates[winner], place)
        return candidates[winner].payload

    def _parent(self) -> str | None:
        """The chosen turn of the decision that began last, of those that are made."""
        last = self.drawn[max(self.drawn)] if self.drawn else ()
        return next((turn.id for turn in last if turn.chosen), None)

    def _winner(self, totals: list[float], here: int) -> int:
        """The best candidate (the first of equals), or any, as `commit_best` says."""
        draw = derive_seed("commit", here) / 2**63
        if draw < self.sampler.options.commit_best:
            return max(range(len(totals)), key=totals.__getitem__)
        return derive_seed("any", here) % len(totals)

    async def _scores(self, point: DecisionPoint, candidates: tuple[Candidate, ...]) -> list[dict[str, float]]:
        """Mean terms of every candidate's play-outs. Equal outputs lead to the same state: they share one score."""
        distinct: dict[str, Candidate] = {}
        for candidate in candidates:
            distinct.setdefault(candidate.text, candidate)
        team = point.flow.plan.spec
        # Who acts with others may be the first of them.
        is_last = point.agent == team.output and not team.joint and not team.seats
        rounds = self.sampler.options.continuations
        if is_last and self.sampler.options.lookahead != "episode":
            # All that can still be asked are agents behind the output: the play-outs of one candidate at a time.
            terms: list[dict[str, float]] = []
            for candidate in distinct.values():
                if rounds == 1:
                    terms.append(await self._play_out(point, candidate, 0))
                else:
                    terms += await together((self._play_out(point, candidate, n) for n in range(rounds)), "play-out")
        else:
            every = (self._play_out(point, candidate, n) for candidate in distinct.values() for n in range(rounds))
            terms = await together(every, "play-out")
        means = [_mean_terms(terms[at : at + rounds]) for at in range(0, len(terms), rounds)]
        by_text = dict(zip(distinct, means, strict=True))
        return [dict(by_text[candidate.text]) for candidate in candidates]

    def _own(self, point: DecisionPoint, candidate: Candidate) -> dict[str, float]:
        """The candidate's own terms, nothing played on."""
        sampler, failure = self.sampler, self.sampler.reward_options.failure
        return own_terms(sampler.reward, point, point.environment, candidate.payload, None, failure)

    async def _play_out(self, point: DecisionPoint, candidate: Candidate, number: int) -> dict[str, float]:
        """Team and own terms of one candidate, played on in a clone of its own."""
        sampler, seed = self.sampler, derive_seed("play-out", candidate.seed, number)
        flow = point.flow.complete(point.agent, candidate.payload)
        if sampler.options.lookahead == "action" and not flow.finished:
            return self._own(point, candidate)
        seat = flow.plan.seat_of[agent_of(point.agent)]
        with in_environment():
            world = point.environment.clone()
        earned: dict[str, dict[str, float]] = {}
        turn, views = point.turn, point.observations
        decide, opponents = _PlayOut(sampler.runtime, self.recorder, seed).decide, sampler.opponent_policies(seed)
        theirs = await opponent_actions(opponents, world.to_move(), world, turn)
        flow = await play_turn(flow, world, views, turn, decide, in_step=True)
        after = flow
        while True:
            own_seats = [one for one in world.to_move() if one not in opponents]
            with in_environment():
                step = environment_step(world, flow, seat_actions(flow, own_seats) | theirs)
            add_rewards(earned, flow, step, turn)
            turn += 1
            if sampler.options.lookahead != "episode" or turn == sampler.turns or not world.to_move():
                break
            past, views, moving = flow.remembered(views), look(flow.plan, world), world.to_move()
            theirs = await opponent_actions(opponents, moving, world, turn)
            begin = Flow.start(flow.plan, [one for one in moving if one not in opponents], silent_agents(views), past)
            flow = await play_turn(begin, world, views, turn, decide, in_step=True)
        failure = sampler.reward_options.failure
        own = own_terms(sampler.reward, point, point.environment, candidate.payload, after, failure)
        return {f"{TEAM}{name}": value for name, value in earned[seat].items()} | own


def _mean_terms(outcomes: Sequence[dict[str, float]]) -> dict[str, float]:
    """The mean of each term over play-outs; one that a play-out did not pay is 0 there."""
    if len(outcomes) == 1:
        return outcomes[0]
    names = dict.fromkeys(name for terms in outcomes for name in terms)
    return {name: sum(terms.get(name, 0.0) for terms in outcomes) / len(outcomes) for name in names}


@dataclass(frozen=True, slots=True)
class _PlayOut:
    """Carries a candidate on with one sample per agent: nothing of it is trained, all of it is counted."""

    runtime: TeamRuntime
    recorder: EpisodeRecorder
    seed: int

    async def decide(self, point: DecisionPoint) -> Payload:
        seed = derive_seed("step", self.seed, point.turn, point.agent, point.flow.visits(point.agent))
        candidate = await self.runtime.sample_locally(point, seed, episode=self.recorder.id)
        self.recorder.count((candidate,))
        return candidate.payload
