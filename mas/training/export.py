"""Data for others to train on: what a run's team says, as completions to imitate and pairs to prefer, role by role.

A run keeps no trees: new ones are sampled from training tasks, with the run's adapters.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mas.core.concurrency import together
from mas.core.errors import ConfigError, RunError
from mas.core.records import Turn
from mas.core.scenario import Finite
from mas.core.seeds import derive_seed
from mas.observe.files import write_directory_atomic
from mas.training.base import Note, open_base
from mas.training.rollout import SAMPLERS
from mas.training.saved import saved_adapters
from mas.training.session import TeamSession, open_team
from mas.training.setup import Setup
from mas.training.stages import rewards_of
from mas.training.updates.preference import preferred, turn_values


@dataclass(frozen=True, slots=True)
class Exported:
    """How many rows were written for a role."""

    positives: int
    pairs: int


def check_export(setup: Setup, tasks: int, out: Path) -> None:
    """Refuse what has no preferences to write, or no place to write them. Needs no model.

    Raises:
        ConfigError: the algorithm has no preferences, there are not so many tasks, or the directory holds something.
    """
    scenario = setup.scenario
    if setup.algorithm.update != "preference":
        raise ConfigError(
            f"algorithm {setup.algorithm.name!r} has no preferences; name one that has: --algorithm dpo or "
            "--algorithm malt. (Trained adapters need no export: they are PEFT directories in adapters/ of the run.)"
        )
    if isinstance(scenario, Finite) and tasks > scenario.size("train"):
        raise ConfigError(f"--tasks {tasks}: scenario {scenario.name!r} has {scenario.size('train')} training tasks")
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise ConfigError(f"--out {out} is there already and not empty: choose another directory")


async def export_run(setup: Setup, run: Path, tasks: int, out: Path, note: Note) -> dict[str, Exported]:
    """Sample the first `tasks` training tasks and write `ROLE.sft.jsonl` and `ROLE.dpo.jsonl` for each trained role.

    Rows: `task`, `prompt`, `prompt_ids`, and `completion`, `completion_ids`, or `chosen`, `chosen_ids`, `rejected`,
    `rejected_ids`. The ids are exact, with the token that ended a completion; texts are without special tokens.

    Raises:
        RunError: a task could not be played. Otherwise as `saved_adapters` and `open_team`.
    """
    base = open_base(setup, note)
    async with open_team(setup, base, saved_adapters(run, base)) as session:
        turns = await _sampled(session, tasks)
    options, decode = setup.algorithm.preference, base.tokenizer.decode
    found = preferred(turns, turn_values(turns, options, rewards_of(setup.algorithm, setup.train.steps)), options)
    files: dict[str, bytes] = {}
    exported = {}
    for role in setup.trained_adapters:
        imitated = [_completion(turns[n], decode) for n in found.positives if turns[n].role == role]
        compared = [_pair(turns[w], turns[x], decode) for w, x in found.pairs if turns[w].role == role]
        files |= {f"{role}.sft.jsonl": _lines(imitated), f"{role}.dpo.jsonl": _lines(compared)}
        exported[role] = Exported(len(imitated), len(compared))
    out.parent.mkdir(parents=True, exist_ok=True)
    write_directory_atomic(out, files)
    return exported


async def _sampled(session: TeamSession, tasks: int) -> list[Turn]:
    setup, scenario = session.setup, session.scenario
    algorithm = setup.algorithm
    rewards = rewards_of(algorithm, setup.train.steps)
    sampler = SAMPLERS[algorithm.sampler.mode](session.runtime, scenario.reward, algorithm.sampler, rewards)
    plays = [
        sampler.sample(scenario.task("train", n), scenario.environment(), derive_seed("export", setup.train.seed, n))
        for n in range(tasks)
    ]
    episodes = [episode for group in await together(plays, "task") for episode in group]
    for episode in episodes:
        if episode.status == "failed":
            raise RunError(f"task {episode.task!r} could not be played: {episode.cause}")
    return [turn for episode in episodes for turn in episode.turns]


def _completion(turn: Turn, decode: Callable[[Sequence[int]], str]) -> dict[str, Any]:
    own = {"completion": turn.text, "completion_ids": turn.completion_ids}
    return _prompt(turn, decode) | own


def _pair(winner: Turn, loser: Turn, decode: Callable[[Sequence[int]], str]) -> dict[str, Any]:
    chosen = {"chosen": winner.text, "chosen_ids": winner.completion_ids}
    rejected = {"rejected": loser.text, "rejected_ids": loser.completion_ids}
    return _prompt(winner, decode) | chosen | rejected


def _prompt(turn: Turn, decode: Callable[[Sequence[int]], str]) -> dict[str, Any]:
    return {"task": turn.task, "prompt": decode(turn.prompt_ids), "prompt_ids": turn.prompt_ids}


def _lines(rows: Iterable[Mapping[str, Any]]) -> bytes:
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()
