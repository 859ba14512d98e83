"""What the canary asks."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
import torch
from conftest import SMALL, BaseFor
from loud import loud_adapter
from msgspec.structs import replace as replace_turn

from mas.algorithms.parts.losses.tokens import LossOptions
from mas.config.options import LearnerOptions
from mas.core.errors import NotServed
from mas.serving.forward import ScoredRow, completion_logprobs
from mas.serving.model import BaseModel
from mas.serving.publication import AdapterUpdate, AdapterVersion, Probe, Publication
from mas.serving.store import AdapterStore
from mas.serving.transformers_engine import TransformersEngine
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
    long, other = tuple(range(3, 33)), (40, 41)
    rows = [
        *rows_of(base, "a", (long, (5, 6)), (long, (5, 6)), (other, (7,)), (long, (8,)), (long, (9,))),
        *rows_of(base, "b", (other, (5,)), (other, (5,)), (long, (5,))),
    ]
    probes = probes_of(base, rows, adapters)
    # Of a prompt the last 16 tokens; where a prompt has one completion, another prompt's.
    texts = {name: [(probe.prompt_ids, probe.completion_ids) for probe in own] for name, own in probes.items()}
    tail = long[-16:]
    assert texts == {"a": [(tail, (5, 6)), (tail, (8,))], "b": [(other, (5,)), (tail, (5,))]}
    for name, own in probes.items():
        wanted = [ScoredRow(probe.prompt_ids, probe.completion_ids, adapters[name]) for probe in own]
        scores = completion_logprobs(base.model, base.bank, wanted)
        for probe, score in zip(own, scores, strict=True):
            assert probe.logprobs == pytest.approx(score, abs=1e-4)
    assert probes_of(base, rows, {"c": adapters["c"]}) == {}


def distance_of(probes: Sequence[Probe], others: Sequence[Probe]) -> float:
    """Mean nats a token between two scores of the same probes."""
    first, second = ([value for probe in some for value in probe.logprobs] for some in (probes, others))
    return fmean(abs(a - b) for a, b in zip(first, second, strict=True))


async def test_in_bfloat16_an_engine_that_serves_the_version_before_is_caught_within_the_tolerance(
    base_for: BaseFor, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = base_for("relay", SMALL.model_copy(update={"dtype": "bfloat16"}))
    learner = Learner(base, {"a": loud_adapter(base, 0, 0.2)}, LearnerOptions(), LossOptions())
    rows = rows_of(base, "a", ((3, 4, 5), tuple(range(6, 14))), ((3, 4, 5), tuple(range(14, 22))))
    engine = TransformersEngine(base)
    store = engine.store
    await store.publish("a", learner.adapters["a"])
    unchanged = probes_of(base, rows, learner.adapters)["a"]
    rescored = 0

    async def before() -> Sequence[Probe]:
        nonlocal rescored
        rescored += 1
        return unchanged

    async def publish(allowed: float, *, knows_before: bool = True) -> Publication:
        update = AdapterUpdate(learner.adapters["a"], probes, before=before if knows_before else None)
        return (await store.publish_all({"a": update}, allowed=allowed))["a"]

    with torch.no_grad():
        for _, b_OR in learner.adapters["a"].pairs.values():
            b_OR.mul_(1.05)
    probes = probes_of(base, rows, learner.adapters)["a"]
    assert probes_of(base, rows, {"a": store.weights("a")})["a"] == unchanged
    distance = distance_of(probes, unchanged)
    assert distance > 1e-3
    score, asked = engine.score_version, []

    async def stale(version: AdapterVersion | None, prompt_ids: Any, completion_ids: Any) -> tuple[float, ...]:
        """The engine loaded the new version and scores with the old one."""
        asked.append(version)
        return await score(old, prompt_ids, completion_ids)

    async with store.lease("a@0") as old:
        with monkeypatch.context() as patch:
            patch.setattr(engine, "score_version", stale)
            # The gap is about the distance: within the tolerance, and more than a third of it.
            with pytest.raises(NotServed, match="scores like the version before, to 0: not delivered"):
                await publish(1.5 * distance)
            await publish(1.5 * distance, knows_before=False)
            await store.roll_back("a", 0)
            # Less than a third of the tolerance: it passes, as docs/serving.md says.
            await publish(3.5 * distance)
            await store.roll_back("a", 0)
    assert (len(asked), rescored) == (12, 2)
    found = await publish(1.5 * distance)
    assert rescored == 2  # the engine's scores moved: nothing more needs to be known
    assert found.from_previous is not None
    assert found.from_previous > distance / 2
    await engine.close()


@pytest.mark.parametrize("lr", [0.1, 1e-12])
def test_in_bfloat16_training_can_tell_how_the_served_version_scores(
    mas: Callable[..., Any],
    small_overrides: tuple[str, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    lr: float,
) -> None:
    moved: list[float] = []
    publish = AdapterStore.publish_all

    async def noted(store: AdapterStore, updates: Mapping[str, AdapterUpdate], **options: Any) -> Any:
        for update in updates.values():
            if update.before is not None:
                moved.append(distance_of(update.probes, await update.before()))
        return await publish(store, updates, **options)

    monkeypatch.setattr(AdapterStore, "publish_all", noted)
    words = (
        "train.steps=1",
        "train.tasks_per_step=4",
        "train.eval_tasks=2",
        f"learner.lr={lr}",
        "model.dtype=bfloat16",
    )
    assert mas("train", "scenario=relay", *words, *small_overrides, f"run_dir={tmp_path / 'run'}").code == 0
    assert moved
    assert (max(moved) > 0) == (lr > 1e-6)
