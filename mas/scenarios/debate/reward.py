"""The own terms of `debate`: the debaters' game is zero-sum, and what is false costs.

Source: AI safety via debate, arXiv 1805.00899: who convinces the judge wins what the other loses. That statements are
held against the facts afterwards is this scenario's. A debater speaks once in an episode, so each term is paid once.
"""

from collections.abc import Mapping

from mas.core.messages import Failure, Payload
from mas.core.reward import Move
from mas.scenarios.debate.case import ANSWERS, Case
from mas.scenarios.debate.environment import DEBATERS, DebateEnvironment


class DebateReward:
    """`won`: 1 to the debater whose answer is the verdict, -1 to the other, 0 to both where there is none; of the two,
    once the turn was played out. `lie`: -1 for a statement with something false in it. The judge has no own terms.
    """

    terms: tuple[str, ...] = ("won", "lie")

    def own(self, move: Move) -> Mapping[str, float]:
        if move.agent not in DEBATERS:
            return {}
        assert isinstance(move.environment, DebateEnvironment)
        case, index = move.environment.state.case, DEBATERS.index(move.agent)
        terms = {"lie": -float(case.sides[index].is_false(_said(move.output)))}
        if move.after:
            verdict = _verdict(move.environment, case, move.after)
            terms["won"] = 0.0 if verdict not in ANSWERS else 1.0 if verdict == ANSWERS[index] else -1.0
        return terms


def _verdict(environment: DebateEnvironment, case: Case, after: Mapping[str, Payload]) -> str:
    if environment.judge == "role":
        return _said(after.get("judge"))
    return case.ruling((_said(after.get("first")), _said(after.get("second"))))


def _said(payload: Payload | None) -> str:
    return "" if payload is None or isinstance(payload, Failure) else payload.content
