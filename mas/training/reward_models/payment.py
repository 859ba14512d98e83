"""From what a reward model says to what turns are paid. Free of torch."""

from collections.abc import Mapping, Sequence

import msgspec

from mas.config.rewards import RewardModelOptions
from mas.core.records import Episode, Fact, Turn
from mas.training.rewards import MODEL, OWN
from mas.training.shaping.bounded import clip_rewards, delta_rewards
from mas.training.shaping.progress import fused_rewards


class Grounded(Fact, frozen=True):
    """Of a turn. `is_grounded`: its output parsed, and the team's action of its turn was legal."""

    is_grounded: bool = False


def payments(scores: Sequence[float], grounded: Sequence[bool], options: RewardModelOptions) -> list[float]:
    """What the turns of a trajectory are paid: the scores, bounded, and more where an action was grounded.

    Args:
        scores: of T turns in order. grounded: whether each one's output parsed and the team's action was legal.

    Raises:
        ValueError: the two lengths differ.
    """
    bounded = list(scores)
    if options.bound in ("clip", "both"):
        bounded = clip_rewards(bounded, options.eta)
    if options.bound in ("delta", "both"):
        bounded = delta_rewards(bounded)
    return fused_rewards(bounded, grounded, weight=options.grounded) if options.grounded else bounded


def with_payments(
    episodes: Sequence[Episode], paid: Mapping[str, tuple[float, float]], options: RewardModelOptions
) -> list[Episode]:
    """The episodes with the model's term; turns that it did not score stay as they are.

    Args:
        paid: turn id -> what it is paid, and what its whole trajectory is.
    """
    return [
        msgspec.structs.replace(
            episode,
            turns=tuple(_paid(turn, *paid[turn.id], options) if turn.id in paid else turn for turn in episode.turns),
        )
        for episode in episodes
    ]


def _paid(turn: Turn, own: float, whole: float, options: RewardModelOptions) -> Turn:
    if options.joins == "step":
        return msgspec.structs.replace(turn, paid={**turn.paid, MODEL: own})
    term, is_alone = f"{OWN}{MODEL}", options.joins == "alone"
    rest, all_rest = ({}, {}) if is_alone else (turn.paid, turn.rewards)
    return msgspec.structs.replace(turn, paid={**rest, term: own}, rewards={**all_rest, term: whole})
