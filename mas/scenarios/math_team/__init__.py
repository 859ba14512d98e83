"""`math_team`: a solver reaches an exact answer with a calculator that the environment carries out.

The team's action is a call or the answer, which ends the episode. A call that is refused spends the turn.

Generated problems with one exact answer, and the calls that lead to it. Small: digits, every result is its last digit
(arithmetic modulo 10). Large: nested arithmetic and linear equations over whole numbers, with rational answers.
"""

import re
from collections.abc import Iterator, Mapping
from fractions import Fraction
from functools import partial
from random import Random
from typing import Annotated, Literal, Self

import msgspec
from pydantic import Field, model_validator

from mas.core.environment import Move, Task
from mas.core.errors import ToolRefused
from mas.core.messages import Verdict
from mas.core.options import Options
from mas.scenarios.call_world import CallWorld
from mas.scenarios.noisy_teacher import DIGITS, VERDICTS, NoisyTeacher
from mas.scenarios.registry import ScenarioEntry
from mas.scenarios.world import FolderScenario, one_seat
from mas.tools import CALCULATOR, Toolbox, ToolCall, calculate, read_call

BOX = Toolbox([CALCULATOR])


class MathOptions(Options):
    """The dial is `operations` (in one problem) and `numbers` (the largest that is given).

    `calls`: `compact` for the tiny base, digits modulo 10; `json` for models from elsewhere, exact and rational.
    `skill`: share of right answers of the noisy teacher that the tiny base learns from last.
    """

    calls: Literal["compact", "json"] = "compact"
    operations: Annotated[int, Field(ge=2, le=12)] = 2
    numbers: Annotated[int, Field(ge=3, le=999)] = 9
    skill: Annotated[float, Field(ge=0, le=0.9)] = 0.4

    @model_validator(mode="after")
    def _one_digit(self) -> Self:
        if self.calls == "compact" and self.numbers > 9:
            raise ValueError(f"numbers={self.numbers} has no one-character form: at most 9, or calls=json")
        return self

    @property
    def compact(self) -> bool:
        """One-digit numbers modulo 10; a call is three characters and one operation."""
        return self.calls == "compact"

    @property
    def max_turns(self) -> int:
        """Every operation, the answer, and one turn to spare."""
        return self.operations + 2


class Milestone(msgspec.Struct, frozen=True):
    """A result on the way. `calls`: the expressions that count as reaching it; empty: whatever gives the value."""

    value: str
    calls: tuple[str, ...] = ()


class MathProblem(msgspec.Struct, frozen=True):
    """`milestones`: in order; the value of the last is the answer."""

    text: str
    milestones: tuple[Milestone, ...]

    @property
    def answer(self) -> str:
        """As the calculator writes it."""
        return self.milestones[-1].value


def make(random: Random, rules: MathOptions) -> MathProblem:
    """Arithmetic or an equation, equally often."""
    kind = random.choice((_arithmetic, _equation) if rules.compact else (_nested, _linear))
    return kind(random, rules)


def _arithmetic(random: Random, rules: MathOptions) -> MathProblem:
    """(a+b)*c and the like: two operations on digits, each of which is one call."""
    text, milestones, value = str(random.randint(1, rules.numbers)), [], ""
    for place in range(rules.operations):
        sign, number = random.choice("+-*"), str(random.randint(1, rules.numbers))
        left = value or text
        milestones.append(_digit_milestone(left, sign, number))
        value = milestones[-1].value
        text = f"{text if place == 0 else f'({text})'}{sign}{number}"
    return MathProblem(text, tuple(milestones))


def _equation(random: Random, rules: MathOptions) -> MathProblem:
    """x+a=b or x-a=b modulo 10."""
    sign, a, b = random.choice("+-"), str(random.randint(1, rules.numbers)), str(random.randint(0, 9))
    back = "-" if sign == "+" else "+"
    return MathProblem(f"x{sign}{a}={b}", (_digit_milestone(b, back, a),))


def _digit_milestone(left: str, sign: str, right: str) -> Milestone:
    forms = (f"{left}{sign}{right}", f"{right}{sign}{left}")
    return Milestone(calculated(forms[0], compact=True), forms if sign != "-" else forms[:1])


def _nested(random: Random, rules: MathOptions) -> MathProblem:
    """A random tree of operations; its inner results are milestones."""
    found: list[Milestone] = []

    def tree(operations: int) -> str:
        if operations == 0:
            return str(random.randint(2, rules.numbers))
        left = random.randrange(operations)
        text = f"({tree(left)} {random.choice('+-*')} {tree(operations - 1 - left)})"
        found.append(Milestone(calculated(text, compact=False)))
        return text

    text = tree(random.randint(2, max(2, rules.operations)))
    return MathProblem(f"Calculate {text[1:-1]}.", tuple(found))


def _linear(random: Random, rules: MathOptions) -> MathProblem:
    """a·x + b = c·x + d with a different from c: x = (d - b) / (a - c)."""
    a, b, d = (random.randint(2, rules.numbers) for _ in range(3))
    c = random.randint(1, a - 1)
    steps = (Fraction(d - b), Fraction(a - c), Fraction(d - b, a - c))
    return MathProblem(f"Solve {a}*x + {b} = {c}*x + {d} for x.", tuple(Milestone(str(value)) for value in steps))


def calculated(expression: str, *, compact: bool) -> str:
    """What the calculator answers; in compact form its last digit.

    Raises:
        ToolRefused: no expression that it can calculate.
    """
    value = BOX.perform(ToolCall(CALCULATOR.name, {"expression": expression}))
    return str(int(value) % 10) if compact else value


def called(action: str, *, compact: bool) -> str:
    """The expression of a call: `3+4`, or JSON for the calculator.

    Raises:
        ToolRefused: the action is no call of the calculator.
    """
    if not compact:
        call = read_call(action)
        BOX.check(call)
        return str(call.arguments["expression"])
    if len(action) != 3 or action[1] not in "+-*" or not {action[0], action[2]} <= set(DIGITS):
        raise ToolRefused(f"{action[:20]!r} is no call: write a digit, one of + - *, and a digit")
    return action


_COMPACT_ANSWER = re.compile(r"=([0-9])\.?")
_ANSWER = re.compile(r"-?[0-9]{1,200}(?:[/.][0-9]{1,200})?")


class MathState(msgspec.Struct, frozen=True):
    """`history`: (call, result) by turn. `reached`: how many milestones, counted up to the furthest."""

    problem: MathProblem
    history: tuple[tuple[str, str], ...] = ()
    reached: int = 0
    turn: int = 0
    answer: str | None = None


class MathEnvironment(CallWorld[MathState]):
    """A call or the answer a turn."""

    def __init__(self, rules: MathOptions) -> None:
        views = ("solver", "verifier", "solo")
        super().__init__(one_seat("math_team", views, rules.max_turns, ("right", "progress", "waste")))
        self.rules, self.is_compact = rules, rules.compact

    def initial(self, task: Task) -> MathState:
        return MathState(make(Random(task.seed), self.rules))

    def fields(self, state: MathState, view: str) -> Mapping[str, str]:
        if self.rules.compact:
            history = "".join(result for _, result in state.history)
        else:
            history = "\n".join(f"{call} -> {result}" for call, result in state.history) or "nothing was calculated yet"
        return {"problem": state.problem.text, "history": history}

    def legal(self, seat: str) -> tuple[str, ...] | None:
        return _COMPACT_ACTIONS if self.rules.compact else None

    def result_of(self, state: MathState, action: str) -> tuple[MathState, str, float]:
        expression = called(action, compact=self.rules.compact)
        result = calculated(expression, compact=self.rules.compact)
        reached = self.reached_by(state, expression, result)
        share = (reached - state.reached) / len(state.problem.milestones)
        return msgspec.structs.replace(state, reached=reached), result, share

    def answer(self, action: str) -> str | None:
        """The number that an action answers with, as the calculator writes it; None: it is no answer."""
        if self.rules.compact:
            match = _COMPACT_ANSWER.fullmatch(action)
            return match.group(1) if match else None
        if not _ANSWER.fullmatch(action.strip()):
            return None
        try:
            return str(calculate(action))
        except (ValueError, ZeroDivisionError):
            return None

    def reached_by(self, state: MathState, expression: str, result: str) -> int:
        """How many milestones a call reaches, counted up to the furthest; what was reached is not lost."""
        for place in range(len(state.problem.milestones), state.reached, -1):
            milestone = state.problem.milestones[place - 1]
            if milestone.value == result and (not milestone.calls or expression in milestone.calls):
                return place
        return state.reached

    def is_sound(self, state: MathState, action: str) -> bool:
        """Whether an action is the right answer, or a call that leads on."""
        answer = self.answer(action)
        if answer is not None:
            return answer == state.problem.answer
        try:
            return self.result_of(state, action)[2] > 0
        except ToolRefused:
            return False

    def is_solved(self, state: MathState) -> bool:
        return state.answer == state.problem.answer

    def render(self) -> str:
        state = self.state
        lines = [f"{call} -> {result}" for call, result in state.history]
        return "\n".join([state.problem.text, *lines, f"answer {state.answer or '-'}, right is {state.problem.answer}"])


_COMPACT_ACTIONS = (
    *(f"{a}{sign}{b}" for a in DIGITS for sign in "+-*" for b in DIGITS),
    *(f"={digit}." for digit in DIGITS),
)


def expert(environment: MathEnvironment, random: Random) -> dict[str, str]:
    """The next milestone (its call, or in JSON its value, which the expert knows), then the answer."""
    state = environment.state
    milestones = state.problem.milestones
    if state.reached < len(milestones):
        return {"team": _call(milestones[state.reached], random)}
    return {"team": f"={state.problem.answer}." if environment.rules.compact else state.problem.answer}


def _call(milestone: Milestone, random: Random) -> str:
    if milestone.calls:
        return random.choice(milestone.calls)
    return ToolCall(CALCULATOR.name, {"expression": milestone.value}).text()


def demonstrations(random: Random, skill: float, *, rules: MathOptions) -> Iterator[tuple[str, str]]:
    """Every role's part after some of the calls, in compact form: right with `skill`, else biased (see `NoisyTeacher`).

    Habits: the solver answers with the last digit it reads, and insists when rejected; the verifier accepts.
    """
    teacher = NoisyTeacher(random, skill)
    while True:
        problem = make(random, rules)
        made = random.randint(0, len(problem.milestones))
        asked = f"{problem.text};{''.join(one.value for one in problem.milestones[:made])}"
        is_last = made == len(problem.milestones)
        right = f"={problem.answer}." if is_last else problem.milestones[made].calls[0]
        last = [character for character in asked if character in DIGITS][-1]
        habit = f"={last}." if not is_last else f"{last}+{last}"
        wrong = random.choice((habit, _slip(right, random)))
        shown = right if random.random() < 0.5 else wrong
        yield f"S{asked};>", teacher.answer(right, habit, DIGITS)
        yield f"S{asked};{wrong}n>", teacher.answer(right, wrong, DIGITS)
        yield f"V{asked};{shown}>", teacher.answer("y" if shown == right else "n", "y", VERDICTS)
        yield f"O{asked}>", teacher.answer(right, habit, DIGITS)


def _slip(right: str, random: Random) -> str:
    """The right proposal with another digit somewhere."""
    places = [place for place, character in enumerate(right) if character in DIGITS]
    place = random.choice(places)
    other = random.choice([digit for digit in DIGITS if digit != right[place]])
    return right[:place] + other + right[place + 1 :]


class MathReward:
    """`sound`: 0.2 where the solver's (or solo's) output is the right answer or a call that leads on. `verdict`: 1 if
    the verifier accepts exactly the sound proposals, else -1."""

    terms: tuple[str, ...] = ("sound", "verdict")

    def own(self, move: Move) -> Mapping[str, float]:
        world = move.environment
        assert isinstance(world, MathEnvironment)
        if move.role in ("solver", "solo"):
            return {"sound": 0.2 if world.is_sound(world.state, move.output.content) else 0.0}
        if move.role == "verifier" and isinstance(move.output, Verdict):
            proposal = move.before.get("solver")
            sound = proposal is not None and world.is_sound(world.state, proposal.content)
            return {"verdict": 1.0 if move.output.accept == sound else -1.0}
        return {}


def build(options: MathOptions) -> FolderScenario:
    """The scenario with these options; its teams write calls as the options say."""
    return FolderScenario(
        __file__,
        options,
        partial(MathEnvironment, options),
        lambda random: make(random, options).text,
        partial(demonstrations, rules=MathOptions(operations=options.operations)),
        inner="" if options.compact else "json",
        unkeyed=(),
        reward=MathReward(),
        expert=expert,
    )


ENTRY = ScenarioEntry(
    MathOptions,
    build,
    "mathematics and code",
    {
        "small": {},
        "medium": {"calls": "json", "operations": 3, "numbers": 20},
        "large": {"calls": "json", "operations": 8, "numbers": 99},
    },
)
