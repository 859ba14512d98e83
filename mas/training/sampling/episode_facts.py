"""What parallel sampling records of turns and episodes beside their rewards.

What an episode knows of its task's right answer is for rewards that read it; agents are told nothing of it. Calls are
counted for `advantage.early`, `strata.by=calls` and `sampler.resample`.
"""

from mas.core.environment import Environment, Tooled
from mas.core.messages import Action, Payload
from mas.core.records import Fact


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


class Grounded(Fact, frozen=True):
    """Of a turn. `is_grounded`: its output parsed, and the team's action of its turn was legal."""

    is_grounded: bool = False
