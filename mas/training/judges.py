"""Judges that ship: a pattern for each term, or a question for each that a language model answers with a number.

A model is shown what an agent was asked and what it said, and nothing of the world. It has an opinion, no label: who is
trained by it learns what it likes, also what is said to please it.
"""

import re
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager

from mas.algorithms.parts.rewards.late import LateOptions
from mas.core.concurrency import together
from mas.core.engine import Request, Sampling
from mas.core.errors import ConfigError, RefusedRequest
from mas.core.records import Answer, Cost, Turn, cost_of_call
from mas.core.seeds import derive_seed
from mas.runtime.agents import ModelEndpoint
from mas.training.engines import open_peer
from mas.training.setup import Setup

PATTERN, BASE = "pattern", "base"
_MOST = 10.0
"""The best mark."""
_ANSWER_TOKENS = 16
_AT_ONCE = 32
"""Questions that a model is asked at the same time."""
_NUMBER = re.compile(r"\d+(?:\.\d+)?")
_QUESTION = """You judge one message of an agent.

What the agent was asked:
{prompt}

What it said:
{text}

{ask}
Answer with one number alone, from 0 (not at all) to 10 (fully)."""


class PatternJudge:
    """Pays 1 for a text in which the term's regular expression is found, else 0.

    Raises:
        ConfigError: a pattern is none, or a term has none.
    """

    def __init__(self, options: LateOptions) -> None:
        _check_asks(options, "a regular expression")
        try:
            self._patterns = {term: re.compile(options.asks[term]) for term in options.terms}
        except re.error as error:
            raise ConfigError(f"algorithm.reward.late.asks holds no regular expression: {error}") from error

    async def __call__(self, turns: Sequence[Turn]) -> AsyncGenerator[Answer]:
        for turn in turns:
            for term, pattern in self._patterns.items():
                yield Answer(turn.id, term, float(pattern.search(turn.text) is not None))


class ModelJudge:
    """Asks a model each term's question about each text, equal ones once; the first number of its answer, by 10.

    What has no such number, and what is too long for the model, has no answer.

    Raises:
        ConfigError: a term has no question, or the tiny base is to answer, which writes no numbers to such questions.
    """

    def __init__(self, options: LateOptions, setup: Setup) -> None:
        _check_asks(options, "a question")
        if options.judge == BASE and setup.model.path == "tiny":
            raise ConfigError(
                "algorithm.reward.late.judge=base asks the run's base, and the tiny base cannot answer questions: "
                "name a model with model.path, a peer (reward.late.judge=NAME peers.NAME.url=...), or judge=pattern"
            )
        self._options, self._setup = options, setup
        self._endpoint: ModelEndpoint | None = None
        self._cost = Cost()

    @asynccontextmanager
    async def opened(self, base: ModelEndpoint) -> AsyncIterator[None]:
        """While it is open it can be asked. `base`: the run's own model, without an adapter.

        Raises:
            As `open_peer`.
        """
        self._base = base
        async with open_peer(self._setup, None if self._options.judge == BASE else self._options.judge) as endpoint:
            self._endpoint = endpoint or base
            yield
            self._endpoint = None

    async def __call__(self, turns: Sequence[Turn]) -> AsyncGenerator[Answer]:
        alike: dict[tuple[str, tuple[int, ...], str], list[str]] = {}
        for turn in turns:
            for term in self._options.terms:
                alike.setdefault((term, turn.prompt_ids, turn.text), []).append(turn.id)
        asked = list(alike)
        for start in range(0, len(asked), _AT_ONCE):
            part = asked[start : start + _AT_ONCE]
            marks = await together([self._mark(*one) for one in part], "judge")
            for one, mark in zip(part, marks, strict=True):
                for name in alike[one] if mark is not None else ():
                    assert mark is not None
                    yield Answer(name, one[0], mark)

    def spent(self) -> Cost:
        """What judging has cost since this was asked before."""
        spent, self._cost = self._cost, Cost()
        return spent

    async def _mark(self, term: str, prompt_ids: tuple[int, ...], text: str) -> float | None:
        endpoint = self._endpoint
        assert endpoint is not None
        prompt = self._base.engine.tokenizer.decode(prompt_ids)
        question = _QUESTION.format(prompt=prompt, text=text, ask=self._options.asks[term])
        tokenizer = endpoint.engine.tokenizer
        ids = tokenizer.chat("", question) if endpoint.chats else tokenizer.begin + tokenizer.encode(question + "\n")
        sampling = Sampling(temperature=0.0, max_tokens=_ANSWER_TOKENS, stop=endpoint.engine.stop_ids)
        seed = derive_seed("judge", self._setup.train.seed, term, text)
        try:
            (said,) = await endpoint.engine.generate(
                Request(prompt_ids=ids, sampling=sampling, seeds=(seed,), adapter=endpoint.adapter)
            )
        except RefusedRequest:
            return None
        self._cost += cost_of_call(len(ids), len(said.token_ids))
        return read_mark(tokenizer.decode(said.token_ids))


def read_mark(answer: str) -> float | None:
    """The first number of an answer, by 10; None where there is none from 0 to 10."""
    found = _NUMBER.search(answer)
    mark = float(found.group()) if found is not None else -1.0
    return mark / _MOST if 0 <= mark <= _MOST else None


def _check_asks(options: LateOptions, what: str) -> None:
    asks: Mapping[str, str] = options.asks
    if asks.keys() != options.terms.keys():
        raise ConfigError(
            f"algorithm.reward.late.judge={options.judge} needs {what} for each of its terms {sorted(options.terms)} "
            f"in algorithm.reward.late.asks, which has them for {sorted(asks)}"
        )
