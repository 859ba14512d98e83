"""How the ranks of one group gather the blocks of a sharded base from each other.

Ranks need not make the same passes: one may have fewer micro-batches, read a reference, or have nothing to do. So a
gather is agreed on in a round. Every rank says which block it waits for, -1 for none; all gather the block that most
wait for, of several the one that the first rank waits for. A rank that waited for another block takes part and says so
again; one that is done takes part until all are. So no order of passes can block the ranks, and ranks that make the
same passes need one round for a block.

Shape legend: W ranks, B bytes of one rank's part of a block.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor

from mas.core.errors import WorkerLost
from mas.serving.sharded_base import ShardedBlocks
from mas.training.rank_group import RankGroup

_NONE = -1


class BlockRounds:
    """Satisfies `mas.serving.sharded_base.BlockSource`: one rank's part in the rounds of a group.

    Args:
        is_hopeless: see `RankGroup.add_up`.
    """

    def __init__(
        self, group: RankGroup, blocks: ShardedBlocks, is_hopeless: Callable[[], bool] = lambda: False
    ) -> None:
        self._group, self._blocks, self._is_hopeless = group, blocks, is_hopeless

    def fetch(self, block: int, whole: Tensor) -> None:
        """See `BlockSource`.

        Raises:
            WorkerLost: another rank is lost. ClusterError: the group was left.
        """
        while self._round(block, whole) != block:
            pass

    def finish(self) -> None:
        """Take part until no rank waits for a block.

        Raises:
            As `fetch`.
        """
        while self._round(_NONE, None) != _NONE:
            pass

    def _round(self, wanted: int, whole: Tensor | None) -> int:
        """The block that was gathered; -1: no rank waits for any."""
        wanted_W = torch.empty(self._blocks.shard.world, dtype=torch.int64)
        self._gather(torch.tensor([wanted]), wanted_W)
        chosen = most_wanted(wanted_W.tolist())
        if chosen == _NONE:
            return _NONE
        part = self._blocks.part(chosen)
        if whole is None or chosen != wanted:
            whole = torch.empty(len(wanted_W) * len(part), dtype=torch.uint8)
        self._gather(part, whole)
        return chosen

    def _gather(self, part: Tensor, whole: Tensor) -> None:
        if not self._group.gather(part, whole, self._is_hopeless):
            raise WorkerLost("a learner rank was lost while blocks of the base were gathered")


def most_wanted(wanted: Sequence[int]) -> int:
    """The block that most ranks wait for, of several the first rank's; -1: none waits."""
    return max((one for one in wanted if one != _NONE), key=wanted.count, default=_NONE)


@contextmanager
def gathering(
    blocks: ShardedBlocks | None, group: RankGroup, is_hopeless: Callable[[], bool] = lambda: False
) -> Iterator[None]:
    """Within the block of code a sharded base is gathered over the group; its end waits until all ranks are there.

    Args:
        blocks: None: the base is whole, and nothing is waited for.

    Raises:
        As `BlockRounds.fetch`.
    """
    if blocks is None:
        yield
        return
    rounds = BlockRounds(group, blocks, is_hopeless)
    with blocks.gathering(rounds):
        yield
        rounds.finish()
