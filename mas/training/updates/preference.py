"""Imitation and preference: each role imitates its good candidates, and prefers them to their siblings.

Source: MALT, arXiv 2412.01928, section 4: values by the mean of a node's children, positive above 0.5, pairs between
siblings; SFT, then DPO (arXiv 2305.18290), offline. Our reading joins both in one loss, on trees of the policy as it
is in each step.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any

from msgspec.structs import replace as replace_turn
from torch import Tensor

from mas.algorithms.parts.advantages.tree import preference_labels, sibling_pairs
from mas.algorithms.parts.losses.preference import PreferenceLoss, PreferenceOptions, preference_loss
from mas.algorithms.parts.losses.tokens import LossOptions
from mas.algorithms.parts.options import AlgorithmOptions
from mas.algorithms.parts.rewards.names import OUTCOME
from mas.algorithms.parts.rewards.terms import RewardOptions, total_reward
from mas.algorithms.parts.sampling.attempts import repaired
from mas.core.records import Episode, Group, Turn
from mas.training.batch import TrainRow
from mas.training.learner import Learner, Logprobs
from mas.training.stages import rewards_of
from mas.training.step_metrics import MetricAccumulator, Metrics
from mas.training.updates.update import Update, UpdateResult

LIKELIHOOD = LossOptions(surrogate="reinforce", importance_cap=None, entropy=0.0)
"""A token's loss is -A log pi, with A the weight that `preference_loss` gives its completion."""

IMITATION = LIKELIHOOD.model_copy(update={"aggregation": "token_mean"})
"""Cross-entropy, where every completion has the advantage 1."""


@dataclass(frozen=True, slots=True)
class Preferred:
    """What there is to learn from some turns: indices of positives, and pairs (winner, loser) of siblings."""

    positives: tuple[int, ...]
    pairs: tuple[tuple[int, int], ...]


def turn_values(turns: Sequence[Turn], options: PreferenceOptions, rewards: RewardOptions) -> list[float]:
    """What each turn is worth: the share of won episodes below it, or its reward."""
    if options.value == "outcome":
        return [turn.rewards[OUTCOME] for turn in turns]
    return [total_reward(turn.rewards, rewards) for turn in turns]


def preferred(turns: Sequence[Turn], values: Sequence[float], options: PreferenceOptions) -> Preferred:
    """Positives to imitate, if anything imitates, and the pairs of all roles that not only do so."""
    groups = [turn.group for turn in turns]
    labels = preference_labels(values, groups, options.threshold)
    positives = [index for index, label in enumerate(labels) if label and options.sft]
    pairs = sibling_pairs(labels, groups) if options.dpo else []
    return Preferred(tuple(positives), tuple(pair for pair in pairs if turns[pair[0]].role not in options.sft_only))


class Preference(Update):
    """Labels the turns as `algorithm.preference` says, and lets the learner imitate and prefer.

    Every adapter has a loss of its own: means over all positives and all pairs of the roles that use it, in
    each minibatch of `learner.minibatches`, which are made of whole groups.
    """

    def __init__(self, learner: Learner, algorithm: AlgorithmOptions) -> None:
        self.learner = learner
        self.algorithm = algorithm

    def improve(
        self, episodes: Sequence[Episode], adapter_of: Mapping[str, str], *, step: int, lr_scale: float
    ) -> UpdateResult:
        """See `Update`. The advantages are 1 for what is imitated or wins, -1 for what only loses, else 0."""
        options = self.algorithm.preference
        played = [turn for episode in episodes for turn in episode.turns]
        turns = [*played, *(self._repairs(played, adapter_of) if options.repairs else ())]
        values = turn_values(turns, options, rewards_of(self.algorithm, step - 1))
        found = preferred(turns, values, options)
        rows = self._rows(turns, found, adapter_of)
        learned = self._learn(rows, found, lr_scale) if rows else {}
        return UpdateResult(
            rows=list(rows.values()),
            advantages=_signs(len(turns), found)[: len(played)],
            learned=learned,
            metrics={"preference": _counts(turns, values, found)},
        )

    def restore(self, state: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
        """There is none: every step compares only its own turns."""

    def _repairs(self, played: Sequence[Turn], adapter_of: Mapping[str, str]) -> list[Turn]:
        """Repairs as answers of the trained roles that failed. They did not draw them: the log-probabilities of the
        step's start stand in for those of sampling, which imitation does not weigh by."""
        rows = [TrainRow(turn, adapter_of[turn.role], 0.0, 1.0) for turn in repaired(played) if turn.role in adapter_of]
        known = self.learner.logprobs(rows) if rows else {}
        return [replace_turn(row.turn, logprobs=tuple(known[id(row.turn)])) for row in rows]

    def _rows(self, turns: Sequence[Turn], found: Preferred, adapter_of: Mapping[str, str]) -> dict[int, TrainRow]:
        """A row for every turn that is learned from, by its index, adapters one after the other."""
        used = sorted({*found.positives, *(index for pair in found.pairs for index in pair)})
        rows = {n: TrainRow(turns[n], adapter_of[turns[n].role], 0.0, 1.0) for n in used if turns[n].role in adapter_of}
        return dict(sorted(rows.items(), key=lambda item: item[1].adapter))

    def _learn(self, rows: Mapping[int, TrainRow], found: Preferred, lr_scale: float) -> dict[str, Metrics]:
        learner, options = self.learner, self.algorithm.preference
        learner.begin(lr_scale)
        start = learner.logprobs(list(rows.values()))
        is_compared = bool(found.pairs) and options.reference == "base"
        reference = learner.logprobs(list(rows.values()), is_reference=True) if is_compared else start
        tallies: dict[str, MetricAccumulator] = defaultdict(MetricAccumulator)
        told: dict[str, list[Metrics]] = defaultdict(list)
        for _ in range(learner.options.epochs):
            for part in _minibatches(rows, learner.options.minibatches):
                now = learner.logprobs([rows[n] for n in part]) if told else start
                weighted, losses = self._weighted(part, rows, found, now, reference)
                for name, norm in learner.update(weighted, tallies, start).items():
                    told[name].append(_told(losses[name]) | {"gradient_norm": norm})
        return {name: tallies[name].metrics() | _means(told[name]) for name in sorted(tallies)}

    def _weighted(
        self,
        part: Sequence[int],
        rows: Mapping[int, TrainRow],
        found: Preferred,
        now: Logprobs,
        reference: Logprobs,
    ) -> tuple[list[TrainRow], dict[str, PreferenceLoss]]:
        """A minibatch with the weight of every completion, and the loss of every adapter that has some in it."""
        options = self.algorithm.preference
        weighted: list[TrainRow] = []
        losses: dict[str, PreferenceLoss] = {}
        for adapter in dict.fromkeys(rows[n].adapter for n in part):
            own = [n for n in part if rows[n].adapter == adapter]
            at = {n: place for place, n in enumerate(own)}
            losses[adapter] = preference_loss(
                [now[id(rows[n].turn)] for n in own],
                [reference[id(rows[n].turn)] for n in own],
                [at[n] for n in found.positives if n in at],
                [(at[winner], at[loser]) for winner, loser in found.pairs if winner in at],
                sft=options.sft,
                dpo=options.dpo,
                beta=options.beta,
            )
            weights = losses[adapter].weights
            weighted += [replace(rows[n], advantage=weight) for n, weight in zip(own, weights, strict=True)]
        return weighted, losses


def _minibatches(rows: Mapping[int, TrainRow], count: int) -> list[list[int]]:
    """Every n-th group of each adapter, so that no pair is torn; as indices, adapters one after the other."""
    groups: dict[str, dict[Group, int]] = defaultdict(dict)
    parts: list[list[int]] = [[] for _ in range(count)]
    for index, row in rows.items():
        seen = groups[row.adapter]
        parts[seen.setdefault(row.turn.group, len(seen)) % count].append(index)
    return [part for part in parts if part]


def _signs(count: int, found: Preferred) -> list[float]:
    signs = [0.0] * count
    for _, loser in found.pairs:
        signs[loser] = -1.0
    for winner in (*found.positives, *(winner for winner, _ in found.pairs)):
        signs[winner] = 1.0
    return signs


def _counts(turns: Sequence[Turn], values: Sequence[float], found: Preferred) -> dict[str, Metrics]:
    """Per role: mean value, and how much there is to imitate and to prefer."""
    positives = Counter(turns[index].role for index in found.positives)
    pairs = Counter(turns[winner].role for winner, _ in found.pairs)
    own: dict[str, list[float]] = defaultdict(list)
    for turn, value in zip(turns, values, strict=True):
        own[turn.role].append(value)
    return {
        role: {"value": fmean(worth), "positives": float(positives[role]), "pairs": float(pairs[role])}
        for role, worth in own.items()
    }


def _told(loss: PreferenceLoss) -> Metrics:
    """Before the update; nothing is said of positives or pairs that are not there."""
    told = {} if loss.sft is None else {"sft_loss": loss.sft}
    if loss.pairs:
        told["dpo_loss"] = fmean(pair.loss for pair in loss.pairs)
        told["margin"] = fmean(pair.margin for pair in loss.pairs)
        told["accuracy"] = fmean(pair.margin > 0 for pair in loss.pairs)
    return told


def _means(told: Sequence[Metrics]) -> Metrics:
    """Over the minibatches that say something of it."""
    names = dict.fromkeys(name for one in told for name in one)
    return {name: fmean(one[name] for one in told if name in one) for name in names}
