"""Who the tiny base learns from last: a teacher that half knows the task and half follows a habit.

Habits are those that language models are known for: a verifier accepts everything, an executor goes on as before, an
answer echoes the question. The habit is the more likely answer, so the untrained base is wrong when greedy and
sometimes right when sampled: there is something to reinforce, and something to unlearn.
"""

from dataclasses import dataclass
from random import Random

DIGITS = "0123456789"
VERDICTS = "yn"
GUESSES = 0.1
"""Share of answers that are neither right nor habit, so that no answer is impossible."""


@dataclass(frozen=True, slots=True)
class NoisyTeacher:
    """Right with probability `skill`, guessing with `GUESSES`, by habit otherwise; a skill of 1 is an expert."""

    random: Random
    skill: float

    def answer(self, right: str, habit: str, options: str) -> str:
        """One demonstrated answer; a guess draws every character from `options`."""
        draw = self.random.random()
        if draw < self.skill:
            return right
        if draw < self.skill + GUESSES:
            return "".join(self.random.choice(options) for _ in right)
        return habit
