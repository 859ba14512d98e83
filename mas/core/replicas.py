"""How many of an agent may be at work at once. As data.

Leaves out on purpose: starting and ending them (`mas.runtime.replicas`).
"""

from typing import Annotated, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

Count = Annotated[int, Field(ge=1)]


class Replicas(BaseModel):
    """How many listeners may share the work of one agent.

    Attributes:
        least: that many begin with the team, and never fewer are left; over processes, whoever plays waits for them.
        most: more are refused.
        concurrency: questions that one of them has in hand at once; more wait, or go to the others. None: as many as
            come, which leaves nothing for a second one in the same process.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")
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
