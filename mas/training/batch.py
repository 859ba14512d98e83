"""A step's turns as learner rows, the weights with which their token losses become one number, and micro-batches of
rows without repetition: tokens that several rows have in common stand once.

The weights do not depend on how rows are split into micro-batches.

Rows of one adapter that begin alike share a tree: the K candidates of a group hang from their one prompt, and a turn
whose prompt continues an earlier turn hangs from that turn's completion, so that the turns of one agent are one
transcript. A token sees itself and the tokens before it on its own path, nothing else, so every row computes what it
would compute alone. In depth-first order the tokens that may see token k are k .. end - 1: one number per token is
the whole attention mask.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from mas.algorithms.parts.losses.tokens import Aggregation, LossOptions
from mas.core.errors import TrainingError
from mas.core.records import Group, Turn
from mas.serving.packed_layout import Ids, common, tree_of


@dataclass(frozen=True, slots=True)
class TrainRow:
    """One turn with what its loss needs.

    `advantage` is that of all its tokens, unless `advantages` has one for each of them (empty: it has none). `weight`
    is that of each of its tokens in the adapter's loss. `reference` are the base's log-probabilities of its tokens
    where they are known, else empty. `usual` is the entropy in nats that its tokens used to have, and `smoothing` what
    a nat out of the band around it costs, in units of the entropy's coefficient.

    Raises:
        TrainingError: the turn has no token.
    """

    turn: Turn
    adapter: str
    advantage: float
    weight: float
    reference: Sequence[float] = ()
    advantages: Sequence[float] = ()
    usual: float = 0.0
    smoothing: float = 0.0

    def __post_init__(self) -> None:
        if not self.turn.completion_ids:
            raise TrainingError(
                f"turn {self.turn.id!r} of role {self.turn.role!r} has no token to learn from: an engine must return "
                "at least the token that ends an output"
            )


def group_of(row: TrainRow) -> Group:
    """Rows that are compared with each other have this in common; a trajectory lies in one group."""
    return row.turn.group


def trajectory_of(row: TrainRow) -> tuple[str, Group, str]:
    """Rows of one trajectory have this in common."""
    return row.adapter, row.turn.group, row.turn.trajectory


def train_rows(
    turns: Sequence[Turn],
    advantages: Sequence[float],
    adapter_of: Mapping[str, str],
    *,
    aggregation: Aggregation,
    max_length: int,
) -> list[TrainRow]:
    """Rows of all turns whose role has a trainable adapter (`adapter_of`: role -> adapter), in order."""
    pairs = zip(turns, advantages, strict=True)
    rows = [TrainRow(turn, adapter_of[turn.role], value, 0.0) for turn, value in pairs if turn.role in adapter_of]
    return weighted(rows, aggregation=aggregation, max_length=max_length)


def weighted(rows: Sequence[TrainRow], *, aggregation: Aggregation, max_length: int) -> list[TrainRow]:
    """The rows as one batch per adapter: weights as `token_weights` gives them, adapters one after the other."""
    batch: list[TrainRow] = []
    for adapter in dict.fromkeys(row.adapter for row in rows):
        own = [row for row in rows if row.adapter == adapter]
        weights = token_weights(
            [len(row.turn.completion_ids) for row in own],
            aggregation,
            max_length,
            [trajectory_of(row) for row in own],
            [row.turn.episode for row in own],
        )
        batch += [replace(row, weight=weight) for row, weight in zip(own, weights, strict=True)]
    return batch


def split_minibatches(rows: Sequence[TrainRow], count: int, loss: LossOptions) -> list[list[TrainRow]]:
    """Every n-th group of each adapter, weighted as a batch of its own; where there are not n groups, every n-th row
    (ratio=sequence: trajectory). `count`: n."""
    if count == 1:
        return [list(rows)]
    groups: dict[str, set[Group]] = defaultdict(set)
    for row in rows:
        groups[row.adapter].add(group_of(row))
    seen: dict[str, dict[object, int]] = defaultdict(dict)
    parts: list[list[TrainRow]] = [[] for _ in range(count)]
    for row in rows:
        units = seen[row.adapter]
        unit: object = trajectory_of(row) if loss.ratio == "sequence" else len(units)
        if len(groups[row.adapter]) >= count:
            unit = group_of(row)
        parts[units.setdefault(unit, len(units)) % count].append(row)
    return [weighted(part, aggregation=loss.aggregation, max_length=loss.max_length) for part in parts if part]


def token_weights(
    lengths: Sequence[int],
    aggregation: Aggregation,
    max_length: int,
    trajectories: Sequence[Hashable] = (),
    episodes: Sequence[Hashable] = (),
) -> list[float]:
    """The weight of every token of each row, such that the batch's loss is the weighted sum of all token losses.

    token_mean: 1 / all tokens; seq_mean_token_mean: 1 / (N |y|); seq_mean_token_sum: 1 / N;
    seq_mean_token_sum_norm: 1 / (N max_length) (Dr.GRPO, arXiv 2503.20783, section 3);
    trajectory_mean: 1 / (trajectories x rows of its own x |y|): trajectories weigh equally, then their turns, then
    tokens (Flow-GRPO, arXiv 2510.05592, equation 5); episode_mean: 1 / (episodes |y|): every row weighs as much as an
    episode's first, however many there are (MATPO, arXiv 2510.04678: rows / main rollouts x the mean over rows).

    Args:
        lengths: trained tokens of each of the N rows, at least 1 each.
        trajectories, episodes: of each row; only read by the aggregation of that name.
    """
    rows = len(lengths)
    match aggregation:
        case "token_mean":
            return [1 / sum(lengths)] * rows
        case "seq_mean_token_mean":
            return [1 / (rows * length) for length in lengths]
        case "seq_mean_token_sum":
            return [1 / rows] * rows
        case "seq_mean_token_sum_norm":
            return [1 / (rows * max_length)] * rows
        case "trajectory_mean":
            own = Counter(trajectories)
            pairs = zip(trajectories, lengths, strict=True)
            return [1 / (len(own) * own[trajectory] * length) for trajectory, length in pairs]
        case "episode_mean":
            count = len(set(episodes))
            return [1 / (count * length) for _, length in zip(episodes, lengths, strict=True)]


@dataclass(frozen=True, slots=True)
class Tree:
    """Rows of one adapter that begin alike, token by token in depth-first order.

    Attributes:
        ids, positions: of each token; a position counts from the beginning of the row.
        ends: for each token one past the last token that may see it.
        reads: for each of `rows` the places (indices of tokens) that predict its completion's tokens, in order.
    """

    adapter: str
    ids: Ids
    positions: Ids
    ends: Ids
    rows: tuple[TrainRow, ...]
    reads: tuple[Ids, ...]

    @property
    def pairs(self) -> int:
        """How often one token sees another or itself."""
        return sum(position + 1 for position in self.positions)


@dataclass(frozen=True, slots=True)
class Sharing:
    """What stands once: the prompt of several rows (`prompts`), the turn that a later turn continues (`turns`)."""

    prompts: bool = True
    turns: bool = True


def fed(row: TrainRow) -> Ids:
    """What a row feeds: all its tokens but the last, which predicts nothing."""
    return row.turn.prompt_ids + row.turn.completion_ids[:-1]


def build_tree(rows: Sequence[TrainRow]) -> Tree:
    """One tree of rows of one adapter; rows that share nothing hang from no common root."""
    rows = sorted(rows, key=fed)
    tree = tree_of([fed(row) for row in rows])
    reads = (path[len(row.turn.prompt_ids) - 1 :] for row, path in zip(rows, tree.paths, strict=True))
    return Tree(rows[0].adapter, tree.ids, tree.positions, tree.ends, tuple(rows), tuple(reads))


def build_trees(
    rows: Iterable[TrainRow], sharing: Sharing, budget: int, apart: Callable[[TrainRow], Hashable] | None = None
) -> list[Tree]:
    """All rows as trees of at most `budget` tokens (one row at least).

    Args:
        apart: rows of different keys share no tree, and come in the order of the keys' texts; None: all rows of an
            adapter may.
    """
    by_adapter: dict[tuple[str, Hashable], list[TrainRow]] = defaultdict(list)
    for row in rows:
        by_adapter[row.adapter, apart(row) if apart else ""].append(row)
    return [
        build_tree(part)
        for key in sorted(by_adapter, key=lambda key: (key[0], str(key[1])))
        for family in _families(by_adapter[key], sharing)
        for part in _parts(family, budget)
    ]


def _families(rows: Sequence[TrainRow], sharing: Sharing) -> list[list[TrainRow]]:
    """Rows that may share a tree."""
    if sharing.prompts and sharing.turns:
        return [list(rows)]
    if sharing.prompts:
        by_prompt: dict[Ids, list[TrainRow]] = defaultdict(list)
        for row in rows:
            by_prompt[row.turn.prompt_ids].append(row)
        return list(by_prompt.values())
    return _transcripts(rows) if sharing.turns else [[row] for row in rows]


def _transcripts(rows: Sequence[TrainRow]) -> list[list[TrainRow]]:
    """Each row behind one whose prompt and completion its own prompt continues, if nothing yet follows there."""
    chains: list[list[TrainRow]] = []
    # Turns that the next ones may continue, each the beginning of the one after it.
    begun: list[tuple[Ids, list[TrainRow]]] = []
    for row in sorted(rows, key=_whole):
        whole, prompt = _whole(row), row.turn.prompt_ids
        while begun and whole[: len(begun[-1][0])] != begun[-1][0]:
            begun.pop()
        chain = next(
            (chain for turn, chain in reversed(begun) if len(turn) <= len(prompt) and _whole(chain[-1]) == turn), None
        )
        if chain is None:
            chain = []
            chains.append(chain)
        chain.append(row)
        begun.append((whole, chain))
    return chains


def _whole(row: TrainRow) -> Ids:
    return row.turn.prompt_ids + row.turn.completion_ids


def _parts(rows: Sequence[TrainRow], budget: int) -> Iterator[list[TrainRow]]:
    """The rows in trees that stay within `budget`; cut where least is shared: rows of one prompt stay together."""
    rows = sorted(rows, key=fed)
    part: list[TrainRow] = []
    size = 0
    for unit in _units(rows):
        shared = common(fed(part[-1]), fed(unit[0])) if part else 0
        if part and (shared == 0 or size - shared + _tokens(unit) > budget):
            yield part
            part, size = [], 0
        for row in unit:
            new = len(fed(row)) - (common(fed(part[-1]), fed(row)) if part else 0)
            if part and size + new > budget:
                yield part
                part, size, new = [], 0, len(fed(row))
            part.append(row)
            size += new
    if part:
        yield part


def _units(rows: Sequence[TrainRow]) -> Iterator[list[TrainRow]]:
    """Neighbours that hold the whole prompt of the first of them."""
    unit: list[TrainRow] = []
    for row in rows:
        if unit and fed(row)[: len(unit[0].turn.prompt_ids)] != unit[0].turn.prompt_ids:
            yield unit
            unit = []
        unit.append(row)
    if unit:
        yield unit


def _tokens(rows: Sequence[TrainRow]) -> int:
    """Of the tree of these rows."""
    lines = [fed(row) for row in rows]
    return len(lines[0]) + sum(len(after) - common(before, after) for before, after in pairwise(lines))


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """Trees that go through the model together, sorted by adapter.

    `width`: tokens in a row of the model's input where every tree has a row of its own, padded at its right; None:
    all trees stand in one row, without padding.
    """

    trees: tuple[Tree, ...]
    width: int | None = None

    @property
    def rows(self) -> tuple[TrainRow, ...]:
        return tuple(row for tree in self.trees for row in tree.rows)

    @property
    def tokens(self) -> int:
        """That the model is fed, padding included."""
        return sum(self.width or len(tree.ids) for tree in self.trees)

    @property
    def starts(self) -> list[int]:
        """Where each tree begins in the flat sequence of all tokens."""
        starts = [0]
        for tree in self.trees[:-1]:
            starts.append(starts[-1] + (self.width or len(tree.ids)))
        return starts


@dataclass(frozen=True, slots=True)
class PackCost:
    """What a token and a pair of tokens that see each other cost, in any one unit."""

    token: float
    pair: float

    def of(self, tree: Tree) -> float:
        return self.token * len(tree.ids) + self.pair * tree.pairs


def packed(
    trees: Sequence[Tree], budget: int, cost: PackCost, together: Callable[[TrainRow], Hashable] | None = None
) -> list[MicroBatch]:
    """As few micro-batches of at most `budget` tokens (one bundle at least) as seem needed, of like cost.

    Args:
        together: trees with rows of equal keys go into one micro-batch; None: each tree may go anywhere.
    """
    bundles = [_Bin.of(bundle, cost) for bundle in _bundles(trees, together)]
    bins = [_Bin([], 0, 0.0) for _ in range(-(-sum(bundle.tokens for bundle in bundles) // budget))]
    for bundle in sorted(bundles, key=lambda bundle: bundle.cost, reverse=True):
        room = [held for held in bins if not held.tokens or held.tokens + bundle.tokens <= budget]
        if not room:
            room = [_Bin([], 0, 0.0)]
            bins += room
        min(room, key=lambda held: held.cost).add(bundle)
    return [MicroBatch(_by_adapter(held.trees)) for held in bins if held.trees]


@dataclass(slots=True)
class _Bin:
    trees: list[Tree]
    tokens: int
    cost: float

    @classmethod
    def of(cls, trees: list[Tree], cost: PackCost) -> "_Bin":
        return cls(trees, sum(len(tree.ids) for tree in trees), sum(cost.of(tree) for tree in trees))

    def add(self, other: "_Bin") -> None:
        self.trees += other.trees
        self.tokens += other.tokens
        self.cost += other.cost


def padded(
    trees: Sequence[Tree], budget: int, together: Callable[[TrainRow], Hashable] | None = None
) -> list[MicroBatch]:
    """Trees of like length side by side, each padded to the longest; the arguments are those of `packed`."""
    batches: list[MicroBatch] = []
    held: list[Tree] = []
    for bundle in sorted(_bundles(trees, together), key=lambda bundle: max(len(tree.ids) for tree in bundle)):
        width = max(len(tree.ids) for tree in [*held, *bundle])
        if held and (len(held) + len(bundle)) * width > budget:
            batches.append(_padded(held))
            held = []
        held += bundle
    return [*batches, _padded(held)] if held else batches


def _padded(trees: Sequence[Tree]) -> MicroBatch:
    return MicroBatch(_by_adapter(trees), max(len(tree.ids) for tree in trees))


def _by_adapter(trees: Iterable[Tree]) -> tuple[Tree, ...]:
    return tuple(sorted(trees, key=lambda tree: tree.adapter))


def _bundles(trees: Sequence[Tree], together: Callable[[TrainRow], Hashable] | None) -> list[list[Tree]]:
    """Trees that must stay together, by the keys of their rows."""
    if together is None:
        return [[tree] for tree in trees]
    bundle_of: dict[Hashable, list[Tree]] = {}
    bundles: dict[int, list[Tree]] = {}
    for tree in trees:
        keys = {together(row) for row in tree.rows}
        met = {id(bundle_of[key]): bundle_of[key] for key in keys if key in bundle_of}
        merged = [*(old for bundle in met.values() for old in bundle), tree]
        for number in met:
            del bundles[number]
        bundles[id(merged)] = merged
        bundle_of |= {together(row): merged for old in merged for row in old.rows}
    return list(bundles.values())
