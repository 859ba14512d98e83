"""What parallel sampling notes of turns and episodes beside their rewards: answers, tool calls, repeated attempts.

What an episode knows of its task's right answer is for rewards that read it; agents are told nothing of it. Calls are
counted for `advantage.early`, `strata.by=calls` and `sampler.resample`. Attempts need episodes in which a failed task
is attempted again (`algorithm.sampler.attempts`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from math import isfinite

import msgspec

from mas.core.environment import Answered, Environment, Named, Tooled
from mas.core.errors import MasError, TrainingError
from mas.core.messages import Action, Payload
from mas.core.records import Episode, Fact, Turn, facts_of
from mas.core.role import View
from mas.runtime.point import DecisionPoint
from mas.runtime.team import TeamRuntime
from mas.training.rewards import TEAM
from mas.training.shaping.transforms import match_rate

REFLECTOR = "reflector"


class AnswerKnowledge(Fact, frozen=True):
    """Of an episode. `logprobs`: of the right answer's tokens, their mean (nats) if the team's last member gave it
    then: before the agents that spoke first, before those that spoke when they had, and so on. Empty: not asked."""

    logprobs: tuple[float, ...] = ()


class Wave(Fact, frozen=True):
    """Of a turn. `number`: where it stands in its episode's `AnswerKnowledge`."""

    number: int = 0


class EntityRate(Fact, frozen=True):
    """Of an episode. `share`: of the task's entities that stand in what was said; None: not asked."""

    share: float | None = None


@dataclass(slots=True)
class AnswerWatch:
    """Notes what the member that gives the team's answer would be asked whenever somebody speaks.

    Agents that begin when as many outputs were there are one wave. What is noted is scored when all episodes of the
    task are over, all of it at once, so that nothing of it can reach an agent.
    """

    runtime: TeamRuntime
    views: dict[tuple[int, int], View] = field(default_factory=dict)

    def wave(self, point: DecisionPoint) -> int:
        """Note a decision point; the number of its wave in the episode, from 0."""
        flow, agent = point.flow, self.runtime.plan.spec.output
        outputs = sum(map(len, flow.said)) + sum(len(said) for fan in flow.fans for said in fan.said)
        key = point.turn, outputs
        if key not in self.views:
            observation = point.observations[agent]
            self.views[key] = View(observation=observation, messages=flow.messages(agent), own=flow.own(agent))
        return list(self.views).index(key)


async def scored(
    runtime: TeamRuntime, episodes: Sequence[Episode], watches: Sequence[AnswerWatch], environment: Environment
) -> tuple[Episode, ...]:
    """Episodes of one task with the answer's mean log-probability before every wave, and with what asking for it cost.

    Equal prompts are asked once, of all the episodes together. Where it cannot be scored all of them have failed.

    Args:
        environment: of the task.

    Raises:
        TrainingError: the environment has no right answer.
    """
    if not isinstance(environment, Answered):
        raise TrainingError(f"environment {environment.spec.name!r} does not say its right answer")
    views = [view for watch in watches for view in watch.views.values()]
    try:
        found = await runtime.likelihoods(runtime.plan.spec.output, views, environment.right_answer())
    except MasError as error:
        cause = f"{type(error).__name__}: {error}"
        return tuple(msgspec.structs.replace(one, turns=(), status="failed", cause=cause) for one in episodes)
    pairs = iter(zip(found.logprobs, found.tokens, strict=True))
    return tuple(
        _with(episode, [*islice(pairs, len(watch.views))]) for episode, watch in zip(episodes, watches, strict=True)
    )


def _with(episode: Episode, asked: Sequence[tuple[float, int]]) -> Episode:
    """The episode with each wave's log-probability and tokens; one that is not finite fails it."""
    wrong = next((logprob for logprob, _ in asked if not isfinite(logprob)), None)
    if wrong is not None:
        cause = f"RewardError: the right answer has the log-probability {wrong}, and a gain in it must be finite"
        episode = msgspec.structs.replace(episode, turns=(), success=False, status="failed", cause=cause)
    return msgspec.structs.replace(
        episode,
        facts={**episode.facts, **facts_of(AnswerKnowledge(logprobs=tuple(logprob for logprob, _ in asked)))},
        prompt_tokens=episode.prompt_tokens + sum(tokens for _, tokens in asked),
        calls=episode.calls + sum(tokens > 0 for _, tokens in asked),
        prompts={**episode.prompts, f"{episode.id}/scored": sum(tokens for _, tokens in asked)},
    )


def matched(episode: Episode, environment: Environment) -> Episode:
    """The episode with the share of the task's entities that stand in what was said in it.

    Raises:
        TrainingError: the environment names none.
    """
    if not isinstance(environment, Named):
        raise TrainingError(f"environment {environment.spec.name!r} names no entities")
    said = "\n".join(line.text for line in episode.lines)
    found = EntityRate(share=match_rate(said, environment.entities()))
    return msgspec.structs.replace(episode, facts={**episode.facts, **facts_of(found)})


class ToolUse(Fact, frozen=True):
    """Of a turn. `calls`: that it made, where the environment can tell; `errors`: that failed, not among them."""

    calls: int = 0
    errors: int = 0


def tool_use(environment: Environment, payload: Payload) -> ToolUse:
    """What an output calls in the world as it stands: of an action, where the world can tell."""
    if not isinstance(payload, Action) or not isinstance(environment, Tooled):
        return ToolUse()
    text = payload.content
    return ToolUse(calls=int(environment.is_call(text)), errors=int(environment.is_failed_call(text)))


def by_attempt(
    turns: Sequence[Turn], paid: Sequence[Mapping[str, float]], attempts: Sequence[int], *, is_improvement: bool
) -> tuple[Turn, ...]:
    """The turns of an episode with every attempt as a trajectory of its own, compared with others of its number.

    R(attempt) = the team's terms that were paid in it and the agent's own terms of its turns in it; as an improvement,
    the team's terms less those of the attempt before (the first one has none before it, and loses nothing). A
    reflection between two attempts belongs to the second: as an improvement it is paid what Retroformer pays it, the
    return of the attempt that it guides less that of the one that it is about (arXiv 2308.02151, section 4.2).

    Args:
        paid: the team's terms of every team turn; attempts: the attempt that each belongs to.
    """
    sums = _sums(paid, attempts)
    own: dict[tuple[str, int], dict[str, float]] = {}
    for turn in turns:
        mine = own.setdefault((turn.agent, attempts[turn.turn]), {})
        for name, value in turn.paid.items():
            if not name.startswith(TEAM):
                mine[name] = mine.get(name, 0.0) + value
    result = []
    for turn in turns:
        number = attempts[turn.turn]
        before = sums.get(number - 1, {}) if is_improvement else {}
        now = sums[number]
        team = {name: now.get(name, 0.0) - before.get(name, 0.0) for name in {**now, **before}}
        result.append(
            msgspec.structs.replace(
                turn,
                rewards=team | own[turn.agent, number],
                group=msgspec.structs.replace(turn.group, attempt=number),
                trajectory=f"{turn.trajectory}/{number}",
            )
        )
    return tuple(result)


def _sums(paid: Sequence[Mapping[str, float]], attempts: Sequence[int]) -> dict[int, dict[str, float]]:
    sums: dict[int, dict[str, float]] = {}
    for terms, number in zip(paid, attempts, strict=True):
        mine = sums.setdefault(number, {})
        for name, value in terms.items():
            mine[name] = mine.get(name, 0.0) + value
    return sums


def repaired(turns: Sequence[Turn]) -> list[Turn]:
    """What the reflector said in attempts of its own, as if whoever failed before had said it.

    Each has the prompt, the role and the group of the turn that failed, and the reward that the reflector got: where
    the environment accepts it, the role imitates it. The turn before a reflector's is the failed answer, where an
    attempt is one team turn; a repair of a repair is one of the first answer. Our reading of Re-ReST, arXiv 2406.01495,
    section 3: the agent is trained on repaired samples, the reflection left out.
    """
    known = {turn.id: turn for turn in turns}
    found = []
    for turn in turns:
        failed = turn
        while failed.role == REFLECTOR and failed.parent is not None:
            failed = known[failed.parent]
        if turn.role == REFLECTOR and failed.role != REFLECTOR:
            found.append(
                msgspec.structs.replace(
                    turn,
                    id=f"{turn.id}/repair",
                    agent=failed.agent,
                    role=failed.role,
                    group=failed.group,
                    prompt_ids=failed.prompt_ids,
                    temperature=failed.temperature,
                    choices=failed.choices,
                    supports=(),  # the answer is imitated, not drawn
                )
            )
    return found
