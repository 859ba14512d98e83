"""The work of one round: completions as a training step samples them, uneven in prompt and length."""

import math
from dataclasses import dataclass
from random import Random

from mas.core.engine import Request, Sampling
from mas.core.seeds import derive_seed


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """Requests that follow from these values alone.

    Lengths are the same in every round and prompts are not, so that rounds compare and no cache remembers a prompt.
    Nothing stops a completion before its length; the temperature is 1.

    Attributes:
        prompt_tokens: shortest and longest prompt, lengths drawn uniformly.
        completion_tokens: shortest and longest completion, lengths drawn uniformly in their logarithm.
        adapters: who speaks, in turn; None is the bare base.
        first_id, last_id: token ids of prompts.
    """

    requests: int = 64
    seed: int = 0
    prompt_tokens: tuple[int, int] = (16, 96)
    completion_tokens: tuple[int, int] = (8, 64)
    adapters: tuple[str | None, ...] = ("a", "b", "c", None)
    first_id: int = 3
    last_id: int = 80

    def lengths(self) -> tuple[tuple[int, int], ...]:
        """Prompt and completion tokens of every request."""
        random = Random(derive_seed("lengths", self.seed))
        low, high = (math.log(length) for length in self.completion_tokens)
        return tuple(
            (random.randint(*self.prompt_tokens), round(math.exp(random.uniform(low, high))))
            for _ in range(self.requests)
        )

    @property
    def wanted(self) -> int:
        """Completion tokens of one round."""
        return sum(completion for _, completion in self.lengths())

    def round(self, number: int, *, is_mixed: bool) -> tuple[Request, ...]:
        """The requests of one round; unless mixed, all of them ask the bare base."""
        random = Random(derive_seed("round", self.seed, number))
        return tuple(
            Request(
                prompt_ids=tuple(random.randint(self.first_id, self.last_id) for _ in range(prompt)),
                sampling=Sampling(temperature=1.0, max_tokens=completion),
                seeds=(derive_seed("draws", self.seed, number, index),),
                adapter=self.adapters[index % len(self.adapters)] if is_mixed else None,
            )
            for index, (prompt, completion) in enumerate(self.lengths())
        )
