"""CORY on a pair: both are paid r1 + r2, the observer alone hears the other, and adapters change places."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from conftest import BaseFor
from hypothesis import given
from hypothesis import strategies as st
from mixed import mixed
from parts import SKILLED, make_turn

from mas.algorithms.parts.rewards.interaction import paid_together
from mas.config.load import load_config
from mas.config.options import Config
from mas.core.errors import ConfigError
from mas.core.records import Episode, Turn
from mas.runs.resolve import resolve, resolve_training
from mas.serving.model import BaseModel
from mas.training.check_setup import check_trainable
from mas.training.evaluate import Evaluation
from mas.training.trainer import Trainer
from mas.training.updates.update import UpdateResult

PAIR = ("pioneer", "observer")
SMALL = ("train.eval_every=0", "train.eval_tasks=2", "algorithm.sampler.candidates=2", "train.tasks_per_step=2")


@pytest.fixture(scope="module")
def base(base_for: BaseFor) -> BaseModel:
    return base_for("refine", SKILLED)


class Seen:
    """A watcher that keeps episodes as they were played, and what came of them."""

    def __init__(self) -> None:
        self.episodes: list[Sequence[Episode]] = []
        self.metrics: list[dict[str, Any]] = []
        self.improved: list[UpdateResult] = []

    def on_resume(self, step: int) -> None:
        pass

    def on_step(self, step: int, metrics: dict[str, Any], episodes: Sequence[Episode]) -> None:
        self.metrics.append(metrics)
        self.episodes.append(episodes)

    def on_note(self, step: int, note: Any) -> None:
        pass

    def on_evaluation(self, step: int, name: str, evaluation: Evaluation) -> None:
        pass


def config_of(*words: str) -> Config:
    config = load_config(["scenario=refine", "algorithm=cory", *SMALL, *words])
    return config.model_copy(update={"model": SKILLED})


async def trained(base: BaseModel, *words: str, checkpoints: Path | None = None) -> Seen:
    config, seen = config_of(*words), Seen()
    trainer = Trainer(resolve_training(config), base, checkpoints=checkpoints)
    improve = trainer.trainable.improve

    async def kept(*given: Any, **named: Any) -> UpdateResult:
        seen.improved.append(await improve(*given, **named))
        return seen.improved[-1]

    trainer.trainable.improve = kept
    trainer.resume()
    await trainer.run(seen)
    return seen


def said(episode: Episode) -> dict[str, Turn]:
    return {turn.agent: turn for turn in episode.turns}


async def test_both_are_paid_the_sum_on_their_last_token(base: BaseModel) -> None:
    # Fresh critics expect 0 and fresh adapters are the base, so with lambda = 1 an advantage is what is paid.
    words = ("algorithm.options.lam=1.0", "algorithm.options.whiten=false", "train.steps=1", "train.tasks_per_step=32")
    seen = await trained(base, *words)
    paid = {row.turn.id: row.advantages[-1] for row in seen.improved[0].rows}
    sums = set()
    for episode in seen.episodes[0]:
        # 1 for the right answer, -1 for what is none.
        own = {
            agent: float(turn.text == answer_of(episode)) - (turn.failure is not None)
            for agent, turn in said(episode).items()
        }
        for agent, turn in said(episode).items():
            assert own[agent] == turn.rewards["own.answer"] + turn.rewards.get("own.failure", 0.0)
        sums.add(sum(own.values()))
        for turn in said(episode).values():
            assert paid[turn.id] == pytest.approx(sum(own.values()), abs=1e-4)
    assert sums >= {0.0, 1.0, 2.0}


def answer_of(episode: Episode) -> str:
    """The last digit of what the pioneer was asked."""
    left, sign, right = episode.lines[0].prompt.removeprefix("S").removesuffix(";>")
    return str((int(left) + int(right) if sign == "+" else int(left) - int(right)) % 10)


async def test_the_observer_sees_what_the_pioneer_answered_and_not_the_other_way_round(base: BaseModel) -> None:
    seen = await trained(base, "train.steps=1", "train.tasks_per_step=6")
    for episode in seen.episodes[0]:
        pioneer, observer = episode.lines
        assert (pioneer.agent, observer.agent) == PAIR
        assert pioneer.prompt.endswith(";>")
        assert observer.prompt == pioneer.prompt.removesuffix(">") + pioneer.text + ">"


def speakers(seen: Seen) -> list[str]:
    """Step by step, whose adapter the pioneer uses; the observer has the other one."""
    found = []
    for episodes in seen.episodes:
        pairs = {tuple(turn.adapter.name for turn in episode.turns if turn.adapter) for episode in episodes}
        assert len(pairs) == 1
        assert sorted(next(iter(pairs))) == sorted(PAIR)
        found.append(next(iter(pairs))[0])
    return found


@pytest.mark.nightly(of=16)
async def test_adapters_change_places_at_step_5_and_back_at_10_also_after_a_resume(
    base: BaseModel, tmp_path: Path
) -> None:
    wanted = ["pioneer"] * 5 + ["observer"] * 5 + ["pioneer"] * 2
    few = ("train.tasks_per_step=1", "train.checkpoint_every=1")
    straight = await trained(base, *few, "train.steps=12")
    assert speakers(straight) == wanted
    assert all(sorted(metrics["adapters"]) == sorted(PAIR) for metrics in straight.metrics)
    parts = [await trained(base, *few, f"train.steps={stop}", checkpoints=tmp_path) for stop in (3, 7, 12)]
    assert [name for part in parts for name in speakers(part)] == wanted
    assert [one.learned for part in parts for one in part.improved] == [one.learned for one in straight.improved]


@given(st.lists(st.dictionaries(st.sampled_from(["a", "b"]), st.floats(-2, 2)), min_size=1, max_size=4))
def test_everybody_has_the_sum_of_each_own_term_and_the_team_s_once(owned: list[dict[str, float]]) -> None:
    turns = [
        msgspec.structs.replace(
            make_turn(role="worker", rewards={"team.won": 1.0} | {f"own.{name}": value for name, value in own.items()}),
            agent=f"worker[{number}]",
        )
        for number, own in enumerate(owned)
        for _ in range(2)  # An agent's turns hold the terms of its whole episode, which count once.
    ]
    whole = Episode(
        id="e", task="t", success=True, turns=tuple(turns), lines=(), rewards={}, prompt_tokens=0, completion_tokens=0,
        calls=0,
    )  # fmt: skip
    other = msgspec.structs.replace(whole, id="other", turns=(make_turn(rewards={"own.a": 7.0}),))
    shared, alone = paid_together([whole, other])
    assert alone == other
    sums = {f"own.{name}": sum(own.get(name, 0.0) for own in owned) for name in {name for own in owned for name in own}}
    for turn in shared.turns:
        assert turn.rewards == pytest.approx({"team.won": 1.0} | sums)


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["algorithm=at_grpo", "algorithm.reward.shared=true"], "with sampler.mode=tree: that is of whole episodes"),
        (["algorithm=comas", "algorithm.reward.shared=true"], "what each agent, or each turn, was paid alone"),
        (["algorithm=gigpo", "algorithm.reward.shared=true"], "what each agent, or each turn, was paid alone"),
        (
            ["algorithm=training_free", "algorithm.reward.shared=true"],
            "update=training_free does not go together with reward.shared",
        ),
    ],
)
def test_sharing_what_is_not_there_to_be_shared_is_refused(words: list[str], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        load_config(mixed(*words))


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["scenario=relay", "algorithm=parallel_grpo"], "scenario 'relay' pays only the team"),
        (["scenario=retrieval", "algorithm=single_grpo"], "team 'retrieval_solo' has one"),
    ],
)
def test_sharing_needs_own_terms_and_several_agents(words: list[str], reason: str) -> None:
    config = load_config(mixed(*words, "algorithm.reward.shared=true"))
    with pytest.raises(ConfigError, match=reason):
        check_trainable(resolve(config))
