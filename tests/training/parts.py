"""What the tests of sampling and learning share."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import msgspec
from loud import loud_adapter

from mas.algorithms.parts.advantages.pipeline import AdvantageOptions, turn_advantages
from mas.algorithms.parts.rewards.terms import RewardOptions
from mas.algorithms.parts.sampling.options import SamplerOptions
from mas.bus.memory import MemoryBus
from mas.config.options import Config, LoraOptions, ModelOptions, TinyOptions
from mas.core.engine import AdapterRef, Engine
from mas.core.records import Episode, Group, Turn
from mas.core.scenario import Scenario
from mas.core.seeds import derive_seed
from mas.core.team import TeamSpec
from mas.graph.plan import compile_team
from mas.roles import build_roles
from mas.runs.resolve import resolve
from mas.runtime.team import TeamRuntime
from mas.serving.adapter_weights import AdapterWeights
from mas.serving.model import BaseModel
from mas.training.rollout import SAMPLERS
from mas.training.session import TeamSession, open_team
from mas.training.setup import trainable_adapters

SKILLED = ModelOptions(
    tiny=TinyOptions(hidden=32, intermediate=64, layers=1, heads=2, kv_heads=1, steps=150, habit_steps=60, batch=32),
    lora=LoraOptions(rank=4),
)
"""A base that mostly answers in the right form, made in two seconds."""


def quiet_adapters(base: BaseModel, names: Sequence[str], spread: float = 0.02) -> dict[str, AdapterWeights]:
    """Different adapters that leave most of the base's skill."""
    return {name: loud_adapter(base, 10 + index, spread) for index, name in enumerate(names)}


@asynccontextmanager
async def crew_of(scenario: Scenario, base: BaseModel, team: str = "team") -> AsyncIterator[TeamSession]:
    """The scenario's team with an adapter per role."""
    spec = scenario.teams[team]
    adapters = quiet_adapters(base, sorted(set(trainable_adapters(spec, "per_role").values())))
    config = Config.model_validate({"algorithm": {"team": team}})
    async with open_team(resolve(config, scenario), base, adapters) as crew:
        yield crew


@asynccontextmanager
async def runtime_of(spec: TeamSpec, engine: Engine) -> AsyncIterator[TeamRuntime]:
    """A team on any engine, every role with the adapter named like it if there is one."""
    bus = MemoryBus()
    speaking = {role: role if role in engine.adapters() else None for role in spec.roles}
    async with TeamRuntime(compile_team(spec, build_roles(spec)), engine, bus, adapters=speaking) as runtime:
        yield runtime
    await bus.close()
    await engine.close()


async def sample(
    runtime: TeamRuntime, scenario: Scenario, tasks: Sequence[int], options: SamplerOptions, seed: int = 0
) -> list[Episode]:
    """All tasks at once."""
    sampler = SAMPLERS[options.mode](runtime, scenario.reward, options, RewardOptions())
    plays = [
        sampler.sample(scenario.task("train", index), scenario.environment(), derive_seed("play", seed, index))
        for index in tasks
    ]
    return [episode for group in await asyncio.gather(*plays) for episode in group]


def turns_of(episodes: Sequence[Episode]) -> list[Turn]:
    """All turns in order."""
    return [turn for episode in episodes for turn in episode.turns]


def advantages_of(turns: Sequence[Turn]) -> list[float]:
    """With default options."""
    return turn_advantages(turns, RewardOptions(), AdvantageOptions())


def groups_of(turns: Sequence[Turn]) -> dict[Group, list[Turn]]:
    """Group key -> members, in order."""
    groups: dict[Group, list[Turn]] = {}
    for turn in turns:
        groups.setdefault(turn.group, []).append(turn)
    return groups


def named_group(name: str) -> Group:
    """A group of a task; its text is the name."""
    return Group(kind="task", task=name, agent="")


def make_turn(
    *,
    role: str = "executor",
    prompt_ids: tuple[int, ...] = (5, 6, 7),
    completion_ids: tuple[int, ...] = (8,),
    logprobs: tuple[float, ...] | None = None,
    group: str | Group = "g",
    trajectory: str = "t",
    rewards: dict[str, float] | None = None,
    temperature: float = 1.0,
    choices: tuple[int, ...] = (),
    **more: Any,
) -> Turn:
    """A turn as a sampler would record it; `more`: other fields."""
    turn = Turn(
        id=f"{group}/{trajectory}",
        episode="e",
        task="t",
        agent=role,
        role=role,
        turn=0,
        visit=0,
        candidate=0,
        parent=None,
        group=named_group(group) if isinstance(group, str) else group,
        trajectory=trajectory,
        prompt_ids=prompt_ids,
        completion_ids=completion_ids,
        logprobs=logprobs if logprobs is not None else (-1.0,) * len(completion_ids),
        temperature=temperature,
        adapter=AdapterRef(role, 0),
        seed=0,
        finish="length",
        text="x",
        rewards=rewards or {},
        chosen=False,
        choices=choices,
    )
    return msgspec.structs.replace(turn, **more)
