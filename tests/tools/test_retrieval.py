"""BM25 against numbers derived by hand, and its tool."""

from math import log

import pytest

from mas.core.errors import ConfigError, ToolRefused
from mas.tools import Bm25, Toolbox, retrieval_tool

DOCUMENTS = ("the red fox", "the dog and the fox", "a blue bird")


def test_scores_are_those_of_the_formula() -> None:
    # N = 3, lengths 3, 5, 3, mean 11/3. "fox" is in two documents: idf = ln(1 + 1.5 / 2.5) = ln 1.6.
    # Document 0: K = 1.5 (0.25 + 0.75 · 3 / (11/3)) = 1.295454...; f = 1: idf · 2.5 / (1 + K).
    # Document 1: K = 1.5 (0.25 + 0.75 · 5 / (11/3)) = 1.909090...
    ranked = Bm25(DOCUMENTS).rank("Fox!")
    assert [index for index, _ in ranked] == [0, 1]
    first, second = (1.5 * (0.25 + 0.75 * length / (11 / 3)) for length in (3, 5))
    assert ranked[0][1] == pytest.approx(log(1.6) * 2.5 / (1 + first))
    assert ranked[1][1] == pytest.approx(log(1.6) * 2.5 / (1 + second))


def test_a_word_that_stands_twice_counts_more_and_a_rare_one_most() -> None:
    # "the" stands twice in document 1, so that it comes first though it is longer; "red" is in one document only.
    assert [index for index, _ in Bm25(DOCUMENTS).rank("the")] == [1, 0]
    assert Bm25(DOCUMENTS).rank("the red")[0][0] == 0


def test_equal_documents_keep_their_order_and_unknown_words_find_nothing() -> None:
    index = Bm25(("same words", "other", "same words"))
    assert [place for place, _ in index.rank("words")] == [0, 2]
    assert index.rank("nowhere ?!") == []
    assert Bm25(("", "?")).rank("anything") == []


def test_the_tool_answers_with_numbered_lines() -> None:
    box = Toolbox([retrieval_tool(DOCUMENTS)])
    assert box.call('{"name": "search", "arguments": {"query": "fox", "top": 1}}') == "1. the red fox"
    assert box.call('{"name": "search", "arguments": {"query": "blue fox"}}').startswith("3. a blue bird\n1. ")
    assert box.call('{"name": "search", "arguments": {"query": "whale"}}') == "nothing found"
    with pytest.raises(ToolRefused, match="parameter 'top' is 0"):
        box.call('{"name": "search", "arguments": {"query": "fox", "top": 0}}')


def test_an_index_of_nothing_or_out_of_range_is_refused() -> None:
    with pytest.raises(ConfigError, match="no documents"):
        Bm25(())
    for k1, b in ((-1.0, 0.5), (1.5, 1.1), (1.5, -0.1)):
        with pytest.raises(ConfigError, match="out of range"):
            Bm25(DOCUMENTS, k1=k1, b=b)
