"""From recorded turns to one advantage each: the parts of this folder in the order of the options.

reward -> group key -> baseline and scale -> strata, or a tree -> early tools -> step term -> inheritance -> uncertainty
-> whitening
"""

import math
from collections import Counter
from collections.abc import Callable, Container, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Literal

from pydantic import Field

from mas.algorithms.base import Row
from mas.algorithms.parts.advantages.adjustments import (
    EarlyOptions,
    UncertaintyOptions,
    early_bonus,
    modulated_advantages,
)
from mas.algorithms.parts.advantages.entropy_trees import tree_advantages
from mas.algorithms.parts.advantages.group import RunningBaseline, group_advantages, members
from mas.algorithms.parts.advantages.normalisation import (
    StrataOptions,
    component_advantages,
    stratified_advantages,
    whiten,
)
from mas.algorithms.parts.advantages.steps import (
    Anchor,
    AnswerKnowledge,
    StepOptions,
    Wave,
    gain_advantages,
    over_trajectories,
    random_groups,
    returns_to_go,
    with_steps,
)
from mas.algorithms.parts.advantages.tree import TreeOptions
from mas.algorithms.parts.rewards.names import MODEL, OUTCOME, OWN, TEAM
from mas.algorithms.parts.rewards.terms import RewardOptions, term_weights, total_reward
from mas.algorithms.parts.rewards.transforms import Answer, EntityRate, entity_rewards, overlong_penalty
from mas.algorithms.parts.sampling.selection import ToolUse
from mas.core.errors import TrainingError
from mas.core.naming import agent_of
from mas.core.options import NonNegative, Options
from mas.core.records import Episode, Turn

Compare = Callable[[Sequence[Row]], Sequence[float]]
"""From rows to one advantage each."""


class AdvantageOptions(Options):
    """What each turn's reward is compared with. In this order; what is not given is left out.

    `key`: within the `group` that was sampled (tree: one agent's candidates of one prompt and state; parallel: one
    agent's trajectories of one task), one `prompt` of a task and agent, one `role` of an `episode` (agents that did the
    same there), one `role` of the batch in one world (a game), or the whole `batch`.
    A = (R - baseline) / scale. `baseline`: the `mean` of the group, of the others in it (`leave_one_out`), weighted by
    tokens (`length_weighted`), the second best (`best`), `none`, the role's `running` mean, which forgets by `decay`,
    or what a `critic` expected, token by token and in no group. A group of one gets 0 (`zero`) or its reward (`raw`).
    `components`: each named term of the reward is compared by itself, and the weighted sum is the advantage.
    `strata`: compared among trajectories of one structure. `step`: a term for each turn is added.
    `tree`: values of an entropy tree's turns, in place of groups.
    `early`: a bonus for using tools early, after the comparison.
    `inherit`: turns of all other agents have the advantage of this agent's trajectory in their episode.
    `uncertainty`: by entropy. `whiten`: less the mean and by the standard deviation of the adapter's batch, each turn
    once (`turns`) or by its number of tokens (`tokens`).
    `entropy_weight`: at last, token by token, A x (1 + `entropy_weight` x z of the token's entropy in its adapter's
    batch).
    """

    key: Literal["group", "prompt", "episode", "role", "batch"] = "group"
    baseline: Literal["mean", "leave_one_out", "length_weighted", "best", "none", "running", "critic"] = "mean"
    scale: Literal["std", "none", "nonzero"] = "std"
    single: Literal["zero", "raw"] = "zero"
    decay: Annotated[float, Field(ge=0, lt=1)] = 0.95
    components: bool = False
    strata: StrataOptions | None = None
    step: StepOptions | None = None
    tree: TreeOptions | None = None
    early: EarlyOptions | None = None
    inherit: str | None = None
    uncertainty: UncertaintyOptions | None = None
    whiten: Literal["none", "turns", "tokens"] = "none"
    entropy_weight: NonNegative = 0.0

    def unused_reason(self, name: str) -> str | None:
        """Why an option has no effect beside the others; None: it has one."""
        if name == "decay" and self.baseline != "running":
            return "only baseline=running forgets"
        if name == "scale" and self.baseline == "critic":
            return "advantage.baseline=critic compares with no group; critic.whiten scales its advantages"
        if name.startswith("uncertainty.") and self.uncertainty is not None:
            return self.uncertainty.unused_reason(name.removeprefix("uncertainty."))
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What is known beside the turns, in their order; empty: nothing.

    Attributes:
        penalties: what each turn's reward loses.
        entropies: mean over the turn's tokens, in nats; only read by `advantage.uncertainty`.
        step: of training; random groups depend on it.
        adapter_of: role -> adapter; whitening is per adapter.
        episodes: by id; only read by `reward.gain` and `reward.partial`.
        won: ids of episodes that succeeded; only read by `advantage.early`.
    """

    penalties: Sequence[float] = ()
    entropies: Sequence[float] = ()
    step: int = 0
    adapter_of: Mapping[str, str] = field(default_factory=dict)
    episodes: Mapping[str, Episode] = field(default_factory=dict)
    won: Container[str] = frozenset()


def turn_advantages(
    turns: Sequence[Turn],
    rewards: RewardOptions,
    options: AdvantageOptions,
    known: Known | None = None,
    running: RunningBaseline | None = None,
    own: Compare | None = None,
) -> list[float]:
    """One advantage per turn.

    Turns of one trajectory in one group (parallel sampling: all turns of one agent in one episode) hold the same
    reward; it enters the group's statistics once, less the penalties of them all, and its advantage is given to each.

    Args:
        running: the baselines of baseline=running, which are changed here.
        own: compares the rows, in place of baseline and scale; one advantage per row.

    Raises:
        TrainingError: the baseline is a critic, which compares tokens; see `mas.training.updates.ppo`.
    """
    if options.baseline == "critic":
        raise TrainingError("advantage.baseline=critic compares nothing inside groups: its advantages are of tokens")
    known = known or Known()
    table = _Table(turns, rewards, options, known)
    if options.tree is not None:
        advantages = tree_advantages(turns, rewards, options.tree)
    elif rewards.gain is not None:
        advantages = _gained(table)
    elif own is not None:
        advantages = table.spread(own(table.compared()))
    else:
        advantages = table.spread(_compared(table, options, running))
    if options.early is not None:
        advantages = early_tool_advantages(turns, advantages, options.early, known.won)
    if options.step is not None:
        advantages = with_steps(advantages, _step_terms(turns, rewards, options.step, known), options.step.weight)
    if options.inherit is not None:
        advantages = inherit_advantages(turns, advantages, options.inherit)
    if options.uncertainty is not None:
        advantages = modulate_by_entropy(turns, advantages, options.uncertainty, known.entropies)
    if options.whiten != "none":
        buffers = [known.adapter_of.get(turn.role, turn.role) for turn in turns]
        tokens = [len(turn.completion_ids) for turn in turns] if options.whiten == "tokens" else None
        advantages = whiten(advantages, buffers, tokens=tokens)
    return [0.0 if is_long else one for is_long, one in zip(table.spread(table.is_long), advantages, strict=True)]


class _Table:
    """The rows that are compared: trajectories, or single turns where turns of one trajectory may differ."""

    def __init__(self, turns: Sequence[Turn], rewards: RewardOptions, options: AdvantageOptions, known: Known) -> None:
        self.turns = turns
        self.rewards = rewards
        self.is_own = rewards.of == "turn"
        is_single = self.is_own or rewards.discount < 1 or options.key == "prompt"
        names = [turn.id if is_single else turn.trajectory for turn in turns]
        self.row_of = [(turn.group, name) for turn, name in zip(turns, names, strict=True)]
        self.indices = members(self.row_of)
        self.rows = list(self.indices)
        self.first = [turns[indices[0]] for indices in self.indices.values()]
        self.labels = [repr((str(turns[own[0]].group), names[own[0]])) for own in self.indices.values()]
        self.keys = [_key(turn, options.key) for turn in self.first]
        self.lost = [self._lost(indices, known.penalties) for indices in self.indices.values()]
        behind = _turns_left(turns)
        self.shares = [rewards.discount ** behind[indices[0]] for indices in self.indices.values()]
        self.buffers = [known.adapter_of.get(turn.role, turn.role) for turn in self.first]
        self.tokens = [sum(len(turns[i].completion_ids) for i in indices) for indices in self.indices.values()]
        self.episodes = known.episodes
        most = rewards.partial.most if rewards.partial is not None else None
        self.is_long = [most is not None and tokens > most for tokens in self.tokens]

    def _lost(self, indices: Sequence[int], penalties: Sequence[float]) -> float:
        lost = sum(penalties[i] for i in indices) if penalties else 0.0
        if length := self.rewards.length:
            sizes = [len(self.turns[i].completion_ids) for i in indices]
            lost -= sum(overlong_penalty(size, most=length.most, cache=length.margin) for size in sizes)
        return lost

    def values(self) -> list[float]:
        """Every row's reward."""
        paid = [turn.paid if self.is_own else turn.rewards for turn in self.first]
        totals = [total_reward(terms, self.rewards) for terms in paid]
        if self.rewards.partial is not None:
            totals = [0.0 if is_long else total for total, is_long in zip(totals, self.is_long, strict=True)]
            totals = [total + own for total, own in zip(totals, self._partial(self.rewards.partial.alpha), strict=True)]
        return [total * share - lost for total, share, lost in zip(totals, self.shares, self.lost, strict=True)]

    def _partial(self, alpha: float) -> list[float]:
        """What every row earns for what it found, though its answer is wrong."""
        earned = [0.0] * len(self.rows)
        rates = [EntityRate.of(self.episodes[turn.episode]).share or 0.0 for turn in self.first]
        answers = [self._answer(row) for row in range(len(self.rows))]
        for own in members(self.keys).values():
            rewards = entity_rewards([rates[row] for row in own], [answers[row] for row in own], alpha=alpha)
            for row, reward in zip(own, rewards, strict=True):
                earned[row] = reward if answers[row] == "wrong" else 0.0
        return earned

    def _answer(self, row: int) -> Answer:
        if self.is_long[row]:
            return "error"
        if self.episodes[self.first[row].episode].success:
            return "correct"
        is_unread = any(self.turns[i].failure is not None for i in self.indices[self.rows[row]])
        return "error" if is_unread else "wrong"

    def compared(self) -> list[Row]:
        """The rows with what they are worth."""
        return [
            Row(turns=tuple(self.turns[i] for i in indices), reward=reward, group=key)
            for indices, reward, key in zip(self.indices.values(), self.values(), self.keys, strict=True)
        ]

    def spread(self, values: Sequence[float]) -> list[float]:
        """A row's value to each of its turns."""
        by_row = dict(zip(self.rows, values, strict=True))
        return [by_row[row] for row in self.row_of]


def _key(turn: Turn, key: str) -> Hashable:
    if key == "group":
        return turn.group
    if key == "prompt":
        return turn.task, turn.agent, turn.prompt_ids
    if key == "episode":
        return turn.episode, turn.role
    return (f"{turn.world}/{turn.role}" if turn.world else turn.role) if key == "role" else None


def _ranks(turns: Sequence[Turn]) -> list[int]:
    """How many turns of its trajectory were before each turn."""
    ranks = [0] * len(turns)
    for indices in members([(turn.group, turn.trajectory) for turn in turns]).values():
        for number, index in enumerate(sorted(indices, key=lambda i: turns[i].place)):
            ranks[index] = number
    return ranks


def _turns_left(turns: Sequence[Turn]) -> list[int]:
    """How many turns of its trajectory follow each turn."""
    ranks = _ranks(turns)
    most: dict[Hashable, int] = {}
    rows = [(turn.group, turn.trajectory) for turn in turns]
    for row, rank in zip(rows, ranks, strict=True):
        most[row] = max(most.get(row, 0), rank)
    return [most[row] - rank for row, rank in zip(rows, ranks, strict=True)]


def _compared(table: _Table, options: AdvantageOptions, running: RunningBaseline | None) -> list[float]:
    values = table.values()
    if options.baseline == "running":
        running = running or RunningBaseline(options.decay)
        return running.advantages(values, [str(key) for key in table.keys], table.labels)
    if options.strata is not None:
        strata = _strata(table, options.strata.by)
        return stratified_advantages(values, table.keys, strata, alpha=options.strata.blend, scale=options.scale)
    if options.components:
        return _by_component(table)
    assert options.baseline != "critic"
    return group_advantages(
        values,
        table.keys,
        baseline=options.baseline,
        scale=options.scale,
        single=options.single,
        lengths=table.tokens,
    )


def _gained(table: _Table) -> list[float]:
    """Gains and rewards, each compared by itself, summed from every turn's wave to the end of its episode."""
    assert table.rewards.gain is not None
    gain = table.rewards.gain
    knowledge = [AnswerKnowledge.of(table.episodes[turn.episode]).logprobs for turn in table.first]
    if gain.of == "probability":
        knowledge = [tuple(math.exp(logprob) for logprob in own) for own in knowledge]
    rows = gain_advantages(knowledge, table.values(), table.keys, gamma=gain.discount)
    by_row = dict(zip(table.rows, rows, strict=True))
    return [by_row[row][Wave.of(turn).number] for row, turn in zip(table.row_of, table.turns, strict=True)]


def _by_component(table: _Table) -> list[float]:
    """Every named term compared by itself."""
    terms = [turn.paid if table.is_own else turn.rewards for turn in table.first]
    weights = term_weights({name for named in terms for name in named}, table.rewards)
    parts = {name: [named.get(name, 0.0) for named in terms] for name in sorted(weights)}
    return component_advantages(parts, table.keys, weights, buffers=table.buffers)


def _strata(table: _Table, by: str) -> list[int]:
    """What each row's trajectory is like; calls are those of the whole team in its episode."""
    if by == "calls":
        calls = Counter[str]()
        for turn in table.turns:
            calls[turn.episode] += ToolUse.of(turn).calls
        return [calls[turn.episode] for turn in table.first]
    if by == "turns":
        return [len(indices) for indices in table.indices.values()]
    return [sum(table.turns[i].failure is not None for i in indices) for indices in table.indices.values()]


def _step_terms(turns: Sequence[Turn], rewards: RewardOptions, options: StepOptions, known: Known) -> list[float]:
    """Every turn's own term, before its weight."""
    values = [turn.paid.get(MODEL, 0.0) for turn in turns]
    if options.value != "model":
        kinds = (OWN,) if options.value == "own" else (OWN, TEAM, OUTCOME)
        own = [{name: value for name, value in turn.paid.items() if name.startswith(kinds)} for turn in turns]
        values = [total_reward(terms, rewards) for terms in own]
    if options.value == "return":
        trajectories = [(turn.group, turn.trajectory) for turn in turns]
        places = [turn.place for turn in turns]
        values = over_trajectories(values, trajectories, places, lambda own: returns_to_go(own, options.discount))
    if options.key == "none":
        return values
    return group_advantages(
        values, _step_keys(turns, options, known.step), baseline=options.baseline, scale=options.scale
    )


def _step_keys(turns: Sequence[Turn], options: StepOptions, step: int) -> Sequence[Hashable]:
    if options.key == "group":
        return [turn.group for turn in turns]
    if options.key == "state":
        return [(turn.group, Anchor.of(turn).state) for turn in turns]
    if options.key == "index":
        ranks = _ranks(turns)
        return [(turn.group, rank) for turn, rank in zip(turns, ranks, strict=True)]
    return random_groups([turn.id for turn in turns], options.size, step, within=[turn.role for turn in turns])


def early_tool_advantages(
    turns: Sequence[Turn], advantages: Sequence[float], options: EarlyOptions, won: Container[str]
) -> list[float]:
    """A bonus for tools used early, each trajectory compared with those of its group.

    A position counts the tokens that the whole team has said before the turn with its first call, a length those of the
    episode: for a single agent those of its answer.
    """
    lengths: dict[str, int] = {}
    first: dict[str, int] = {}
    for turn in turns:
        if ToolUse.of(turn).calls:
            first.setdefault(turn.episode, lengths.get(turn.episode, 0))
        lengths[turn.episode] = lengths.get(turn.episode, 0) + len(turn.completion_ids)
    rows = list(members([(turn.group, turn.trajectory) for turn in turns]).values())
    own = [turns[indices[0]] for indices in rows]
    shaped = early_bonus(
        [advantages[indices[0]] for indices in rows],
        [first.get(turn.episode) if turn.episode in won else None for turn in own],
        [lengths[turn.episode] for turn in own],
        [turn.group for turn in own],
        delta=options.delta,
        bound=options.bound,
    )
    by_turn = {i: value for indices, value in zip(rows, shaped, strict=True) for i in indices}
    return [by_turn[i] for i in range(len(turns))]


def inherit_advantages(turns: Sequence[Turn], advantages: Sequence[float], agent: str) -> list[float]:
    """All other agents' turns get the advantage of this agent's trajectory in their episode; 0 where it did not speak.

    Source: MATPO, arXiv 2510.04678, section 3.
    """
    pairs = list(zip(turns, advantages, strict=True))
    of_episode = {turn.episode: advantage for turn, advantage in pairs if agent_of(turn.agent) == agent}
    return [
        advantage if agent_of(turn.agent) == agent else of_episode.get(turn.episode, 0.0) for turn, advantage in pairs
    ]


def modulate_by_entropy(
    turns: Sequence[Turn], advantages: Sequence[float], options: UncertaintyOptions, entropies: Sequence[float]
) -> list[float]:
    """By entropy, each role's turns by themselves."""
    result = list(advantages)
    for own in members([turn.role for turn in turns]).values():
        trajectories = members([(turns[i].group, turns[i].trajectory) for i in own]).values()
        steps = [sorted((own[i] for i in indices), key=lambda i: turns[i].place) for indices in trajectories]
        changed = modulated_advantages(
            [[advantages[i] for i in indices] for indices in steps],
            [[entropies[i] for i in indices] for indices in steps],
            sharpness=options.scale,
            future_sharpness=options.clarity_scale,
            future_weight=options.clarity,
        )
        for indices, values in zip(steps, changed, strict=True):
            for i, value in zip(indices, values, strict=True):
                result[i] = value
    return result
