"""The canary: what an engine serves scores as the trainer's, and not as the version before."""

from dataclasses import replace
from typing import Any
from unittest.mock import AsyncMock

import pytest
from adapter_host import COMPLETION, PROMPT, Host, probe_of, score_of
from conftest import BaseFor
from loud import loud_adapter

from mas.core.errors import NotServed
from mas.serving.model import BaseModel
from mas.serving.publication import AdapterUpdate, AdapterVersion, Probe
from mas.serving.store import AdapterStore


@pytest.fixture(scope="module")
def base(base_for: BaseFor) -> BaseModel:
    return base_for("relay")


@pytest.mark.parametrize(
    ("dtype", "change", "knows_before", "is_caught"),
    [
        # float32: more than 2e-5 that the version before does not explain, whatever the trainer knows of it.
        ("float32", 1e-2, False, True),
        ("float32", 4e-5, False, True),
        ("float32", 1e-5, True, False),
        # bfloat16: more than the tolerance, 3e-2; or more than a third of it if the trainer scored the version before.
        ("bfloat16", 4e-2, False, True),
        ("bfloat16", 2e-2, False, False),
        ("bfloat16", 2e-2, True, True),
        ("bfloat16", 1.1e-2, True, True),
        ("bfloat16", 9e-3, True, False),
    ],
)
async def test_an_update_that_was_not_delivered_is_caught_if_it_is_not_too_small_for_the_type(
    base: BaseModel, host: Host, store: AdapterStore, dtype: str, change: float, knows_before: bool, is_caught: bool
) -> None:
    host.dtype = dtype
    weights = loud_adapter(base, 0)
    old = probe_of(weights)
    await store.publish("a", weights, probes=(old,))
    host.delivers = False
    weights.parameters()[0].view(-1)[0] += change
    before = AsyncMock(return_value=[old]) if knows_before else None
    update = AdapterUpdate(weights, (probe_of(weights),), before=before)
    if is_caught:
        with pytest.raises(NotServed, match=r"not served as it was trained"):
            await store.publish_all({"a": update})
    else:
        assert (await store.publish_all({"a": update}))["a"].gap == pytest.approx(change, rel=0.01)
    host.delivers = True
    found = (await store.publish_all({"a": update}))["a"]
    assert found.gap == 0
    assert found.from_previous == pytest.approx(change, rel=0.01)


async def test_in_bfloat16_an_engine_whose_scores_moved_at_all_is_not_taken_for_stale(
    base: BaseModel, host: Host, store: AdapterStore
) -> None:
    host.dtype = "bfloat16"
    weights = loud_adapter(base, 0)
    await store.publish("a", weights)
    probe = probe_of(weights)
    unmoved = AdapterUpdate(weights, (probe,), before=AsyncMock(return_value=[probe]))
    found = (await store.publish_all({"a": unmoved}))["a"]
    assert (found.gap, found.from_previous) == (0, 0)  # nothing was learned: equal scores are right
    weights.parameters()[0].view(-1)[0] += 1e-4
    moved = replace(probe, logprobs=(score_of(weights) - 2e-2,) * 3)
    update = AdapterUpdate(weights, (probe,), before=AsyncMock(return_value=[moved]))
    assert (await store.publish_all({"a": update}))["a"].from_previous == pytest.approx(1e-4, rel=0.01)
    with pytest.raises(NotServed, match="it scores like the version before, to 0: not delivered"):
        await store.publish_all({"a": update})


async def test_the_canary_tolerates_what_the_engine_always_computes_differently(
    base: BaseModel, store: AdapterStore
) -> None:
    weights = loud_adapter(base, 0)
    for change in (0.0, 1e-4):
        weights.parameters()[0].view(-1)[0] += change
        noisy = Probe(PROMPT, COMPLETION, (score_of(weights) + 5e-5,) * 3)
        found = await store.publish("a", weights, probes=(noisy,))
        assert found.gap == pytest.approx(5e-5, rel=0.01)


class OffHost(Host):
    """The same with scores that are off by some nats a token, of the versions that another host has loaded."""

    def __init__(self, host: Host, off: float) -> None:
        super().__init__()
        self.loaded, self._off = host.loaded, off

    async def score_version(self, version: AdapterVersion | None, prompt_ids: Any, completion_ids: Any) -> Any:
        scores = await super().score_version(version, prompt_ids, completion_ids)
        return tuple(score + self._off for score in scores)


@pytest.mark.parametrize("offs", [(2e-5, 5e-5), (5e-5, 2e-5)])
async def test_the_gap_is_that_of_the_worst_part(base: BaseModel, host: Host, offs: tuple[float, ...]) -> None:
    store = AdapterStore(host, parts=lambda: {f"part {off}": OffHost(host, off) for off in offs})
    weights = loud_adapter(base, 0)
    found = await store.publish("a", weights, probes=(probe_of(weights),))
    assert found.gap == pytest.approx(5e-5, rel=0.01)
