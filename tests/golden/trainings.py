"""Seeded trainings of three steps with the product's own optimiser, sampler and canary, for the golden record."""

import asyncio
from collections.abc import Sequence
from hashlib import sha256
from typing import Any

from parts import SKILLED
from watched import Seen

from mas.config.load import load_config
from mas.config.options import ScenarioOptions
from mas.core.records import Episode
from mas.runs.resolve import resolve_training
from mas.scenarios import build_scenario
from mas.serving.adapter_weights import AdapterWeights
from mas.serving.model import BaseModel, load_base
from mas.training.base import tiny_base
from mas.training.trainer import Trainer

SCENARIOS = ("relay", "two_hop", "plan_path")
WORDS = (
    "algorithm=at_grpo", "train.steps=3", "train.tasks_per_step=4", "algorithm.sampler.candidates=4",
    "train.eval_first=false", "train.eval_every=0", "train.eval_tasks=2", "train.target=null",
)  # fmt: skip


def base_of(scenario: str) -> BaseModel:
    """A tiny base that mostly answers in the right form, made here: its last bits are this processor's."""
    return load_base(SKILLED, tiny_base(build_scenario(ScenarioOptions(name=scenario)), SKILLED.tiny))


def train(scenario: str, base: BaseModel) -> tuple[dict[str, Any], str]:
    """What a training leaves, as it stands in the record, and a digest of its adapters' every bit.

    Of each step `rewards` (mean, success), `tokens` (of completions, of prompts) and a digest of all `completions`;
    after the last the `weights`: of each adapter the norms of A and of B, all layers together.
    """
    config = load_config([f"scenario={scenario}", *WORDS]).model_copy(update={"model": SKILLED})
    seen, trainer = Seen(), Trainer(resolve_training(config), base)
    asyncio.run(trainer.run(seen))
    found: dict[str, Any] = {}
    for number, (metrics, episodes) in enumerate(zip(seen.metrics, seen.episodes, strict=True), 1):
        found[f"step {number}"] = {
            "rewards": {"the team": [metrics["reward"], metrics["success"]]},
            "tokens": {"the team": [_tokens(episodes), sum(one.prompt_tokens for one in episodes)]},
            "completions": {"the team": [_digest(episodes)]},
        }
    adapters = trainer.trainable.adapters
    found["the end"] = {"weights": {name: _norms(adapters[name]) for name in sorted(adapters)}}
    whole = sha256()
    for name in sorted(adapters):
        for tensor in adapters[name].parameters():
            whole.update(tensor.detach().numpy().tobytes())
    return found, whole.hexdigest()


def _tokens(episodes: Sequence[Episode]) -> int:
    return sum(len(turn.completion_ids) for one in episodes for turn in one.turns)


def _digest(episodes: Sequence[Episode]) -> str:
    said = [list(turn.completion_ids) for one in episodes for turn in one.turns]
    return sha256(repr(said).encode()).hexdigest()[:16]


def _norms(weights: AdapterWeights) -> list[float]:
    pairs = weights.pairs.values()
    return [float(sum(float(pair[side].detach().double().square().sum()) for pair in pairs) ** 0.5) for side in (0, 1)]
