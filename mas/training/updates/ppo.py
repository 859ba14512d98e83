"""PPO with a critic: every token gets an advantage, from what was paid after it and what was expected before it."""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import fmean
from typing import Any

from torch import Tensor

from mas.algorithms.parts.advantages.gae import Estimate, estimate, explained_variance, token_rewards, whitened
from mas.algorithms.parts.losses.policy import kl_penalties
from mas.algorithms.parts.options import AlgorithmOptions
from mas.algorithms.parts.rewards.terms import RewardOptions, total_reward
from mas.core.records import Episode, Group, Turn
from mas.training.batch import TrainRow, train_rows, trajectory_of
from mas.training.critic import Critic, Values
from mas.training.learner import Learner
from mas.training.stages import rewards_of
from mas.training.updates.update import Update, UpdateResult

ByTurn = dict[int, list[float]]
"""Numbers of a turn's tokens, by the identity of the turn."""


class Ppo(Update):
    """Advantages as `algorithm.critic` says, followed by the learner as `algorithm.loss` says; then the critic learns.

    A trajectory is all that an agent said in an episode, paid turn by turn and R altogether; in tree sampling every
    candidate is one of its own. With loss.kl_in=reward each token also pays its own share of the KL.
    Source: PPO, arXiv 1707.06347; of language models: 1909.08593; one per agent of a team: CORY, 2410.06101; over
    turns: 2512.17008; with action decomposition: POAD, 2405.15821.

    Args:
        seed: of the critics' new adapters.
    """

    def __init__(self, learner: Learner, algorithm: AlgorithmOptions, seed: int) -> None:
        self.learner = learner
        self.algorithm = algorithm
        self.critic = Critic(learner, algorithm.critic, seed)

    def improve(
        self, episodes: Sequence[Episode], adapter_of: Mapping[str, str], *, step: int, lr_scale: float
    ) -> UpdateResult:
        """See `Update`. Turns of frozen roles have no critic: their advantage is 0."""
        turns = [turn for episode in episodes for turn in episode.turns]
        loss = self.algorithm.loss
        rows = train_rows(
            turns, [0.0] * len(turns), adapter_of, aggregation=loss.aggregation, max_length=loss.max_length
        )
        rows, penalties = self._penalties(rows)
        values = self.critic.values(rows)
        paid_by = rewards_of(self.algorithm, step - 1)
        advantages, targets, returns = self._estimates(rows, values, penalties, paid_by)
        rows = self._with_advantages(rows, advantages)
        told = _told(rows, values, returns)
        learned = self.learner.step(rows, lr_scale=lr_scale)
        taught = self.critic.step(rows, targets, values, lr_scale=lr_scale)
        return UpdateResult(
            rows=rows,
            advantages=_of_turns(turns, rows),
            learned={name: {**learned[name], **taught[name], **told[name]} for name in learned},
            metrics={},
        )

    def tensors(self) -> Mapping[str, Tensor]:
        return self.critic.tensors()

    def restore(self, state: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
        """See `tensors`.

        Raises:
            CheckpointError: they are of another critic.
        """
        self.critic.restore(tensors)

    def _penalties(self, rows: Sequence[TrainRow]) -> tuple[list[TrainRow], Values]:
        """What each token pays for its KL; where they do, the rows know the base's log-probabilities from now on."""
        loss = self.algorithm.loss
        if not loss.kl or loss.kl_in == "loss":
            return list(rows), {id(row.turn): [0.0] * len(row.turn.completion_ids) for row in rows}
        own, base = self.learner.logprobs(rows), self.learner.logprobs(rows, is_reference=True)
        paid = {turn: kl_penalties(own[turn], base[turn], loss.kl) for turn in own}
        return [replace(row, reference=base[id(row.turn)]) for row in rows], paid

    def _estimates(
        self, rows: Sequence[TrainRow], values: Values, penalties: Values, rewards: RewardOptions
    ) -> tuple[ByTurn, ByTurn, ByTurn]:
        """Advantages, targets and returns."""
        trajectories: dict[tuple[str, Group, str], list[Turn]] = defaultdict(list)
        for row in rows:
            trajectories[trajectory_of(row)].append(row.turn)
        advantages, targets, returns = ByTurn(), ByTurn(), ByTurn()
        for turns in trajectories.values():
            found = self._estimate(turns, values, penalties, rewards)
            for place, turn in enumerate(turns):
                advantages[id(turn)] = found.advantages[place]
                targets[id(turn)] = found.targets[place]
                returns[id(turn)] = found.returns[place]
        return advantages, targets, returns

    def _estimate(self, turns: Sequence[Turn], values: Values, penalties: Values, rewards: RewardOptions) -> Estimate:
        critic = self.algorithm.critic
        paid = _paid(turns, rewards)
        return estimate(
            [token_rewards(reward, penalties[id(turn)]) for reward, turn in zip(paid, turns, strict=True)],
            [list(values[id(turn)]) for turn in turns],
            level=critic.level,
            gamma=critic.gamma,
            lam=critic.lam,
        )

    def _with_advantages(self, rows: Sequence[TrainRow], advantages: ByTurn) -> list[TrainRow]:
        found: dict[int, list[float]] = dict(advantages)
        for adapter in {row.adapter for row in rows} if self.algorithm.critic.whiten else ():
            own = [id(row.turn) for row in rows if row.adapter == adapter]
            white = iter(whitened([one for turn in own for one in advantages[turn]]))
            found |= {turn: [next(white) for _ in advantages[turn]] for turn in own}
        return [replace(row, advantage=fmean(found[id(row.turn)]), advantages=found[id(row.turn)]) for row in rows]


def _paid(turns: Sequence[Turn], rewards: RewardOptions) -> list[float]:
    """What each turn of a trajectory was paid; the last also what was paid while its agent did not speak."""
    own = [total_reward(turn.paid, rewards) for turn in turns]
    own[-1] += total_reward(turns[-1].rewards, rewards) - math.fsum(own)
    return own


def _of_turns(turns: Sequence[Turn], rows: Sequence[TrainRow]) -> list[float]:
    """Each turn's mean over its tokens."""
    known = {id(row.turn): row.advantage for row in rows}
    return [known.get(id(turn), 0.0) for turn in turns]


def _told(rows: Sequence[TrainRow], values: Values, returns: Values) -> dict[str, dict[str, float]]:
    """Adapter -> how good its values were before this step."""
    read: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for row in rows:
        turn = id(row.turn)
        read[row.adapter] += zip(values[turn], returns[turn], strict=False)  # returns may end before the values do
    return {
        name: {
            "value": fmean(value for value, _ in pairs),
            "return": fmean(paid for _, paid in pairs),
            "explained_variance": explained_variance([value for value, _ in pairs], [paid for _, paid in pairs]),
        }
        for name, pairs in read.items()
    }
