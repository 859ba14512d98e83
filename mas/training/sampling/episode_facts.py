"""What parallel sampling records of turns and episodes beside their rewards.

What an episode knows of its task's right answer before each wave of turns, and how much of it was said, is for rewards
that read it; agents are told nothing of it. Calls are counted for `advantage.early`, `strata.by=calls` and
`sampler.resample`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import islice
from math import isfinite

import msgspec

from mas.algorithms.parts.advantages.steps import AnswerKnowledge
from mas.algorithms.parts.rewards.transforms import EntityRate, match_rate
from mas.algorithms.parts.sampling.selection import ToolUse
from mas.core.environment import Answered, Environment, Named, Tooled
from mas.core.errors import MasError, TrainingError
from mas.core.messages import Action, Payload
from mas.core.records import Episode, Fact, facts_of
from mas.core.role import View
from mas.runtime.play import DecisionPoint
from mas.runtime.team import TeamRuntime


def tool_use(environment: Environment, payload: Payload) -> ToolUse:
    """What an output calls in the world as it stands: of an action, where the world can tell."""
    if not isinstance(payload, Action) or not isinstance(environment, Tooled):
        return ToolUse()
    text = payload.content
    return ToolUse(calls=int(environment.is_call(text)), errors=int(environment.is_failed_call(text)))


class Grounded(Fact, frozen=True):
    """Of a turn. `is_grounded`: its output parsed, and the team's action of its turn was legal."""

    is_grounded: bool = False


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
            self.views[key] = flow.view(agent, point.observations[agent])
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
