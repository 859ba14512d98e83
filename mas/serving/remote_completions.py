"""Token ids over `/completions`, in the dialect that `vllm serve` and `mas serve` share.

One HTTP request per seed. Log-probabilities are the server's: a `vllm serve` must run with
`--logprobs-mode processed_logprobs`, as docs/serving.md has it, and reports greedy draws at temperature 1.
"""

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec

from mas.core.concurrency import together
from mas.core.engine import AdapterRef, Generation, Request
from mas.core.errors import EngineError
from mas.serving.check import ModelLimits, check_unrestricted
from mas.serving.remote_server import RemoteServer

_PATH = "/completions"
SEEDS = 2**63
"""Servers read seeds as signed 64-bit numbers."""
T = TypeVar("T")


class _Logprobs(msgspec.Struct):
    token_logprobs: tuple[float | None, ...]


class _Scored(msgspec.Struct):
    logprob: float


class _CompletionChoice(msgspec.Struct):
    token_ids: tuple[int, ...] | None = None
    logprobs: _Logprobs | None = None
    finish_reason: str | None = None
    prompt_logprobs: tuple[dict[int, _Scored] | None, ...] | None = None


class CompletionAnswer(msgspec.Struct):
    """What is read of an answer. `adapter`: the version that made it; servers other than `mas serve` do not say."""

    choices: tuple[_CompletionChoice, ...]
    adapter: AdapterRef | None = None


@dataclass(frozen=True, slots=True)
class Completions:
    """Generates and scores under a model that the server lists.

    Attributes:
        limits: what the server's model takes; checked by the callers.
        always: further fields of every request.
    """

    server: RemoteServer
    limits: ModelLimits
    always: Mapping[str, Any]

    async def generate(self, model: str, request: Request) -> tuple[Generation, ...]:
        """One completion per seed, all asked for at once; the first failure cancels the others.

        Raises:
            UnknownAdapter: the server has no such model. EngineError: it gave no completion.
        """
        calls = [self._complete(model, request, seed) for seed in request.seeds]
        return tuple(await together(calls, "remote-completion"))

    async def _complete(self, model: str, request: Request, seed: int) -> Generation:
        answer = read(await self.server.post(_PATH, self._body(model, request, seed)), CompletionAnswer, self.server)
        return self._generation(request, answer, is_last=True)

    async def stream(self, model: str, request: Request) -> AsyncGenerator[Generation]:
        """The completion of the one seed in pieces.

        Raises:
            UnknownAdapter: the server has no such model. EngineError: it did not finish the completion.
        """
        body = self._body(model, request, request.seeds[0]) | {"stream": True}
        is_last = False
        async with aclosing(self.server.stream(_PATH, body)) as events:
            async for event in events:
                answer = read(event, CompletionAnswer, self.server)
                if answer.choices and not is_last:
                    is_last = answer.choices[0].finish_reason is not None
                    yield self._generation(request, answer, is_last=is_last)
        if not is_last:
            raise EngineError(f"{self.server.options.url}{_PATH}: the stream ended before the completion did")

    async def score(self, model: str, prompt_ids: Sequence[int], completion_ids: Sequence[int]) -> tuple[float, ...]:
        """Log-probabilities at temperature 1 of the completion's tokens.

        Raises:
            EngineError: they fill the context, or the server did not score them.
        """
        ids = [*prompt_ids, *completion_ids]
        if len(ids) == self.limits.context:
            raise EngineError(
                f"{len(ids)} tokens fill the context, and the server draws one behind what it scores: score fewer"
            )
        body = {"model": model, "prompt": ids, "max_tokens": 1, "temperature": 1.0, "prompt_logprobs": 0}
        answer = read(await self.server.post(_PATH, {**self.always, **body}), CompletionAnswer, self.server)
        found = (answer.choices[0].prompt_logprobs or ()) if answer.choices else ()
        entries = found[len(prompt_ids) :]
        if len(found) != len(ids) or not all(
            entry is not None and token in entry for entry, token in zip(entries, completion_ids, strict=True)
        ):
            raise EngineError(f"{self.server.options.url}{_PATH} returned no prompt_logprobs of these tokens")
        return tuple(entry[token].logprob for entry, token in zip(entries, completion_ids, strict=True) if entry)

    def _body(self, model: str, request: Request, seed: int) -> dict[str, Any]:
        sampling = request.sampling
        check_unrestricted(sampling)
        return {
            **self.always,
            "model": model,
            "prompt": list(request.prompt_ids),
            "max_tokens": sampling.max_tokens,
            "temperature": sampling.temperature,
            "top_p": 1.0,
            "seed": seed % SEEDS,
            "stop_token_ids": list(sampling.stop),
            "ignore_eos": True,
            "logprobs": 0,
            "return_token_ids": True,
        }

    def _generation(self, request: Request, answer: CompletionAnswer, *, is_last: bool) -> Generation:
        url = f"{self.server.options.url}{_PATH}"
        choice = answer.choices[0] if answer.choices else _CompletionChoice()
        ids, logprobs = choice.token_ids, choice.logprobs.token_logprobs if choice.logprobs is not None else ()
        if ids is None:
            raise EngineError(
                f"{url} returned no token ids: only vllm serve and mas serve have them; other servers are spoken to "
                f"with {self.server.place}.api=chat"
            )
        values = tuple(min(value, 0.0) for value in logprobs if value is not None)
        if len(values) != len(ids):
            raise EngineError(f"{url} returned {len(values)} log-probabilities for {len(ids)} tokens")
        is_stopped = bool(ids) and ids[-1] in request.sampling.stop
        finish = "" if not is_last else "stop" if is_stopped else "length"
        return Generation(token_ids=ids, logprobs=values, finish=finish, adapter=answer.adapter)


def read(answer: Mapping[str, Any], kind: type[T], server: RemoteServer) -> T:
    """An answer with the fields that are needed.

    Raises:
        EngineError: one is missing or of another type.
    """
    try:
        return msgspec.convert(answer, kind, str_keys=True)
    except msgspec.ValidationError as error:
        raise EngineError(f"{server.options.url} answers in another form than expected: {error}") from None
