"""What the processes of a cluster need of memory, and how many adapter versions each engine holds. Nothing is started.

The estimates of one process (`mas.training.estimates`, `Footprint`) are put together per kind of process:

* driver with learner: base, each trained adapter with its gradients and AdamW's moments, the backward pass of a
  micro-batch, and an engine unless `cluster.engines` or servers draw for it; in host memory the published versions,
  from which a process that restarts is filled again.
* learner rank: what learns in the driver, for its share.
* rollout worker: an engine for its part of what is in flight.
* engine replica, or a server of vLLM: an engine for its part of what is in flight and of evaluations.

An engine is a base, the versions that are resident, and a key-value cache. The embedded engine of the driver has the
learner's base; vLLM loads another.

Leaves out on purpose: what the embedded estimates leave out (kernels, CUDA's context, vLLM's graphs and its own
processes), references of a KL term, a critic, adapters of opponents, and the states of environments.
"""

import math
from dataclasses import dataclass, replace
from functools import partial

import torch

from mas.core.errors import ConfigError
from mas.core.host import free_memory
from mas.serving.base_measures import Footprint, free_on
from mas.serving.vllm_options import lora_room
from mas.training.estimates import (
    MOMENTS,
    PLAYED,
    WEIGHTS_AND_GRADIENTS,
    Work,
    agents_at_once,
    embedded_cache,
    learner_bytes,
    rows_at_once,
)
from mas.training.setup import Setup

PROCESS = 430 * 2**20
"""Bytes of a Python process that has imported `mas.training.trainer`: 426 MiB resident with torch for CPUs on Linux."""
_FLOAT_BYTES = 4
"""Of an adapter's number outside of vLLM."""
_VLLM_ROWS = 256
"""Rows that vLLM decodes at once, where `engine.vllm.max_num_seqs` does not say otherwise."""
DRIVER, RANK, WORKER = "driver with learner", "learner rank", "rollout worker"
REPLICA, SERVER = "engine replica", "server of vLLM"


@dataclass(frozen=True, slots=True)
class AdapterSlots:
    """How many adapter versions an engine holds at one time, for A trained adapters and staleness k.

    While version v serves, the batches in flight are v to v + k (`mas.training.simulation`), pinned to the versions
    v - k to v. Batch v is complete before its update is learned, so beside the new version v + 1, which is loaded and
    proven before it serves, only v + 1 - k to v are sampled with: k + 1 versions, and 2 for k = 0, where v serves
    until it is replaced. If a batch holds its version until its update is published, v - k is there, too: k + 2.

    Attributes:
        adapters: A. staleness: k.
    """

    adapters: int
    staleness: int

    @property
    def versions(self) -> int:
        """A x (k + 2): of all adapters, if batches hold their versions until their updates are published."""
        return self.adapters * (self.staleness + 2)

    @property
    def least_versions(self) -> int:
        """A x max(k + 1, 2): if a batch gives its version back once it is complete."""
        return self.adapters * max(self.staleness + 1, 2)

    @property
    def slots(self) -> int:
        """The versions and the bare base, which some kernels of vLLM serve as an adapter of zeros."""
        return self.versions + 1

    @property
    def server_flags(self) -> str:
        """How a `vllm serve` gets room for them."""
        return f"vllm serve --max-loras {self.slots} --max-cpu-loras {self.slots} or more"


def adapter_slots(setup: Setup) -> AdapterSlots:
    """Of an engine of this training."""
    return AdapterSlots(len(set(setup.trained_adapters.values())), setup.train.staleness)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessNeeds:
    """Bytes of one process of a kind, of which there are `count`.

    `base` to `activations` lie where the model computes, `host` in the machine's memory; on CPUs that is one memory.
    """

    kind: str
    count: int
    base: int = 0
    adapters: int = 0
    optimiser: int = 0
    cache: int = 0
    activations: int = 0
    host: int = PROCESS

    @property
    def device(self) -> int:
        """All that lies where the model computes."""
        return self.base + self.adapters + self.optimiser + self.cache + self.activations

    def needed(self, *, on_gpu: bool) -> int:
        """What counts for the memory that is given: a GPU's, or the machine's with all of it."""
        return self.device if on_gpu else self.device + self.host


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterPlan:
    """What a cluster needs. `on_gpu`: each process computes on a GPU of its own, whose memory is what counts."""

    slots: AdapterSlots
    on_gpu: bool
    processes: tuple[ProcessNeeds, ...]

    def too_large(self, memory: int) -> list[ProcessNeeds]:
        """The kinds of which one process alone needs more than so many bytes."""
        return [one for one in self.processes if one.needed(on_gpu=self.on_gpu) > memory]

    def together(self) -> int:
        """Bytes of all processes in one memory."""
        return sum(one.count * one.needed(on_gpu=self.on_gpu) for one in self.processes)


def computes_on_gpu(setup: Setup) -> bool:
    """Whether the plan is for GPUs: `model.device` says so, or says `auto` and one is here."""
    return setup.model.device == "cuda" or (setup.model.device == "auto" and torch.cuda.is_available())


def memory_here(setup: Setup) -> int | None:
    """Bytes that are free here where the plan computes; None: not known, or this machine has no such device."""
    if not computes_on_gpu(setup):
        return free_memory()
    return free_on(setup.model) if torch.cuda.is_available() else None


def plan_cluster(setup: Setup, footprint: Footprint, work: Work) -> ClusterPlan:
    """What a training needs, with the processes that `cluster` and `engine` name and the staleness of `train`.

    Args:
        footprint: of the base, whose `adapter` is of the highest rank of all.
        work: what a task takes at most.

    Raises:
        ConfigError: no adapter is trained, a server elsewhere plays, or vLLM serves no adapters of this rank.
    """
    if setup.is_served_elsewhere:
        raise ConfigError(
            f"with engine={setup.engine.name} a server elsewhere has the model: no process of mas is to be planned for"
        )
    options, slots = setup.cluster, adapter_slots(setup)
    trained = slots.adapters
    if not trained:
        raise ConfigError(f"algorithm={setup.algorithm.name} trains no adapter of team {setup.team.name!r}")
    is_sharded = options.shard_base and computes_on_gpu(setup)  # on a CPU the whole base is loaded there first
    rank = ProcessNeeds(
        kind=RANK,
        count=options.learners - 1,
        base=footprint.sharded_weights(options.learners) if is_sharded else footprint.weights,
        adapters=WEIGHTS_AND_GRADIENTS * trained * footprint.adapter,
        optimiser=MOMENTS * trained * footprint.adapter,
        activations=learner_bytes(setup, footprint, work),
        host=PROCESS + footprint.weights * is_sharded,
    )
    servers = 1 + len(setup.engine.remote.replicas) if setup.engine.name == "vllm_server" else 0
    engine = partial(_engine, setup, footprint, work, slots)
    driver = replace(rank, kind=DRIVER, count=1, host=rank.host + slots.versions * footprint.adapter)
    if not options.engines and not servers:
        own = engine(rows_in_flight(setup, 1, is_evaluating=True, is_sampling=not options.workers))
        has_other = setup.engine.name == "vllm"  # which loads a base of its own
        driver = replace(
            driver,
            base=driver.base + own.base * has_other,
            adapters=driver.adapters + own.adapters,
            cache=own.cache,
            host=driver.host + own.host - PROCESS,
        )
    processes = [driver, rank] if rank.count else [driver]
    for kind, count in ((WORKER, options.workers), (REPLICA, options.engines), (SERVER, servers)):
        if count:
            rows = rows_in_flight(setup, count, is_evaluating=kind != WORKER, is_sampling=True)
            processes.append(replace(engine(rows), kind=kind, count=count))
    return ClusterPlan(slots=slots, on_gpu=computes_on_gpu(setup), processes=tuple(processes))


def rows_in_flight(setup: Setup, engines: int, *, is_evaluating: bool, is_sampling: bool) -> int:
    """Completions that one of so many engines decodes at once at most: its part of all groups of the k + 1 batches in
    flight (`is_sampling`), of an evaluation (`is_evaluating`), or of one beside k batches."""
    rows, evaluated = rows_at_once(setup), setup.train.eval_tasks * agents_at_once(setup.plan)
    now = max(rows * is_sampling, evaluated * is_evaluating)
    return math.ceil((now + rows * is_sampling * setup.train.staleness) / engines)


def vllm_adapters(setup: Setup, slots: AdapterSlots) -> int:
    """`engine.adapters` that vLLM needs at least, or has."""
    return max(slots.versions, setup.engine.places) if setup.engine.name == "vllm" else slots.versions


def _engine(setup: Setup, footprint: Footprint, work: Work, slots: AdapterSlots, rows: int) -> ProcessNeeds:
    """A process with an engine that decodes so many rows at once."""
    if setup.engine.name == "transformers":
        return ProcessNeeds(
            kind=REPLICA,
            count=1,
            base=footprint.weights,
            adapters=PLAYED * slots.versions * footprint.adapter,
            cache=embedded_cache(setup, footprint, work, rows),
        )
    rank = setup.model.highest_rank
    served = footprint.adapter * getattr(torch, setup.model.dtype).itemsize // _FLOAT_BYTES
    rows = min(rows, int(setup.engine.vllm.get("max_num_seqs", _VLLM_ROWS)))
    return ProcessNeeds(
        kind=REPLICA,
        count=1,
        base=footprint.weights,
        adapters=(vllm_adapters(setup, slots) + 1) * served * lora_room(rank) // rank,
        cache=rows * max(work.width, work.widest) * footprint.cached,
        host=PROCESS + slots.slots * served,
    )
