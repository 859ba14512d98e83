"""What an episode knows of its task's right answer, for rewards that read it; agents are told nothing of it."""

from dataclasses import dataclass, field

import msgspec

from mas.config.algorithm import RewardOptions
from mas.core.environment import Answered, Environment, Named
from mas.core.errors import TrainingError
from mas.core.records import Episode
from mas.core.role import View
from mas.runtime.point import Point
from mas.runtime.team import TeamRuntime
from mas.training.shaping.partial import match_rate


@dataclass(slots=True)
class AnswerWatch:
    """Notes what the member that gives the team's answer would be asked whenever somebody speaks.

    Agents that begin when as many outputs were there are one wave. What is noted is scored when the episode is over,
    all of it at once, so that nothing of it can reach an agent.
    """

    runtime: TeamRuntime
    views: dict[tuple[int, int], View] = field(default_factory=dict)

    def wave(self, point: Point) -> int:
        """Note a decision point; the number of its wave in the episode, from 0."""
        flow, agent = point.flow, self.runtime.plan.spec.output
        outputs = sum(map(len, flow.said)) + sum(len(said) for fan in flow.fans for said in fan.said)
        key = point.turn, outputs
        if key not in self.views:
            observation = point.observations[agent]
            self.views[key] = View(observation=observation, messages=flow.messages(agent), own=flow.own(agent))
        return list(self.views).index(key)

    async def scored(self, episode: Episode, environment: Environment) -> Episode:
        """The episode with the answer's mean log-probability before every wave, and with what asking for it cost.

        Raises:
            TrainingError: the environment has no right answer. RunError, EngineError: it cannot be scored.
        """
        if not isinstance(environment, Answered):
            raise TrainingError(f"environment {environment.spec.name!r} does not say its right answer")
        agent = self.runtime.plan.spec.output
        found = await self.runtime.likelihoods(agent, list(self.views.values()), environment.right_answer())
        return msgspec.structs.replace(
            episode,
            answer_logprobs=found.logprobs,
            prompt_tokens=episode.prompt_tokens + found.tokens,
            calls=episode.calls + found.calls,
        )


def matched(episode: Episode, environment: Environment) -> Episode:
    """The episode with the share of the task's entities that stand in what was said in it.

    Raises:
        TrainingError: the environment names none.
    """
    if not isinstance(environment, Named):
        raise TrainingError(f"environment {environment.spec.name!r} names no entities")
    said = "\n".join(line.text for line in episode.lines)
    return msgspec.structs.replace(episode, entity_rate=match_rate(said, environment.entities()))


def watch_of(runtime: TeamRuntime, rewards: RewardOptions) -> AnswerWatch | None:
    """What notes the answer's likelihood, where the reward asks for it."""
    return AnswerWatch(runtime) if rewards.gain is not None else None
