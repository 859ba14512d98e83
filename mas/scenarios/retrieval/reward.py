"""The own terms of `retrieval`: the penalties of MMOA-RAG (arXiv 2501.15228), each for the role that can avoid it.

The paper's: -0.5 for a query of more than 4 sub-questions or 300 characters, -1 for a selection that cannot be read or
names a document twice or one that is not there, -1 for an answer of more than 30 words. Ours on top: -0.5 for a query
that finds nothing, and for being content with nothing; and what a selection lacks of the document that answers.
"""

import re
from collections.abc import Mapping

from mas.core.messages import Failure
from mas.core.reward import Move
from mas.scenarios.retrieval.cases import SHOWN, search
from mas.scenarios.retrieval.environment import RetrievalEnvironment
from mas.scenarios.retrieval.role import ENOUGH

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
        return {"length": _length(text)} if move.role in ("answerer", "solo") else {}


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


def _length(text: str | None) -> float:
    return -1.0 if text is None or len(text.split()) > MOST_WORDS else 0.0


def chosen_documents(text: str, shown: int) -> tuple[int, ...] | None:
    """The numbers in `1, 3`, from 1 on; None: it is no such list, or has one twice or one that is not shown."""
    if not _CHOICE.fullmatch(text):
        return None
    numbers = tuple(int(number) for number in re.findall(r"[0-9]+", text))
    is_valid = len(set(numbers)) == len(numbers) and all(1 <= number <= shown for number in numbers)
    return numbers if is_valid else None
