"""Episodes with one candidate per decision, from their task's start or from where another one stood.

`play_once` is how a team is evaluated and shown to people; parallel sampling plays `SingleDecision`, too. A `Chain` is
a branch of a tree that `entropy_tree` grows. The bus has no episode of it, so budgets of an episode and of a turn do
not count, that of the run does; and nothing is compensated.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Self

from mas.core.environment import Environment, Step, Task
from mas.core.errors import MasError, RunError
from mas.core.messages import Payload
from mas.core.records import Episode
from mas.core.seeds import derive_seed
from mas.core.tracing import in_environment
from mas.runtime.agents import environment_step
from mas.runtime.flow import Flow
from mas.runtime.flow_state import Past
from mas.runtime.payloads import Candidate
from mas.runtime.play import DecisionPoint, look, play_turn, silent_agents, team_action
from mas.runtime.team import TeamRuntime
from mas.training.sampling.sampler import EpisodeRecorder, Sampler, own_terms


@dataclass(frozen=True, slots=True)
class SingleDecision:
    """Asks for one candidate, writes it down and commits it. `temperature` None: each role's own; 0: greedy."""

    runtime: TeamRuntime
    recorder: EpisodeRecorder
    seed: int
    temperature: float | None = None

    async def __call__(self, point: DecisionPoint) -> Payload:
        return (await self.draw(point)).payload

    async def draw(self, point: DecisionPoint) -> Candidate:
        place = self.recorder.begin()
        seed = derive_seed("single", self.seed, point.turn, point.agent, point.flow.visits(point.agent))
        (candidate,) = await self.runtime.ask(point, (seed,), episode=self.recorder.id, temperature=self.temperature)
        self.recorder.count((candidate,))
        self.recorder.say(point, candidate, place)
        return candidate


async def play_once(
    runtime: TeamRuntime,
    environment: Environment,
    task: Task,
    seed: int,
    *,
    temperature: float | None = None,
    has_scenes: bool = False,
) -> Episode:
    """One episode without training records; temperature 0 is greedy, None each role's own.

    It is played in step, so that it does not depend on who was quick. A task that cannot be played to its end is a
    record with status `failed`. `has_scenes`: the record holds what the world looked like, for people.
    """
    recorder = EpisodeRecorder.open(task, seed)
    decide = SingleDecision(runtime, recorder, seed, temperature)
    return await play_decided(runtime, environment, task, recorder, decide, has_scenes=has_scenes)


async def play_decided(
    runtime: TeamRuntime,
    environment: Environment,
    task: Task,
    recorder: EpisodeRecorder,
    decide: SingleDecision,
    *,
    has_scenes: bool = False,
) -> Episode:
    """One episode in which `decide` says what is committed and records it; see `play_once`."""
    try:
        with in_environment():
            environment.reset(task)
        on_turn = recorder.looking(environment, recorder.on_turn) if has_scenes else recorder.on_turn
        await runtime.play(recorder.id, environment, decide, on_turn, on_attempt=recorder.on_attempt, in_step=True)
    except MasError as error:
        return recorder.failed(error)
    return recorder.close(environment, ())


@dataclass(eq=False, slots=True, kw_only=True)
class ChainDecision:
    """A node of the tree: what one agent said at one place. Its point's environment is as the team turn began.

    Attributes:
        parent: what was decided right before it, None: it is an episode's first. Members of a wave decide in declared
            order.
        chain: number of the episode that it was drawn in; place: how many decisions are before it.
        candidate: None while it is not drawn, and where the agent failed with `error`.
    """

    point: DecisionPoint
    parent: "ChainDecision | None"
    chain: int
    place: int
    candidate: Candidate | None = None
    error: MasError | None = None

    def before(self) -> "list[ChainDecision]":
        """All that were decided before it, the first one first."""
        found, node = list["ChainDecision"](), self.parent
        while node is not None:
            found.append(node)
            node = node.parent
        return found[::-1]

    def again(self) -> Payload:
        """What was said.

        Raises:
            MasError: the agent failed, as it did then.
        """
        if self.candidate is None:
            raise self.error or RunError(f"agent {self.point.agent!r} has not spoken yet")
        return self.candidate.payload


@dataclass(eq=False, slots=True, kw_only=True)
class Chain:
    """An episode, from the task's beginning to its end.

    Attributes:
        number: among those of its tree, from 0.
        path: all decisions, those of the episode that it branches off from first.
        steps: flow and step of every team turn. own: the own terms of every decision that was drawn.
        world: at the end. error: why it could not be played.
    """

    number: int
    recorder: EpisodeRecorder
    path: list[ChainDecision] = field(default_factory=list)
    steps: list[tuple[Flow, Step]] = field(default_factory=list)
    own: dict[ChainDecision, Mapping[str, float]] = field(default_factory=dict)
    world: Environment | None = None
    error: MasError | None = None

    @property
    def spoken(self) -> list[ChainDecision]:
        return [decision for decision in self.path if decision.candidate is not None]


@dataclass(slots=True)
class ChainPlay:
    """Plays one chain."""

    sampler: Sampler
    chain: Chain
    single: SingleDecision
    world: Environment
    again: dict[tuple[int, str, int], ChainDecision] = field(default_factory=dict)
    past: Past = field(default_factory=dict)

    @classmethod
    def begin(
        cls, sampler: Sampler, task: Task, seed: int, number: int, *, root: Environment, other: Chain | None = None,
        at: ChainDecision | None = None,
    ) -> Self:  # fmt: skip
        """A chain from the task's beginning, or one that decides anew from a decision of another chain on.

        Args:
            seed: of the tree. root: the task's beginning, which stays as it is. at: of `other`, which stays as it is.
        """
        own = derive_seed("episode", seed, number)
        recorder = EpisodeRecorder.open(task, own)
        chain, single = Chain(number=number, recorder=recorder), SingleDecision(sampler.runtime, recorder, own)
        if other is None or at is None:
            return cls(sampler, chain, single, _cloned(root))
        play = cls(sampler, chain, single, _cloned(at.point.environment), past=at.point.flow.past)
        for decision in at.before():
            if decision.point.turn == at.point.turn:
                play.again[_place(decision.point)] = decision
            else:
                play._repeat(decision)
                if decision in other.own:
                    chain.own[decision] = other.own[decision]
        for turn, (flow, step) in enumerate(other.steps[: at.point.turn]):
            play._done(turn, flow, step)
        return play

    async def run(self) -> Chain:
        """To the end; an error that ends it is kept in it."""
        chain, recorder = self.chain, self.chain.recorder
        try:
            with self.sampler.runtime.noting(recorder.id, recorder.on_attempt):
                while len(chain.steps) != self.sampler.turns and self.world.to_move():
                    await self._turn(len(chain.steps))
        except MasError as error:
            chain.error = error
        chain.world = self.world
        return chain

    async def _turn(self, turn: int) -> None:
        plan, chain, sampler = self.sampler.runtime.plan, self.chain, self.sampler
        seat, seats = plan.spec.seat, self.world.to_move()
        if seats != (seat,):
            raise RunError(f"team {plan.spec.name!r} plays seat {seat!r}, to move: {seats}")
        before = _cloned(self.world)
        views = look(plan, before)
        begin = Flow.start(plan, silent=silent_agents(views), past=self.past)
        flow = await play_turn(begin, before, views, turn, self._decide, in_step=True)
        self.past = flow.remembered(views)
        with in_environment():
            step = environment_step(self.world, flow, {seat: team_action(flow)})
        self._done(turn, flow, step)
        for decision in chain.path:
            if decision.point.turn == turn and decision.candidate is not None:
                payload, failure = decision.candidate.payload, sampler.reward_options.failure
                chain.own[decision] = own_terms(sampler.reward, decision.point, before, payload, flow, failure)

    async def _decide(self, point: DecisionPoint) -> Payload:
        """What was decided before the branch is said again, all else is drawn."""
        old = self.again.get(_place(point))
        if old is not None:
            self._repeat(old)
            return old.again()
        path = self.chain.path
        decision = ChainDecision(
            point=point,
            parent=path[-1] if path else None,
            chain=self.chain.number,
            place=len(path),
        )
        path.append(decision)
        try:
            decision.candidate = await self.single.draw(point)
        except MasError as error:
            decision.error = error
        return decision.again()

    def _repeat(self, decision: ChainDecision) -> None:
        self.chain.path.append(decision)
        if decision.candidate is not None:
            self.chain.recorder.say(decision.point, decision.candidate)

    def _done(self, turn: int, flow: Flow, step: Step) -> None:
        self.chain.recorder.on_turn(turn, flow, step)
        self.chain.steps.append((flow, step))


def _place(point: DecisionPoint) -> tuple[int, str, int]:
    return point.turn, point.agent, point.flow.visits(point.agent)


def _cloned(environment: Environment) -> Environment:
    with in_environment():
        return environment.clone()
