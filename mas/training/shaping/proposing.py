"""Who poses a task is paid by how the others fare with it in the same episode."""

from collections.abc import Sequence

import msgspec

from mas.config.proposer import ProposerOptions
from mas.core.errors import TrainingError
from mas.core.records import Episode, Turn
from mas.training.rewards import OWN, TEAM
from mas.training.shaping.interaction import proposer_reward

PROPOSAL = f"{OWN}proposal"
"""The term that is added."""


def paid_proposers(episodes: Sequence[Episode], options: ProposerOptions) -> tuple[Episode, ...]:
    """Episodes in which the proposer's turns have the term `proposal`, by how often the others' attempts succeeded.

    An attempt is another agent's trajectory that was paid `team.TERM`, which is its outcome, 0 to 1. An episode without
    one is of a proposal that was not accepted. The last of the proposer's turns is paid for it.
    Source: Search Self-Play, arXiv 2510.18821; see `proposer_reward`.

    Raises:
        TrainingError: an attempt was paid something that is no outcome.
    """
    return tuple(
        msgspec.structs.replace(episode, turns=_paid(episode.turns, options)) if episode.turns else episode
        for episode in episodes
    )


def _paid(turns: Sequence[Turn], options: ProposerOptions) -> tuple[Turn, ...]:
    name = f"{TEAM}{options.term}"
    tried = {turn.agent: turn.rewards[name] for turn in turns if turn.role != options.role and name in turn.rewards}
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
            f"algorithm.reward.proposer reads what attempts were paid as {options.term!r}, and {error}: name a term "
            "that is 0 for a failure and 1 for a success in algorithm.reward.proposer.term"
        ) from error
    mine = [number for number, turn in enumerate(turns) if turn.role == options.role]
    return tuple(
        _with_term(turn, reward, reward if number == mine[-1] else 0.0) if number in mine else turn
        for number, turn in enumerate(turns)
    )


def _with_term(turn: Turn, reward: float, paid: float) -> Turn:
    return msgspec.structs.replace(turn, rewards={**turn.rewards, PROPOSAL: reward}, paid={**turn.paid, PROPOSAL: paid})
