"""Restricted sampling in vLLM: what it is asked for, and the support of every token that it draws.

A grammar's support is computed here by the library that vLLM computes it with. What top-p and min-p leave is known
where top-k bounds it: vLLM then says the log-probabilities of the most likely tokens, and those it left out have none.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from mas.core.engine import Sampling
from mas.core.errors import ConfigError, RefusedRequest
from mas.core.support import pack_support
from mas.core.team import TeamSpec
from mas.serving.grammar import Grammars, Matcher

MOST_K = 100
"""The largest `top_k` that supports are known for."""
_TIES = 20
"""Tokens as likely as the last of the top k that vLLM may leave, too."""
MOST_LOGPROBS = MOST_K + _TIES


def check_known(sampling: Sampling) -> None:
    """Refuse limits whose supports vLLM does not say.

    Raises:
        RefusedRequest: `top_p` or `min_p` without a `top_k` of at most `MOST_K`.
    """
    if sampling.is_truncated and not 0 < sampling.top_k <= MOST_K:
        raise RefusedRequest(
            f"engine=vllm says which tokens were possible only with a top_k from 1 to {MOST_K}, and it is "
            f"{sampling.top_k} with top_p={sampling.top_p} and min_p={sampling.min_p}: set top_k, or use "
            "engine=transformers"
        )


def check_limits(team: TeamSpec) -> None:
    """Refuse roles whose limits vLLM's supports do not show.

    Raises:
        ConfigError: as `check_known`, with the role.
    """
    for name, role in team.roles.items():
        if role.peer is not None or role.voice == "human":
            continue
        limits = Sampling(temperature=role.temperature, top_k=role.top_k, top_p=role.top_p, min_p=role.min_p)
        try:
            check_known(limits)
        except RefusedRequest as error:
            raise ConfigError(f"role {name!r}: {error}") from error


def restricted_options(sampling: Sampling) -> dict[str, Any]:
    """The part of vLLM's `SamplingParams` that restricts."""
    from vllm.sampling_params import StructuredOutputsParams

    options: dict[str, Any] = {}
    if sampling.is_truncated:
        options |= {"top_k": sampling.top_k, "top_p": sampling.top_p, "min_p": sampling.min_p}
        options["logprobs"] = sampling.top_k + _TIES
    if (grammar := sampling.grammar) is not None:
        asked = {"regex": grammar.text} if grammar.kind == "regex" else {"json": grammar.text}
        options["structured_outputs"] = StructuredOutputsParams(**asked)
    return options


class Supports:
    """Follows one completion, token by token."""

    def __init__(self, sampling: Sampling, grammars: Grammars, vocabulary: int) -> None:
        self._sampling = sampling
        self._vocabulary = vocabulary
        self._matcher: Matcher | None = None if sampling.grammar is None else grammars.matcher(sampling.grammar)

    def of(self, tokens: Sequence[int], logprobs: Sequence[Mapping[int, Any]]) -> tuple[bytes, ...]:
        """Of the next tokens, with what vLLM says of each place: token -> log-probability; empty without limits."""
        if not self._sampling.is_restricted:
            return ()
        return tuple(self._one(token, entry) for token, entry in zip(tokens, logprobs, strict=True))

    def _one(self, token: int, entry: Mapping[int, Any]) -> bytes:
        mask_V = None if self._matcher is None else self._matcher.mask()
        if self._sampling.is_truncated:
            mask_V = np.zeros(self._vocabulary, dtype=np.bool_)
            mask_V[[one for one, said in entry.items() if math.isfinite(said.logprob)]] = True
        if self._matcher is not None and token != self._matcher.end:
            self._matcher.follow(token)
        assert mask_V is not None
        return pack_support(mask_V)
