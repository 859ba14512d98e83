"""A learner rank: the process that computes a share of every update for another one that trains."""

import asyncio
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec
import safetensors.torch
import torch

from mas.algorithms.parts.losses.tokens import LossOptions, Surrogate
from mas.config.options import LearnerOptions
from mas.core.errors import CheckpointError, ClusterError, WorkerLost
from mas.runs.worker_setup import load_setup
from mas.serving.model import BaseModel
from mas.training.batch import TrainRow
from mas.training.learner import Learner, Reading
from mas.training.optimiser import adamw, restore_kept, set_lr
from mas.training.rank_group import (
    ApplyOrder,
    BlockRounds,
    JoinOrder,
    RankGroup,
    RankSetup,
    ReadOrder,
    ShareOrder,
    ShareReply,
    StateOrder,
    TokenMetrics,
    gathering,
    weights_digest,
)
from mas.training.saved import initial_adapters
from mas.training.setup import TrainSetup
from mas.training.step_metrics import MetricAccumulator
from mas.training.updates.build_update import loss_of

FACTORY = "mas.runs.learner_rank:make"


class LearnerRank:
    """Computes shares of updates. Its methods run one at a time, as none of them is asynchronous."""

    def __init__(self, setup: TrainSetup, base: BaseModel) -> None:
        self._surrogate: Surrogate | None = None if setup.method is None else setup.method.loss
        self._learner = Learner(base, initial_adapters(setup, base), setup.learner, loss_of(setup.algorithm))
        self._group: RankGroup | None = None

    def join(self, payload: bytes) -> bytes:
        """Join a group, and leave the one of before.

        Raises:
            ClusterError: the others did not come.
        """
        self._leave()
        self._group = RankGroup(msgspec.msgpack.decode(payload, type=JoinOrder))
        if (blocks := self._learner.base.blocks) is not None:
            blocks.connect(None)
        return b""

    def _leave(self) -> None:
        if self._group is not None:
            self._group.close()
        self._group = None

    def hold(self, payload: bytes, content: bytes) -> bytes:
        """Become the learner of an order.

        Raises:
            ClusterError: its tensors are of other adapters.
        """
        order, tensors = msgspec.msgpack.decode(payload, type=StateOrder), safetensors.torch.load(content)
        learner = self._learner
        learner.loss = LossOptions.model_validate_json(order.loss)
        learner.options = LearnerOptions.model_validate_json(order.options)
        learner.surrogate = self._surrogate if order.is_own_surrogate else None
        learner.begin(1.0)
        adapters = learner.adapter_tensors()
        learner.optimisers = {name: adamw(own, learner.options, learner.options.lr) for name, own in adapters.items()}
        try:
            restore_kept(adapters, learner.optimisers, _below("adapters/", tensors), "set of adapters")
        except CheckpointError as error:
            raise ClusterError(f"this process has other adapters than the one that trains: {error}") from error
        references = _below("references/", tensors)
        learner.references = {name: one.snapshot() for name, one in learner.adapters.items()} if references else {}
        for name, weights in learner.references.items():
            for at, tensor in enumerate(weights.parameters()):
                tensor.copy_(references[f"{name}/{at}"])
        return b""

    def accumulate(self, payload: bytes, *content: bytes) -> bytes:
        """Compute the gradients of a share, and add them up over the group. An order that is too long for a payload is
        the content.

        Raises:
            ClusterError: this process is in no group.
        """
        with self._leaving_on_error():
            return self._accumulate(payload or content[0])

    @contextmanager
    def _leaving_on_error(self) -> Iterator[None]:
        try:
            yield
        except BaseException:  # whatever it is, the others must not wait for this process
            self._leave()
            raise

    def _joined(self) -> RankGroup:
        if self._group is None:
            raise ClusterError("this process has left the group of learners")
        return self._group

    def _accumulate(self, payload: bytes) -> bytes:
        order, group = msgspec.msgpack.decode(payload, type=ShareOrder), self._joined()
        start = {id(row.turn): own for row, own in zip(order.rows, order.start, strict=True)} if order.start else None
        found: dict[str, MetricAccumulator] = defaultdict(MetricAccumulator)
        weights = weights_digest(self._learner.adapters)
        try:
            with gathering(self._learner.base.blocks, group):
                self._learner.accumulate(order.rows, found, start)
            is_whole = self._learner.add_up({row.adapter for row in order.rows}, order.touched, group.add_up)
        except WorkerLost:
            is_whole = False
        if not is_whole:
            self._leave()
        metrics = {name: _wire(one, order.rows) for name, one in found.items()}
        return msgspec.msgpack.encode(ShareReply(metrics=metrics, is_whole=is_whole, weights=weights))

    def apply(self, payload: bytes) -> bytes:
        """Make the optimiser step."""
        order = msgspec.msgpack.decode(payload, type=ApplyOrder)
        set_lr(self._learner.optimisers, order.lr)
        self._learner.apply(order.touched, defaultdict(MetricAccumulator))
        return b""

    def read(self, payload: bytes, *content: bytes) -> bytes:
        """A number for every token of the completions of an order; see `accumulate`. Nothing: another rank was lost."""
        order = msgspec.msgpack.decode(payload or content[0], type=ReadOrder)
        with self._leaving_on_error():
            try:
                with gathering(self._learner.base.blocks, self._joined()):
                    found = self._learner.read(order.rows, msgspec.convert(order.what, Reading))
            except WorkerLost:
                self._leave()
                return b""
        return msgspec.msgpack.encode([found[id(row.turn)] for row in order.rows])

    def serve(self, payload: bytes) -> bytes:
        """Let the process that trains gather blocks of a sharded base until it needs no more. The payload is empty."""
        blocks = self._learner.base.blocks
        assert blocks is not None
        with self._leaving_on_error():
            try:
                BlockRounds(self._joined(), blocks).finish()
            except WorkerLost:
                self._leave()
        return b""


def _wire(found: MetricAccumulator, rows: list[TrainRow]) -> TokenMetrics:
    places = {id(row.turn): at for at, row in enumerate(rows)}
    values = {name: value.detach().cpu().contiguous() for name, value in found.values().items()}
    return TokenMetrics(
        rows=found.rows, row_of=[places[id(turn)] for turn in found.turns], values=safetensors.torch.save(values)
    )


def _below(prefix: str, tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name.removeprefix(prefix): one for name, one in tensors.items() if name.startswith(prefix)}


async def make(arguments: bytes) -> LearnerRank:
    """A rank of a `RankSetup`, whose `setup` is of `mas.runs.worker_setup.setup_of`.

    Raises:
        ConfigError, ModelError: as in the process that trains, where they came first.
    """
    given = msgspec.msgpack.decode(arguments, type=RankSetup)

    def load() -> LearnerRank:
        setup, base = load_setup(given.setup, is_trained=True, rank=given.rank)
        return LearnerRank(setup.with_start(None), base)

    return await asyncio.to_thread(load)
