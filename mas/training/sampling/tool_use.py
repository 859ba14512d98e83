"""How often a turn called a tool, for what counts that: `advantage.early`, `strata.by=calls`, `sampler.resample`."""

from mas.core.environment import Environment, Tooled
from mas.core.messages import Action, Payload
from mas.core.records import Fact


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
