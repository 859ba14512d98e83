"""`refine`: answer, criticise, answer again (after MALT, arXiv 2412.01928).

A generator answers an arithmetic question, a verifier criticises, a refiner has the last word. One team turn.

In style `extreme` the tiny base is taught two peers that know a subject each, and a leader that trusts either. `max`
and `min` are the subjects. Nothing that is held out is demonstrated.
"""

import operator
import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from random import Random
from typing import Annotated, Literal

import msgspec
from msgspec.structs import replace
from pydantic import Field

from mas.core.environment import Move, Task
from mas.core.messages import parsed_text, read_joint
from mas.core.options import Options
from mas.scenarios.noisy_teacher import DIGITS, VERDICTS, NoisyTeacher
from mas.scenarios.registry import ScenarioEntry
from mas.scenarios.world import FolderScenario, QuestionWorld, is_held_out

Style = Literal["digit", "number", "extreme", "words"]

SUBJECTS = ("max", "min")
"""What a question of style `extreme` begins with."""
ASKED = ("largest", "smallest")
"""What a question of style `words` asks for."""
_OPERATIONS: dict[str, Callable[[int, int], int]] = {"+": operator.add, "-": operator.sub, "*": operator.mul}
_USED: dict[str, tuple[str, int, int]] = {"digit": ("+-", 9, 3), "number": ("+-*", 99, 99)}
"""Per style: operations, the largest first number, and the largest of those that follow."""


class RefineQuestion(msgspec.Struct, frozen=True):
    """`text` is the expression, `answer` what it comes to (style `digit`: the last digit, as modulo 10).

    `numbers`: in style `words` those that are asked about, and `asked` for which of them; empty elsewhere.
    """

    text: str
    answer: str
    numbers: tuple[str, ...] = ()
    asked: str = ""


def direction(said: str, right: str) -> str:
    """What to change in a wrong answer: `+` it is too low, `-` too high, `?` it is no number."""
    if not said.removeprefix("-").isdecimal():
        return "?"
    return "+" if int(said) < int(right) else "-"


def make(random: Random, style: Style, operands: int) -> RefineQuestion:
    """An expression with so many numbers, computed from the left: ((3+4)-5); in `extreme` so many digits:
    max4821; in `words` so many numbers: the largest of 48, 21, 90."""
    if style == "extreme":
        return _extreme(random, operands)
    if style == "words":
        return _in_words(random, operands)
    operations, first, most = _USED[style]
    value = random.randint(0, first)
    text = str(value)
    for number in range(operands - 1):
        sign, right = random.choice(operations), random.randint(0, most)
        text = f"({text}){sign}{right}" if number else f"{text}{sign}{right}"
        value = _OPERATIONS[sign](value, right)
    return RefineQuestion(text, str(value % 10 if style == "digit" else value))


def digits_of(question: RefineQuestion) -> str:
    """The digits of which an `extreme` question asks for one."""
    return question.text[len(SUBJECTS[0]) :]


def _extreme(random: Random, operands: int) -> RefineQuestion:
    subject = random.choice(SUBJECTS)
    digits = "".join(random.choice(DIGITS) for _ in range(operands))
    return RefineQuestion(subject + digits, max(digits) if subject == "max" else min(digits))


def _in_words(random: Random, operands: int) -> RefineQuestion:
    asked = random.choice(ASKED)
    numbers = [str(number) for number in random.sample(range(10, 100), operands)]
    answer = max(numbers) if asked == "largest" else min(numbers)
    return RefineQuestion(f"the {asked} of {', '.join(numbers)}", answer, tuple(numbers), asked)


_NUMBER = re.compile(r"-?[0-9]{1,40}")
PIONEER, OBSERVER = "pioneer", "observer"
VIEWS = ("generator", "verifier", "refiner", "solo", "first", "second", "third", PIONEER, OBSERVER, "leader")


class RefineState(msgspec.Struct, frozen=True):
    """`answer` is None before the team's, empty for a pass. `pioneer`: who spoke first in a pair, None elsewhere."""

    question: RefineQuestion
    answer: str | None = None
    pioneer: str | None = None


class RefineEnvironment(QuestionWorld[RefineState]):
    """The team's action is the answer, or a pair's two as `joint`, of which the observer's counts. All members see the
    question; nobody sees more than another."""

    def __init__(self, style: Style, operands: int) -> None:
        super().__init__("refine", VIEWS)
        self.style: Style = style
        self.operands = operands

    def initial(self, task: Task) -> RefineState:
        return RefineState(make(Random(task.seed), self.style, self.operands))

    def content_of(self, state: RefineState) -> str:
        question = state.question
        if self.style != "words":
            return question.text
        return f"{question.asked} {', '.join(sorted(question.numbers))}"  # the same question in another order

    def fields(self, state: RefineState, view: str) -> Mapping[str, str]:
        question = state.question
        return {"question": question.text} | ({"numbers": ", ".join(question.numbers)} if question.numbers else {})

    def legal(self, seat: str) -> tuple[str, ...] | None:
        if self.style == "words":
            return self.state.question.numbers
        return tuple(DIGITS) if self.style != "number" else None

    def act(self, state: RefineState, action: str) -> tuple[RefineState, dict[str, float], bool]:
        pair = read_joint(action, (PIONEER, OBSERVER)) or {}
        said = pair.get(PIONEER)
        kept = replace(state, pioneer=said if said is None or self.is_answer(state, said) else "")
        return super().act(kept, pair.get(OBSERVER, "") if pair else action)

    def is_solved(self, state: RefineState) -> bool:
        return self.is_right(state, state.answer or "")

    def is_right(self, state: RefineState, said: str) -> bool:
        """Whether this is the answer; in style `number` also with zeros in front of it."""
        return self.is_answer(state, said) and int(said) == int(state.question.answer)

    def measures(self) -> Mapping[str, float]:
        """Whether a pair's pioneer was right, whatever the observer made of it."""
        said = self.state.pioneer
        return {} if said is None else {"pioneer_success": float(self.is_right(self.state, said))}

    def guidance(self) -> str:
        """See `mas.core.environment.Guiding`: whether the answer was too low or too high."""
        return direction(self.state.answer or "", self.state.question.answer)

    def render(self) -> str:
        state = self.state
        said = "-" if state.answer is None else repr(state.answer)
        return f"{state.question.text} = {state.question.answer}; answer {said}"

    def is_answer(self, state: RefineState, action: str) -> bool:
        if self.style == "words":
            return action in state.question.numbers
        if self.style == "number":
            return _NUMBER.fullmatch(action) is not None
        return action in tuple(DIGITS)


def subject_demonstrations(
    random: Random, skill: float, *, operands: int, holds_out: Callable[[str], bool]
) -> Iterator[tuple[str, str]]:
    """Each member's part: peers A and B, the leader with their answers, the leader alone.

    A peer is right with `skill` in its subject; else, and always in the other subject, it says any digit of the
    question. A leader repeats either peer. Alone it is right as an expert (`skill` 1), and says any digit as a noisy
    teacher.
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


def expert(environment: RefineEnvironment, random: Random) -> dict[str, str]:
    """The answer."""
    return {"team": environment.state.question.answer}


def demonstrations(random: Random, skill: float, *, operands: int) -> Iterator[tuple[str, str]]:
    """Each member's task in turn, in digits: right with `skill`, by habit else (see `NoisyTeacher`).

    The habits: whoever answers first says the first number, the verifier is content, whoever has an answer before it
    repeats it. Half of the answers that are criticised are right.
    """
    teacher = NoisyTeacher(random, skill)
    while True:
        question = make(random, "digit", operands)
        text, right, first = question.text, question.answer, question.text.lstrip("(")[0]
        said = random.choice((right, random.choice(DIGITS)))
        second = random.choice((said, random.choice(DIGITS)))
        yield f"G{text}>", teacher.answer(right, first, DIGITS)
        yield f"V{text};{said}>", teacher.answer("y" if said == right else "n", "y", VERDICTS)
        yield f"R{text};{said}{random.choice(VERDICTS)}>", teacher.answer(right, said, DIGITS)
        yield f"S{text};>", teacher.answer(right, first, DIGITS)
        yield f"S{text};{said}>", teacher.answer(right, said, DIGITS)
        yield f"S{text};{said}{second}>", teacher.answer(right, second, DIGITS)


PEERS = ("peer", "maximum", "minimum")
"""Roles of a leader's peers."""


class RefineReward:
    """`answer`, to pioneer, observer and peers: 1 for the right answer, else 0. Other teams are paid together alone.

    Sources: CORY, arXiv 2410.06101: r1 and r2, which `algorithm.reward.shared` adds up. MLPO, arXiv 2507.08960: whether
    a peer is right decides which tasks the leader learns from (`algorithm.sampler.filter.by=solved`).
    """

    terms: tuple[str, ...] = ("answer",)

    def own(self, move: Move) -> Mapping[str, float]:
        world = move.environment
        assert isinstance(world, RefineEnvironment)
        if move.role not in (PIONEER, OBSERVER, *PEERS):
            return {}
        said = parsed_text(move.output)
        return {"answer": float(world.is_right(world.state, said))}


class RefineOptions(Options):
    """`style`: a digit, plus or minus up to 3, and the last digit of the result, which the tiny base can learn; or
    numbers up to 99, + - and *, and the whole result, for real models; or `extreme`, the largest or the smallest of
    some digits, with the teams `led` and `solo`; or `words`, the largest or the smallest of some numbers up to 99,
    asked in plain words, for small models that chat.

    `operands`: how many numbers a question has. `skill`: share of right answers of the noisy teacher that the tiny base
    learns from last; in `extreme` that of a peer in its subject.
    """

    style: Style = "digit"
    operands: Annotated[int, Field(ge=2, le=12)] = 2
    skill: Annotated[float, Field(ge=0, le=0.9)] = 0.4


def build(options: RefineOptions) -> FolderScenario:
    """The scenario with these options."""
    demonstrate = partial(demonstrations, operands=options.operands)
    if options.style == "extreme":
        holds_out = partial(is_held_out, f"refine/{options.model_dump_json()}")
        demonstrate = partial(subject_demonstrations, operands=options.operands, holds_out=holds_out)
    return FolderScenario(
        __file__,
        options,
        partial(RefineEnvironment, options.style, options.operands),
        demonstrate=demonstrate,
        inner=options.style,
        unkeyed=(),
        reward=RefineReward(),
        expert=expert,
        advise=direction,
    )


ENTRY = ScenarioEntry(
    RefineOptions,
    build,
    "discussion",
    {"small": {}, "medium": {"style": "number", "operands": 3}, "large": {"style": "number", "operands": 6}},
)
