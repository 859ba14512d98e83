"""The own terms of `discussion`: members reward each other, or are held to the truth, or both.

A member speaks once in an episode, so each term is paid once: there is nothing to be had from going on.
"""

from collections.abc import Mapping
from typing import Literal

from mas.core.messages import Failure, Payload
from mas.core.reward import Move
from mas.scenarios.discussion.environment import DiscussionEnvironment
from mas.scenarios.discussion.scoring import interaction_rewards, read_score, read_verdict, true_score

Pay = Literal["scores", "truth", "both"]


class DiscussionReward:
    """`score`, to solver and evaluator: their shares of the score of their round, none where there is no readable one.

    `honest`, to evaluator and scorer, never above 0: -1 for a wrong word on the solution, and half of what the score is
    off. The scorer has no share in the score: it is paid the failure term, -1, where its score cannot be read, else 0.
    """

    def __init__(self, pay: Pay) -> None:
        self.pay: Pay = pay
        self.terms: tuple[str, ...] = {"scores": ("score",), "truth": ("honest",), "both": ("score", "honest")}[pay]

    def own(self, move: Move) -> Mapping[str, float]:
        member, of_round = move.agent.rstrip("2"), "2" if move.agent.endswith("2") else ""
        terms: dict[str, float] = {}
        if member in ("solver", "evaluator") and self.pay != "truth":
            terms |= _shared(move, member, f"scorer{of_round}")
        if member in ("evaluator", "scorer") and self.pay != "scores":
            terms["honest"] = _honest(move, member, of_round)
        return terms


def _shared(move: Move, member: str, scorer: str) -> dict[str, float]:
    score = _score(move.after.get(scorer))
    if score is None or isinstance(move.output, Failure):
        return {}
    solution, evaluation = interaction_rewards(score)
    return {"score": solution if member == "solver" else evaluation}


def _honest(move: Move, member: str, of_round: str) -> float:
    assert isinstance(move.environment, DiscussionEnvironment)
    is_right = move.environment.state.question.is_right(_said(move.before.get(f"solver{of_round}")))
    if member == "evaluator":
        return 0.0 if read_verdict(_said(move.output)) is is_right else -1.0
    score = _score(move.output)
    due = true_score(is_right, read_verdict(_said(move.before.get(f"evaluator{of_round}"))))
    return -1.0 if score is None else -abs(score - due) / 2


def _score(payload: Payload | None) -> int | None:
    return read_score(_said(payload))


def _said(payload: Payload | None) -> str:
    return "" if payload is None or isinstance(payload, Failure) else payload.content
