"""Scripted members of the team. They teach the tiny base, and play as well as is possible."""

from collections.abc import Iterator
from random import Random

from mas.scenarios.noisy_teacher import NoisyTeacher
from mas.scenarios.retrieval.cases import ALIASES, NEWEST, SHOWN, TERMS, YEARS, RetrievalCase, make, search
from mas.scenarios.retrieval.environment import SEARCH, RetrievalEnvironment

DIGITS, PLACES = "0123456789", "123"


def expert(environment: RetrievalEnvironment, random: Random) -> dict[str, str]:
    """The query in the archive's words, then the answer."""
    state = environment.state
    if state.is_found:
        return {"team": state.case.answer}
    return {"team": state.case.query if environment.style == "letters" else f"{SEARCH} {state.case.query}"}


def demonstrations(random: Random, skill: float) -> Iterator[tuple[str, str]]:
    """Each role's part before and after searches, in letters: right with `skill`, by habit else (see `NoisyTeacher`).

    All are content with the documents that they have, without asking whether they are those of the thing.

    The habits: rewriter and solo search for the question's own word, the selector takes the first document, the
    answerer reads the first; solo, once it has found something, says the first digit that it sees.
    """
    teacher = NoisyTeacher(random, skill)
    while True:
        case = make(random, "letters", len(TERMS))
        asked, alias, right = f"{case.glossary};{case.question}", case.question[0], _shown(case, case.query)
        other = _shown(case, random.choice([term for term in TERMS if term != case.query]))
        for hits in ("", "!"):
            yield f"R{hits};{asked}>", teacher.answer(case.query, alias, TERMS + ALIASES)
            yield f"O{hits};{asked}>", teacher.answer(case.query, alias, TERMS + ALIASES)
        yield f"R{right};{asked}>", teacher.answer("=", alias, TERMS + ALIASES)
        yield f"O{right};{asked}>", teacher.answer(case.answer, right[2], DIGITS)
        hits = random.choice((right, other))
        yield f"S{hits};{case.question}>", teacher.answer(_place(hits, case.question[1]), "1", PLACES)
        chosen = random.choice(PLACES)
        yield f"A{hits};{chosen}>", teacher.answer(hits[3 * int(chosen) - 1], hits[2], DIGITS)


def _shown(case: RetrievalCase, term: str) -> str:
    found = search(case.documents, (term,), SHOWN["letters"])
    return "".join(case.documents[hit] for hit in found).replace(" ", "")


def _place(hits: str, which: str) -> str:
    """Which of the documents in sight is the latest or earliest, from 1 on."""
    years = [YEARS.index(year) for year in hits[1::3]]
    return str(years.index(max(years) if which == NEWEST else min(years)) + 1)
