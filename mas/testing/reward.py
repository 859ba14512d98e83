"""The contract of every reward, as a test class: subclass `RewardContract`, give it moves, run pytest.

class TestMyReward(RewardContract):
    def make_reward(self) -> Reward:
        return MyReward()

    def moves(self) -> Iterable[Move]:
        ...
"""

from collections.abc import Iterable, Mapping

from mas.core.environment import Move, Reward, is_bounded
from mas.core.messages import Payload


class RewardContract:
    """What every implementation of `Reward` must do."""

    def make_reward(self) -> Reward:
        """The reward."""
        raise NotImplementedError

    def moves(self) -> Iterable[Move]:
        """Moves of every role, failures and moves without an `after` among them."""
        raise NotImplementedError

    def test_it_has_the_shape_of_a_reward(self) -> None:
        reward = self.make_reward()
        assert isinstance(reward, Reward)
        assert len(set(reward.terms)) == len(reward.terms)

    def test_only_declared_bounded_terms_are_paid(self) -> None:
        reward = self.make_reward()
        for move in self.moves():
            terms = reward.own(move)
            assert set(terms) <= set(reward.terms)
            assert all(is_bounded(value) for value in terms.values())

    def test_every_declared_term_is_paid_to_somebody(self) -> None:
        reward = self.make_reward()
        assert {name for move in self.moves() for name in reward.own(move)} == set(reward.terms)

    def test_judging_is_pure(self) -> None:
        reward, again = self.make_reward(), self.make_reward()
        moves = list(self.moves())
        first = [dict(reward.own(move)) for move in moves]
        before = [_state(move) for move in moves]
        assert [dict(again.own(move)) for move in reversed(moves)] == list(reversed(first))
        assert [dict(reward.own(move)) for move in moves] == first
        assert [_state(move) for move in moves] == before


def _state(move: Move) -> tuple[str, Mapping[str, Payload], Mapping[str, Payload]]:
    return move.environment.state_key(), dict(move.before), dict(move.after)
