"""The own terms of `debate`: what one debater earns the other pays, and the judge is paid for the right verdict.

Source: AI safety via debate, arXiv 1805.00899: who convinces the judge wins what the other loses. That statements are
held against the facts afterwards, and that who lies pays the other side, is this scenario's. Everybody speaks once in
an episode, so each term is paid once.
"""

from collections.abc import Mapping, Sequence

from mas.core.messages import Failure, Payload
from mas.core.reward import Move
from mas.scenarios.debate.case import ANSWERS, DebateCase
from mas.scenarios.debate.environment import DEBATERS, DebateEnvironment, as_answer


class DebateReward:
    """Terms of the debaters sum to 0, once the turn was played out; before it there is only what an own lie costs.

    `won`: 1 to the debater whose answer is the verdict, -1 to the other, 0 to both where there is none. `lie`: -1 for a
    statement with something false in it, and 1 where the other one's is. `verdict`, to the judge or who answers alone:
    1 for the right answer.
    """

    terms: tuple[str, ...] = ("won", "lie", "verdict")

    def own(self, move: Move) -> Mapping[str, float]:
        assert isinstance(move.environment, DebateEnvironment)
        case = move.environment.state.case
        if move.agent not in DEBATERS:
            heard = [_said(move.before.get(debater)) for debater in DEBATERS]
            return {"verdict": float(as_answer(_said(move.output), heard) == case.right)}
        index = DEBATERS.index(move.agent)
        terms = {"lie": -float(case.sides[index].is_false(_said(move.output)))}
        if move.after:
            other = 1 - index
            statements = [_said(move.output), _said(move.after.get(DEBATERS[other]))]
            judge = _said(move.after.get("judge"))
            verdict = _verdict(move.environment, case, statements if index == 0 else statements[::-1], judge)
            terms["lie"] += case.sides[other].is_false(_said(move.after.get(DEBATERS[other])))
            terms["won"] = 0.0 if verdict not in ANSWERS else 1.0 if verdict == ANSWERS[index] else -1.0
        return terms


def _verdict(environment: DebateEnvironment, case: DebateCase, statements: Sequence[str], judge: str) -> str:
    if environment.judge == "role":
        return as_answer(judge, statements)
    return case.ruling((statements[0], statements[1]))


def _said(payload: Payload | None) -> str:
    return "" if payload is None or isinstance(payload, Failure) else payload.content
