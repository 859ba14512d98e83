"""The world of `propose`: documents that say what things are worth, questions about them, the gates of a proposal.

A document is a thing and its value, `c7`. A question is a thing, a sign and a number, `c+2`: what the thing is worth
and so many more, or fewer, modulo 10. `*+2` asks that of anything: it has as many answers as there are values.
"""

import re
from collections.abc import Iterable
from random import Random
from typing import Literal

import msgspec

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
        """All of them."""
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
