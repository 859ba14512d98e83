"""Judges that ship: patterns, and questions that a model answers with a number."""

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from mixed import mixed
from parts import make_turn

from mas.config.load import load_config
from mas.config.options import Config
from mas.core.errors import ConfigError
from mas.core.records import Answer, Cost, Judge, Turn
from mas.runs.resolve import resolve
from mas.runtime.agents import ModelEndpoint
from mas.testing.scripted import ScriptedEngine
from mas.training import judges
from mas.training.check_setup import check_trainable
from mas.training.judges import ModelJudge, read_mark
from mas.training.late_terms import find_judge

PEER = ("peers.critic.url=http://127.0.0.1:9", "peers.critic.model=m")


def config_of(judge: str, asks: dict[str, str], *words: str) -> Config:
    """With terms that are called as what is asked."""
    terms = ",".join(f"{term}: 0" for term in asks or ("polite",))
    late = [f"algorithm.reward.late.judge={judge}", f"algorithm.reward.late.terms={{{terms}}}"]
    config = load_config(mixed("scenario=relay", *words, *late))
    reward = config.algorithm.reward
    assert reward.late is not None
    reward = reward.model_copy(update={"late": reward.late.model_copy(update={"asks": asks})})
    return config.model_copy(update={"algorithm": config.algorithm.model_copy(update={"reward": reward})})


def judge_of(config: Config) -> Any:
    late = config.algorithm.reward.late
    assert late is not None
    return find_judge(late, resolve(config))


def said(*texts: str) -> list[Turn]:
    return [msgspec.structs.replace(make_turn(), id=f"t{n}", text=text) for n, text in enumerate(texts)]


async def marks(judge: Judge, turns: Sequence[Turn]) -> list[Answer]:
    return [answer async for answer in judge(turns)]


async def test_a_pattern_pays_what_it_is_found_in() -> None:
    judge = judge_of(config_of("pattern", {"brief": "^.{1,3}$", "polite": "please"}))
    found = await marks(judge, said("yes", "yes please"))
    assert [(one.turn, one.term, one.value) for one in found] == [
        ("t0", "brief", 1.0),
        ("t0", "polite", 0.0),
        ("t1", "brief", 0.0),
        ("t1", "polite", 1.0),
    ]


async def test_a_peer_is_asked_about_prompt_and_text_and_the_number_it_says_is_paid(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answers = {"good": "Mark: 8", "bad": "2.5 of 10", "odd": "no idea"}
    peer = ScriptedEngine(lambda prompt, adapter, seed: next(v for k, v in answers.items() if f"\n{k}\n" in prompt))
    own = ScriptedEngine(lambda prompt, adapter, seed: "")

    async def started(*_: object) -> ModelEndpoint:
        return ModelEndpoint(engine=peer, chats=True)

    monkeypatch.setattr("mas.training.engines.start_model_endpoint", started)
    config = config_of("critic", {"polite": "Is it polite?"}, *PEER)
    check_trainable(resolve(config))
    judge = judge_of(config)
    assert isinstance(judge, ModelJudge)
    turns = [
        msgspec.structs.replace(turn, prompt_ids=tuple(own.tokenizer.encode("What do you say?")))
        for turn in said("good", "bad", "odd", "good")
    ]
    async with judge.opened(ModelEndpoint(engine=own)):
        found = {answer.turn: answer.value for answer in await marks(judge, turns)}
    assert found == {"t0": 0.8, "t1": 0.25, "t3": 0.8}  # What cannot be read is not answered, and has its default.
    assert len(peer.requests) == 3  # Equal ones are asked once.
    asked = peer.tokenizer.decode(peer.requests[0].prompt_ids)
    assert all(part in asked for part in ("What do you say?", "good", "Is it polite?"))
    read = sum(len(request.prompt_ids) for request in peer.requests)
    spent = judge.spent()
    assert (spent.calls, spent.prompt_tokens, spent.shared_prompt_tokens) == (3, read, read)
    assert spent.tokens() > read
    assert judge.spent() == Cost()


async def test_more_questions_than_go_at_once_are_all_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judges, "_AT_ONCE", 2)
    own = ScriptedEngine(lambda prompt, adapter, seed: "7")
    judge = judge_of(config_of("base", {"a": "A?", "b": "B?"}, "model.path=somewhere"))
    async with judge.opened(ModelEndpoint(engine=own)):
        found = await marks(judge, said("x", "y", "z"))
    assert sorted((one.turn, one.term) for one in found) == [(f"t{n}", term) for n in range(3) for term in "ab"]
    assert {one.value for one in found} == {0.7}


@pytest.mark.parametrize(
    ("answer", "mark"), [("10", 1.0), ("0", 0.0), ("It is 7.", 0.7), ("11", None), ("none", None), ("7/10", 0.7)]
)
def test_the_first_number_from_0_to_10_is_the_mark(answer: str, mark: float | None) -> None:
    assert read_mark(answer) == mark


@pytest.mark.parametrize(
    ("judge", "asks", "words", "reason"),
    [
        ("base", {"polite": "?"}, (), "the tiny base cannot answer questions: name a model with model.path"),
        ("pattern", {"polite": "("}, (), "holds no regular expression"),
        ("pattern", {}, (), r"needs a regular expression for each of its terms \['polite'\]"),
        ("critic", {}, PEER, r"needs a question for each of its terms \['polite'\]"),
        ("patern", {}, (), "Did you mean 'pattern'"),
        ("mine", {"polite": "?"}, (), "not by 'mine': leave it out"),
    ],
)
def test_a_judge_that_cannot_judge_is_refused_with_the_reason(
    judge: str, asks: dict[str, str], words: tuple[str, ...], reason: str
) -> None:
    with pytest.raises(ConfigError, match=reason):
        judge_of(config_of(judge, asks, *words))
