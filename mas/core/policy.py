"""How the agents of a team are waited for, and what they may use, as data: joins, limits, retries, stand-ins, budgets,
replicas.

Leaves out on purpose: checking that the names exist (`mas.graph`) and doing it (`mas.runtime`).
"""

from collections.abc import Mapping
from typing import Annotated, Literal, Self

from pydantic import Field, field_validator, model_serializer, model_validator

from mas.core.options import Options

OnFailure = Literal["cancel", "isolate", "compensate"]
Seconds = Annotated[float, Field(gt=0)]
Count = Annotated[int, Field(ge=1)]


class JoinSpec(Options):
    """How an agent with several branches waits. Edges of one source are one branch. Written `all`, `any`, `2`,
    `quorum`, or as a mapping.

    Attributes:
        need: `all`: until every branch is decided; `any`: for the first live one; a number k: for the k-th live one;
            `quorum`: until the live ones are more than half of those that are not dead.
        unmet: what a number that cannot be reached any more, or was not in time, means: `fire` speaks with what has
            come, once the other branches are decided; `skip` does not speak. Nothing live never speaks.
        timeout_s: seconds from the first live branch, after which it waits no longer; None: no limit.
    """

    need: int | str = "all"
    unmet: Literal["fire", "skip"] = "fire"
    timeout_s: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None

    @field_validator("need", mode="before")
    @classmethod
    def _possible(cls, value: object) -> object:
        if value in ("all", "any", "quorum") or (isinstance(value, int) and value is not True and value >= 1):
            return value
        raise ValueError(f"need is {value!r}; possible: 'all', 'any', 'quorum', or a number of branches from 1")

    @model_validator(mode="after")
    def _has_effect(self) -> Self:
        if "unmet" in self.model_fields_set and not (isinstance(self.need, int) and self.need > 1):
            raise ValueError(f"unmet: {self.unmet} has no effect beside need: {self.need}; it needs a number above 1")
        return self

    @model_serializer
    def _short(self) -> int | str | dict[str, int | str | float]:
        if self.timeout_s is None and self.unmet == "fire":
            return self.need
        set_here: dict[str, int | str | float] = {"need": self.need}
        if self.unmet != "fire":
            set_here["unmet"] = self.unmet
        return set_here if self.timeout_s is None else set_here | {"timeout_s": self.timeout_s}


def parse_join(value: object) -> object:
    """The short form as a mapping."""
    return value if isinstance(value, Mapping | JoinSpec) else {"need": value}


ALL = JoinSpec()
"""How an agent waits that `joins` does not name."""


class Retries(Options):
    """Asking again after an error that may pass: Expired, RemoteError, Closed, NoRoute or NoPayload.

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


class Budget(Options):
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


class Budgets(Options):
    """A team's budgets; a call must fit into all of them.

    Attributes:
        turn: of one team turn; `episode`: of one episode; `run`: of everything that one `TeamRuntime` plays.
    """

    turn: Budget = Budget()
    episode: Budget = Budget()
    run: Budget = Budget()


class Price(Options):
    """What a thousand tokens of a role cost, in any unit, the same for all roles."""

    prompt: Annotated[float, Field(ge=0)]
    completion: Annotated[float, Field(ge=0)]


class Policy(Options):
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


class Replicas(Options):
    """How many listeners may share the work of one agent.

    Attributes:
        least: that many begin with the team, and never fewer are left; over processes, whoever plays waits for them.
        most: more are refused.
        concurrency: questions that one of them answers at once; more wait, or go to the others. None: as many as
            come, which leaves nothing for a second one in the same process.
    """

    least: Count = 1
    most: Count = 1
    concurrency: Count | None = None

    @model_validator(mode="after")
    def _possible(self) -> Self:
        if self.least > self.most:
            raise ValueError(f"least is {self.least}, but most is {self.most}; most must be at least as much")
        if self.most > 1 and self.concurrency is None:
            raise ValueError(
                "there may be several, but it is not said how many questions one of them takes at once, so the first "
                "would take all; add 'concurrency'"
            )
        return self
