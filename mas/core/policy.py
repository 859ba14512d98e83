"""What may go wrong at an agent of a team, and what then: limits, retries, stand-ins, budgets. As data.

Leaves out on purpose: checking that the names exist (`mas.graph.policies`) and doing it (`mas.runtime`).
"""

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

OnFailure = Literal["cancel", "isolate", "compensate"]
Seconds = Annotated[float, Field(gt=0)]


class _FrozenPolicy(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Retries(_FrozenPolicy):
    """Asking again after an error that may pass: Expired, RemoteError, Closed or NoRoute.

    The wait before attempt n + 1 is wait_s * factor^(n-1) * (1 + jitter * u), u drawn from [-1, 1] by the seed of the
    episode, turn, agent and attempt.

    Attributes:
        attempts: in all, the first included.
        wait_s: before the second attempt; 0: at once.
    """

    attempts: Annotated[int, Field(ge=2)]
    wait_s: Annotated[float, Field(ge=0)] = 0.5
    factor: Annotated[float, Field(ge=1)] = 2.0
    jitter: Annotated[float, Field(ge=0, le=1)] = 0.1


class Budget(_FrozenPolicy):
    """What may be spent; None: as much as is asked for.

    Attributes:
        tokens: prompt and completion tokens; the prompt of a request for several candidates counts once.
        calls: generations, one per candidate.
        seconds: on the bus's clock, from the first call on.
        cost: in the unit of the roles' prices.
    """

    tokens: Annotated[int, Field(ge=1)] | None = None
    calls: Annotated[int, Field(ge=1)] | None = None
    seconds: Seconds | None = None
    cost: Annotated[float, Field(gt=0)] | None = None


class Budgets(_FrozenPolicy):
    """A team's budgets; a call must fit into all of them.

    Attributes:
        turn: of one team turn; `episode`: of one episode; `run`: of everything that one `TeamRuntime` plays.
    """

    turn: Budget = Budget()
    episode: Budget = Budget()
    run: Budget = Budget()


class Price(_FrozenPolicy):
    """What a thousand tokens of a role cost, in any unit, the same for all roles."""

    prompt: Annotated[float, Field(ge=0)]
    completion: Annotated[float, Field(ge=0)]


class Policy(_FrozenPolicy):
    """How one agent of a team is waited for, and what its failure means.

    Attributes:
        timeout_s: of one whole answer; None: the runtime's own limit.
        idle_s: longest silence of whoever serves the agent while it works; None: silence is no error.
        retries: None: it is asked once.
        fallback: agent, or role that no agent plays, whose answer stands in when the agent has none.
        on_failure: the turn is cancelled with one error; or the agent's output becomes a `Failure` and the others go on
            (`isolate`); or the agents that have spoken are compensated, the last first, and then the turn is cancelled.
        compensation: agent, or role that no agent plays, that is told this agent's output to undo what came of it.
        budget: of this agent in one episode.
    """

    timeout_s: Seconds | None = None
    idle_s: Seconds | None = None
    retries: Retries | None = None
    fallback: str | None = None
    on_failure: OnFailure = "cancel"
    compensation: str | None = None
    budget: Budget = Budget()


NO_POLICY = Policy()


def policy_of(policies: Mapping[str, Policy], agent: str) -> Policy:
    """The policy of an agent, `NO_POLICY` where it has none; `worker[0]`, an instance of an agent, has the agent's."""
    return policies.get(agent) or policies.get(agent.partition("[")[0]) or NO_POLICY if policies else NO_POLICY
