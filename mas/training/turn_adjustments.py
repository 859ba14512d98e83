"""What changes the turns' advantages after the comparison: early tools, inheritance, and scales by entropy."""

from collections.abc import Container, Sequence

from mas.config.algorithm import EarlyOptions, UncertaintyOptions
from mas.core.naming import agent_of
from mas.core.records import Turn
from mas.training.advantages.adjustments import early_bonus, modulated_advantages
from mas.training.advantages.group import members
from mas.training.batch import place_of
from mas.training.sampling.episode_facts import ToolUse


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
        steps = [sorted((own[i] for i in indices), key=lambda i: place_of(turns[i])) for indices in trajectories]
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
