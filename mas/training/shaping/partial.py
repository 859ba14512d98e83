"""Partial credit for wrong answers that came near: E-GRPO's match of entities.

Source: Repurposing Synthetic Data, arXiv 2510.24694. Its value of alpha was not seen.
"""

from collections.abc import Sequence
from typing import Literal

Answer = Literal["correct", "wrong", "error"]
"""`error`: not in the form that was asked for, or longer than allowed."""


def match_rate(text: str, entities: Sequence[str]) -> float:
    """The share of the distinct entities that stand in the text, letter by letter; a repeated one counts once.

    Raises:
        ValueError: there is no entity, or an empty one, which every text would hold.
    """
    distinct = set(entities)
    if not distinct or "" in distinct:
        raise ValueError(f"entities {list(entities)} cannot be matched: give one at least, and none empty")
    return sum(entity in text for entity in distinct) / len(distinct)


def entity_rewards(rates: Sequence[float], answers: Sequence[Answer], *, alpha: float) -> list[float]:
    """Of one group: 1 for a correct answer, alpha x rate / (the group's greatest rate) for a wrong one, else 0.

    Where no sample matched anything wrong answers get 0. The greatest rate is over all samples, errors included.

    Args:
        rates: `match_rate` of each sample's thoughts. alpha: 0 to 1, so that no wrong answer is worth more than a
            correct one.

    Raises:
        ValueError: the two lengths differ, a rate or alpha is outside of [0, 1].
    """
    if len(rates) != len(answers):
        raise ValueError(f"{len(rates)} rates but {len(answers)} answers: give one rate per answer")
    for name, value in [("alpha", alpha), *(("rate", rate) for rate in rates)]:
        if not 0 <= value <= 1:
            raise ValueError(f"{name} {value} is outside of [0, 1]")
    most = max(rates, default=0.0) or 1.0
    worth = {"correct": 1.0, "error": 0.0}
    return [worth.get(answer, alpha * (rate / most)) for rate, answer in zip(rates, answers, strict=True)]
