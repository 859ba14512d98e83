"""Agents that are paid by what others do: together, as a sum, or a proposer by how the others fare with its task.

Shared: each agent's own terms become the sum of everybody's in its episode. A proposer's task is as good as it is hard
to solve in the same episode.
"""

import math
from collections.abc import Sequence
from typing import Annotated, Literal

import msgspec
from pydantic import Field

from mas.algorithms.parts.rewards.names import OWN, TEAM
from mas.core.errors import TrainingError
from mas.core.options import NonNegative, Selective
from mas.core.records import Episode, Turn

PROPOSAL = f"{OWN}proposal"
"""The term that is added."""
ProposerMode = Literal["failure", "intermediate"]


def shared_sum(rewards: Sequence[float]) -> list[float]:
    """Everybody gets the sum of all rewards. Source: CORY, arXiv 2410.06101 (pioneer and observer: r1 + r2)."""
    return [math.fsum(rewards)] * len(rewards)


def paid_together(episodes: Sequence[Episode]) -> tuple[Episode, ...]:
    """Episodes whose agents all have the team's terms and, of each own term, the sum over all agents.

    An agent speaks for all of its turns, which hold the terms of the whole episode; `paid` of single turns stays, so
    that what the others earned is paid at the end of an agent's last turn.
    Source: CORY, arXiv 2410.06101 (pioneer and observer are both paid r1 + r2).
    """
    return tuple(msgspec.structs.replace(episode, turns=_shared(episode.turns)) for episode in episodes)


def _shared(turns: Sequence[Turn]) -> tuple[Turn, ...]:
    own = {turn.agent: {name: value for name, value in turn.rewards.items() if name.startswith(OWN)} for turn in turns}
    names = dict.fromkeys(name for terms in own.values() for name in terms)
    sums = {name: shared_sum([terms.get(name, 0.0) for terms in own.values()])[0] for name in names}
    return tuple(msgspec.structs.replace(turn, rewards={**turn.rewards, **sums}) for turn in turns)


class ProposerOptions(Selective):
    """What a `role` that poses tasks earns by them, from the outcomes (0 to 1) of the others' attempts in its episode,
    which are what these were paid as the team's `term`.

    `failure`: 1 - p, p their mean. `intermediate`: 4 (`left` + p)(`right` - p) for 0 < p < 1, else 0. `invalid` where
    no other role spoke, as the task was not accepted.
    """

    role: str = "proposer"
    term: str = "right"
    mode: ProposerMode = "failure"
    left: Annotated[NonNegative, Field(allow_inf_nan=False)] = 0.0
    right: Annotated[float, Field(allow_inf_nan=False)] = 1.0
    invalid: Annotated[float, Field(le=0, allow_inf_nan=False)] = 0.0

    def unused_reason(self, name: str) -> str | None:
        return "mode=failure pays 1 - p" if name in ("left", "right") and self.mode == "failure" else None


def proposer_reward(
    outcomes: Sequence[float],
    *,
    mode: ProposerMode = "failure",
    is_valid: bool = True,
    invalid: float = 0.0,
    left: float = 0.0,
    right: float = 1.0,
) -> float:
    """What a proposed task is worth to its proposer, from the n outcomes (0 to 1) of those who tried to solve it.

    p = mean outcome. `failure`: 1 - p. `intermediate`: 4 (left + p)(right - p) for 0 < p < 1, else 0: best at half
    where left = 0 and right = 1. `invalid` where the task failed its check, whatever the outcomes: then it need not
    have been tried.
    Source: Search Self-Play, arXiv 2510.18821; 0 and -1 are used for `invalid`.

    Raises:
        ValueError: a valid task without outcomes, or an outcome outside of [0, 1].
    """
    if not is_valid:
        return invalid
    if not outcomes:
        raise ValueError("a valid task has no outcomes: let it be tried once at least, or give is_valid=False")
    outside = [outcome for outcome in outcomes if not 0 <= outcome <= 1]
    if outside:
        raise ValueError(f"outcome {outside[0]} of a proposed task is outside of [0, 1]")
    solved = math.fsum(outcomes) / len(outcomes)
    if mode == "failure":
        return 1.0 - solved
    return 4 * (left + solved) * (right - solved) if 0 < solved < 1 else 0.0


def paid_proposers(episodes: Sequence[Episode], options: ProposerOptions) -> tuple[Episode, ...]:
    """Episodes in which the proposer's turns have the term `proposal`, by how often the others' attempts succeeded.

    An attempt is another role's trajectory, not over before the proposer's began, that was paid `team.TERM`: its
    outcome, 0 to 1. Where no other role spoke the proposal was not accepted. The last of the proposer's turns is paid.
    Source: Search Self-Play, arXiv 2510.18821; see `proposer_reward`.

    Raises:
        TrainingError: others spoke and none of them made an attempt, or one was paid something that is no outcome.
    """
    return tuple(
        msgspec.structs.replace(episode, turns=_paid(episode.turns, options)) if episode.turns else episode
        for episode in episodes
    )


def _paid(turns: Sequence[Turn], options: ProposerOptions) -> tuple[Turn, ...]:
    tried = _attempts(turns, options)
    try:
        reward = proposer_reward(
            list(tried.values()),
            mode=options.mode,
            is_valid=bool(tried),
            invalid=options.invalid,
            left=options.left,
            right=options.right,
        )
    except ValueError as error:
        raise TrainingError(
            f"who poses tasks is paid by what attempts were paid as {options.term!r}, and {error}: name a term that "
            "is 0 for a failure and 1 for a success in algorithm.options.proposer.term"
        ) from error
    mine = [number for number, turn in enumerate(turns) if turn.role == options.role]
    return tuple(
        _with_term(turn, reward, reward if number == mine[-1] else 0.0) if number in mine else turn
        for number, turn in enumerate(turns)
    )


def _attempts(turns: Sequence[Turn], options: ProposerOptions) -> dict[str, float]:
    """Outcomes by agent; none where no other role spoke."""
    name = f"{TEAM}{options.term}"
    began = min((turn.turn for turn in turns if turn.role == options.role), default=0)
    others = [turn for turn in turns if turn.role != options.role]
    tried = {turn.agent: turn.rewards[name] for turn in others if name in turn.rewards and turn.turn >= began}
    if others and not tried:
        raise TrainingError(
            f"the algorithm pays role {options.role!r} by what others are paid as {options.term!r} after "
            f"it spoke, and {sorted({turn.role for turn in others})} had turns without that: name who poses tasks in "
            "algorithm.options.proposer.role, and in .term what attempts at them are paid"
        )
    return tried


def _with_term(turn: Turn, reward: float, paid: float) -> Turn:
    return msgspec.structs.replace(turn, rewards={**turn.rewards, PROPOSAL: reward}, paid={**turn.paid, PROPOSAL: paid})
