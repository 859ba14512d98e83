"""Full tree sampling: n candidates at every decision of every agent, and all of them are carried on.

A task is one tree, whose leaves are finished episodes. Every candidate is a record; its terms are means over what lies
below it, and are known only when all of that has been played. Siblings with equal outputs share what comes after them.
The members of a wave decide one after the other, in declared order, from what all of them knew when it began.
Source: MALT, arXiv 2412.01928, section 4.1 (three roles, n = 3, one turn: 27 leaves).

Leaves out on purpose: the bus has no episode of it, so budgets of an episode and of a turn do not count, that of the
run does; and nothing is compensated, as all but one path happens in imagination.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean

import msgspec

from mas.algorithms.parts.rewards.names import OUTCOME, TEAM
from mas.algorithms.parts.rewards.terms import check_paid
from mas.core.concurrency import together
from mas.core.environment import Environment, Observation, Task
from mas.core.errors import Halted, MasError, ReplayError, RewardError, RunError
from mas.core.messages import Payload
from mas.core.records import Episode, Turn
from mas.core.seeds import derive_seed, digest
from mas.core.tracing import in_environment
from mas.runtime.agents import environment_step
from mas.runtime.flow import Flow
from mas.runtime.flow_state import Past
from mas.runtime.payloads import Candidate
from mas.runtime.play import DecisionPoint, isolated, look, silent_agents, team_action
from mas.runtime.policies import policy_of
from mas.training.sampling.sampler import EpisodeRecorder, Sampler, decision_group, own_terms, record_turn

Terms = dict[tuple[str, str], float]
"""Means over the leaves below, by whose they are and name; "" is everybody's."""


@dataclass(frozen=True, slots=True)
class FullTreeSampler(Sampler):
    """Plays one tree per task; every group is the n candidates of one prompt and state."""

    async def sample(self, task: Task, environment: Environment, seed: int) -> tuple[Episode, ...]:
        """One episode with the turns of the whole tree, parents before children. Committed is the path of first
        candidates, which is an episode as the policy plays it. A task that cannot be played is a record `failed`."""
        recorder = EpisodeRecorder.open(task, seed)
        tree = _Tree(self, recorder, seed)
        try:
            with in_environment():
                environment.reset(task)
            with self.runtime.noting(recorder.id, recorder.on_attempt):
                grown = await tree.enter(_Path(world=environment, is_committed=True))
        except MasError as error:
            return (recorder.failed(error),)
        return (recorder.close(tree.end, grown.turns),)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Path:
    """How far one branch has come.

    Attributes:
        world: as the team turn began; nobody changes it.
        past: what the team turn before it leaves behind.
        waiting: members of the wave that have not decided; said: what the others of it have.
        spoken: points and outputs of the team turn so far. paid: what the environment paid so far.
        name: numbers of the candidates that it went by; parent: id of the last one.
    """

    world: Environment
    turn: int = 0
    past: Past = field(default_factory=dict)
    waiting: tuple[DecisionPoint, ...] = ()
    said: tuple[tuple[str, Payload], ...] = ()
    spoken: tuple[tuple[DecisionPoint, Payload], ...] = ()
    paid: Mapping[str, float] = field(default_factory=dict)
    name: str = ""
    parent: str | None = None
    is_committed: bool = False


@dataclass(frozen=True, slots=True)
class _Grown:
    """A branch played to its ends."""

    turns: tuple[Turn, ...]
    terms: Terms


@dataclass(slots=True)
class _Tree:
    sampler: FullTreeSampler
    recorder: EpisodeRecorder
    seed: int
    leaves: int = 0
    end: Environment = field(init=False)

    async def enter(self, path: _Path) -> _Grown:
        """A team turn begins, or all is over."""
        plan = self.sampler.runtime.plan
        seats = path.world.to_move()
        if not seats or path.turn == self.sampler.turns:
            return self._leaf(path)
        if seats != (plan.spec.seat,):
            raise RunError(f"team {plan.spec.name!r} plays seat {plan.spec.seat!r}, to move: {seats}")
        views = look(plan, path.world)
        begin = Flow.start(plan, silent=silent_agents(views), past=path.past)
        return await self._go_on(replace(path, spoken=()), begin, views)

    async def _go_on(self, path: _Path, flow: Flow, views: Mapping[str, Observation]) -> _Grown:
        """A wave begins, or the team turn is over."""
        if flow.finished:
            return await self._commit(path, flow, views)
        for agent in flow.ready():
            flow = flow.begin(agent)
        waiting = tuple(
            DecisionPoint(agent=agent, flow=flow, environment=path.world, observations=views, turn=path.turn)
            for agent in flow.running()
        )
        if not waiting:
            raise RunError(f"team {flow.plan.spec.name!r} cannot go on in turn {path.turn}: no agent can act")
        return await self._decide(replace(path, waiting=waiting, said=()))

    async def _decide(self, path: _Path) -> _Grown:
        """The next member of a wave decides: n candidates, and what comes after each."""
        point, recorder = path.waiting[0], self.recorder
        here = derive_seed("decision", self.seed, path.name, _whose(point))
        seeds = tuple(derive_seed("candidate", here, k) for k in range(self.sampler.options.candidates))
        try:
            candidates = await self.sampler.runtime.ask(point, seeds, episode=recorder.id)
        except (Halted, ReplayError, RewardError):
            raise
        except MasError as error:
            if policy_of(point.flow.plan.spec.policies, point.agent).on_failure != "isolate":
                raise
            return await self._said(path, isolated(point, error))
        recorder.count(candidates)
        if path.is_committed:
            recorder.say(point, candidates[0])
        with in_environment():
            key = point.environment.state_key()
        state = digest(key, point.flow.key())
        turns = [self._record(path, candidate, k, state) for k, candidate in enumerate(candidates)]
        first: dict[str, int] = {}
        for k, candidate in enumerate(candidates):
            first.setdefault(candidate.text, k)
        branches = []
        for k in first.values():
            after = replace(path, name=f"{path.name}.{k}", parent=turns[k].id, is_committed=turns[k].chosen)
            branches.append(self._said(after, candidates[k].payload))
        grown = dict(zip(first, await together(branches, "branch"), strict=True))
        return _joined(turns, [grown[turn.text] for turn in turns], list(grown.values()), _whose(point))

    def _record(self, path: _Path, candidate: Candidate, number: int, state: str) -> Turn:
        point = path.waiting[0]
        return record_turn(
            point,
            candidate,
            self.recorder,
            parent=path.parent,
            index=number,
            group=decision_group(point, self.recorder, state, path.name),
            chosen=path.is_committed and number == 0,
            path=path.name,
        )

    async def _said(self, path: _Path, payload: Payload) -> _Grown:
        """The output of the member that decided last; when all of the wave have spoken, their outputs travel."""
        point, waiting = path.waiting[0], path.waiting[1:]
        said, spoken = (*path.said, (point.agent, payload)), (*path.spoken, (point, payload))
        path = replace(path, waiting=waiting, said=said, spoken=spoken)
        if waiting:
            return await self._decide(path)
        flow = point.flow
        for agent, output in said:
            flow = flow.complete(agent, output)
        return await self._go_on(path, flow, point.observations)

    async def _commit(self, path: _Path, flow: Flow, views: Mapping[str, Observation]) -> _Grown:
        """The team turn is over: the environment takes a step, and who spoke is judged by what became of it."""
        sampler, seat = self.sampler, flow.plan.spec.seat
        with in_environment():
            world = path.world.clone()
            step = environment_step(world, flow, {seat: team_action(flow)})
        check_paid(step, seat, path.turn)
        if path.is_committed:
            self.recorder.on_turn(path.turn, flow, step)
        paid = dict(path.paid)
        for name, value in step.rewards[seat].items():
            paid[name] = paid.get(name, 0.0) + value
        own: Terms = {}
        for point, payload in path.spoken:
            terms = own_terms(sampler.reward, point, point.environment, payload, flow, sampler.reward_options.failure)
            own |= {(_whose(point), name): value for name, value in terms.items()}
        after = replace(path, world=world, turn=path.turn + 1, past=flow.remembered(views), paid=paid)
        grown = await self.enter(after)
        return _Grown(grown.turns, grown.terms | own)

    def _leaf(self, path: _Path) -> _Grown:
        self.leaves += 1
        if self.leaves > self.sampler.options.max_leaves:
            raise RunError(
                f"the tree of task {self.recorder.task!r} has more than max_leaves = "
                f"{self.sampler.options.max_leaves} leaves: lower algorithm.sampler.candidates"
            )
        if path.is_committed:
            self.end = path.world
        team = {("", f"{TEAM}{name}"): value for name, value in path.paid.items()}
        return _Grown((), {("", OUTCOME): float(path.world.success()), **team})


def _whose(point: DecisionPoint) -> str:
    """Names a decision among those of one path."""
    return f"{point.turn}/{point.agent}/{point.flow.visits(point.agent)}"


def _joined(turns: Sequence[Turn], below: Sequence[_Grown], branches: Sequence[_Grown], whose: str) -> _Grown:
    """Siblings with their terms, and what lies below them; `below`: of each, equal for those that share a branch."""
    judged = [
        msgspec.structs.replace(
            turn, rewards={name: value for (owner, name), value in grown.terms.items() if owner in ("", whose)}
        )
        for turn, grown in zip(turns, below, strict=True)
    ]
    keys = dict.fromkeys(key for grown in below for key in grown.terms if key[0] != whose)
    means = {key: fmean(grown.terms.get(key, 0.0) for grown in below) for key in keys}
    return _Grown((*judged, *(turn for grown in branches for turn in grown.turns)), means)
