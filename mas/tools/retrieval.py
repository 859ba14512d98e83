"""Retrieval from documents at hand: BM25, exact and with a fixed order of equals.

Written here because environments need answers that are equal on every machine: among equal scores the earlier document
comes first, and no array library is needed for the few thousand documents that it is meant for.
"""

import math
import re
from collections import Counter
from collections.abc import Sequence
from typing import Annotated

from pydantic import Field

from mas.core.errors import ConfigError
from mas.tools.toolbox import Parameters, Tool

_WORD = re.compile(r"\w+")
NOTHING = "nothing found"
"""What the tool answers where no document has a word of the query."""


def words(text: str) -> list[str]:
    """The words of a text in order, without case and punctuation."""
    return _WORD.findall(text.casefold())


class Bm25:
    """An index over documents.

    score(q, d) = sum over the query's words of idf(w) · f(w, d) · (k1 + 1) / (f(w, d) + k1 · (1 - b + b · |d| / mean)),
    idf(w) = ln(1 + (N - n(w) + 0.5) / (n(w) + 0.5)), which is never negative. f counts the word in the document, n the
    documents that have it, N all; a word counts as often as the query has it.
    Source: Robertson and Zaragoza, The Probabilistic Relevance Framework, 2009, with Lucene's idf.
    """

    def __init__(self, documents: Sequence[str], *, k1: float = 1.5, b: float = 0.75) -> None:
        """Index the documents.

        Raises:
            ConfigError: no documents, or parameters out of range.
        """
        if not documents:
            raise ConfigError("there are no documents to search; give at least one")
        if k1 < 0 or not 0 <= b <= 1:
            raise ConfigError(f"k1={k1}, b={b} are out of range: k1 is at least 0, b between 0 and 1")
        counts = [Counter(words(document)) for document in documents]
        lengths = [count.total() for count in counts]
        mean = sum(lengths) / len(lengths) or 1.0
        found = Counter(word for count in counts for word in count)
        self._weights: dict[str, list[tuple[int, float]]] = {word: [] for word in found}
        for index, (count, length) in enumerate(zip(counts, lengths, strict=True)):
            norm = k1 * (1 - b + b * length / mean)
            for word, times in count.items():
                idf = math.log(1 + (len(counts) - found[word] + 0.5) / (found[word] + 0.5))
                self._weights[word].append((index, idf * times * (k1 + 1) / (times + norm)))

    def rank(self, query: str) -> list[tuple[int, float]]:
        """(position, score) of the documents that share a word with the query, the best first, equals in order."""
        scores: dict[int, float] = {}
        for word in words(query):
            for index, weight in self._weights.get(word, ()):
                scores[index] = scores.get(index, 0.0) + weight
        return sorted(scores.items(), key=lambda one: (-one[1], one[0]))


class Query(Parameters):
    """What to look for."""

    query: Annotated[str, Field(min_length=1, max_length=300, description="words to look for")]
    top: Annotated[int, Field(ge=1, le=20, description="how many documents at most")] = 3


def retrieval_tool(documents: Sequence[str], *, name: str = "search") -> Tool[Query]:
    """A tool that answers a query with the best documents, one numbered line each (numbers are positions from 1).

    Raises:
        ConfigError: no documents, or a name that a tool cannot have.
    """
    kept = tuple(documents)
    index = Bm25(kept)

    def search(parameters: Query) -> str:
        best = index.rank(parameters.query)[: parameters.top]
        return "\n".join(f"{position + 1}. {kept[position]}" for position, _ in best) or NOTHING

    return Tool(
        name=name,
        description=f"Searches {len(kept)} documents and answers with the best ones, one numbered line each.",
        parameters=Query,
        function=search,
    )
