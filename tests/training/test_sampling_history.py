"""Roles with a history in every sampler: what a prompt tells of earlier calls is what was said on its own branch."""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import pytest
from words import Free, UncertainEngine, WordWorld

from mas.algorithms.parts.rewards.terms import RewardOptions
from mas.algorithms.parts.sampling.options import SamplerOptions
from mas.bus.memory import MemoryBus
from mas.core.environment import Task
from mas.core.records import Episode
from mas.graph.load import load_team
from mas.graph.plan import compile_team
from mas.roles import build_roles
from mas.runtime.team import TeamRuntime
from mas.serving.model_text import CharacterTokenizer
from mas.training.rollout import SAMPLERS

TEAM = load_team(
    {
        "name": "pair",
        "roles": {
            "left": {"view": "left", "ask": "{said}?", "history": 9, "max_tokens": 4},
            "solo": {"type": "executor", "view": "solo", "ask": "{said}+{from.left}?", "history": 9, "max_tokens": 4},
        },
        "edges": ["start -> left", "left -> solo", "solo -> done"],
        "output": "solo",
    }
)
MODES: dict[str, dict[str, Any]] = {
    "parallel": {"mode": "parallel", "candidates": 3},
    "tree": {"mode": "tree", "candidates": 3, "lookahead": "episode", "continuations": 2},
    "tree of a turn": {"mode": "tree", "candidates": 3},
    "full_tree": {"mode": "full_tree", "candidates": 2},
    "entropy_tree": {"mode": "entropy_tree", "candidates": 4, "branch": {"chains": 1}},
}


async def played(options: dict[str, Any], say: Callable[[str, int], str]) -> tuple[tuple[Episode, ...], list[str]]:
    """The episodes of one task of three team turns, and every prompt that the engine was sent."""
    asked: list[str] = []

    def answer(prompt: str, number: int) -> str:
        asked.append(prompt)
        return say(prompt, number)

    def entropy(prompt: str, word: str) -> float:
        return float(prompt.count("?"))  # trees branch in later turns

    bus, plan = MemoryBus(), compile_team(TEAM, build_roles(TEAM))
    async with TeamRuntime(plan, UncertainEngine(answer, entropy), bus, adapters={}, chats=True) as runtime:
        sampler = SAMPLERS[options["mode"]](runtime, Free(), SamplerOptions.model_validate(options), RewardOptions())
        episodes = await sampler.sample(Task(id="t", seed=0), WordWorld(3), 5)
    await bus.close()
    return episodes, asked


def asked_of(agent: str, said: Sequence[tuple[str, str]], mate: str) -> list[str]:
    """The conversation of an agent's next call, after team turns in which `left` and `solo` said this."""
    talk: list[str] = []
    for number in range(len(said) + 1):
        done = "".join(solo for _, solo in said[:number])
        left, solo = said[number] if number < len(said) else (mate, "")
        talk += [f"{done}?", left] if agent == "left" else [f"{done}+{left}?", solo]
    return talk[:-1]


def talk_of(prompt: str) -> list[str]:
    return prompt.removesuffix("\n\n").split("\n\n")


def is_consistent(prompt: str) -> bool:
    """Whether a conversation has as many calls as the world had team turns, and the world grew by one word in each."""
    *said, last = talk_of(prompt)
    seen = [one.removesuffix("?").partition("+")[0] for one in (*said[::2], last)]
    grew = all(later.startswith(before) for before, later in pairwise(seen))
    own = "+" not in last or [later[len(before) :] for before, later in pairwise(seen)] == said[1::2]
    return grew and own and [one.count("s") for one in seen] == list(range(len(seen)))


@pytest.mark.parametrize("name", MODES)
async def test_a_prompt_tells_what_was_said_on_its_own_branch(name: str) -> None:
    # every draw of one prompt is another word, so that branches differ
    episodes, asked = await played(MODES[name], lambda prompt, number: f"{'s' if '+' in prompt else 'l'}{number}")
    assert {episode.status for episode in episodes} == {"done"}
    assert all(map(is_consistent, asked))
    assert {len(talk_of(prompt)) for prompt in asked} == {1, 3, 5}
    turns = {turn.id: turn for episode in episodes for turn in episode.turns}
    for turn in turns.values():
        path, here = [turn], turn
        while here.parent is not None:
            here = turns[here.parent]
            path.insert(0, here)
        words = {(one.turn, one.agent): one.text for one in path[:-1]}
        said = [(words[number, "left"], words[number, "solo"]) for number in range(turn.turn)]
        talk = talk_of(CharacterTokenizer().decode(turn.prompt_ids))
        assert talk == asked_of(turn.agent, said, words.get((turn.turn, "left"), ""))
    assert {turn.turn for turn in turns.values()} == {0, 1, 2}
    if name == "entropy_tree":
        assert max(episode.turns[0].turn for episode in episodes) > 0, "an episode branches off in a later turn"
