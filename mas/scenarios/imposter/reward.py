"""The own term of whoever states the team's belief: a penalty for being wrong.

It has the place of the listening loss, -log p(the imposter), of Training Language Models for Social Deduction with
Multi-Agent Reinforcement Learning (arXiv 2502.06060), as a reward: the Brier score is proper, too, and
bounded, so that a sure mistake costs no more than 1 in a whole episode.
"""

from collections.abc import Mapping

from mas.core.messages import Action
from mas.core.reward import Move
from mas.scenarios.imposter.beliefs import brier
from mas.scenarios.imposter.environment import ImposterEnvironment
from mas.scenarios.imposter.words import read_player

PROBED = ("analyst", "solo")


class BeliefReward:
    """`wrong_belief`: minus half the Brier score of the belief, shared over the rounds; words that say none are a
    belief in nobody."""

    terms: tuple[str, ...] = ("wrong_belief",)

    def own(self, move: Move) -> Mapping[str, float]:
        assert isinstance(move.environment, ImposterEnvironment)
        environment = move.environment
        if environment.rules.side != "crew" or move.role not in PROBED:
            return {}
        text = move.output.text if isinstance(move.output, Action) else ""
        state = environment.state
        if move.role == "analyst":
            belief = read_player(text)
        else:
            said = environment.read(state, text)
            belief = said.belief if said else None
        wrong = brier(environment.beliefs(state, belief), state.imposter) / 2
        return {"wrong_belief": -wrong / environment.rules.rounds}
