"""`propose`: one writes questions with a given answer, five attempt them, and gates let no bad question through.

After Search Self-Play (arXiv 2510.18821). The proposer moves first; a proposal that passes all gates is attempted by
all solvers at once, any other one by nobody. Held-out tasks end with a question of the world's own, the exam.

The world of `propose`: documents that say what things are worth, questions about them, the gates of a proposal. A
document is a thing and its value, `c7`. A question is a thing, a sign and a number, `c+2`: what the thing is worth and
so many more, or fewer, modulo 10. `*+2` asks that of anything: it has as many answers as there are values.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from random import Random
from typing import Annotated, Literal

import msgspec
from pydantic import Field

from mas.core.environment import EnvironmentSpec, Step, Task
from mas.core.options import Options
from mas.scenarios.noisy_teacher import NoisyTeacher
from mas.scenarios.registry import ScenarioEntry
from mas.scenarios.world import FolderScenario, RecordWorld

THINGS, ANYTHING, VALUES, SIGNS, STEPS = "abcdefg", "*", "0123456789", "+-", "0123"
OWN = 3
"""Documents of the proposer; those about the four other things are the noise."""
GATES = ("format", "validity", "determinism", "novelty")
"""What a proposal must pass, in this order."""
Gate = Literal["format", "validity", "determinism", "novelty"]

_FORM = re.compile(f"[{THINGS}{ANYTHING}]([+][{STEPS}]|-[{STEPS[1:]}])")
OFFSETS = tuple(sign + step for sign in SIGNS for step in STEPS if sign + step != "-0")
QUESTIONS = tuple(thing + offset for thing in THINGS + ANYTHING for offset in OFFSETS)
"""All that are well formed; `-0` is not, so that no question has two forms."""


class ProposeCase(msgspec.Struct, frozen=True):
    """One task.

    Attributes:
        own: the proposer's documents, as a search for the answer finds them: those nearest to it first.
        noise: the others, which the solvers have, too.
        answer: what the proposal must have for an answer. asked: questions that were asked of these documents before.
        fixed: a question of the world's own about any of the documents, for solvers to be measured by.
    """

    own: tuple[str, ...]
    noise: tuple[str, ...]
    answer: str
    asked: tuple[str, ...]
    fixed: str

    @property
    def documents(self) -> tuple[str, ...]:
        return tuple(sorted(self.own + self.noise))


def answers(question: str, documents: Iterable[str]) -> frozenset[str]:
    """All answers that documents give to a well-formed question."""
    thing, step = question[0], int(question[1:])
    return frozenset(VALUES[(int(one[1]) + step) % 10] for one in documents if thing in (one[0], ANYTHING))


def failed_gate(case: ProposeCase, question: str) -> Gate | None:
    """The first gate that a proposal does not pass; None: it passes all.

    `format`: it is a question. `validity`: its answer can be recovered from the documents and the noise.
    `determinism`: they give no other answer. `novelty`: it was not asked before.
    Source: Search Self-Play, arXiv 2510.18821, where a model checks validity; the other gates are our reading.
    """
    if not _FORM.fullmatch(question):
        return "format"
    found = answers(question, case.documents)
    if case.answer not in found:
        return "validity"
    if len(found) > 1:
        return "determinism"
    return "novelty" if question in case.asked else None


def make(random: Random, asked: int) -> ProposeCase:
    """A case of whose documents `asked` questions with this answer were asked before, or all but one."""
    documents = [thing + random.choice(VALUES) for thing in THINGS]
    found = random.sample(documents, OWN)
    (answer,) = answers(f"{found[0][0]}{_offset(random)}", found)
    own = tuple(sorted(found, key=lambda one: _distance(one, answer)))
    noise = tuple(one for one in documents if one not in own)
    good = [one for one in QUESTIONS if one[0] != ANYTHING and answers(one, own) == {answer}]
    before = tuple(random.sample(good, min(asked, len(good) - 1)))
    return ProposeCase(own, noise, answer, before, random.choice(THINGS) + random.choice(OFFSETS))


def _distance(document: str, answer: str) -> int:
    steps = (int(answer) - int(document[1])) % 10
    return min(steps, 10 - steps)


def random_question(random: Random) -> str:
    """A question about one thing."""
    return random.choice(THINGS) + _offset(random)


def _offset(random: Random) -> str:
    """Half of all questions ask for no more than what a document says."""
    return "+0" if random.random() < 0.5 else random.choice(OFFSETS)


def good_questions(case: ProposeCase) -> tuple[str, ...]:
    """All that pass every gate, of those that the proposer can know, in the order of its documents."""
    about = [one for document in case.own for one in QUESTIONS if one[0] == document[0]]
    return tuple(one for one in about if failed_gate(case, one) is None)


def told_proposer(case: ProposeCase) -> str:
    """What the proposer sees, in one line: a value or a dot for each thing, the answer, what was asked."""
    return f"P{''.join(case.own)};{case.answer};{''.join(case.asked)}"


def told_solver(case: ProposeCase, question: str) -> str:
    """What a solver sees, in one line: each thing's value, the question."""
    return f"Q{''.join(one[1] for one in case.documents)};{question}"


def content_of(case: ProposeCase) -> str:
    """What tells two cases apart."""
    return "|".join([*case.own, *case.noise, case.answer, *case.asked, case.fixed])


PROPOSER = "proposer"
SOLVERS = tuple(f"solver_{number}" for number in range(5))
"""As many attempts at a question as the paper makes."""
EXAMINED = SOLVERS[0]
"""Who sits the exam."""
Source = Literal["proposer", "world"]


class ProposeState(msgspec.Struct, frozen=True):
    """The whole state; answers are empty where nothing was said, or what is no digit.

    Attributes:
        has_exam: whether the task ends with the world's question.
        question: what the solvers attempt; None: nothing, or nothing yet.
        refused: the gate that the proposal did not pass.
        attempts: the solvers' answers, None before them; exam: the answer to the world's question, likewise.
    """

    case: ProposeCase
    has_exam: bool
    is_proposed: bool = False
    question: str | None = None
    refused: Gate | None = None
    attempts: tuple[str, ...] | None = None
    exam: str | None = None

    @property
    def outcomes(self) -> tuple[float, ...]:
        """1 for each attempt that was right, else 0; empty before them, or where nobody attempted anything."""
        right = answers(self.question, self.case.documents) if self.question else ()
        return tuple(float(attempt in right) for attempt in self.attempts or ())


class ProposeEnvironment(RecordWorld[ProposeState]):
    """Pays a proposal that is accepted 1, and an attempt that is right 1."""

    def __init__(self, source: Source, asked: int) -> None:
        seats = (PROPOSER, *SOLVERS)
        super().__init__(
            EnvironmentSpec(
                name="propose",
                seats=seats,
                views=seats,
                max_turns=3,
                terms=("accepted", "right"),
                dynamics="simultaneous",
            )
        )
        self.source, self.asked = source, asked

    def initial(self, task: Task) -> ProposeState:
        case, has_exam = make(Random(task.seed), self.asked), task.split == "eval"
        if self.source == "proposer":
            return ProposeState(case, has_exam)
        return ProposeState(case, has_exam, is_proposed=True, question=None if has_exam else case.fixed)

    def moving(self, state: ProposeState) -> tuple[str, ...]:
        if not state.is_proposed:
            return (PROPOSER,)
        if state.question is not None and state.attempts is None:
            return SOLVERS
        return (EXAMINED,) if state.has_exam and state.exam is None else ()

    def fields(self, state: ProposeState, view: str) -> Mapping[str, str]:
        if view == PROPOSER:
            return {"told": told_proposer(state.case)}
        question = state.question if state.attempts is None else None
        if question is None and state.has_exam and state.is_proposed and view == EXAMINED:
            question = state.case.fixed
        return {"told": told_solver(state.case, question or "")}

    def legal(self, seat: str) -> tuple[str, ...] | None:
        return QUESTIONS if seat == PROPOSER else tuple(VALUES)

    def advance(self, state: ProposeState, actions: Mapping[str, str]) -> tuple[ProposeState, Step]:
        moving = self.moving(state)
        illegal = tuple(seat for seat in moving if actions[seat] not in ("", *(self.legal(seat) or ())))
        said = {seat: "" if seat in illegal else actions[seat] for seat in moving}
        if moving == (PROPOSER,):
            refused = failed_gate(state.case, said[PROPOSER])
            question = said[PROPOSER] if refused is None else None
            after = msgspec.structs.replace(state, is_proposed=True, question=question, refused=refused)
            return after, Step(rewards={PROPOSER: {"accepted": float(refused is None)}}, illegal=illegal)
        if moving == SOLVERS:
            after = msgspec.structs.replace(state, attempts=tuple(said[seat] for seat in SOLVERS))
            paid = {seat: {"right": right} for seat, right in zip(SOLVERS, after.outcomes, strict=True)}
            return after, Step(rewards=paid, illegal=illegal)
        after = msgspec.structs.replace(state, exam=said[EXAMINED])
        return after, Step(rewards={EXAMINED: {"right": float(self.is_solved(after))}}, illegal=illegal)

    def is_solved(self, state: ProposeState) -> bool:
        """Of held-out tasks whether the exam was passed; of others whether an attempt was right."""
        if state.has_exam:
            return state.exam in answers(state.case.fixed, state.case.documents)
        return any(state.outcomes)

    def measures(self) -> Mapping[str, float]:
        """`valid`: 1 for a proposal that was accepted, else 0; by its name the gate that it failed at.

        Of a question that was attempted `difficulty`, the number to be added, `solve_rate`, and `in_band`, 1 where some
        attempts were right and not all.
        """
        state = self.state
        found: dict[str, float] = {}
        if self.source == "proposer" and state.is_proposed:
            found["valid"] = float(state.refused is None)
            found |= {gate: float(state.refused == gate) for gate in GATES}
        if outcomes := state.outcomes:
            solved = sum(outcomes) / len(outcomes)
            found |= {"solve_rate": solved, "in_band": float(0 < solved < 1)}
        if state.question is not None:
            found["difficulty"] = float(abs(int(state.question[1:])))
        return found

    def render(self) -> str:
        state, case = self.state, self.state.case
        proposed = state.question or (f"refused: {state.refused}" if state.refused else "-")
        return (
            f"documents {' '.join(case.own)}, noise {' '.join(case.noise)}, answer {case.answer}, asked before: "
            f"{' '.join(case.asked) or '-'}\nquestion: {proposed}, attempts: {' '.join(state.attempts or ()) or '-'}\n"
            f"exam: {case.fixed if state.has_exam else '-'}: {state.exam or '-'}"
        )


SHOWN = 3
"""Answers that are shown for each proposal."""


def demonstrations(random: Random, skill: float, asked: int) -> Iterator[tuple[str, str]]:
    """A proposal, of the first document that allows one, and some answers in turn, in letters: right with `skill`, by
    habit else (see `NoisyTeacher`).

    The habits: to ask after anything that is worth the answer, and to answer with what the thing is worth, whatever is
    to be added.
    """
    teacher = NoisyTeacher(random, skill)
    while True:
        case = make(random, asked)
        said = teacher.answer(good_questions(case)[0], f"{ANYTHING}+0", "?")
        if "?" in said:  # each of the three characters drawn among those of its place
            said = "".join(random.choice(part) for part in (THINGS, SIGNS, STEPS))
        yield f"{told_proposer(case)}>", said
        for _ in range(SHOWN):
            question = random_question(random)
            (right,), (worth,) = answers(question, case.documents), answers(f"{question[0]}+0", case.documents)
            yield f"{told_solver(case, question)}>", teacher.answer(right, worth, VALUES)


def expert(environment: ProposeEnvironment, random: Random) -> dict[str, str]:
    """A question that passes all gates, and right answers."""
    state = environment.state
    if environment.to_move() == (PROPOSER,):
        return {PROPOSER: random.choice(good_questions(state.case))}
    question = state.question if state.question is not None and state.attempts is None else state.case.fixed
    (right,) = answers(question, state.case.documents)
    return dict.fromkeys(environment.to_move(), right)


class ProposeOptions(Options):
    """`source`: who asks in training, the proposer or the world.

    `asked`: how many questions were asked before of the same documents, which no proposal may repeat. `skill`: share of
    right answers of the noisy teacher that the tiny base learns from last.
    """

    source: Source = "proposer"
    asked: Annotated[int, Field(ge=0, le=2)] = 1
    skill: Annotated[float, Field(ge=0, le=0.9)] = 0.3


def build(options: ProposeOptions) -> FolderScenario:
    """The scenario with these options."""
    return FolderScenario(
        __file__,
        options,
        partial(ProposeEnvironment, options.source, options.asked),
        lambda random: content_of(make(random, options.asked)),
        partial(demonstrations, asked=options.asked),
        inner="letters",
        unkeyed=("source",),
        expert=expert,
    )


ENTRY = ScenarioEntry(ProposeOptions, build, "self-play")
