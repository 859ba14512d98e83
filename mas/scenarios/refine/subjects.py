"""What the tiny base is taught in style `extreme`: two peers that know a subject each, and a leader that trusts either.

`max` and `min` are the subjects. Nothing that is held out is demonstrated.
"""

from collections.abc import Callable, Iterator
from random import Random

from mas.scenarios.refine.questions import SUBJECTS, RefineQuestion, digits_of, make


def demonstrations(
    random: Random, skill: float, *, operands: int, holds_out: Callable[[str], bool]
) -> Iterator[tuple[str, str]]:
    """Each member's part: peers A and B, the leader with their answers, the leader alone.

    A peer is right with `skill` in its subject; else, and always in the other subject, it says any digit of the
    question. A leader repeats either peer. Alone it is right as an expert (`skill` 1), and says any digit as a novice.
    """
    while True:
        question = make(random, "extreme", operands)
        if holds_out(question.text):
            continue
        first, second = (_peer(random, question, subject, skill) for subject in SUBJECTS)
        yield f"A{question.text}>", first
        yield f"B{question.text}>", second
        yield f"S{question.text};{first}{second}>", random.choice((first, second))
        yield f"S{question.text};>", question.answer if skill == 1 else random.choice(digits_of(question))


def _peer(random: Random, question: RefineQuestion, subject: str, skill: float) -> str:
    knows = question.text.startswith(subject) and random.random() < skill
    return question.answer if knows else random.choice(digits_of(question))
