"""The adapter store: what is published never changes, is checked before it serves, and stays while it is used."""

import asyncio
import gc
from pathlib import Path
from typing import Any

import pytest
import torch
from adapter_host import COMPLETION, PROMPT, Host, probe_of, score_of
from conftest import BaseFor
from loud import loud_adapter

from mas.core.engine import AdapterRef, Request, Sampling
from mas.core.errors import CheckpointError, EngineError, NotServed, UnknownAdapter
from mas.serving.adapter_files import from_directory
from mas.serving.adapter_weights import AdapterWeights
from mas.serving.model import BaseModel
from mas.serving.publication import AdapterUpdate, AdapterVersion, HeldVersion, Probe
from mas.serving.store import AdapterStore
from mas.serving.transformers_engine import TransformersEngine


@pytest.fixture(scope="module")
def base(base_for: BaseFor) -> BaseModel:
    return base_for("relay")


def adapter(base: BaseModel, seed: int) -> AdapterWeights:
    return loud_adapter(base, seed)


async def test_versions_count_up_and_the_name_points_to_the_latest(base: BaseModel, store: AdapterStore) -> None:
    for number in range(3):
        published = await store.publish("a", adapter(base, number))
        assert published.ref == AdapterRef("a", number) == store.current()["a"]
    assert store.versions("a") == (AdapterRef("a", 1), AdapterRef("a", 2))
    assert (await store.publish("a", adapter(base, 9), version=7)).ref.version == 7
    with pytest.raises(EngineError, match="not later than 7"):
        await store.publish("a", adapter(base, 9), version=7)


async def test_later_training_does_not_change_what_was_published(base: BaseModel, store: AdapterStore) -> None:
    weights = adapter(base, 1)
    await store.publish("a", weights)
    before = score_of(store.weights("a"))
    weights.parameters()[0].add_(1.0)
    assert score_of(store.weights("a")) == before != score_of(weights)


async def test_a_version_is_unloaded_and_its_files_deleted_when_its_last_lease_ends(
    base: BaseModel, store: AdapterStore, host: Host
) -> None:
    await store.publish("a", adapter(base, 0))
    async with store.lease("a") as first, store.lease("a@0") as again:
        assert first is again
        for number in range(1, 4):
            await store.publish("a", adapter(base, number))
        assert {version.ref.version for version in host.loaded.values()} == {0, 3}
        assert first.path is not None
        assert first.path.is_dir()
        async with store.lease("a") as current:
            assert current.ref.version == 3
    assert {version.ref.version for version in host.loaded.values()} == {3}
    assert not first.path.exists()
    folder = first.path.parent
    assert {path.name.rsplit("-", 1)[0] for path in folder.iterdir()} == {"a-2", "a-3"}
    store.close()
    assert not folder.exists()


async def test_a_failed_publish_leaves_the_old_version_serving(
    base: BaseModel, store: AdapterStore, host: Host
) -> None:
    await store.publish("a", adapter(base, 0))
    host.refuses = True
    with pytest.raises(EngineError, match="no room"):
        await store.publish("a", adapter(base, 1))
    host.refuses = False
    assert store.current()["a"].version == 0
    wrong = Probe(PROMPT, COMPLETION, (0.123,) * 3)
    with pytest.raises(NotServed, match=r"a@1 is not served as it was trained"):
        await store.publish("a", adapter(base, 1), probes=(wrong,))
    assert store.current()["a"].version == 0
    assert len(host.loaded) == 1
    async with store.lease("a") as version:
        assert version.path is not None
        assert list(version.path.parent.iterdir()) == [version.path]
    assert (await store.publish("a", adapter(base, 1), probes=(probe_of(adapter(base, 1)),))).ref.version == 1


async def test_several_names_are_published_together_or_not_at_all(
    base: BaseModel, store: AdapterStore, host: Host
) -> None:
    new = {name: adapter(base, number) for number, name in enumerate("ab", 1)}
    await store.publish("a", adapter(base, 0))
    wrong = {name: AdapterUpdate(weights, (probe_of(new["a"]),)) for name, weights in new.items()}
    with pytest.raises(NotServed, match="adapter b@0 is not served"):
        await store.publish_all(wrong)
    assert store.current() == {"a": AdapterRef("a", 0)}
    assert {version.ref for version in host.loaded.values()} == {AdapterRef("a", 0)}
    right = {name: AdapterUpdate(weights, (probe_of(weights),)) for name, weights in new.items()}
    found = await store.publish_all(right)
    assert store.current() == {name: one.ref for name, one in found.items()}
    assert {name: one.ref.version for name, one in found.items()} == {"a": 1, "b": 0}
    assert [one.gap for one in found.values()] == pytest.approx([0, 0], abs=1e-6)
    assert found["b"].from_previous is None


async def test_roll_back_points_to_an_older_version_and_later_ones_still_count_up(
    base: BaseModel, store: AdapterStore, host: Host
) -> None:
    for number in range(3):
        await store.publish("a", adapter(base, number))
    assert await store.roll_back("a", 1) == AdapterRef("a", 1) == store.current()["a"]
    assert {version.ref.version for version in host.loaded.values()} == {1}
    assert (await store.publish("a", adapter(base, 5))).ref.version == 3
    with pytest.raises(UnknownAdapter, match=r"no version '0' of adapter 'a' is kept; kept are: \[1, 3\]"):
        await store.roll_back("a", 0)


async def test_fork_freeze_swap_export_and_import(base: BaseModel, store: AdapterStore, tmp_path: Path) -> None:
    await store.publish("a", adapter(base, 1))
    await store.publish("b", adapter(base, 2))
    await store.fork("c", "a@0")
    assert score_of(store.weights("c")) == score_of(store.weights("a"))
    with pytest.raises(EngineError, match="'b' exists already"):
        await store.fork("b", "a")
    one, other = score_of(store.weights("a")), score_of(store.weights("b"))
    await store.swap("a", "b")
    assert (score_of(store.weights("a")), score_of(store.weights("b"))) == (other, one)
    store.freeze("a")
    for change in (store.publish("a", adapter(base, 3)), store.swap("b", "a"), store.roll_back("a", 0)):
        with pytest.raises(EngineError, match="frozen"):
            await change
    assert score_of(store.weights("b")) == one
    store.unfreeze("a")
    store.export("b", tmp_path / "b")
    assert score_of(from_directory(tmp_path / "b", base.bank)) == one
    assert await store.import_("d", tmp_path / "b", base.bank) == AdapterRef("d", 0)
    assert score_of(store.weights("d")) == one
    with pytest.raises(CheckpointError):
        await store.import_("e", tmp_path, base.bank)


@pytest.mark.parametrize("adapter_name", ["b", "a@1", "a@x", "a@", "@0"])
async def test_an_unknown_adapter_or_version_is_a_typed_error(
    base: BaseModel, store: AdapterStore, adapter_name: str
) -> None:
    await store.publish("a", adapter(base, 0))
    with pytest.raises(UnknownAdapter):
        async with store.lease(adapter_name):
            raise AssertionError("there is no such version")


async def test_what_is_loaded_is_known(base: BaseModel, store: AdapterStore, host: Host) -> None:
    for name in "ab":
        await store.publish(name, adapter(base, 1))
        await store.publish(name, adapter(base, 2))
    async with store.lease("a@0"):
        assert {version.number: version for version in store.loaded()} == host.loaded
        assert len(host.loaded) == 3


async def test_the_embedded_engine_serves_a_leased_version_to_its_end(base: BaseModel) -> None:
    engine = TransformersEngine(base)
    await engine.store.publish("a", adapter(base, 1))
    request = Request(prompt_ids=PROMPT, sampling=Sampling(max_tokens=30), seeds=(1, 2), adapter="a")
    wanted = await engine.generate(request)
    asked = asyncio.create_task(engine.generate(request), name="old")
    for _ in range(20):
        await asyncio.sleep(0)
    await engine.store.publish("a", adapter(base, 2))
    assert await asked == wanted
    now = await engine.generate(request)
    assert {generation.adapter for generation in now} == {AdapterRef("a", 1)}
    assert [g.token_ids for g in now] != [g.token_ids for g in wanted]
    await engine.close()


def versions_in_memory() -> int:
    gc.collect()
    return sum(type(one) is AdapterVersion for one in gc.get_objects())


async def test_a_hundred_publishes_under_load_keep_every_completion_true_to_its_version(base: BaseModel) -> None:
    before = versions_in_memory()
    engine = TransformersEngine(base)
    versions: dict[str, AdapterWeights] = {}
    made: list[tuple[Request, Any]] = []

    async def load(name: str) -> None:
        for number in range(40):
            request = Request(
                prompt_ids=(5, 6, 7 + number % 20), sampling=Sampling(max_tokens=6), seeds=(number, 7), adapter=name
            )
            made.extend((request, generation) for generation in await engine.generate(request))

    async def publish() -> None:
        for number in range(100):
            name = "abc"[number % 3]
            weights = loud_adapter(base, number, 0.1)
            ref = (await engine.store.publish(name, weights)).ref
            versions[str(ref)] = weights
            await asyncio.sleep(0.002)

    for name in "abc":
        versions[f"{name}@0"] = loud_adapter(base, 1000, 0.1)
        await engine.store.publish(name, versions[f"{name}@0"])
    await asyncio.gather(publish(), *(load(name) for name in "abc"))
    assert len({str(generation.adapter) for _, generation in made}) > 10
    assert versions_in_memory() - before == 6
    checker = TransformersEngine(base)
    for request, generation in made[::5]:
        name = str(generation.adapter)
        await checker.store.publish(name.replace("@", "-"), versions[name])
        scores = await checker.score(request.prompt_ids, generation.token_ids, name.replace("@", "-"))
        assert generation.logprobs == pytest.approx(scores, abs=1e-4)
        checker = TransformersEngine(base)
    assert sum(len(engine.store.versions(name)) for name in "abc") == 6
    assert torch.is_inference_mode_enabled() is False
    await engine.close()


@pytest.mark.parametrize("keep", [0, 1, 2, 3, 5])
async def test_as_many_versions_are_kept_as_was_asked(base: BaseModel, host: Host, keep: int) -> None:
    store = AdapterStore(host, keep=keep)
    for number in range(8):
        await store.publish("a", adapter(base, number))
    assert [ref.version for ref in store.versions("a")] == list(range(7 - keep, 8))
    assert len(host.loaded) == 1


async def test_going_back_while_another_version_is_published_leaves_the_store_whole(
    base: BaseModel, store: AdapterStore
) -> None:
    await store.publish("a", adapter(base, 0))
    await store.publish("a", adapter(base, 1))
    publishing = asyncio.create_task(store.publish("a", adapter(base, 2)), name="publish")
    await asyncio.sleep(0)
    with pytest.raises(UnknownAdapter, match="no version '0'"):
        await store.roll_back("a", 0)
    await publishing
    assert store.current()["a"].version == 2


async def test_an_engine_that_cannot_unload_does_not_fail_what_was_served(
    base: BaseModel, store: AdapterStore, host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(version: AdapterVersion) -> None:
        raise EngineError("dead")

    monkeypatch.setattr(host, "unload", refuse)
    await store.publish("a", adapter(base, 0))
    assert (await store.publish("a", adapter(base, 1))).ref.version == 1


async def test_nothing_is_swapped_if_one_side_cannot_be_loaded(
    base: BaseModel, store: AdapterStore, host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    await store.publish("a", adapter(base, 1))
    await store.publish("b", adapter(base, 2))
    load = host.load

    async def only_a(version: AdapterVersion) -> None:
        if version.ref.name == "b":
            raise EngineError("no room")
        await load(version)

    monkeypatch.setattr(host, "load", only_a)
    with pytest.raises(EngineError, match="no room"):
        await store.swap("a", "b")
    assert {name: ref.version for name, ref in store.current().items()} == {"a": 0, "b": 0}
    assert len(host.loaded) == 2


@pytest.mark.parametrize("change", ["publish_all", "swap"])
async def test_names_change_together_also_if_it_is_cancelled_while_an_old_version_is_unloaded(
    base: BaseModel, store: AdapterStore, host: Host, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    for seed, name in enumerate("ab"):
        await store.publish(name, adapter(base, seed))
    unloading, unload = asyncio.Event(), host.unload

    async def never(version: AdapterVersion) -> None:
        unloading.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(host, "unload", never)
    updates = {name: AdapterUpdate(adapter(base, 2)) for name in "ab"}

    async def changed() -> None:
        await (store.publish_all(updates) if change == "publish_all" else store.swap("a", "b"))

    changing = asyncio.create_task(changed(), name="change")
    await unloading.wait()
    assert {name: ref.version for name, ref in store.current().items()} == {"a": 1, "b": 1}
    changing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await changing
    assert {name: ref.version for name, ref in store.current().items()} == {"a": 1, "b": 1}
    assert {version.ref for version in store.loaded()} >= {AdapterRef("a", 1), AdapterRef("b", 1)}
    monkeypatch.setattr(host, "unload", unload)
    await store.publish("b", adapter(base, 3))
    assert [version.ref.version for version in host.loaded.values() if version.ref.name == "b"] == [2]


@pytest.mark.parametrize("name", ["", "a@1", "x/y", "../x", ".x"])
async def test_a_name_that_could_not_be_asked_for_is_refused(base: BaseModel, store: AdapterStore, name: str) -> None:
    with pytest.raises(EngineError, match="no name for an adapter"):
        await store.publish(name, adapter(base, 0))


async def test_who_leases_a_version_while_it_is_unloaded_finds_it_loaded(
    base: BaseModel, store: AdapterStore, host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    await store.publish("a", adapter(base, 0))
    unloading, go_on = asyncio.Event(), asyncio.Event()
    unload = host.unload

    async def slowly(version: AdapterVersion) -> None:
        unloading.set()
        await go_on.wait()
        await unload(version)

    monkeypatch.setattr(host, "unload", slowly)
    publishing = asyncio.create_task(store.publish("a", adapter(base, 1)), name="publish")
    await unloading.wait()

    async def use() -> None:
        async with store.lease("a@0") as version:
            assert version is not None
            assert host.loaded[version.number] is version

    using = asyncio.create_task(use(), name="use")
    await asyncio.sleep(0)
    go_on.set()
    await asyncio.gather(publishing, using)
    assert [version.ref.version for version in host.loaded.values()] == [1]


@pytest.mark.parametrize("fails", [EngineError("no room"), asyncio.CancelledError()])
async def test_what_was_made_for_a_change_that_failed_leaves_nothing_behind(
    base: BaseModel, store: AdapterStore, host: Host, monkeypatch: pytest.MonkeyPatch, fails: BaseException
) -> None:
    await store.publish("a", adapter(base, 1))
    await store.publish("b", adapter(base, 2))
    async with store.lease("a") as version:
        assert version is not None
        assert version.path is not None
        folder = version.path.parent
    kept, load = set(folder.iterdir()), host.load

    async def only_b(version: AdapterVersion) -> None:
        if version.ref.name == "a":
            raise fails
        await load(version)

    monkeypatch.setattr(host, "load", only_b)
    for change in (store.swap("b", "a"), store.publish("a", adapter(base, 3)), store.fork("ab", "a")):
        if change.__name__ == "fork":
            await change
        else:
            with pytest.raises(type(fails)):
                await change
    assert {path.name.rsplit("-", 1)[0] for path in folder.iterdir()} == {"a-0", "b-0", "ab-0"}
    assert kept < set(folder.iterdir())
    assert len(host.loaded) == 3


async def test_a_version_that_is_asked_for_again_before_it_is_unloaded_stays(base: BaseModel, host: Host) -> None:
    version = AdapterVersion(AdapterRef("planner", 0), 1, loud_adapter(base, 1), None)
    held = HeldVersion(version)
    await held.load(host)
    await held.changing.acquire()
    unloading = asyncio.create_task(held.unload(host))
    await asyncio.sleep(0)
    held.leases = 1  # a request came while the unloading waited for its turn
    held.changing.release()
    await unloading
    assert (held.is_loaded, list(host.loaded)) == (True, [1])
    held.leases = 0
    await held.unload(host)
    assert (held.is_loaded, list(host.loaded)) == (False, [])
