"""`retrieval`: rewrite a question into a query, choose among the documents that are found, answer (after MMOA-RAG,
arXiv 2501.15228).

The team's action is a search, which the environment carries out, or the answer, which ends the episode. What a search
found is seen from the next team turn on.

The own terms of `retrieval`: the penalties of MMOA-RAG (arXiv 2501.15228), each for the role that can avoid it. The
paper's: -0.5 for a query of more than 4 sub-questions or 300 characters, -1 for a selection that cannot be read or
names a document twice or one that is not there, -1 for an answer of more than 30 words. Ours on top: -0.5 for a query
that finds nothing, and for being content with nothing; and what a selection lacks of the document that answers.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from random import Random
from typing import ClassVar

import msgspec

from mas.core.environment import Move, Task
from mas.core.messages import Failure, Payload, Plan
from mas.core.printable import is_readable
from mas.roles.kinds import Planner
from mas.scenarios.noisy_teacher import NoisyTeacher
from mas.scenarios.retrieval.cases import ALIASES, NEWEST, SHOWN, TERMS, YEARS, RetrievalCase, make, search
from mas.scenarios.world import RecordEnvironment, Style, kept_text, one_seat

SEARCH = "search:"
_ARTICLES = frozenset({"a", "an", "the"})
_WORD = re.compile(r"\w+")
LONGEST_QUERY, LONGEST_ANSWER = 300, 2000
"""In characters; what is longer, or has characters that cannot be printed, is not legal."""
MAX_TURNS = 4


class RetrievalState(msgspec.Struct, frozen=True):
    """`hits`: positions of the documents that the last search found, None before the first. `said`: the answer."""

    case: RetrievalCase
    query: str = ""
    hits: tuple[int, ...] | None = None
    turn: int = 0
    said: str | None = None

    @property
    def is_found(self) -> bool:
        """Whether the document that answers is in sight."""
        return self.hits is not None and self.case.needed in self.hits


class RetrievalEnvironment(RecordEnvironment[RetrievalState]):
    """A search or the answer a turn."""

    history: ClassVar[tuple[str, ...]] = ("query", "turn")
    answer_field: ClassVar[str] = "said"
    found: ClassVar[float] = 0.5
    waste: ClassVar[float] = -0.1

    def __init__(self, style: Style, terms: int) -> None:
        views = ("rewriter", "selector", "answerer", "solo")
        super().__init__(one_seat("retrieval", views, MAX_TURNS, ("right", "found", "waste")))
        self.style: Style = style
        self.terms = terms

    def initial(self, task: Task) -> RetrievalState:
        return RetrievalState(make(Random(task.seed), self.style, self.terms))

    def fields(self, state: RetrievalState, view: str) -> Mapping[str, str]:
        shown = {"question": state.case.question, "hits": self._shown(state)}
        return shown | {"glossary": state.case.glossary} if view in ("rewriter", "solo") else shown

    def legal(self, seat: str) -> tuple[str, ...] | None:
        return (*TERMS, *ALIASES, *"0123456789") if self.style == "letters" else None

    def act(self, state: RetrievalState, action: str) -> tuple[RetrievalState, dict[str, float], bool]:
        later = msgspec.structs.replace(state, turn=state.turn + 1)
        if not action.strip():
            return later, {"waste": self.waste}, not action
        queries = self.queries(action)
        if queries:
            hits = search(state.case.documents, queries, SHOWN[self.style])
            after = msgspec.structs.replace(later, query=kept_text("; ".join(queries), LONGEST_QUERY), hits=hits)
            gain = self.found * (after.is_found - state.is_found)
            return after, {"found": gain} | ({} if gain > 0 else {"waste": self.waste}), True
        if queries is None or not self.is_answer(action):
            return later, {"waste": self.waste}, False
        after = msgspec.structs.replace(later, said=kept_text(action, LONGEST_ANSWER))
        return after, {"right": overlap(action, state.case.answer)}, True

    def queries(self, action: str) -> tuple[str, ...] | None:
        """What an action looks for, sub-questions divided by `;`. Empty: it is no search; None: none that is legal."""
        if self.style == "letters":
            return (action,) if len(action) == 1 and action in TERMS + ALIASES else ()
        if not action.strip().casefold().startswith(SEARCH):
            return ()
        parts = action.strip()[len(SEARCH) :].split(";")
        queries = tuple(part.strip() for part in parts if part.strip())
        return queries if queries and is_readable(action, LONGEST_QUERY) else None

    def is_call(self, action: str) -> bool:
        return bool(self.queries(action))

    def is_failed_call(self, action: str) -> bool:
        """Whether an action is neither an answer nor a pass, and no search that can be made."""
        is_answer = self.queries(action) is not None and self.is_answer(action)
        return bool(action.strip()) and not is_answer and not self.is_call(action)

    def is_answer(self, action: str) -> bool:
        """Whether an action has the form of an answer: a digit, or words."""
        if self.style == "letters":
            return len(action) == 1 and action in "0123456789"
        return is_readable(action, LONGEST_ANSWER)

    def is_solved(self, state: RetrievalState) -> bool:
        return state.said is not None and tokens(state.said) == tokens(state.case.answer)

    def right_answer(self) -> str:
        """What the document says that answers."""
        return self.state.case.answer

    def entities(self) -> tuple[str, ...]:
        """What the archive calls the thing that is asked about, and the answer; in words also the year between them."""
        return self.state.case.entities

    def render(self) -> str:
        state = self.state
        needed = state.case.documents[state.case.needed]
        lines = [state.case.question, state.case.glossary, f"needed: {needed}", f"found: {self._shown(state) or '-'}"]
        return "\n".join(
            [*lines, f"answer {'-' if state.said is None else state.said!r}, right is {state.case.answer}"]
        )

    def _shown(self, state: RetrievalState) -> str:
        found = [state.case.documents[hit] for hit in state.hits or ()]
        if self.style == "letters":
            return "".join(found).replace(" ", "") or ("" if state.hits is None else "!")
        if state.hits is None:
            return "nothing was searched yet"
        lines = [f"{number}. {document}" for number, document in enumerate(found, 1)]
        return "\n".join([f"search for {state.query!r}", *(lines or ["nothing found"])])


def tokens(text: str) -> list[str]:
    """Words of an answer without case, punctuation and articles."""
    return [word for word in _WORD.findall(text.casefold()) if word not in _ARTICLES]


def overlap(said: str, answer: str) -> float:
    """F1 of the words that two answers share: 2 P R / (P + R), as question answering is scored."""
    first, second = Counter(tokens(said)), Counter(tokens(answer))
    shared = (first & second).total()
    return 2 * shared / (first.total() + second.total()) if shared else 0.0


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


MOST_QUESTIONS, MOST_WORDS = 4, 30
_CHOICE = re.compile(r"[0-9]{1,2}(?:\s*,\s*[0-9]{1,2})*\.?")


class RetrievalReward:
    """The paper's penalties by name, and ours by another, so that a weight of 0 takes ours away.

    To the rewriter `query`, -0.5 or 0, and `empty`, the same, never both. To the selector `selection`, -1 or 0, and
    `choice`, -1 to 0. To the answerer `length`, -1 or 0. `solo` has the rewriter's and the answerer's.
    """

    terms: tuple[str, ...] = ("query", "empty", "selection", "choice", "length")

    def own(self, move: Move) -> Mapping[str, float]:
        world = move.environment
        assert isinstance(world, RetrievalEnvironment)
        text = None if isinstance(move.output, Failure) else move.output.content.strip()
        if move.role == "rewriter":
            return _query(world, text)
        if move.role == "selector":
            return _selection(world, text)
        if move.role == "solo" and text is not None and world.queries(text) != ():
            return _query(world, text)
        is_long = text is None or len(text.split()) > MOST_WORDS
        return {"length": -1.0 if is_long else 0.0} if move.role in ("answerer", "solo") else {}


def _query(world: RetrievalEnvironment, text: str | None) -> dict[str, float]:
    if text is not None and text.casefold().rstrip(".") in ENOUGH:
        return {"query": 0.0, "empty": 0.0 if world.state.hits else -0.5}
    queries = None if text is None else world.queries(text)
    if not queries or len(queries) > MOST_QUESTIONS:
        return {"query": -0.5, "empty": 0.0}
    return {"query": 0.0, "empty": 0.0 if search(world.state.case.documents, queries, SHOWN[world.style]) else -0.5}


def _selection(world: RetrievalEnvironment, text: str | None) -> dict[str, float]:
    """-1 where it cannot be read. With the document that answers in sight: its F1 with the selection, minus 1."""
    chosen = chosen_documents(text or "", len(world.state.hits or ()))
    if chosen is None:
        return {"selection": -1.0, "choice": 0.0}
    if not world.state.is_found:
        return {"selection": 0.0, "choice": 0.0}
    assert world.state.hits is not None
    is_chosen = world.state.hits.index(world.state.case.needed) + 1 in chosen
    return {"selection": 0.0, "choice": 2 * is_chosen / (len(chosen) + 1) - 1}


def chosen_documents(text: str, shown: int) -> tuple[int, ...] | None:
    """The numbers in `1, 3`, from 1 on; None: it is no such list, or has one twice or one that is not shown."""
    if not _CHOICE.fullmatch(text):
        return None
    numbers = tuple(int(number) for number in re.findall(r"[0-9]+", text))
    is_valid = len(set(numbers)) == len(numbers) and all(1 <= number <= shown for number in numbers)
    return numbers if is_valid else None


ENOUGH = ("=", "enough")


class Rewriter(Planner):
    """Emits a plan whose route is `enough` where it says so, and `search` else."""

    default_routes: ClassVar[tuple[str, ...]] = ("search", "enough")
    default_failure_route: ClassVar[str | None] = "search"
    emittable: ClassVar[frozenset[str]] = frozenset({"plan"})

    def answer(self, text: str) -> Payload:
        return Plan(text=text, chosen_route="enough" if text.casefold().rstrip(".") in ENOUGH else "search")
