"""`discussion`: a solution, an evaluation of it, and a score (after CoMAS, arXiv 2510.08529).

The last solution is the answer. What members say of it the world hears only to measure them. One team turn.

What a score pays, and what a scorer who knows the truth would give. Source: CoMAS, arXiv 2510.08529: with a score t of
1, 2 or 3 the solution is paid (t - 1) / 2 and its evaluation (3 - t) / 2, so that the two share 1; a scorer whose score
cannot be read is paid -1, else 0. What each score means is this scenario's: 3 for a right solution, 1 for a wrong one
that was found out, 2 for one that the evaluator let pass.

The own terms of `discussion`: members reward each other, or are held to the truth, or both. A member speaks once in an
episode, so each term is paid once: there is nothing to be had from going on.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from random import Random
from typing import Annotated, Literal

import msgspec
from pydantic import Field

from mas.core.environment import Move, Task
from mas.core.messages import Failure, joint_action, parsed_text, read_joint
from mas.core.options import Options
from mas.scenarios.noisy_teacher import DIGITS, VERDICTS, NoisyTeacher
from mas.scenarios.registry import ScenarioEntry
from mas.scenarios.world import FolderScenario, QuestionWorld

SCORES = ("1", "2", "3")
_VERDICTS = {"y": True, "right": True, "n": False, "wrong": False}


def interaction_rewards(score: int) -> tuple[float, float]:
    """What the solution and its evaluation are paid."""
    return (score - 1) / 2, (3 - score) / 2


def true_score(is_right: bool, approved: bool | None) -> int:
    """The score that is due. `approved`: whether the evaluator found no mistake, None where it said neither."""
    if is_right:
        return 3
    return 1 if approved is False else 2


def read_score(text: str) -> int | None:
    """1, 2 or 3; None for anything else."""
    return int(text) if text in SCORES else None


def read_verdict(text: str) -> bool | None:
    """Whether an evaluation, by its first word, finds the solution right; None where it says neither."""
    word = re.match(r"[A-Za-z]*", text)
    return _VERDICTS.get(word.group().casefold()) if word else None


Style = Literal["digits", "words"]

_MOST = 4
"""The largest number that follows the first one, in digits."""
_NAMES = ("Ada", "Ben", "Cleo", "Dan", "Eva", "Finn")
_THINGS = ("apples", "books", "coins", "stamps", "shells", "cards")
_MORE = ("finds {n} more", "buys {n} more", "is given {n} more")
_FEWER = ("gives {n} of them away", "loses {n} of them", "sells {n} of them")


class DiscussionQuestion(msgspec.Struct, frozen=True):
    """`answer` is a number in decimal digits; in style digits the last digit of the result, as modulo 10."""

    text: str
    answer: str

    def is_right(self, said: str | None) -> bool:
        """Whether this is the answer; a number may have zeros in front."""
        return bool(said) and is_number(str(said)) and int(str(said)) == int(self.answer)


def is_number(text: str) -> bool:
    """Up to 12 ASCII digits and nothing else."""
    return 0 < len(text) <= 12 and text.isascii() and text.isdigit()


def make(random: Random, style: Style, steps: int) -> DiscussionQuestion:
    """A question with so many numbers after the first one."""
    return _in_digits(random, steps) if style == "digits" else _in_words(random, steps)


def _in_digits(random: Random, steps: int) -> DiscussionQuestion:
    value = random.randrange(10)
    text = str(value)
    for _ in range(steps):
        number, sign = random.randint(0, _MOST), random.choice((1, -1))
        value, text = value + sign * number, f"{text}{'+' if sign > 0 else '-'}{number}"
    return DiscussionQuestion(text, str(value % 10))


def _in_words(random: Random, steps: int) -> DiscussionQuestion:
    """A story; nobody ever has fewer than none."""
    name, things, value = random.choice(_NAMES), random.choice(_THINGS), random.randint(10, 60)
    told = [f"{name} has {value} {things}."]
    doubled = "wins a bet and then has twice as many"
    changes: tuple[Callable[[Random, int], tuple[int, str]], ...] = (_more, _fewer, lambda _, had: (2 * had, doubled))
    for _ in range(steps):
        value, event = random.choice(changes)(random, value)
        told.append(f"{name} {event}.")
    return DiscussionQuestion(" ".join([*told, f"How many {things} has {name} now?"]), str(value))


def _more(random: Random, value: int) -> tuple[int, str]:
    number = random.randint(2, 40)
    return value + number, random.choice(_MORE).format(n=number)


def _fewer(random: Random, value: int) -> tuple[int, str]:
    number = random.randint(0, value)
    return value - number, random.choice(_FEWER).format(n=number)


MEMBERS = ("solver", "evaluator", "scorer")
VIEWS = (*MEMBERS, "solver2", "evaluator2", "scorer2", "solo")


class DiscussionState(msgspec.Struct, frozen=True):
    """`answer` is None before the team's, empty for a pass. `approved` and `score`: what was said of it, None for
    nothing that can be read."""

    question: DiscussionQuestion
    answer: str | None = None
    approved: bool | None = None
    score: int | None = None


class DiscussionEnvironment(QuestionWorld[DiscussionState]):
    """The team's action is what solver, evaluator and scorer said, as `joint`, or a solution alone. All members see the
    question; nobody sees more than another.

    Args:
        pays: whether the truth is paid for: `right` is 1 for the right answer. Otherwise nothing is paid at all.
    """

    def __init__(self, style: Style, steps: int, *, pays: bool) -> None:
        super().__init__("discussion", VIEWS)
        self.style: Style = style
        self.steps, self.pays = steps, pays

    def initial(self, task: Task) -> DiscussionState:
        return DiscussionState(make(Random(task.seed), self.style, self.steps))

    def fields(self, state: DiscussionState, view: str) -> Mapping[str, str]:
        return {"question": state.question.text}

    def legal(self, seat: str) -> tuple[str, ...] | None:
        return tuple(DIGITS) if self.style == "digits" else None

    def act(self, state: DiscussionState, action: str) -> tuple[DiscussionState, dict[str, float], bool]:
        said = read_joint(action, MEMBERS)
        if said is None:
            said = {"solver": action}
        approved, score = read_verdict(said.get("evaluator", "")), read_score(said.get("scorer", ""))
        judged = msgspec.structs.replace(state, approved=approved, score=score)
        after, terms, legal = super().act(judged, said.get("solver", ""))
        return after, terms if self.pays else {}, legal

    def is_solved(self, state: DiscussionState) -> bool:
        return state.question.is_right(state.answer)

    def measures(self) -> Mapping[str, float]:
        """Whether the evaluator's word on the answer was true, and whether the score was the one due; where there is
        any."""
        state, right = self.state, self.success()
        found = {}
        if state.approved is not None:
            found["evaluator_accuracy"] = float(state.approved is right)
        if state.score is not None:
            found["scorer_accuracy"] = float(state.score == true_score(right, state.approved))
        return found

    def render(self) -> str:
        state = self.state
        said = "-" if state.answer is None else repr(state.answer)
        verdict = {True: "approved", False: "rejected", None: "not judged"}[state.approved]
        return f"{state.question.text} = {state.question.answer}; answer {said}, {verdict}, score {state.score or '-'}"

    def is_answer(self, state: DiscussionState, action: str) -> bool:
        return action in tuple(DIGITS) if self.style == "digits" else is_number(action)


def expert(environment: DiscussionEnvironment, random: Random) -> dict[str, str]:
    """The answer, and the judgement of it that is true."""
    approval = "y" if environment.style == "digits" else "right"
    said = {"solver": environment.state.question.answer, "evaluator": approval, "scorer": str(true_score(True, True))}
    return {"team": joint_action(said)}


def demonstrations(random: Random, skill: float, *, steps: int) -> Iterator[tuple[str, str]]:
    """Each member's task in turn, in digits: right with `skill`, by habit else (see `NoisyTeacher`).

    The habits: who solves says the first number, or what was said before; the evaluator is content; the scorer believes
    the evaluator. Half of the solutions that are judged are right, and so is half of what is said about them.
    """
    teacher = NoisyTeacher(random, skill)
    while True:
        question = make(random, "digits", steps)
        text, right, first = question.text, question.answer, question.text[0]
        said, verdict = random.choice((right, random.choice(DIGITS))), random.choice(VERDICTS)
        due = str(true_score(said == right, verdict == "y"))
        believed = "3" if verdict == "y" else "1"
        yield f"A{text};>", teacher.answer(right, first, DIGITS)
        yield f"E{text};{said}>", teacher.answer("y" if said == right else "n", "y", VERDICTS)
        yield f"T{text};{said}{verdict}>", teacher.answer(due, believed, "".join(SCORES))
        yield f"A{text};{said}{verdict}{random.choice(SCORES)}>", teacher.answer(right, said, DIGITS)
        yield f"S{text}>", teacher.answer(right, first, DIGITS)


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
    score = read_score(parsed_text(move.after.get(scorer)))
    if score is None or isinstance(move.output, Failure):
        return {}
    solution, evaluation = interaction_rewards(score)
    return {"score": solution if member == "solver" else evaluation}


def _honest(move: Move, member: str, of_round: str) -> float:
    assert isinstance(move.environment, DiscussionEnvironment)
    is_right = move.environment.state.question.is_right(parsed_text(move.before.get(f"solver{of_round}")))
    if member == "evaluator":
        return 0.0 if read_verdict(parsed_text(move.output)) is is_right else -1.0
    score = read_score(parsed_text(move.output))
    due = true_score(is_right, read_verdict(parsed_text(move.before.get(f"evaluator{of_round}"))))
    return -1.0 if score is None else -abs(score - due) / 2


class DiscussionOptions(Options):
    """`pay`: what members are paid by. With `scores` it is the interaction alone, as in CoMAS: solver and evaluator
    share what the scorer's score says, and nobody is told the truth. With `truth` it is the right answer: the team is
    paid for it, and who judges loses what its judgement is off. `both` is the sum of the two.

    `style`: a digit, plus and minus up to 4, and the last digit of the result, which the tiny base can learn; or
    stories in words, for real models. `steps`: how many numbers follow the first one. `skill`: share of right answers
    of the noisy teacher that the tiny base learns from last.
    """

    pay: Pay = "both"
    style: Style = "digits"
    steps: Annotated[int, Field(ge=1, le=12)] = 1
    skill: Annotated[float, Field(ge=0, le=0.9)] = 0.4


def build(options: DiscussionOptions) -> FolderScenario:
    """The scenario with these options."""
    return FolderScenario(
        __file__,
        options,
        partial(DiscussionEnvironment, options.style, options.steps, pays=options.pay != "scores"),
        lambda random: make(random, options.style, options.steps).text,
        partial(demonstrations, steps=options.steps),
        inner=options.style,
        unkeyed=("skill", "pay"),
        reward=DiscussionReward(options.pay),
        expert=expert,
    )


ENTRY = ScenarioEntry(
    DiscussionOptions,
    build,
    "discussion",
    {"small": {}, "medium": {"style": "words", "steps": 3}, "large": {"style": "words", "steps": 8}},
)
