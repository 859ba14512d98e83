"""What a score pays, and what a scorer who knows the truth would give.

Source: CoMAS, arXiv 2510.08529: with a score t of 1, 2 or 3 the solution is paid (t - 1) / 2 and its evaluation
(3 - t) / 2, so that the two share 1; a scorer whose score cannot be read is paid -1, else 0.
What each score means is this scenario's: 3 for a right solution, 1 for a wrong one that was found out, 2 for one
that the evaluator let pass.
"""

import re

SCORES = ("1", "2", "3")
_VERDICTS = {"y": True, "right": True, "n": False, "wrong": False}


def interaction_rewards(score: int) -> tuple[float, float]:
    """What the solution and its evaluation are paid."""
    return (score - 1) / 2, (3 - score) / 2


def true_score(is_right: bool, approved: bool | None) -> int:
    """The score that is due. `approved`: whether the evaluator found no mistake, None where it said neither."""
    if is_right:
        return 3
    return 1 if approved is False else 2


def read_score(text: str) -> int | None:
    """1, 2 or 3; None for anything else."""
    return int(text) if text in SCORES else None


def read_verdict(text: str) -> bool | None:
    """Whether an evaluation, by its first word, finds the solution right; None where it says neither."""
    word = re.match(r"[A-Za-z]*", text)
    return _VERDICTS.get(word.group().casefold()) if word else None
