"""The advantages of turns that were sampled as entropy trees."""

from collections.abc import Mapping, Sequence

import msgspec

from mas.algorithms.parts.advantages.adjustments import surprise
from mas.algorithms.parts.advantages.group import members
from mas.algorithms.parts.advantages.tree import Node, TreeOptions, node_advantages, node_values, normalised_leaves
from mas.algorithms.parts.rewards.terms import RewardOptions, total_reward
from mas.core.records import Fact, Group, Turn


class TreeEnds(Fact, frozen=True):
    """Of a turn. `ends`: agent -> its terms, of each whole episode whose last turn this one is; the turn's `rewards`
    are means over all episodes that go through it."""

    ends: tuple[Mapping[str, Mapping[str, float]], ...] = ()


def tree_advantages(turns: Sequence[Turn], rewards: RewardOptions, options: TreeOptions) -> list[float]:
    """One advantage per turn of entropy trees.

    Each end is worth to each agent what it was paid in that episode, as z (ddof 0) among the ends of the tree; a turn's
    value comes from below, over the turns of all agents, and its advantage is of the values to its own agent. With one
    agent that is AT2PO, arXiv 2601.04767; a tree of a team is our reading.
    """
    advantages = [0.0] * len(turns)
    for indices in members([_tree(turn.group) for turn in turns]).values():
        own = [turns[i] for i in indices]
        for agent in dict.fromkeys(turn.agent for turn in own):
            nodes = normalised_leaves(_nodes(own, agent, rewards))
            found = node_advantages(nodes, node_values(nodes, options.backup), options.form)
            for i in indices:
                if turns[i].agent == agent:
                    advantages[i] = found[turns[i].id]
    return advantages


def _tree(group: Group) -> Group:
    """What the groups of all agents of one tree have in common."""
    return msgspec.structs.replace(group, agent="")


def _nodes(turns: Sequence[Turn], agent: str, rewards: RewardOptions) -> list[Node]:
    """The tree as one agent is paid: a root, the turns, and below each the ends that come right after it."""
    nodes = [Node(id="")]
    for turn in turns:
        nodes.append(Node(id=turn.id, parent=turn.parent or "", entropy=surprise(turn.logprobs)))
        nodes += [
            Node(id=f"{turn.id}>{number}", parent=turn.id, reward=total_reward(end[agent], rewards))
            for number, end in enumerate(TreeEnds.of(turn).ends)
        ]
    return nodes
