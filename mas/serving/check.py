"""What every engine refuses before a request reaches its model: a wrong request must fail alone."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from mas.core.engine import Request, Sampling
from mas.core.errors import RefusedRequest

COLDEST = 1e-4
"""Below this temperature but for 0, logits divided by it leave the numbers that a computer has."""


def check_unrestricted(sampling: Sampling) -> None:
    """Refuse restricted sampling, for engines that cannot say which tokens were possible.

    Raises:
        RefusedRequest: the request limits tokens or has a grammar.
    """
    if sampling.is_restricted:
        raise RefusedRequest(
            f"top_k={sampling.top_k}, top_p={sampling.top_p}, min_p={sampling.min_p}, grammar={sampling.grammar}: this "
            "engine cannot say which tokens were possible; engine=transformers and engine=vllm can"
        )


@dataclass(frozen=True, slots=True)
class ModelLimits:
    """What a model can take: token ids below `vocabulary`, and `context` tokens in all."""

    vocabulary: int
    context: int

    def within(self, context: int | None) -> "ModelLimits":
        """With a context no longer than another; None: that one is not known."""
        return self if context is None else replace(self, context=min(self.context, context))

    def check_request(self, request: Request) -> None:
        """Refuse a request that cannot be served.

        Raises:
            RefusedRequest: says which value is wrong and what was possible.
        """
        sampling = request.sampling
        if not request.seeds:
            raise RefusedRequest("no seed, nothing to generate: give one seed per completion wanted")
        wrong = next((seed for seed in request.seeds if not 0 <= seed < 2**64), None)
        if wrong is not None:
            raise RefusedRequest(f"seed {wrong} is outside 0 to 2^64 - 1")
        if sampling.max_tokens < 1:
            raise RefusedRequest(f"max_tokens is {sampling.max_tokens}; at least one token must be wanted")
        if not (math.isfinite(sampling.temperature) and sampling.temperature >= 0):
            raise RefusedRequest(f"temperature {sampling.temperature} is impossible: it must be finite and at least 0")
        if 0 < sampling.temperature < COLDEST:
            raise RefusedRequest(f"temperature {sampling.temperature} is neither 0 (greedy) nor at least {COLDEST}")
        if sampling.top_k < 0:
            raise RefusedRequest(f"top_k is {sampling.top_k}; it must be 0 (no limit) or more")
        if not 0 < sampling.top_p <= 1:
            raise RefusedRequest(f"top_p is {sampling.top_p}; it must be above 0 and at most 1 (no limit)")
        if not 0 <= sampling.min_p <= 1:
            raise RefusedRequest(f"min_p is {sampling.min_p}; it must be from 0 (no limit) to 1")
        self.check_tokens(request.prompt_ids, sampling.max_tokens)

    def check_stream(self, request: Request) -> None:
        """Refuse a stream that cannot be served.

        Raises:
            RefusedRequest: as `check_request`, or there is more than one seed.
        """
        self.check_request(request)
        if len(request.seeds) > 1:
            raise RefusedRequest(f"a stream is one completion; {len(request.seeds)} seeds were given")

    def check_score(self, prompt_ids: Sequence[int], completion_ids: Sequence[int]) -> None:
        """Refuse what cannot be scored.

        Raises:
            RefusedRequest: says which value is wrong and what was possible.
        """
        if not completion_ids:
            raise RefusedRequest("nothing to score: completion_ids is empty")
        self.check_tokens(prompt_ids, len(completion_ids))
        self.check_tokens(completion_ids, 0)

    def check_tokens(self, ids: Sequence[int], room: int) -> None:
        """Refuse an empty prompt, ids outside the vocabulary, and more than the context holds.

        Raises:
            RefusedRequest: says which.
        """
        if not ids:
            raise RefusedRequest("the prompt is empty: give at least one token id")
        outside = next((token for token in ids if not 0 <= token < self.vocabulary), None)
        if outside is not None:
            raise RefusedRequest(f"token id {outside} is outside the vocabulary of {self.vocabulary}")
        if len(ids) + room > self.context:
            raise RefusedRequest(
                f"{len(ids)} prompt tokens and {room} new ones exceed the context of {self.context}: "
                "shorten the prompt or lower max_tokens"
            )
