"""The processes that share an update, as a process group of torch, and what its members tell each other.

Gradients are added up by gloo, on every device: those of adapters are small, and a member that is lost ends the others'
wait. Why not by NCCL, and what that costs: docs/scale.md. The group listens at the address of the cluster only.

Ranks gather the blocks of a sharded base from each other. They need not make the same passes: one may have fewer
micro-batches, read a reference, or have nothing to do. So a gather is agreed on in a round. Every rank says which block
it waits for, -1 for none; all gather the block that most wait for, of several the one that the first rank waits for. A
rank that waited for another block takes part and says so again; one that is done takes part until all are. So no order
of passes can block the ranks, and ranks that make the same passes need one round for a block.

Shape legend: W ranks.
"""

import socket
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from itertools import chain
from threading import Thread
from typing import Any

import msgspec
import torch
from torch import Tensor
from torch import distributed as dist
from torch.distributed.distributed_c10d import AllgatherOptions  # type: ignore[attr-defined]  # not declared as exported

from mas.core.errors import ClusterError, WorkerLost
from mas.serving.adapter_weights import AdapterWeights
from mas.serving.sharded_base import ShardedBlocks
from mas.training.batch import TrainRow

_SLOWEST_SHARE = timedelta(hours=6)
"""A member may be so much slower than another one; the process that trains gives up sooner if one is lost."""
_FIRST_POLL_S, _POLL_S = 5e-5, 0.002
"""How long an exchange is waited for at first, and at most, before it is looked at again."""


class RankSetup(msgspec.Struct, frozen=True, kw_only=True):
    """What a rank is made of. `setup`: of any process of the run."""

    rank: int
    setup: bytes


class JoinOrder(msgspec.Struct, frozen=True, kw_only=True):
    """Join a group as the member `rank` of `world`, which meet at `host` and `port` within so many seconds."""

    host: str
    port: int
    rank: int
    world: int
    limit_s: float


class ShareOrder(msgspec.Struct, frozen=True, kw_only=True):
    """Compute the gradients of these rows, and add them up over the group.

    Attributes:
        touched: adapters that have rows in any process.
        start: log-probabilities at the start of the step, of each row; empty: those of now.
    """

    rows: list[TrainRow]
    touched: list[str]
    start: list[list[float]] = []


class TokenMetrics(msgspec.Struct, frozen=True, kw_only=True):
    """What a `MetricAccumulator` was given of one adapter: rows, the row of every token, and the tensors of its values.

    `values`: in the format of safetensors.
    """

    rows: int
    row_of: list[int]
    values: bytes


class ShareReply(msgspec.Struct, frozen=True, kw_only=True):
    """What a rank did.

    Attributes:
        metrics: adapter -> its metrics.
        is_whole: the gradients were added up; else a member of the group was lost.
        weights: `weights_digest` of the adapters that the gradients are of.
    """

    metrics: dict[str, TokenMetrics]
    is_whole: bool
    weights: int


class ApplyOrder(msgspec.Struct, frozen=True, kw_only=True):
    """Make the optimiser step of these adapters with this learning rate."""

    touched: list[str]
    lr: float


class ReadOrder(msgspec.Struct, frozen=True, kw_only=True):
    """Read a number for every token of these rows' completions; `what`: see `mas.training.learner.Reading`."""

    rows: list[TrainRow]
    what: str


class StateOrder(msgspec.Struct, frozen=True, kw_only=True):
    """Become the learner whose tensors come with the order.

    Attributes:
        loss, options: as JSON. is_own_surrogate: the policy loss is the algorithm's own function.
    """

    loss: str
    options: str
    is_own_surrogate: bool


class RankGroup:
    """One member of a group. Making it waits for the others.

    Args:
        listening: where the members meet, of member 0; None in the others.

    Raises:
        ClusterError: the others did not come in time.
    """

    def __init__(self, order: JoinOrder, listening: socket.socket | None = None) -> None:
        limit, is_first = timedelta(seconds=order.limit_s), listening is not None
        more: dict[str, Any] = {} if listening is None else {"master_listen_fd": listening.detach()}
        gloo: Any = dist.ProcessGroupGloo  # its options are not in torch's type stubs
        try:
            self._store: Any = dist.TCPStore(  # type: ignore[attr-defined]  # torch does not declare it as exported
                order.host, order.port, None, is_first, limit, False, **more
            )
            options = gloo._Options()
            options._devices = [gloo.create_device(hostname=_own_address(order.host))]
            options._timeout, options._threads = limit, 1
            self._group: Any = gloo(self._store, order.rank, order.world, options)
        except (OSError, RuntimeError) as error:
            raise ClusterError(
                f"{order.world} learners did not come together within {order.limit_s:g} s: {error}"
            ) from error

    def close(self) -> None:
        """Leave the group. What it still does for others ends with their connections, and is not waited for."""
        left = [self._group, self._store]
        self._group = self._store = None
        Thread(target=left.clear, name="mas-leave-group", daemon=True).start()

    def add_up(self, tensors: Sequence[Tensor], is_hopeless: Callable[[], bool] = lambda: False) -> bool:
        """Replace all tensors by their sums over the members, with one exchange; False: a member was lost.

        Args:
            is_hopeless: asked while it waits; True: others will not come, and nothing is waited for any more.

        Raises:
            ClusterError: the group was left.
        """
        flat = torch.cat([tensor.reshape(-1).to("cpu", torch.float32) for tensor in tensors])
        options = dist.AllreduceOptions()
        options.timeout = _SLOWEST_SHARE
        if not self._complete(lambda group: group.allreduce([flat], options), is_hopeless):
            return False
        for tensor, part in zip(tensors, torch.split(flat, [tensor.numel() for tensor in tensors]), strict=True):
            tensor.copy_(part.view_as(tensor))
        return True

    def gather(self, part: Tensor, whole: Tensor, is_hopeless: Callable[[], bool] = lambda: False) -> bool:
        """Fill `whole` with the parts of all members, in their order; False: a member was lost.

        Args:
            part: of this member, in the host's memory, as long as that of any other. is_hopeless: see `add_up`.

        Raises:
            ClusterError: the group was left.
        """
        options = AllgatherOptions()
        options.timeout = _SLOWEST_SHARE
        return self._complete(lambda group: group._allgather_base(whole, part, options), is_hopeless)

    def _complete(self, start: Callable[[Any], Any], is_hopeless: Callable[[], bool]) -> bool:
        """Wait for the end of what is started; False: a member was lost."""
        if self._group is None:
            raise ClusterError("the group of learners was left")
        pause = _FIRST_POLL_S
        try:
            work = start(self._group)
            while not work.is_completed():
                if is_hopeless():
                    return False
                time.sleep(pause)
                pause = min(2 * pause, _POLL_S)
            work.wait()
        except RuntimeError:
            return False
        return True


def weights_digest(adapters: Mapping[str, AdapterWeights]) -> int:
    """A checksum of all weights, to the bit."""
    found = 0
    for name in sorted(adapters):
        for tensor in adapters[name].parameters():
            found = zlib.crc32(tensor.detach().cpu().contiguous().numpy().data, found)
    return found


def _own_address(host: str) -> str:
    """The address of this machine at which `host` reaches it. Nothing is sent."""
    with socket.socket(_family(host), socket.SOCK_DGRAM) as probe:
        probe.connect((host, 9))
        return str(probe.getsockname()[0])


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET


def listen(host: str) -> socket.socket:
    """A socket at a free port of this address.

    Raises:
        ClusterError: there is none.
    """
    listening = socket.socket(_family(host))
    try:
        listening.bind((host, 0))
        listening.listen()
    except OSError as error:
        with suppress(OSError):
            listening.close()
        raise ClusterError(f"learners cannot meet at {host}: {error}") from error
    return listening


def deal(rows: Sequence[TrainRow], count: int) -> list[list[TrainRow]]:
    """So many shares of the rows, in order, with about as many tokens each; a group is never split.

    A prompt that several rows of a group have counts once.
    """
    groups: dict[tuple[str, object], list[TrainRow]] = {}
    for row in rows:
        groups.setdefault((row.adapter, row.turn.group), []).append(row)
    costs = [_tokens(group) for group in groups.values()]
    shares: list[list[list[TrainRow]]] = [[] for _ in range(count)]
    done, total = 0, sum(costs)
    for group, cost in zip(groups.values(), costs, strict=True):
        shares[min(count - 1, (2 * done + cost) * count // (2 * total))].append(group)
        done += cost
    return [list(chain.from_iterable(share)) for share in shares]


def _tokens(rows: Sequence[TrainRow]) -> int:
    prompts = {row.turn.prompt_ids for row in rows}
    return sum(map(len, prompts)) + sum(len(row.turn.completion_ids) for row in rows)


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
