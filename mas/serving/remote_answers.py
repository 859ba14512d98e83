"""What is taken of servers elsewhere, none of which is trusted: a bounded answer of the address that was asked, and
completions that could have been drawn. What is none of these is an error: a number that is none would end in every
weight of an adapter, a token that is none in the vocabulary of no text.
"""

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

from openai import DefaultAsyncHttpxClient

from mas.core.engine import AdapterRef, Generation, Request
from mas.core.errors import EngineError
from mas.core.http_bounds import bounded_response
from mas.serving.model_text import ModelLimits

MOST_BYTES = 64 * 2**20
"""Of one answer, whole or streamed: the scores of a prompt of half a million tokens."""
_ROUNDING = 0.01
"""What half-precision logits may make of the log-probability of a token that is certain."""
IDENTITY = {"Accept-Encoding": "identity"}
"""Headers with which nothing comes compressed, which could be of any length."""


def bounded_client() -> DefaultAsyncHttpxClient:
    """An HTTP client that follows no redirect, and reads no more than `MOST_BYTES` of an answer."""
    hooks: dict[str, list[Any]] = {"response": [partial(bounded_response, most=MOST_BYTES)]}
    return DefaultAsyncHttpxClient(follow_redirects=False, event_hooks=hooks)


def check_generation(made: Generation, request: Request, limits: ModelLimits, url: str, before: int = 0) -> Generation:
    """A completion, or a piece of one, if it could have been drawn as it was asked for.

    Args:
        before: tokens in the pieces before it.

    Raises:
        EngineError: a token outside the vocabulary, or more tokens than were asked for.
    """
    outside = next((token for token in made.token_ids if not 0 <= token < limits.vocabulary), None)
    if outside is not None:
        raise EngineError(
            f"{url} returned token {outside}, outside the vocabulary of {limits.vocabulary}: does it serve this base?"
        )
    count, most = before + len(made.token_ids), request.sampling.max_tokens
    if count > most:
        raise EngineError(f"{url} returned {count} tokens, and {most} at most were asked for")
    return made


def read_logprobs(values: Sequence[float], url: str) -> tuple[float, ...]:
    """Log-probabilities as tokens that were drawn can have them: at most 0, which rounding may pass.

    Raises:
        EngineError: one of the values is no finite number, or above 0 by more than rounding.
    """
    wrong = next((value for value in values if not -math.inf < value <= _ROUNDING), None)
    if wrong is not None:
        raise EngineError(f"{url} returned the log-probability {wrong}, which no token that is drawn has")
    return tuple(min(value, 0.0) for value in values)


def check_adapter(named: AdapterRef | None, model: str, url: str) -> None:
    """Refuse an answer of another adapter than `model`; None: the server names none.

    Raises:
        EngineError: it is of another.
    """
    if named is not None and (named.name != model or named.version < 0):
        raise EngineError(f"{url} was asked for {model!r} and answers as {str(named)!r}")
