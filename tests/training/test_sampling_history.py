"""Roles with a history in every sampler: what a prompt tells of earlier calls is what was said on its own branch."""

from collections.abc import Callable
from typing import Any

import pytest
from words import Free, WordWorld

from mas.bus.memory import MemoryBus
from mas.config.rewards import RewardOptions
from mas.config.sampling import SamplerOptions
from mas.core.environment import Task
from mas.core.records import Episode
from mas.graph.load import load_team
from mas.graph.plan import compile_team
from mas.roles import build_roles
from mas.runtime.team import TeamRuntime
from mas.serving.model_text import CharacterTokenizer
from mas.testing.scripted import ScriptedEngine
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
    "entropy_tree": {"mode": "entropy_tree", "candidates": 4},
}


async def played(options: dict[str, Any], say: Callable[[str, int], str]) -> tuple[tuple[Episode, ...], list[str]]:
    """The episodes of one task of three team turns, and every prompt that the engine was sent."""
    asked: list[str] = []

    def answer(prompt: str, adapter: str | None, seed: int) -> str:
        asked.append(prompt)
        return say(prompt, seed)

    bus, plan = MemoryBus(), compile_team(TEAM, build_roles(TEAM))
    async with TeamRuntime(plan, ScriptedEngine(answer), bus, adapters={}, chats=True) as runtime:
        sampler = SAMPLERS[options["mode"]](runtime, Free(), SamplerOptions.model_validate(options), RewardOptions())
        episodes = await sampler.sample(Task(id="t", seed=0), WordWorld(3), 5)
    await bus.close()
    return episodes, asked


def check(prompt: str) -> int:
    """A conversation agrees with the world and the team mate in each of its messages; how many calls it shows.

    The world shows all that was done so far, and what `solo` says is done.
    """
    *said, last = prompt.removesuffix("\n\n").split("\n\n")
    done = ""
    for question, answer in zip(said[::2], said[1::2], strict=True):
        seen, mate = question.removesuffix("?").partition("+")[::2]
        assert seen.startswith(done), prompt
        assert not mate or mate.startswith("l"), prompt
        if "+" in question:
            assert seen == done, prompt
            done += answer
    if "+" in last:
        assert last.partition("+")[0] == done, prompt
    return len(said) // 2


@pytest.mark.parametrize("name", MODES)
async def test_a_prompt_tells_what_was_said_on_its_own_branch(name: str) -> None:
    # letters by seed, so that branches differ
    episodes, asked = await played(MODES[name], lambda prompt, seed: f"{'s' if '+' in prompt else 'l'}{seed % 97}")
    assert {episode.status for episode in episodes} == {"done"}
    assert max(map(check, asked)) == 2
    recorded = [turn for episode in episodes for turn in episode.turns]
    by_turn = {turn.turn: check(CharacterTokenizer().decode(turn.prompt_ids)) for turn in recorded}
    assert by_turn == {0: 0, 1: 1, 2: 2}
