"""The blocks of a frozen base, sharded over the ranks that learn together: FSDP2 (`torch.distributed.fsdp`).

Every rank holds 1/W of each weight matrix of each transformer block. A block's matrices are gathered before its forward
pass and again before its backward pass, and freed after each. Norms and biases of blocks, the embedding and the head
are whole on every rank. Nothing is reduced, as the base is frozen.

FSDP2 is told how many ranks there are, and gathers blocks through a `BlockSource` in place of a process group. So a
new group can be formed after every loss, and no default process group is made. Until there is a source, blocks are
gathered from a whole copy in the host's memory, which the process keeps from loading them; `connect` drops it.

Leaves out on purpose: gathering the next block while one computes, and gathers that do not pass through the host's
memory.

Shape legend: W ranks, B bytes of one rank's part of a block.
Source: PyTorch FSDP, arXiv 2304.11277, section 3; `fully_shard` shards each parameter along its first dimension.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol, cast

import torch
from torch import Tensor, nn
from torch import distributed as dist
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import DTensor
from transformers import PreTrainedModel
from transformers.modeling_layers import GradientCheckpointingLayer

from mas.core.errors import ModelError


@dataclass(frozen=True, slots=True)
class Shard:
    """Which part of every block a process holds: that of `rank`, from 0, of `world` ranks."""

    rank: int
    world: int


class BlockSource(Protocol):
    """The parts of a block that other ranks hold."""

    def fetch(self, block: int, whole: Tensor) -> None:
        """Fill `whole`, uint8 [W B] in the host's memory, with the parts of all ranks, in their order."""


class ShardedBlocks:
    """Shards a model's blocks when it is made. The model, whose layers must be wrapped already, computes as before.

    Args:
        model: in the host's memory, frozen; afterwards it is on `device`, which never holds more than the parts and one
            whole block.

    Attributes:
        shard: what this process holds.

    Raises:
        ModelError: transformers does not say what the model's blocks are, FSDP2 lays them out otherwise, or this torch
            cannot reset it after a loss.
    """

    def __init__(self, model: PreTrainedModel, shard: Shard, device: torch.device) -> None:
        if not hasattr(FSDPModule, "reset_iter_state"):
            raise ModelError(
                f"torch {torch.__version__} is too old for cluster.shard_base: install torch 2.13 or later"
            )
        self.shard = shard
        self._source: BlockSource | None = None
        self._blocks: list[Any] = []
        self._parts: list[list[tuple[Tensor, int]]] = []
        found = [(block, _matrices(block)) for block in blocks_of(model)]
        if not found:
            kind = type(model).__name__
            raise ModelError(f"{kind} has no blocks that could be sharded: leave out cluster.shard_base")
        self._host: list[list[Tensor]] | None = [[one.detach() for one in matrices] for _, matrices in found]
        mesh = _RankMesh(device.type, shard)
        for number, (block, matrices) in enumerate(found):
            block.to(device)
            whole = set(block.parameters()) - set(matrices)
            fully_shard(block, mesh=mesh, reshard_after_forward=True, ignored_params=whole)
            fsdp: Any = cast(FSDPModule, block)
            fsdp.set_custom_all_gather(_Gather(self, number))
            self._blocks.append(fsdp)
            parts = [cast(DTensor, one).to_local() for one in _matrices(block)]
            self._parts.append([(own, _rows(one, shard.world)) for own, one in zip(parts, matrices, strict=True)])
        for fsdp in self._blocks:  # outside of inference mode, whose tensors training could not use
            fsdp.unshard()
            fsdp.reshard()

    def connect(self, source: BlockSource | None) -> None:
        """Gather blocks from other ranks from now on, and hold no more than this rank's parts.

        Args:
            source: None: blocks can be gathered within `gathering` only.
        """
        self._source, self._host = source, None

    @contextmanager
    def gathering(self, source: BlockSource) -> Iterator[None]:
        """Within the block of code, gather from this source. If it raises, the model's blocks are free again."""
        before, self._source = self._source, source
        try:
            yield
        except BaseException:  # also if interrupted: a pass may have ended anywhere
            for block in self._blocks:
                block.reset_iter_state()
            raise
        finally:
            self._source = before

    def part(self, block: int) -> Tensor:
        """This rank's part of a block in the host's memory, uint8 [B]."""
        return _joined(_padded(own, rows) for own, rows in self._parts[block])

    @property
    def resident_bytes(self) -> int:
        """Of the blocks' matrices that this process holds while none is gathered."""
        held = [own for parts in self._parts for own, _ in parts]
        held += [one for matrices in self._host or [] for one in matrices]
        return sum(one.untyped_storage().nbytes() for one in held)

    def fill(self, block: int, whole: Tensor, part: Tensor) -> None:
        """Gather a block into `whole`, uint8 [W B] on the device, of which `part` is this rank's.

        Raises:
            ModelError: there is neither a source nor a copy on the host.
        """
        staged = whole if whole.device.type == "cpu" else torch.empty(whole.shape, dtype=torch.uint8)
        if self._source is not None:
            self._source.fetch(block, staged)
        elif self._host is not None:
            self._copy_from_host(block, staged, part)
        else:
            raise ModelError(
                "the base is sharded, and the ranks that hold its other parts do not work with this process now"
            )
        if staged is not whole:
            whole.copy_(staged)

    def _copy_from_host(self, block: int, whole: Tensor, part: Tensor) -> None:
        assert self._host is not None
        own = part.to("cpu", copy=True)
        world, size = self.shard.world, len(own)
        for rank in range(world):
            rows = [(one, _rows(one, world)) for one in self._host[block]]
            parts = (_padded(one[rank * most : (rank + 1) * most], most) for one, most in rows)
            whole[rank * size : (rank + 1) * size] = _joined(parts)
        if not torch.equal(whole[self.shard.rank * size : (self.shard.rank + 1) * size], own):
            raise ModelError(
                f"FSDP2 of torch {torch.__version__} lays a block's weights out in another order than mas: leave out "
                "cluster.shard_base"
            )


class _RankMesh(DeviceMesh):
    """Says how many ranks there are and which one this is, and connects to none."""

    def __init__(self, device: str, shard: Shard) -> None:
        super().__init__(device, torch.arange(shard.world), _init_backend=False, _rank=shard.rank)
        self._ranks = dist.ProcessGroup(shard.rank, shard.world)  # type: ignore[call-arg]  # the stub lacks it

    def get_group(self, mesh_dim: int | str | None = None) -> dist.ProcessGroup:
        return self._ranks


class _Gather:
    """How FSDP2 gathers one block: satisfies its `AllGather`."""

    def __init__(self, blocks: ShardedBlocks, block: int) -> None:
        self._blocks, self._block = blocks, block

    def allocate(self, size: Sequence[int], *, dtype: torch.dtype, device: torch.device) -> Tensor:
        return torch.empty(*size, dtype=dtype, device=device)

    def __call__(
        self, output_tensor: Tensor, input_tensor: Tensor, group: dist.ProcessGroup, async_op: bool = False
    ) -> None:
        self._blocks.fill(self._block, output_tensor.view(torch.uint8), input_tensor.view(torch.uint8))


def blocks_of(model: PreTrainedModel) -> list[nn.Module]:
    """The transformer blocks, in the order of the model; none if transformers does not say which they are."""
    found = [one for one in model.modules() if isinstance(one, GradientCheckpointingLayer)]
    inner = {id(part) for one in found for part in one.modules() if part is not one}
    return [one for one in found if id(one) not in inner]


def block_matrices(model: PreTrainedModel) -> list[list[nn.Parameter]]:
    """What is sharded of each block: the parameters of two and more dimensions."""
    return [_matrices(block) for block in blocks_of(model)]


def place_outside_blocks(model: PreTrainedModel, device: torch.device) -> None:
    """Move all to the device but what is sharded."""
    sharded = {id(one) for matrices in block_matrices(model) for one in matrices}
    for tensor in (*model.parameters(), *model.buffers()):
        if id(tensor) not in sharded:
            tensor.data = tensor.data.to(device)


def _matrices(module: nn.Module) -> list[nn.Parameter]:
    """Of two and more dimensions, in the order in which FSDP2 lays them out: a module's behind those of its parts."""
    inner = [one for child in module.children() for one in _matrices(child)]
    own = [one for one in module.parameters(recurse=False) if one.ndim > 1]
    return list(dict.fromkeys([*inner, *own]))


def _rows(matrix: Tensor, world: int) -> int:
    """Along the first dimension, of one rank's part; the last parts may have fewer, or none."""
    return -(-matrix.shape[0] // world)


def _padded(part: Tensor, rows: int) -> Tensor:
    """With zeros for the rows that are missing, uint8 and flat, in the host's memory."""
    flat = part.new_zeros(rows * part.shape[1:].numel(), device="cpu")
    flat[: part.numel()] = part.reshape(-1)
    return flat.view(torch.uint8)


def _joined(parts: Iterator[Tensor]) -> Tensor:
    return torch.cat([*parts])
