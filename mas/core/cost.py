"""What generations cost, in columns that mean the same however episodes are sampled."""

from collections.abc import Iterable, Mapping
from typing import Literal, Self

import msgspec

from mas.core.records import Episode

Prompts = Literal["per_call", "shared", "none"]
"""How a number of tokens counts prompts: with every call, equal ones once, or not at all."""


class Cost(msgspec.Struct, frozen=True, kw_only=True):
    """Calls and tokens.

    Attributes:
        calls: generations; a request for K candidates is K calls.
        prompt_tokens: the prompt of every call, as an engine without a prefix cache reads it.
        shared_prompt_tokens: equal prompts of one adapter in one training step once, whoever asked and in whichever
            episode, as an engine with a perfect cache of whole prompts reads them.
        completion_tokens: all that was generated.
    """

    calls: int = 0
    prompt_tokens: int = 0
    shared_prompt_tokens: int = 0
    completion_tokens: int = 0

    def __add__(self, other: Self) -> Self:
        sums = {name: getattr(self, name) + getattr(other, name) for name in self.__struct_fields__}
        return msgspec.structs.replace(self, **sums)

    def tokens(self, prompts: Prompts = "per_call") -> int:
        """Completion tokens and, as `prompts` says, those of prompts."""
        read = {"per_call": self.prompt_tokens, "shared": self.shared_prompt_tokens, "none": 0}[prompts]
        return self.completion_tokens + read


FREE = Cost()


def asked(prompt_tokens: int, completion_tokens: int) -> Cost:
    """One call whose prompt is like no other."""
    return Cost(
        calls=1,
        prompt_tokens=prompt_tokens,
        shared_prompt_tokens=prompt_tokens,
        completion_tokens=completion_tokens,
    )


def cost_of(episodes: Iterable[Episode]) -> Cost:
    """What episodes of one training step, or of one task, cost together: prompts that they share count once."""
    prompts: dict[str, int] = {}
    calls = prompt_tokens = completion_tokens = 0
    for episode in episodes:
        calls += episode.calls
        prompt_tokens += episode.prompt_tokens
        completion_tokens += episode.completion_tokens
        prompts |= episode.prompts
    return Cost(
        calls=calls,
        prompt_tokens=prompt_tokens,
        shared_prompt_tokens=sum(prompts.values()),
        completion_tokens=completion_tokens,
    )


def total(costs: Iterable[Cost]) -> Cost:
    """The sum."""
    return sum(costs, FREE)


def metrics_of(cost: Cost) -> Mapping[str, int]:
    """By name; `tokens` has the prompt of every call."""
    return {"tokens": cost.tokens(), **msgspec.structs.asdict(cost)}
