"""Episodes in which a failed task is attempted again (`algorithm.sampler.attempts`).

Each attempt is paid by itself, and a repair can be imitated by who failed.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Literal, Self

import msgspec
from pydantic import Field, model_validator

from mas.algorithms.parts.rewards.names import TEAM
from mas.core.options import Options
from mas.core.records import Turn

REFLECTOR = "reflector"
"""The role that says, between two attempts, what went wrong in the first."""


class AttemptOptions(Options):
    """A task is attempted again from the same start, `most` times in all.

    `stop`: once it is `solved`, which the environment says, so that later attempts are guided by an oracle; success is
    that of the first one. Or `never`: it is not told whether it was, and success is that of the last attempt.
    `guide`: what a new attempt is told: what was `tried` before (`none`), and what the `environment` says about it; or
    what a role `reflector`, which sees what was tried, says (`reflector`). `repair`: the reflector makes it itself.
    """

    most: Annotated[int, Field(ge=2)] = 2
    guide: Literal["none", "environment", "reflector", "repair"] = "none"
    stop: Literal["solved", "never"] = "solved"

    @model_validator(mode="after")
    def _guides_what_failed(self) -> Self:
        if self.stop == "never" and self.guide != "none":
            raise ValueError(
                f"guide={self.guide} tells of failures, which stop=never does not tell apart: leave one out"
            )
        return self


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
