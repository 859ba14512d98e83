"""What all samplers share: the team, opponents in some of its seats, and the record of an open episode.

The record holds the candidates' cost, the conversation and the rewards. What opponents do moves the world, and nothing
of it is ever trained.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from types import MappingProxyType
from typing import Any, Protocol, Self

from mas.algorithms.parts.rewards.names import FAILURE, OWN
from mas.algorithms.parts.rewards.terms import COST_TERMS, Cost, RewardOptions, check_paid, terms_paid
from mas.algorithms.parts.sampling.options import SamplerOptions
from mas.core.environment import Environment, Move, Reward, Step, Task, check_finite, measures_of, world_of
from mas.core.errors import MasError
from mas.core.messages import Failure, Payload
from mas.core.naming import agent_of
from mas.core.policy import Price
from mas.core.records import Attempt, Episode, Fact, Group, Line, Scene, Turn, facts_of
from mas.core.role import ENVIRONMENT
from mas.core.seeds import derive_seed, digest
from mas.graph.plan import TeamPlan
from mas.runtime.agents import DENIED
from mas.runtime.episodes import NO_OPPONENTS, OpponentPolicies
from mas.runtime.flow import Flow
from mas.runtime.payloads import Candidate
from mas.runtime.play import DecisionPoint, team_action
from mas.runtime.policies import Spent
from mas.runtime.team import TeamRuntime

OnTurn = Callable[[int, Flow, Step], None]


def loops_of(plan: TeamPlan) -> list[tuple[str, int]]:
    """`SOURCE-TARGET` and bound of the team's loops, in the order of `Flow.uses`."""
    edges = [plan.spec.edges[loop.edge] for loop in plan.wiring.loops]
    return [(f"{edge.source}-{edge.target}", edge.loop or 0) for edge in edges]


@dataclass(slots=True)
class EpisodeRecorder:
    """The open record of one episode. `earned`: seat of the team -> what it was paid so far, by term.

    `has_opponents`: others play some of the seats; turns in which they alone move are none of the team's.
    `denied`: calls of tools that were denied to the team; `has_tools`: its roles have any.
    `lines`: as they were said. `places`: of each of them, in the record of the episode: there agents that speak at once
    stand in the order in which they began, whoever was quick.
    """

    id: str
    task: str
    turns: list[Turn] = field(default_factory=list)
    lines: list[Line] = field(default_factory=list)
    earned: dict[str, dict[str, float]] = field(default_factory=dict)
    prompt_tokens: int = 0
    completion_tokens: int = 0
    calls: int = 0
    prompts: dict[str, int] = field(default_factory=dict)
    length: int = 0
    passes: int = 0
    parent: str | None = None
    attempts: list[Attempt] = field(default_factory=list)
    loops: dict[str, list[int]] = field(default_factory=dict)
    has_opponents: bool = False
    scenes: list[Scene] = field(default_factory=list)
    has_tools: bool = False
    denied: int = 0
    places: list[int] = field(default_factory=list)
    begun: int = 0

    @classmethod
    def open(cls, task: Task, seed: int) -> Self:
        """The empty record of a task played with a seed; equal seeds of one task are one episode."""
        return cls(id=f"{task.id}#{seed:016x}", task=task.id)

    def count(self, candidates: tuple[Candidate, ...]) -> None:
        """What one request cost, play-outs included: each candidate is a call with a prompt and a completion."""
        self.calls += len(candidates)
        self.prompt_tokens += sum(len(candidate.prompt_ids) for candidate in candidates)
        self.completion_tokens += sum(len(candidate.generation.token_ids) for candidate in candidates)
        for adapter, ids in dict.fromkeys((one.generation.adapter, one.prompt_ids) for one in candidates):
            self.prompts[digest(adapter.name if adapter is not None else "", str(ids))] = len(ids)

    def on_attempt(self, attempt: Attempt) -> None:
        """An agent did not answer at the first try, or was compensated."""
        self.attempts.append(attempt)
        if attempt.prompt_tokens:
            self.prompts[f"{self.id}/attempt/{len(self.attempts)}"] = attempt.prompt_tokens
        self.calls += attempt.purpose == "compensation" and attempt.cause is None
        self.prompt_tokens += attempt.prompt_tokens
        self.completion_tokens += attempt.completion_tokens

    def begin(self) -> int:
        """The place of a line that is still to be said."""
        self.begun += 1
        return self.begun

    def say(self, point: DecisionPoint, candidate: Candidate, place: int | None = None) -> None:
        """A committed line of the conversation. `place`: that `begin` gave it; None: behind all others."""
        is_of_tools = point.flow.plan.roles[agent_of(point.agent)].spec.voice == "tools"
        self.denied += is_of_tools and candidate.payload.route == DENIED
        line = Line(
            turn=point.turn,
            agent=point.agent,
            prompt=candidate.prompt,
            text=candidate.text,
            failure=failure_cause(candidate.payload),
        )
        self._add(line, self.begin() if place is None else place)

    def _add(self, line: Line, place: int) -> None:
        self.lines.append(line)
        self.places.append(place)

    def hear(self, turn: int, name: str, text: str) -> None:
        """A line of somebody who is not of the team; it costs nothing here, and is nobody's turn."""
        self.has_opponents = True
        self._add(Line(turn=turn, agent=name, prompt="", text=text), self.begin())

    def look(self, environment: Environment, turn: int = -1, event: str = "") -> None:
        """Keep what the world looks like now, for people."""
        self.scenes.append(Scene(turn=turn, event=event, world=environment.render()))

    def looking(self, environment: Environment, on_turn: OnTurn) -> OnTurn:
        """Keep what the world looks like now; returns `on_turn` and behind it, after each turn, the same again."""
        self.look(environment)

        def both(turn: int, flow: Flow, step: Step) -> None:
            on_turn(turn, flow, step)
            self.look(environment, turn, turn_text(turn, flow, step))

        return both

    def on_turn(self, turn: int, flow: Flow, step: Step) -> None:
        """A team turn was committed: add what the environment paid.

        Raises:
            RewardError: that is no finite number.
        """
        add_rewards(self.earned, flow, step, turn)
        if self.has_opponents and not flow.outputs:
            return  # opponents alone have moved
        self.has_tools = any(role.spec.tools for role in flow.plan.roles.values())
        for text in step.denied.values():
            self.denied += 1
            self._add(Line(turn=turn, agent=ENVIRONMENT, prompt="", text=text), self.begin())
        self.length += 1
        self.passes += flow.action() is None
        for (name, _), taken in zip(loops_of(flow.plan), flow.uses, strict=True):
            self.loops.setdefault(name, []).append(taken)

    @property
    def rewards(self) -> dict[str, float]:
        """What the environment paid, by term; of several seats by `SEAT.TERM`."""
        return terms_paid(self.earned)

    def close(self, environment: Environment, turns: tuple[Turn, ...]) -> Episode:
        measures = measures_of(environment) | ({"denied_calls": self.denied} if self.has_tools else {})
        return self._episode(success=environment.success(), turns=turns, measures=measures)

    def failed(self, error: MasError) -> Episode:
        """The record of a task that could not be played to its end: what was said and spent until then, not trained."""
        return self._episode(success=False, turns=(), status="failed", cause=f"{type(error).__name__}: {error}")

    def _episode(self, **outcome: Any) -> Episode:
        return Episode(
            id=self.id,
            task=self.task,
            lines=tuple(self.lines[at] for at in sorted(range(len(self.lines)), key=self.places.__getitem__)),
            rewards=self.rewards,
            prompt_tokens=self.prompt_tokens,
            completion_tokens=self.completion_tokens,
            calls=self.calls,
            prompts=dict(self.prompts),
            length=self.length,
            passes=self.passes,
            attempts=tuple(self.attempts),
            loops={name: tuple(taken) for name, taken in self.loops.items()},
            scenes=tuple(self.scenes),
            **outcome,
        )


def turn_text(turn: int, flow: Flow, step: Step) -> str:
    """What the team did in a turn and what the environment paid for it, for people."""
    earned: dict[str, dict[str, float]] = {}
    add_rewards(earned, flow, step, turn)
    action = team_action(flow)
    rewards = "  ".join(f"{name} {value:+g}" for name, value in terms_paid(earned).items() if value) or "no reward"
    did = f"does {action!r}" if action else "passes"
    illegal = " (not legal)" if step.illegal else ""
    return f"turn {turn}: the team {did}{illegal}: {rewards}"


def failure_cause(payload: Payload) -> str | None:
    """Why the output did not parse, None when it did."""
    return payload.cause if isinstance(payload, Failure) else None


def decision_group(point: DecisionPoint, recorder: EpisodeRecorder, state: str, path: str = "") -> Group:
    """Candidates of one decision: of one prompt in one state. `path`: see `Group`."""
    return Group(
        kind="decision",
        task=recorder.task,
        agent=point.agent,
        episode=recorder.id,
        turn=point.turn,
        visit=point.flow.visits(point.agent),
        state=state,
        path=path,
    )


def record_turn(
    point: DecisionPoint,
    candidate: Candidate,
    recorder: EpisodeRecorder,
    *,
    parent: str | None,
    index: int,
    group: Group,
    chosen: bool,
    trajectory: str | None = None,
    rewards: Mapping[str, float] = MappingProxyType({}),
    path: str = "",
    paid: Mapping[str, float] = MappingProxyType({}),
    facts: Sequence[Fact] = (),
) -> Turn:
    """One generation as a training record.

    Args:
        trajectory: None: it is a trajectory of its own. rewards: empty where they are known only later.
        path: which candidates it comes after, where the place in the episode alone does not say that.
    """
    visit, generation = point.flow.visits(point.agent), candidate.generation
    identity = f"{recorder.id}{path}/{point.turn}/{point.agent}/{visit}/{index}"
    return Turn(
        id=identity,
        episode=recorder.id,
        task=recorder.task,
        agent=point.agent,
        role=candidate.role,
        turn=point.turn,
        visit=visit,
        candidate=index,
        parent=parent,
        group=group,
        trajectory=trajectory or identity,
        prompt_ids=candidate.prompt_ids,
        completion_ids=generation.token_ids,
        logprobs=generation.logprobs,
        supports=generation.supports,
        temperature=candidate.temperature,
        adapter=generation.adapter,
        seed=candidate.seed,
        finish=generation.finish,
        text=candidate.text,
        rewards=dict(rewards),
        chosen=chosen,
        failure=failure_cause(candidate.payload),
        choices=candidate.choices,
        world=world_of(point.environment),
        paid=dict(paid),
        facts=facts_of(*facts),
    )


class Opponent(Protocol):
    """Somebody who plays any seat of one game; asked for many games at once."""

    async def move(self, seat: str, environment: Environment, seed: int) -> str:
        """The action as the environment reads it.

        Args:
            environment: where it is to move; not to be changed.
            seed: of this move; equal seeds make equal moves.
        """


@dataclass(frozen=True, slots=True)
class OpponentSeats:
    """An opponent and the seats that it has in a game; the same for all that are compared with each other."""

    name: str
    seats: tuple[str, ...]
    opponent: Opponent

    def opponent_policies(self, seed: int, recorder: EpisodeRecorder | None = None) -> OpponentPolicies:
        """As the runtime asks them. `seed`: of the play; `recorder`: where the committed conversation is written."""

        async def move(seat: str, environment: Environment, turn: int) -> str:
            text = await self.opponent.move(seat, environment, derive_seed("opponent", seed, turn, seat))
            if recorder is not None:
                recorder.hear(turn, f"opponent.{self.name}", text)
            return text

        return {seat: partial(move, seat) for seat in self.seats}


@dataclass(frozen=True, slots=True)
class Sampler:
    """A team, what its roles are paid, and how candidates are drawn.

    `reward`: the scenario's; `reward_options`: how its terms are weighed.
    `turns`: most team turns of an episode; None: to its end. `opponent_seats`: seats that others play; None: the team
    plays all. `has_scenes`: records hold what the world looked like, for people; not those of trees of whole episodes.
    """

    runtime: TeamRuntime
    reward: Reward
    options: SamplerOptions
    reward_options: RewardOptions
    turns: int | None = None
    opponent_seats: OpponentSeats | None = None
    has_scenes: bool = False

    def opponent_policies(self, seed: int, recorder: EpisodeRecorder | None = None) -> OpponentPolicies:
        """Who plays the other seats in a play of this seed; see `OpponentSeats.opponent_policies`."""
        return NO_OPPONENTS if self.opponent_seats is None else self.opponent_seats.opponent_policies(seed, recorder)


def add_rewards(earned: dict[str, dict[str, float]], flow: Flow, step: Step, turn: int) -> None:
    """Add what the environment paid in a team turn to what each seat has earned, by term.

    Raises:
        RewardError: that is no finite number.
    """
    for seat in flow.plan.starting:
        check_paid(step, seat, turn)
        own = earned.setdefault(seat, {})
        for name, value in step.rewards.get(seat, {}).items():
            own[name] = own.get(name, 0.0) + value


def own_terms(
    reward: Reward, point: DecisionPoint, environment: Environment, payload: Payload, after: Flow | None, failure: float
) -> dict[str, float]:
    """The role's own terms of one output, and the failure term where it did not parse.

    Raises:
        RewardError: a term is no finite number.
    """
    role = point.flow.plan.roles[agent_of(point.agent)].name
    move = Move(
        agent=point.agent,
        role=role,
        environment=environment,
        output=payload,
        before=point.flow.outputs,
        after=after.outputs if after is not None else {},
    )
    paid = reward.own(move)
    check_finite(paid, f"the reward of role {role!r}, in team turn {point.turn},")
    terms = {f"{OWN}{name}": value for name, value in paid.items()}
    if isinstance(payload, Failure):
        terms[FAILURE] = failure
    return terms


def cost_terms(costs: Sequence[Cost], candidate: Candidate, price: Price | None) -> dict[str, float]:
    """What one output cost, as negative terms.

    `own.cost_tokens`: thousands of tokens, prompt and completion; `own.cost_price`: what they cost at the role's price;
    `own.cost_seconds`: that their request took, which all of its candidates share.
    """
    prompt, completion = len(candidate.prompt_ids), len(candidate.generation.token_ids)
    found: dict[Cost, float] = {
        "tokens": -(prompt + completion) / 1000,
        "price": -Spent.of(prompt, completion, 1, price).cost,
        "seconds": -candidate.seconds,
    }
    return {f"{OWN}{COST_TERMS[cost]}": found[cost] for cost in costs}
