"""The own term of `questions`: a verifier is paid for telling right answers from wrong ones."""

from collections.abc import Mapping

from mas.core.messages import Verdict
from mas.core.reward import Move
from mas.scenarios.questions.environment import QuestionEnvironment


class QuestionReward:
    """`verdict`: 1 if exactly the right answers are accepted, else -1."""

    terms: tuple[str, ...] = ("verdict",)

    def own(self, move: Move) -> Mapping[str, float]:
        assert isinstance(move.environment, QuestionEnvironment)
        if move.role != "verifier" or not isinstance(move.output, Verdict):
            return {}
        proposed = move.before.get("solver")
        is_right = proposed is not None and move.environment.is_right(proposed.content)
        return {"verdict": 1.0 if move.output.accept == is_right else -1.0}
