"""What the canary asks."""

from dataclasses import replace

import pytest
from conftest import BaseFor
from loud import loud_adapter
from msgspec.structs import replace as replace_turn

from mas.config.options import LearnerOptions
from mas.config.updates import LossOptions
from mas.serving.forward import ScoredRow, completion_logprobs
from mas.serving.model import BaseModel
from mas.training.adapters import probes_of
from mas.training.batch import TrainRow
from mas.training.learner import Learner
from mas.training.packing_check import short_rows


@pytest.fixture(scope="module")
def base(base_for: BaseFor) -> BaseModel:
    return base_for("relay")


def rows_of(base: BaseModel, adapter: str, *texts: tuple[tuple[int, ...], tuple[int, ...]]) -> list[TrainRow]:
    like = short_rows(base)[0]
    turns = [replace_turn(like.turn, prompt_ids=prompt, completion_ids=said) for prompt, said in texts]
    return [replace(like, turn=turn, adapter=adapter) for turn in turns]


def test_probes_are_different_completions_of_one_prompt_if_there_are_any(base: BaseModel) -> None:
    adapters = {name: loud_adapter(base, number, 0.2) for number, name in enumerate("abc")}
    learner = Learner(base, adapters, LearnerOptions(), LossOptions())
    long, other = tuple(range(3, 33)), (40, 41)
    rows = [
        *rows_of(base, "a", (long, (5, 6)), (long, (5, 6)), (other, (7,)), (long, (8,)), (long, (9,))),
        *rows_of(base, "b", (other, (5,)), (other, (5,)), (long, (5,))),
    ]
    probes = probes_of(learner, rows, ["a", "b", "c"])
    # Of a prompt the last 16 tokens; where a prompt has one completion, another prompt's.
    texts = {name: [(probe.prompt_ids, probe.completion_ids) for probe in own] for name, own in probes.items()}
    tail = long[-16:]
    assert texts == {"a": [(tail, (5, 6)), (tail, (8,))], "b": [(other, (5,)), (tail, (5,))]}
    for name, own in probes.items():
        wanted = [ScoredRow(probe.prompt_ids, probe.completion_ids, adapters[name]) for probe in own]
        scores = completion_logprobs(base.model, base.bank, wanted)
        for probe, score in zip(own, scores, strict=True):
            assert probe.logprobs == pytest.approx(score, abs=1e-4)
    assert probes_of(learner, rows, ["c"]) == {}
