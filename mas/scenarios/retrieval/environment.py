"""`retrieval`: rewrite a question into a query, choose among the documents that are found, answer (after MMOA-RAG,
arXiv 2501.15228).

The team's action is a search, which the environment carries out, or the answer, which ends the episode. What a search
found is seen from the next team turn on.
"""

import re
from collections import Counter
from collections.abc import Mapping
from random import Random
from typing import ClassVar

import msgspec

from mas.core.environment import EnvironmentSpec, Task
from mas.scenarios.retrieval.cases import ALIASES, SHOWN, TERMS, RetrievalCase, Style, make, search
from mas.scenarios.world import RecordEnvironment, kept_text

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

    state_type: ClassVar[type[msgspec.Struct]] = RetrievalState
    history: ClassVar[tuple[str, ...]] = ("query", "turn")
    found: ClassVar[float] = 0.5
    waste: ClassVar[float] = -0.1

    def __init__(self, style: Style, terms: int) -> None:
        super().__init__(
            EnvironmentSpec(
                name="retrieval",
                seats=("team",),
                views=("rewriter", "selector", "answerer", "solo"),
                max_turns=MAX_TURNS,
                terms=("right", "found", "waste"),
            )
        )
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
        return queries if queries and _is_readable(action, LONGEST_QUERY) else None

    def is_call(self, action: str) -> bool:
        """Whether an action is a search."""
        return bool(self.queries(action))

    def is_failed_call(self, action: str) -> bool:
        """Whether an action is neither an answer nor a pass, and no search that can be made."""
        is_answer = self.queries(action) is not None and self.is_answer(action)
        return bool(action.strip()) and not is_answer and not self.is_call(action)

    def is_answer(self, action: str) -> bool:
        """Whether an action has the form of an answer: a digit, or words."""
        if self.style == "letters":
            return len(action) == 1 and action in "0123456789"
        return _is_readable(action, LONGEST_ANSWER)

    def is_over(self, state: RetrievalState) -> bool:
        return state.said is not None or state.turn >= MAX_TURNS

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


def _is_readable(text: str, longest: int) -> bool:
    return len(text) <= longest and all(character.isprintable() or character in "\n\t" for character in text)


def tokens(text: str) -> list[str]:
    """Words of an answer without case, punctuation and articles."""
    return [word for word in _WORD.findall(text.casefold()) if word not in _ARTICLES]


def overlap(said: str, answer: str) -> float:
    """F1 of the words that two answers share: 2 P R / (P + R), as question answering is scored."""
    first, second = Counter(tokens(said)), Counter(tokens(answer))
    shared = (first & second).total()
    return 2 * shared / (first.total() + second.total()) if shared else 0.0
