"""What a cluster needs follows from the estimates of one process, and the formulas of slots from the pipeline."""

from dataclasses import replace

import pytest

from mas.config.load import load_config
from mas.core.errors import ConfigError
from mas.runs.resolve import resolve
from mas.serving.base_measures import Footprint
from mas.training.cluster_estimates import (
    DRIVER,
    PROCESS,
    RANK,
    REPLICA,
    SERVER,
    WORKER,
    AdapterSlots,
    ClusterPlan,
    ProcessNeeds,
    computes_on_gpu,
    plan_cluster,
    rows_in_flight,
    vllm_adapters,
)
from mas.training.estimates import Work, needs_of
from mas.training.setup import Setup

FOOTPRINT = Footprint(parameters=0, weights=1000, adapter=160, cached=3, activation=7, layer_input=1, logits=5)
WORK = Work(calls=2, prompt_tokens=100, new_tokens=4, width=60)
SIZES = ("train.tasks_per_step=2", "train.eval_tasks=3", "algorithm.sampler.candidates=4", "model.device=cpu")


def setup_of(*words: str) -> Setup:
    return resolve(load_config(["scenario=relay", *SIZES, *words]))


def plan(setup: Setup) -> ClusterPlan:
    return plan_cluster(setup, FOOTPRINT, WORK)


def kinds(found: ClusterPlan) -> dict[str, ProcessNeeds]:
    return {one.kind: one for one in found.processes}


@pytest.mark.parametrize(
    ("staleness", "least", "versions", "slots"),
    [(0, 4, 4, 5), (1, 4, 6, 7), (2, 6, 8, 9), (4, 10, 12, 13)],  # of two adapters
)
def test_slots_are_adapters_times_staleness_and_two_and_the_bare_base(
    staleness: int, least: int, versions: int, slots: int
) -> None:
    found = AdapterSlots(2, staleness)
    assert (found.least_versions, found.versions, found.slots) == (least, versions, slots)


def test_one_process_needs_what_it_does_without_a_plan_but_for_the_versions_beside_those_that_serve() -> None:
    setup = setup_of()
    one = needs_of(setup, FOOTPRINT, WORK, is_trained=True)
    (driver,) = plan(setup).processes
    new_versions = 2 * 2 * 160  # the second version of two adapters, published and joined
    assert driver.device == one.all + new_versions
    # Two adapters of 160 bytes: weights and gradients, two moments; published and joined, 2 x 2 versions of each.
    assert (driver.base, driver.adapters, driver.optimiser) == (1000, 4 * 160 + 4 * 2 * 160, 4 * 160)
    assert driver.host == PROCESS + 4 * 160


def test_engine_replicas_take_the_engine_from_the_driver() -> None:
    found = kinds(plan(setup_of("train.staleness=1", "cluster.engines=2")))
    assert {kind: one.count for kind, one in found.items()} == {DRIVER: 1, REPLICA: 2}
    driver, replica = found[DRIVER], found[REPLICA]
    assert (driver.base, driver.adapters, driver.optimiser, driver.cache) == (1000, 4 * 160, 4 * 160, 0)
    assert driver.host == PROCESS + 6 * 160
    # Each of six versions is published and joined. In flight are two batches of 8 rows, on two replicas: 8 rows of 60
    # tokens, twice as long as needed, with two copies of their logits.
    assert (replica.base, replica.adapters, replica.optimiser) == (1000, 6 * 2 * 160, 0)
    assert replica.cache == 8 * (2 * 60 * 3 + 2 * 5)
    assert replica.activations == 0


def test_workers_have_engines_of_their_own_and_the_driver_has_one_for_evaluations() -> None:
    found = kinds(plan(setup_of("train.staleness=1", "cluster.workers=4")))
    assert {kind: one.count for kind, one in found.items()} == {DRIVER: 1, WORKER: 4}
    a_row = 2 * 60 * 3 + 2 * 5
    assert found[DRIVER].cache == 3 * a_row, "three held-out tasks, and no batch"
    assert (found[WORKER].base, found[WORKER].adapters) == (1000, 6 * 2 * 160)
    assert found[WORKER].cache == 4 * a_row, "two batches of eight rows over four workers"


def test_learner_ranks_are_counted_and_hold_their_part_of_a_sharded_base() -> None:
    footprint = replace(FOOTPRINT, blocks=800, widest_block=100)
    for words, wanted in (
        (("cluster.learners=4", "cluster.engines=1"), 1000),
        # 200 of 1000 are outside of blocks, 800 / 4 is a part, and a gathered block is there twice: 200 + 200 + 2 x 100
        (("cluster.learners=4", "cluster.engines=1", "cluster.shard_base=true", "model.device=cuda"), 600),
        (("cluster.learners=4", "cluster.engines=1", "cluster.shard_base=true"), 1000),  # all is loaded there first
    ):
        found = kinds(plan_cluster(setup_of(*words), footprint, WORK))
        driver, rank = found[DRIVER], found[RANK]
        assert (rank.count, rank.base, driver.base) == (3, wanted, wanted)
        assert (rank.adapters, rank.optimiser, rank.activations) == (4 * 160, 4 * 160, driver.activations)
        assert rank.host == PROCESS + (1000 if wanted == 600 else 0)
        assert found[REPLICA].base == 1000


@pytest.mark.parametrize(
    ("words", "engines", "expected"),
    [  # 8 rows a batch, 3 held-out tasks
        ((), 1, 8),
        (("train.staleness=2",), 1, 24),
        (("train.staleness=2",), 5, 5),
        (("train.eval_tasks=50", "train.staleness=1"), 1, 50 + 8),
    ],
)
def test_rows_in_flight_are_those_of_all_batches_or_of_an_evaluation_beside_them(
    words: tuple[str, ...], engines: int, expected: int
) -> None:
    assert rows_in_flight(setup_of(*words), engines, is_evaluating=True, is_sampling=True) == expected


@pytest.mark.parametrize(
    ("words", "places"),
    [
        ((), 8),
        (("train.staleness=1",), 8),
        (("train.staleness=4",), 12),
        (("train.staleness=4", "algorithm.policy=shared"), 8),
        (("train.staleness=4", "engine.adapters=20"), 20),
        (("engine.adapters=2",), 2),
    ],
)
def test_places_for_adapters_follow_from_the_roles_and_the_staleness(words: tuple[str, ...], places: int) -> None:
    """Two roles, each with the versions of k + 1 batches and the one that is joined next."""
    assert setup_of("engine.name=vllm", *words).engine.places == places


def test_vllm_has_places_of_a_possible_rank_in_the_type_of_the_model() -> None:
    words = ("engine.name=vllm", "model.dtype=bfloat16", "model.lora.rank=10")
    setup = setup_of(*words, "engine.adapters=4", "train.staleness=1", "cluster.engines=1")
    found = plan(setup)
    replica = kinds(found)[REPLICA]
    assert vllm_adapters(setup, found.slots) == 6, "4 are too few"
    # Seven places, with that of the bare base; bfloat16 halves 160 bytes; rank 10 takes places of rank 16.
    assert replica.adapters == 7 * 80 * 16 // 10
    assert replica.host == PROCESS + 7 * 80
    assert replica.cache == 16 * 60 * 3, "no longer than in use, and no logits"
    assert vllm_adapters(setup_of("engine.name=vllm", "engine.adapters=30"), found.slots) == 30
    few = setup_of("engine.name=vllm", "engine.vllm.max_num_seqs=5", "cluster.engines=1")
    assert kinds(plan(few))[REPLICA].cache == 5 * 60 * 3
    (alone,) = plan(setup_of("engine.name=vllm")).processes
    assert alone.base == 2 * 1000, "vLLM loads a base beside the learner's"


def test_servers_of_vllm_are_counted_with_their_replicas() -> None:
    more = "engine.remote.replicas=[http://b:1/v1,http://c:1/v1]"
    found = kinds(plan(setup_of("engine.name=vllm_server", "engine.remote.url=http://a:1/v1", more)))
    assert {kind: one.count for kind, one in found.items()} == {DRIVER: 1, SERVER: 3}
    assert (found[DRIVER].base, found[DRIVER].cache) == (1000, 0)


def test_what_fits_is_compared_process_by_process_and_all_together() -> None:
    found = plan(setup_of("cluster.workers=3", "cluster.learners=2"))
    largest = max(one.device + one.host for one in found.processes)
    assert not found.on_gpu
    assert found.too_large(largest) == []
    assert {one.kind for one in found.too_large(largest - 1)} == {DRIVER}
    assert len(found.too_large(PROCESS - 1)) == 3
    assert found.together() == sum(one.count * (one.device + one.host) for one in found.processes)


def test_on_gpus_only_what_lies_there_counts() -> None:
    found = plan(setup_of("model.device=cuda", "cluster.workers=3"))
    assert computes_on_gpu(setup_of("model.device=cuda"))
    assert found.on_gpu
    assert found.too_large(max(one.device for one in found.processes)) == []
    assert found.together() == sum(one.count * one.device for one in found.processes)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ("engine.name=openai",),
            "with engine=openai a server elsewhere has the model: no process of mas is to be planned for",
        ),
        (("engine.name=vllm", "model.lora.rank=600"), "rank 600 is above 512"),
        (("algorithm=training_free",), "trains no adapter of team"),
    ],
)
def test_what_cannot_be_planned_is_refused(words: tuple[str, ...], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        plan(setup_of(*words))
