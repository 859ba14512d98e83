"""Scoring in trees: the same log-probabilities as padded rows, whoever speaks and in whatever order."""

from random import Random

import pytest
from conftest import BaseFor
from loud import loud_adapter

from mas.serving import forward
from mas.serving.forward import ScoredRow, completion_logprobs, score_rows
from mas.serving.model import BaseModel


@pytest.fixture(scope="module")
def base(base_for: BaseFor) -> BaseModel:
    return base_for("relay")


def rows_of(base: BaseModel) -> list[ScoredRow]:
    """Three speakers in turn; completions that begin alike, one twice, one that is a prompt's end elsewhere."""
    random, frame = Random(1), (5, 6, 7, 8, 9, 10, 11)
    texts = [(frame, (20, 21, 22)), (frame, (20, 21, 30)), (frame, (20, 21, 22)), (frame, (40,)), ((41,), (42, 43))]
    texts += [((*frame, 20), (21, 22)), (tuple(random.choices(range(3, 60), k=70)), (5, 6, 7, 8))]
    speakers = (loud_adapter(base, 1, 0.2), None, loud_adapter(base, 2, 0.2))
    return [ScoredRow(prompt, completion, weights) for prompt, completion in texts for weights in speakers]


def test_trees_score_as_padded_rows_do(base: BaseModel, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = rows_of(base)
    right = completion_logprobs(base.model, base.bank, rows)
    assert forward._shares(base)  # the check of the model reads a tree itself, once
    read, reads = [], forward.read
    monkeypatch.setattr(forward, "read", lambda base, forest: read.append(len(forest.ids)) or reads(base, forest))
    monkeypatch.setattr(forward, "_WORTH", 0)
    found = score_rows(base, rows)
    # 7 tokens of the frame, the 2 after it, the 70 and the 3 after them, and 2 of the short text, of three speakers.
    assert read == [3 * (7 + 2 + 73 + 2)]
    for own, wanted in zip(found, right, strict=True):
        assert own == pytest.approx(wanted, abs=1e-4)
    assert max(abs(a - b) for a, b in zip(found[0], found[1], strict=True)) > 1e-2


def test_what_saves_too_little_is_padded(base: BaseModel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forward, "_WORTH", 1e18)
    monkeypatch.setattr(forward, "read", None)
    rows = rows_of(base)
    assert score_rows(base, rows) == completion_logprobs(base.model, base.bank, rows)
