"""A step's rows: random tokens of the workload's lengths, with what the adapters themselves say of them."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from random import Random

import torch

from benchmarks.learner.workload import WorkloadOptions
from mas.algorithms.parts.advantages.group import group_advantages
from mas.core.records import Group, Turn
from mas.core.seeds import derive_seed
from mas.serving.adapter_weights import AdapterWeights
from mas.serving.forward import ScoredRow, completion_logprobs
from mas.serving.model import BaseModel
from mas.training.batch import TrainRow, train_rows

NOISE = 0.1
"""Standard deviation, in nats, of what is added to behaviour log-probabilities: some ratios leave the clip's range."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawn:
    """One completion with its prompt. `noise`: nats, one a token."""

    role: str
    group: int
    candidate: int
    prompt_ids: tuple[int, ...]
    completion_ids: tuple[int, ...]
    reward: float
    noise: tuple[float, ...]


def role_names(workload: WorkloadOptions) -> list[str]:
    """An adapter for each role."""
    return [f"role_{number:02d}" for number in range(workload.roles)]


def draw(workload: WorkloadOptions, seed: int) -> Iterator[Drawn]:
    """Every completion of the step. A group's content depends on its number alone, whoever's it is."""
    roles = role_names(workload)
    first, last = workload.ids
    low, high = (math.log(length) for length in workload.completion_tokens)
    for group in range(workload.roles * workload.groups):
        random = Random(derive_seed("bench-learner", seed, group))
        prompt = tuple(random.randint(first, last) for _ in range(random.randint(*workload.prompt_tokens)))
        for candidate in range(workload.candidates):
            length = round(math.exp(random.uniform(low, high)))
            yield Drawn(
                role=roles[group % len(roles)],
                group=group,
                candidate=candidate,
                prompt_ids=prompt,
                completion_ids=tuple(random.randint(first, last) for _ in range(length)),
                reward=random.gauss(),
                noise=tuple(random.gauss(0.0, NOISE) for _ in range(length)),
            )


def make_rows(
    base: BaseModel, adapters: Mapping[str, AdapterWeights], workload: WorkloadOptions, seed: int
) -> list[TrainRow]:
    """The step's rows, every one with log-probabilities of its own adapter and advantages within its group."""
    drawn = list(draw(workload, seed))
    torch.set_num_threads(base.options.threads)
    turns = [_turn(one, _logprobs(base, adapters[one.role], one)) for one in drawn]
    advantages = group_advantages([one.reward for one in drawn], [one.group for one in drawn])
    names = {name: name for name in adapters}
    length = workload.completion_tokens[1]
    return train_rows(turns, advantages, names, aggregation="seq_mean_token_mean", max_length=length)


def useful_tokens(rows: Sequence[TrainRow]) -> int:
    """Prompt and completion tokens of all rows, however often somebody computes them."""
    return sum(len(row.turn.prompt_ids) + len(row.turn.completion_ids) for row in rows)


def distinct_tokens(rows: Sequence[TrainRow]) -> int:
    """The fewest tokens that a forward pass must read: each prompt of an adapter once, each completion but its end."""
    prompts = {(row.adapter, row.turn.prompt_ids) for row in rows}
    return sum(len(ids) for _, ids in prompts) + sum(len(row.turn.completion_ids) - 1 for row in rows)


def _logprobs(base: BaseModel, weights: AdapterWeights, one: Drawn) -> tuple[float, ...]:
    own = completion_logprobs(base.model, base.bank, [ScoredRow(one.prompt_ids, one.completion_ids, weights)])[0]
    return tuple(value + noise for value, noise in zip(own, one.noise, strict=True))


def _turn(one: Drawn, logprobs: tuple[float, ...]) -> Turn:
    name = f"{one.group}-{one.candidate}"
    return Turn(
        id=name,
        episode=f"episode-{one.group}",
        task=f"task-{one.group}",
        agent=one.role,
        role=one.role,
        turn=0,
        visit=0,
        candidate=one.candidate,
        parent=None,
        group=Group(kind="task", task=f"task-{one.group}", agent=one.role),
        trajectory=name,
        prompt_ids=one.prompt_ids,
        completion_ids=one.completion_ids,
        logprobs=logprobs,
        temperature=1.0,
        adapter=None,
        seed=0,
        finish="length",
        text="",
        rewards={"random": one.reward},
        chosen=one.candidate == 0,
    )
