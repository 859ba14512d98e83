"""Worlds in which a turn is a call of a tool, or the answer that ends the episode."""

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

import msgspec

from mas.core.errors import ToolRefused
from mas.scenarios.world import RecordEnvironment, State, kept_text

REFUSED = "!"
"""What stands for the result of a call that was refused, or before the reason."""


class CallWorld(RecordEnvironment[State]):
    """A call of a tool a turn, or the answer, which ends the episode; an empty action is a pass. Satisfies
    `mas.core.environment.Tooled`.

    Pays `right`, 1 for the right answer, `progress` for a call that leads on, and `waste` for any other turn. The state
    has the fields `history`, (call, result) by turn, `turn` and `answer`.
    """

    history: ClassVar[tuple[str, ...]] = ("history", "turn")
    progress: ClassVar[float] = 0.5
    waste: ClassVar[float] = -0.1
    is_compact: bool
    """Whether nobody is told why a call was refused."""

    @abstractmethod
    def answer(self, action: str) -> object | None:
        """What an action answers with; None: it is no answer."""

    @abstractmethod
    def result_of(self, state: State, action: str) -> tuple[State, str, float]:
        """The state after a call but for its history, its result, and which share of the way it leads on.

        Raises:
            ToolRefused: the action is no call that a tool takes.
        """

    def noted(self, state: State, action: str, result: str) -> State:
        """The state with one more line of history."""
        now: Any = state
        noted: State = msgspec.structs.replace(now, history=(*now.history, (kept_text(action), kept_text(result))))
        return noted

    def act(self, state: State, action: str) -> tuple[State, dict[str, float], bool]:
        now: Any = state
        later, answer = msgspec.structs.replace(now, turn=now.turn + 1), self.answer(action)
        if answer is not None:
            after = msgspec.structs.replace(later, answer=answer)
            return after, {"right": float(self.is_solved(after))}, True
        if not action:
            return later, {"waste": self.waste}, True
        try:
            after, result, share = self.result_of(later, action)
        except ToolRefused as error:
            why = REFUSED if self.is_compact else f"{REFUSED} {error}"
            return self.noted(later, action, why), {"waste": self.waste}, False
        paid = {"progress": self.progress * share} if share else {"waste": self.waste}
        return self.noted(after, action, result), paid, True

    def is_over(self, state: State) -> bool:
        now: Any = state
        return now.answer is not None or now.turn >= self.spec.max_turns  # nothing but an answer solves a task

    def standing(self, state: State) -> Mapping[str, object]:
        """What is known, in whatever order it was asked."""
        now: Any = state
        return {**super().standing(state), "known": sorted(set(now.history))}

    def is_call(self, action: str) -> bool:
        """See `Tooled`."""
        if self.answer(action) is not None:
            return False
        try:
            self.result_of(self.state, action)
        except ToolRefused:
            return False
        return True

    def is_failed_call(self, action: str) -> bool:
        """See `Tooled`."""
        return bool(action) and self.answer(action) is None and not self.is_call(action)
