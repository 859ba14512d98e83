"""Every option of mas with its default, once. Hydra presets under `mas/conf` only override these."""

import math
from typing import Annotated, Any, Literal, Self

from pydantic import Field, PrivateAttr, model_validator

from mas.algorithms.parts.options import AlgorithmOptions
from mas.cluster.options import ClusterOptions
from mas.config.servers import PeerOptions, RemoteOptions
from mas.config.tasks import TaskOptions
from mas.core.options import Count, NonNegative, Options, Positive
from mas.core.records import Prompts


class ScenarioOptions(Options):
    """Which scenario, and its own options (checked by the scenario itself)."""

    name: str = "plan_path"
    options: dict[str, Any] = Field(default_factory=dict)


class TinyOptions(Options):
    """The tiny Qwen3-architecture base that mas makes itself.

    Its warm start imitates an expert for `steps` batches of `batch` demonstrations, then a noisy teacher with habits
    for `habit_steps`: it ends up knowing the skills and seldom using them. `spread` is the standard deviation of its
    initial weights; `head_size` None is `hidden` / `heads`.
    """

    hidden: Positive = 64
    intermediate: Positive = 128
    layers: Positive = 2
    heads: Positive = 4
    kv_heads: Positive = 2
    head_size: Annotated[int, Field(ge=2, multiple_of=2)] | None = None
    spread: Annotated[float, Field(gt=0)] = 0.06
    context: Positive = 256
    steps: Count = 400
    habit_steps: Count = 150
    batch: Positive = 64
    lr: Annotated[float, Field(gt=0)] = 3e-3
    seed: Annotated[int, Field(ge=-(2**63), lt=2**64)] = 0

    @model_validator(mode="after")
    def _heads_fit(self) -> Self:
        if self.head_size is None and self.hidden % (2 * self.heads):
            raise ValueError(f"hidden={self.hidden} must be a multiple of twice heads={self.heads}")
        if self.heads % self.kv_heads:
            raise ValueError(f"heads={self.heads} must be a multiple of kv_heads={self.kv_heads}")
        return self


Targets = Annotated[tuple[str, ...], Field(min_length=1)]


class LoraOptions(Options):
    """One adapter: rank, alpha (scale = alpha / rank) and the names of the linear layers that it changes."""

    rank: Positive = 8
    alpha: Annotated[float, Field(gt=0)] = 16.0
    targets: Targets = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


class AdapterOptions(Options):
    """What one adapter has otherwise than `LoraOptions`; None: the same."""

    rank: Positive | None = None
    alpha: Annotated[float, Field(gt=0)] | None = None
    targets: Targets | None = None


TINY = "tiny"
SMOLLM2 = "smollm2"
"""Values of `model.path` that mas makes into a directory of its cache; the second is downloaded."""


class ModelOptions(Options):
    """The one base model of all roles.

    `lora` is what every adapter is like, `adapters` what some are like instead, by the adapter's name.
    `path` is `tiny`, `smollm2`, a directory or a hub id. `prompts`: `compact` templates suit base models, `chat` uses
    the model's chat template, `auto` chats where there is one. `max_batch` sequences decode together at most,
    and no more than are `max_batch_tokens` if each is as long as the longest: the key-value cache holds
    about twice that. `check_memory`: a base that does not fit into what is free is refused before it is loaded.
    """

    path: str = TINY
    tiny: TinyOptions = TinyOptions()
    lora: LoraOptions = LoraOptions()
    adapters: dict[str, AdapterOptions] = Field(default_factory=dict)
    dtype: Literal["float32", "bfloat16"] = "float32"
    device: Literal["auto", "cpu", "cuda"] = "auto"
    prompts: Literal["auto", "compact", "chat"] = "auto"
    max_batch: Positive = 1024
    max_batch_tokens: Positive = 262_144
    max_context: Positive = 4096
    threads: Annotated[Positive, Field(le=1024)] = 1
    check_memory: bool = True

    def lora_of(self, adapter: str) -> LoraOptions:
        """What the adapter of this name is like."""
        own = self.adapters.get(adapter, AdapterOptions()).model_dump(exclude_none=True)
        return self.lora.model_copy(update=own)

    @property
    def targets(self) -> tuple[str, ...]:
        """Every layer that some adapter changes."""
        return tuple(dict.fromkeys(name for lora in self._loras() for name in lora.targets))

    @property
    def highest_rank(self) -> int:
        """Of all adapters."""
        return max(lora.rank for lora in self._loras())

    def _loras(self) -> list[LoraOptions]:
        return [self.lora, *(self.lora_of(name) for name in self.adapters)]


USUAL_PLACES = 8
"""Adapter versions in one batch of vLLM, where neither `engine.adapters` nor a team says more."""


class EngineOptions(Options):
    """Who serves the base and its adapters while a team plays.

    `transformers` is built in. `vllm` needs `mas[vllm]`; `adapters` versions fit into one of its batches (None: as many
    as a team can have in flight, 8 at least), `restarts` times it is started again if it dies, and `vllm` passes
    further options of its engine on (`max_num_seqs`, ...).
    `vllm_server` is a `vllm serve` elsewhere, which trains, too; `openai` plays what any server serves; `tinker` is a
    service with the Tinker API, which samples and trains; all three are described by `remote`.
    `cpu_lora`: on a CPU mas adds the adapters, as vLLM's own code is slower, and wrong for the bare base once all
    `adapters` places are taken.
    """

    name: Literal["transformers", "vllm", "vllm_server", "openai", "tinker"] = "transformers"
    adapters: Positive | None = None
    restarts: Count = 2
    cpu_lora: bool = True
    vllm: dict[str, Any] = Field(default_factory=dict)
    remote: RemoteOptions = RemoteOptions()

    @property
    def places(self) -> int:
        """How many adapter versions fit into one batch of vLLM."""
        return USUAL_PLACES if self.adapters is None else self.adapters

    @model_validator(mode="after")
    def _tokens_are_trained(self) -> Self:
        if self.name == "vllm_server" and self.remote.api != "completions":
            raise ValueError("engine=vllm_server exchanges token ids: remote.api must be completions")
        return self


class LearnerOptions(Options):
    """One AdamW per adapter. `epochs` passes over each batch, in `minibatches` optimiser steps each.

    The learning rate falls on a straight line from `lr` to `final_lr` x `lr` at the end of `train.steps`, or of
    `train.token_budget` where that comes first.

    How a batch goes through the model, which changes time and memory but no result: `micro_batch_tokens` at once,
    packed without padding (`pack`), a prompt of several candidates once (`share_prompts`), a turn that continues an
    earlier one behind it (`join_turns`); logits of `logit_chunk` places at a time (0: all); `recompute_layers` keeps
    only each layer's input and computes the rest again. `fused`: one call updates all tensors of an adapter.
    `clip_norm`: the longest gradient of an adapter; inf: it is not clipped.
    """

    lr: Annotated[float, Field(gt=0)] = 3e-3
    final_lr: Annotated[float, Field(ge=0, le=1)] = 1.0
    beta1: Annotated[float, Field(ge=0, lt=1)] = 0.9
    beta2: Annotated[float, Field(ge=0, lt=1)] = 0.95
    weight_decay: NonNegative = 0.0
    clip_norm: Annotated[float, Field(gt=0, allow_inf_nan=True)] = 1.0
    epochs: Positive = 1
    minibatches: Positive = 1
    micro_batch_tokens: Positive = 16384
    pack: bool = True
    share_prompts: bool = True
    join_turns: bool = True
    logit_chunk: Count = 256
    recompute_layers: bool = False
    fused: bool = True


class TrainOptions(Options):
    """How long, how much at a time, and what is written when.

    `token_budget`: stop once sampling has cost so many tokens; None: only `steps` ends training.
    `budget_prompts`: how it counts prompts, for every sampler in the same way: with each call (`per_call`), equal
    prompts of a step once (`shared`), or not at all (`none`).
    `target`: stop once the greedy evaluation reaches this success; None: never.
    `eval_every`, `checkpoint_every`: in steps, 0 never (the end is always evaluated and saved). `eval_first`: evaluate
    before step 1, too.
    `answer_timeout_s`: how long one agent may take to answer before its episode is given up; None: for ever.
    `staleness`: sampling goes on while the learner works, with adapters that are at most so many updates old; 0: it
    waits.
    `tasks`: which tasks a step plays. `start`: adapters begin as those of another run of the same base and roles,
    DIR or DIR@STEP; None: as ones that change nothing.
    `record_every`: every so many steps all turns of a step are written to `turns/`, with the probability of every token
    and the advantages, for people; 0: none. `record_keep`: of so many steps, the newest.
    `sinks`: where the metrics go beside the run directory: `wandb`, `trackio`, `mlflow`, or a class of your own as
    `path/file.py:NAME` or `package.module:NAME`.
    """

    steps: Count = 100
    tasks_per_step: Positive = 16
    token_budget: Positive | None = None
    budget_prompts: Prompts = "per_call"
    target: Annotated[float, Field(gt=0, le=1)] | None = None
    seed: int = 0
    eval_first: bool = True
    eval_every: Count = 10
    eval_tasks: Positive = 100
    checkpoint_every: Count = 10
    keep_checkpoints: Positive = 2
    sample_every: Count = 10
    record_every: Count = 0
    record_keep: Positive = 10
    canary: bool = True
    answer_timeout_s: Annotated[float, Field(gt=0)] | None = 1800.0
    staleness: Count = 0
    tasks: TaskOptions = TaskOptions()
    start: Annotated[str, Field(min_length=1)] | None = None
    sinks: tuple[str, ...] = ()


class TraceOptions(Options):
    """What training writes to `spans.jsonl` of its directory, and sends to a collector that the environment names.

    Every `every` steps one is traced (0: none), with `episodes` of its episodes at most. The file holds `spans` at
    most, of about 1.5 kB. `content` records prompts and texts, too, which are private to their readers.
    """

    every: Count = 0
    episodes: Positive = 2
    spans: Positive = 20_000
    content: bool = False


class WorkerOptions(ClusterOptions):
    """Processes beside the one that trains, each with a base of its own; see `ClusterOptions`.

    `workers` play the tasks of training steps, each with an engine of its own; 0: the process that trains plays them.
    `engines` are asked by the process that trains in place of an engine of its own; 0: it has one. There are workers or
    engines, not both. `worker_cpus`, `worker_gpus`: what one of them takes of the cluster's.

    `learners` compute gradients, the process that trains is the first of them. `learner_cpus`, `learner_gpus`: what
    each of the others takes. `shard_base`: each of them holds a part of the base (FSDP2), for models that do not fit
    one device; false: each holds all of it.
    """

    workers: Count = 0
    engines: Count = 0
    worker_cpus: NonNegative = 1.0
    worker_gpus: NonNegative = 0.0
    learners: Positive = 1
    learner_cpus: NonNegative = 1.0
    learner_gpus: NonNegative = 0.0
    shard_base: bool = False

    @property
    def is_used(self) -> bool:
        """Whether there are processes beside the one that trains."""
        return self.workers > 0 or self.engines > 0 or self.learners > 1

    @property
    def asked_cpus(self) -> float:
        """What its processes take of the cluster's CPUs together."""
        return (self.workers + self.engines) * self.worker_cpus + (self.learners - 1) * self.learner_cpus

    @property
    def asked_gpus(self) -> float:
        """What its processes take of the cluster's GPUs together."""
        return (self.workers + self.engines) * self.worker_gpus + (self.learners - 1) * self.learner_gpus

    @model_validator(mode="after")
    def _has_processes(self) -> Self:
        fields, has_players = type(self).model_fields, self.workers > 0 or self.engines > 0
        for name in sorted(self.model_fields_set):
            value, kind = getattr(self, name), name.partition("_")[0]
            kind = "learner" if name == "shard_base" else kind
            is_used = {"worker": has_players, "learner": self.learners > 1}.get(kind, self.is_used)
            if value != fields[name].default and not is_used:
                missing, wanted = "workers", "cluster.workers=2 (or cluster.engines=2)"
                if kind == "learner":
                    missing, wanted = "learners", "cluster.learners=2"
                raise ValueError(f"{name}={value} has no effect without {missing}: set {wanted}, or leave it out")
        if self.workers and self.engines:
            raise ValueError(
                f"workers={self.workers} have engines of their own, and engines={self.engines} are of a process that "
                "plays the tasks itself: set one of cluster.workers and cluster.engines"
            )
        return self

    @model_validator(mode="after")
    def _has_room(self) -> Self:
        """Refuse more than the cluster is said to have. A Ray at an address says itself what it has."""
        cpus, gpus = self.cpus, None if self.address is not None else self.gpus or 0
        for name, asked, there in (("cpus", self.asked_cpus, cpus), ("gpus", self.asked_gpus, gpus)):
            if there is None or asked <= there + 1e-9:
                continue
            counts = {"workers": self.workers, "engines": self.engines, "learner ranks": self.learners - 1}
            asking = " and ".join(f"{count} {kind}" for kind, count in counts.items() if count)
            hint = " (a count, not a limit on what they use) or leave it out" if name == "cpus" else ""
            raise ValueError(
                f"{asking} ask for {asked:g} {name.upper()[:-1]}s together, and cluster.{name}={there:g} is less: set "
                f"cluster.{name}={math.ceil(asked)}{hint}, lower cluster.worker_{name} or cluster.learner_{name}, or "
                "take fewer processes"
            )
        return self


class Config(Options):
    """The whole configuration of one run. `peers`: name -> server, for roles that name one as their `peer`.

    `is_stored`: it was read from a run directory, so it may come from another person; copies keep this.
    """

    scenario: ScenarioOptions = ScenarioOptions()
    algorithm: AlgorithmOptions = AlgorithmOptions()
    model: ModelOptions = ModelOptions()
    engine: EngineOptions = EngineOptions()
    peers: dict[str, PeerOptions] = Field(default_factory=dict)
    learner: LearnerOptions = LearnerOptions()
    train: TrainOptions = TrainOptions()
    cluster: WorkerOptions = WorkerOptions()
    trace: TraceOptions = TraceOptions()
    run_dir: Annotated[str, Field(min_length=1)] = "runs/latest"
    _is_stored: bool = PrivateAttr(default=False)

    @property
    def is_stored(self) -> bool:
        """See the class."""
        return self._is_stored

    def as_stored(self) -> Self:
        """A copy with `is_stored`."""
        copy = self.model_copy()
        copy._is_stored = True
        return copy
