"""Group keys of a turn, by name: what an advantage compares it with.

A stratum is no property of a single turn, and random groups none of a turn at all: see `strata` and `steps`.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Literal, get_args

from mas.core.records import Turn
from mas.core.seeds import digest

GroupKey = Literal[
    "sampled",
    "task",
    "agent",
    "agent_turn",
    "state",
    "step",
    "shown_prompt",
    "role",
    "agent_buffer",
    "adapter",
    "batch",
]


def sampled(turn: Turn) -> Hashable:
    """As the sampler grouped it: one prompt and state (tree), or one task and agent (parallel)."""
    return turn.group


def task(turn: Turn) -> Hashable:
    """One task, whoever speaks: GRPO over a team's rollouts (Flow-GRPO, arXiv 2510.05592; EAPO, arXiv 2511.07327)."""
    return turn.task


def agent(turn: Turn) -> Hashable:
    """One task and agent."""
    return turn.task, turn.agent


def agent_turn(turn: Turn) -> Hashable:
    """One task, agent and team turn: AT-GRPO, arXiv 2510.11062 (there the prompts are equal, too: `sampled`)."""
    return turn.task, turn.agent, turn.turn


def state(turn: Turn) -> Hashable:
    """One task, agent and state before the turn: anchor states of GiGPO, arXiv 2505.10978."""
    return turn.task, turn.agent, turn.state


def step(turn: Turn) -> Hashable:
    """One task, agent and index of its own turns: UI-S1, arXiv 2509.11543."""
    return turn.task, turn.agent, turn.visit


def shown_prompt(turn: Turn) -> Hashable:
    """One task, agent and prompt, e.g. with the same proposals in it: MLPO, arXiv 2507.08960."""
    return turn.task, turn.agent, digest(*turn.prompt_ids)


def role(turn: Turn) -> Hashable:
    """One role, over all tasks: SPIRAL, arXiv 2506.24119."""
    return turn.role


def agent_buffer(turn: Turn) -> Hashable:
    """One agent, over all tasks: CoMAS, arXiv 2510.08529."""
    return turn.agent


def adapter(turn: Turn) -> Hashable:
    """One adapter, in whatever version, over all tasks; None: the bare base."""
    return turn.adapter.name if turn.adapter else None


def batch(turn: Turn) -> Hashable:
    """All turns: REINFORCE++, arXiv 2501.03262."""
    return "batch"


GROUP_KEYS: Mapping[GroupKey, Callable[[Turn], Hashable]] = {
    "sampled": sampled,
    "task": task,
    "agent": agent,
    "agent_turn": agent_turn,
    "state": state,
    "step": step,
    "shown_prompt": shown_prompt,
    "role": role,
    "agent_buffer": agent_buffer,
    "adapter": adapter,
    "batch": batch,
}


def keys_of(turns: Sequence[Turn], name: GroupKey) -> list[Hashable]:
    """The key of that name of every turn.

    Raises:
        ValueError: there is no such key.
    """
    if name not in GROUP_KEYS:
        raise ValueError(f"there is no group key {name!r}: choose one of {', '.join(get_args(GroupKey))}")
    return [GROUP_KEYS[name](turn) for turn in turns]
