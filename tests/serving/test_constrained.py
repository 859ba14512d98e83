"""Decoding that is held to a grammar, in the embedded engine."""

import asyncio
import json
import re
import threading
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from conftest import BaseFor
from loud import loud_adapter

from mas.core.engine import Generation, Grammar, Request, Sampling
from mas.core.errors import EngineError, ModelError, RefusedRequest
from mas.core.support import unpack_support
from mas.serving.forward import ScoredRow, completion_logits
from mas.serving.grammar import Grammars
from mas.serving.model import BaseModel
from mas.serving.transformers_engine import SETTLE_ROUNDS, TransformersEngine

SEEDS = tuple(range(24))
PROMPT = (5, 6, 7)


@pytest.fixture(scope="module")
def base(base_for: BaseFor) -> BaseModel:
    return base_for("relay")


@pytest.fixture
async def engine(base: BaseModel) -> AsyncIterator[TransformersEngine]:
    engine = TransformersEngine(base)
    await engine.store.publish("a", loud_adapter(base, 3, 0.2))
    yield engine
    await engine.close()


def asking(grammar: Grammar | None, **sampling: float) -> Request:
    options = {"max_tokens": 12, "stop": (1,)} | sampling
    return Request(prompt_ids=PROMPT, sampling=Sampling(grammar=grammar, **options), seeds=SEEDS, adapter="a")


def said(engine: TransformersEngine, generation: Generation) -> str:
    return engine.tokenizer.decode(generation.token_ids)


@pytest.mark.parametrize("temperature", [0.0, 0.7, 1.0])
@pytest.mark.parametrize("regex", ["dog|cat|horse", "( )?(dog|do)", "[0-9]{1,3}", "a[b-d]{0,4}e"])
async def test_every_completion_is_a_text_of_its_regular_expression(
    engine: TransformersEngine, regex: str, temperature: float
) -> None:
    made = await engine.generate(asking(Grammar("regex", regex), temperature=temperature))
    ended = [one for one in made if one.finish == "stop"]
    assert ended
    for one in ended:
        assert re.fullmatch(regex, said(engine, one)), said(engine, one)
        assert one.token_ids[-1] == 1
    for one in made:
        assert len(one.token_ids) == len(one.logprobs) == len(one.supports) <= 12


async def test_a_completion_ends_where_nothing_else_can_follow(engine: TransformersEngine) -> None:
    steps = engine.steps
    made = await engine.generate(asking(Grammar("regex", "dog")))
    assert {said(engine, one) for one in made} == {"dog"}
    for one in made:
        assert one.finish == "stop"
        assert one.logprobs == pytest.approx((0.0,) * 4)  # all that is possible is certain
    assert engine.steps - steps == 2  # the first letter comes with the prompt, the end without the model


async def test_what_is_cut_off_is_said_to_be(engine: TransformersEngine) -> None:
    made = await engine.generate(asking(Grammar("regex", "[a-z]{9}"), max_tokens=4))
    assert {(one.finish, len(one.token_ids)) for one in made} == {("length", 4)}


async def test_json_is_what_its_schema_says(engine: TransformersEngine) -> None:
    schema = {"type": "array", "items": {"enum": [1, 2]}, "minItems": 2, "maxItems": 2}
    made = await engine.generate(asking(Grammar("schema", json.dumps(schema)), max_tokens=40))
    read = [json.loads(said(engine, one)) for one in made if one.finish == "stop"]
    assert read
    assert all(len(one) == 2 and set(one) <= {1, 2} for one in read)


@pytest.mark.parametrize("limits", [{}, {"top_p": 0.6}, {"top_k": 3}, {"min_p": 0.3}])
@pytest.mark.parametrize("grammar", [None, Grammar("regex", "( )?[a-z0-9]{1,6}")])
async def test_log_probabilities_are_those_over_the_support(
    engine: TransformersEngine, base: BaseModel, grammar: Grammar | None, limits: dict[str, float]
) -> None:
    request = asking(grammar, temperature=0.8, **limits)
    adapter = engine.store.weights("a")
    for one in await engine.generate(request):
        assert bool(one.supports) == request.sampling.is_restricted
        logits_LV = completion_logits(base.model, base.bank, [ScoredRow(PROMPT, one.token_ids, adapter)])[0] / 0.8
        for place, support in enumerate(one.supports):
            possible_V = torch.from_numpy(unpack_support(support, logits_LV.shape[-1]).copy())
            logits_LV[place].masked_fill_(~possible_V, -torch.inf)
        right_LV = logits_LV.log_softmax(-1)
        right = [float(right_LV[place, token]) for place, token in enumerate(one.token_ids)]
        assert one.logprobs == pytest.approx(right, abs=1e-4)


async def test_a_stream_is_held_to_its_grammar_and_has_its_supports(engine: TransformersEngine) -> None:
    request = asking(Grammar("regex", "dog|cat"))
    request = Request(prompt_ids=PROMPT, sampling=request.sampling, seeds=(4,), adapter="a")
    (whole,) = await engine.generate(request)
    pieces = [piece async for piece in engine.stream(request)]
    assert tuple(token for piece in pieces for token in piece.token_ids) == whole.token_ids
    assert tuple(support for piece in pieces for support in piece.supports) == whole.supports
    assert pieces[-1].finish == "stop"


async def test_rows_with_and_without_a_grammar_share_a_batch(engine: TransformersEngine) -> None:
    free, held = asking(None), asking(Grammar("regex", "dog|cat"))
    alone = await engine.generate(free)
    together = await asyncio.gather(engine.generate(free), engine.generate(held), engine.generate(free))
    for one, other in zip(alone, together[0], strict=True):
        assert one.token_ids == other.token_ids
        assert one.supports == ()
    assert all(re.fullmatch("dog|cat", said(engine, one)) for one in together[1])


@pytest.mark.parametrize(
    ("grammar", "cause"),
    [
        (Grammar("regex", "a(b"), "unclosed group"),
        (Grammar("regex", "(?<!x)a"), "look-around"),
        (Grammar("schema", "[1]"), "schema"),
        (Grammar("schema", '{"type": "strin"}'), "strin"),
    ],
)
async def test_what_is_no_grammar_is_refused_before_anything_is_drawn(
    engine: TransformersEngine, grammar: Grammar, cause: str
) -> None:
    with pytest.raises(RefusedRequest, match=cause):
        await engine.generate(asking(grammar))
    with pytest.raises(RefusedRequest, match=cause):
        async for _ in engine.stream(Request(prompt_ids=PROMPT, sampling=Sampling(grammar=grammar), seeds=(1,))):
            pass


@pytest.mark.parametrize(
    ("limits", "cause"), [({"top_k": -1}, "top_k"), ({"top_p": 0.0}, "top_p"), ({"min_p": 2}, "min_p")]
)
async def test_impossible_limits_are_refused(engine: TransformersEngine, limits: dict[str, float], cause: str) -> None:
    with pytest.raises(RefusedRequest, match=cause):
        await engine.generate(asking(None, **limits))


def test_a_model_that_never_ends_a_text_cannot_be_constrained(base: BaseModel) -> None:
    with pytest.raises(ModelError, match="token that ends a text"):
        Grammars(replace(base.text, stop_ids=())).matcher(Grammar("regex", "a"))


async def test_a_grammar_that_no_token_can_go_on_with_harms_its_own_request_alone(engine: TransformersEngine) -> None:
    # The tiny base has no `%` and no quotation mark: it would have to say `<unk>`.
    free = asking(None)
    wanted = await engine.generate(free)
    failing = engine.generate(asking(Grammar("regex", "50%")))
    found, failed = await asyncio.gather(engine.generate(free), failing, return_exceptions=True)
    assert isinstance(failed, EngineError)
    assert "no token of this model can spell" in str(failed)
    assert isinstance(found, tuple)
    assert [one.token_ids for one in found] == [one.token_ids for one in wanted]


@pytest.mark.parametrize("grammar", [Grammar("regex", "%"), Grammar("schema", '{"type": "object"}')])
async def test_a_grammar_that_cannot_begin_is_refused(engine: TransformersEngine, grammar: Grammar) -> None:
    with pytest.raises(RefusedRequest, match="cannot begin"):
        await engine.generate(asking(grammar))


async def test_what_is_no_grammar_harms_nobody_who_asks_beside_it(engine: TransformersEngine) -> None:
    calls = [engine.generate(asking(grammar)) for grammar in (None, Grammar("regex", "a(b"), None)]
    first, refused, last = await asyncio.gather(*calls, return_exceptions=True)
    assert isinstance(refused, RefusedRequest)
    assert isinstance(first, tuple)
    assert first == last


def slow_compiler(monkeypatch: pytest.MonkeyPatch) -> tuple[threading.Event, threading.Event]:
    """From now on compiling sets the first event, and waits for the second."""
    began, may_end, compiled = threading.Event(), threading.Event(), Grammars._compile

    def slow(grammars: Grammars, grammar: Grammar) -> Any:
        began.set()
        assert may_end.wait(10)
        return compiled(grammars, grammar)

    monkeypatch.setattr(Grammars, "_compile", slow)
    return began, may_end


async def test_grammars_are_compiled_beside_the_event_loop_and_no_row_begins_before(
    engine: TransformersEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    began, may_end = slow_compiler(monkeypatch)
    steps = engine.steps
    held, free = (
        asyncio.create_task(engine.generate(one)) for one in (asking(Grammar("regex", "[a-f]{2}")), asking(None))
    )
    assert await asyncio.to_thread(began.wait, 10)
    for _ in range(2 * SETTLE_ROUNDS):
        await asyncio.sleep(0)
    assert engine.steps == steps
    assert not free.done()
    may_end.set()
    assert all(re.fullmatch("[a-f]{2}", said(engine, one)) for one in await held)
    await free


async def test_a_grammar_that_is_compiled_is_had_while_another_is_being_compiled(
    base: BaseModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    grammars, known = Grammars(base), Grammar("regex", "[a-f]{2}")
    grammars.matcher(known)
    began, may_end = slow_compiler(monkeypatch)
    compiling = asyncio.create_task(asyncio.to_thread(grammars.matcher, Grammar("regex", "[a-f]{3}")), name="compile")
    assert await asyncio.to_thread(began.wait, 10)
    try:
        await asyncio.wait_for(asyncio.to_thread(grammars.matcher, known), 5)
    finally:
        may_end.set()
        await compiling
    assert all(grammars.knows(Grammar("regex", f"[a-f]{{{count}}}")) for count in (2, 3))


async def test_a_grammar_too_large_to_follow_is_an_error_and_no_end(engine: TransformersEngine) -> None:
    with pytest.raises(EngineError, match=r"too many|too complex|large"):
        await engine.generate(asking(Grammar("regex", "a{1000000}")))
