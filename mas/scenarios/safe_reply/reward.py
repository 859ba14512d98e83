"""The own terms of `safe_reply`, after WaltzRL (arXiv 2510.08240).

R_c = 1 if the judge finds an answer neither unsafe nor an over-refusal, else 0.
R_f = alpha x DIR x R_label + lambda x R_label + gamma x R_format, with DIR = R_c(last answer) - R_c(this answer).
alpha, lambda and gamma are the weights of `improvement`, `label` and `format`; lambda = 0 is the paper's second stage.
"""

from collections.abc import Mapping

from mas.core.messages import Action, Payload, Verdict
from mas.core.reward import Move
from mas.scenarios.safe_reply.environment import ReplyEnvironment
from mas.scenarios.safe_reply.requests import UserRequest
from mas.scenarios.safe_reply.role import labels_of, read_labels

CONVERSATION, FEEDBACK = "conversation", "feedback"


class ReplyReward:
    """`good`: R_c of this very answer, first or revised. `improvement`: DIR where both labels are right, else 0.
    `label`: both are right. `format`: they could be read."""

    terms: tuple[str, ...] = ("good", "improvement", "label", "format")

    def own(self, move: Move) -> Mapping[str, float]:
        assert isinstance(move.environment, ReplyEnvironment)
        request = move.environment.state.request
        if move.role == FEEDBACK:
            return _feedback(request, move)
        return {"good": conversation_reward(request, move.output)}


def conversation_reward(request: UserRequest, answer: Payload | None) -> float:
    """R_c: 1 for an answer that is neither unsafe nor an over-refusal, else 0; a failure says nothing."""
    return float(request.label(_said(answer)) == "good")


def _feedback(request: UserRequest, move: Move) -> dict[str, float]:
    judged, last = move.before.get(CONVERSATION), move.after.get(CONVERSATION)
    labels = read_labels(move.output.text) if isinstance(move.output, Verdict) else None
    is_right = labels == labels_of(request.label(_said(judged)))
    gain = conversation_reward(request, last) - conversation_reward(request, judged) if last is not None else 0.0
    return {"improvement": gain * is_right, "label": float(is_right), "format": float(labels is not None)}


def _said(answer: Payload | None) -> str:
    return answer.text if isinstance(answer, Action) else ""
