"""Advantages against a learned value: the numbers alone, wherever the values come from."""

from collections.abc import Sequence

from mas.training.advantages.members import check_lengths


def gae(
    rewards: Sequence[float], values: Sequence[float], *, gamma: float, lam: float, bootstrap: float = 0.0
) -> list[float]:
    """A_t = delta_t + gamma lam A_(t+1), delta_t = r_t + gamma V_(t+1) - V_t, over tokens or over turns.

    Source: GAE, arXiv 1506.02438, equation 16; over turns: Turn-PPO, arXiv 2512.17008 (our reading), where all tokens
    of a turn get its advantage.

    Args:
        rewards, values: of the steps of one trajectory, in order.
        bootstrap: value of what follows the last step; 0: the trajectory has ended.

    Raises:
        ValueError: the two lengths differ.
    """
    rows = action_gae([[value] for value in values], rewards, gamma=gamma, lam=lam, bootstrap=bootstrap)
    return [row[0] for row in rows]


def action_gae(
    values: Sequence[Sequence[float]],
    rewards: Sequence[float],
    *,
    gamma: float,
    lam: float,
    bootstrap: float = 0.0,
) -> list[list[float]]:
    """Advantages of tokens, discounted between actions and not inside one, so that wording does not change a horizon.

    Inside an action: A = delta + lam A_next, delta = V_next - V. Its last token: A = delta + gamma lam A_next, delta =
    r + gamma V_next - V, where next is the first token of the next action. With one token per action it is `gae`.
    Source: POAD, arXiv 2405.15821 (Bellman backup with action decomposition).

    Args:
        values: of every token of every action of one trajectory. rewards: of the actions.
        bootstrap: value of what follows the last action; 0: the trajectory has ended.

    Raises:
        ValueError: lengths differ, or an action has no token.
    """
    check_lengths({"actions with values": values, "rewards": rewards})
    empty = [index for index, own in enumerate(values) if not own]
    if empty:
        raise ValueError(f"actions {empty} have no token: an action needs the value of one token or more")
    following, advantage = bootstrap, 0.0
    rows = []
    for own, reward in zip(reversed(values), reversed(rewards), strict=True):
        row = []
        for place in range(len(own) - 1, -1, -1):
            is_last = place == len(own) - 1
            discount = gamma if is_last else 1.0
            paid = reward if is_last else 0.0
            advantage = paid + discount * following - own[place] + discount * lam * advantage
            following = own[place]
            row.append(advantage)
        rows.append(row[::-1])
    return rows[::-1]
