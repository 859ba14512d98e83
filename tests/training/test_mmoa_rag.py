"""MMOA-RAG on `retrieval`: one policy for three roles, each paid the answer's F1 and its own penalty alone."""

from collections.abc import Sequence
from typing import Any

import pytest
from conftest import BaseFor
from oracles import ORACLES, near
from parts import SKILLED

from mas.algorithms.parts.rewards.names import FAILURE
from mas.algorithms.parts.rewards.terms import total_reward
from mas.config.load import load_config
from mas.core.environment import Move
from mas.core.messages import Action, Failure, Note
from mas.core.records import Episode
from mas.runs.resolve import resolve_training
from mas.scenarios.retrieval.cases import RetrievalCase
from mas.scenarios.retrieval.environment import RetrievalEnvironment, RetrievalReward, RetrievalState, overlap
from mas.serving.model import BaseModel
from mas.training.evaluate import Evaluation
from mas.training.trainer import Trainer
from mas.training.updates.update import UpdateResult

READ = {"rewriter": Action, "selector": Note, "answerer": Action}
ROLES = ("rewriter", "selector", "answerer")
SMALL = ("train.eval_every=0", "train.eval_tasks=2", "train.steps=1", "train.tasks_per_step=24")
BARE = ("algorithm.options.lam=1.0", "algorithm.options.whiten=false", "algorithm.sampler.candidates=4")
CASE = RetrievalCase("Which wage?", "", ("Annals: wage a b c.", "Annals: home mill."), 0, "a b c", "wage")


@pytest.fixture(scope="module")
def base(base_for: BaseFor) -> BaseModel:
    return base_for("retrieval", SKILLED)


def paid(role: str, said: str, f1: float, hits: tuple[int, ...] | None) -> float:
    """What the preset pays a role in an episode whose answer has this F1."""
    world = RetrievalEnvironment("words", 4)
    world._state = RetrievalState(CASE, hits=hits)
    output = READ[role](text=said) if said else Failure(cause="no such pattern", text="?")
    own = RetrievalReward().own(Move(agent=role, role=role, environment=world, output=output, before={}, after={}))
    terms = {"team.right": f1, "team.found": 0.5, "team.waste": -0.1}
    options = load_config(["scenario=retrieval", "algorithm=mmoa_rag"]).algorithm.reward
    terms |= {f"own.{name}": value for name, value in own.items()} | ({} if said else {FAILURE: options.failure})
    return total_reward(terms, options)


def test_the_golden_rewards_of_the_three_roles() -> None:
    # 2 P R / (P + R) of 3 shared words of 7 said and 3 that are right: 6 / 10.
    f1, oracle = overlap("p q r s t u v", "p q r"), ORACLES["26_mmoa_rag"]
    assert f1 == pytest.approx(0.6)
    assert paid("rewriter", "search: a; b; c; d; e", f1, None) == near(oracle["rewriter_5_subquestions"])
    assert paid("answerer", "word " * 35, f1, (0, 1)) == near(oracle["generator_35_words"])
    # A valid selection costs nothing, also of a document that does not answer; nor does a search that finds nothing.
    assert paid("selector", "1", f1, (0, 1)) == paid("selector", "2", f1, (0, 1)) == near(oracle["selector_valid"])
    assert paid("rewriter", "search: dragon", f1, None) == near(f1)
    # Malformed, twice the same, not there.
    assert [paid("selector", text, f1, (0, 1)) for text in ("both", "1, 1", "3")] == near([f1 - 1] * 3)
    # What cannot be read is malformed, and is not fined a second time.
    assert paid("selector", "", f1, (0, 1)) == near(f1 - 1)


class Steps:
    """A watcher that keeps episodes and metrics."""

    def __init__(self) -> None:
        self.episodes: list[Sequence[Episode]] = []
        self.metrics: list[dict[str, Any]] = []

    def on_resume(self, step: int) -> None:
        pass

    def on_step(self, step: int, metrics: dict[str, Any], episodes: Sequence[Episode]) -> None:
        self.metrics.append(metrics)
        self.episodes.append(episodes)

    def on_note(self, step: int, note: Any) -> None:
        pass

    def on_evaluation(self, step: int, name: str, evaluation: Evaluation) -> None:
        pass


async def trained(base: BaseModel, *words: str) -> tuple[Steps, list[UpdateResult]]:
    config = load_config(["scenario=retrieval", "algorithm=mmoa_rag", *SMALL, *BARE, *words])
    config = config.model_copy(update={"model": SKILLED})
    trainer, steps, improved = Trainer(resolve_training(config), base), Steps(), []
    improve = trainer.trainable.improve

    async def kept(*given: Any, **named: Any) -> UpdateResult:
        improved.append(await improve(*given, **named))
        return improved[-1]

    trainer.trainable.improve = kept
    await trainer.run(steps)
    return steps, improved


@pytest.mark.nightly(of=16)
async def test_every_turn_of_all_roles_is_paid_the_episode_s_f1_and_one_adapter_learns(base: BaseModel) -> None:
    # A fresh critic expects 0 and a fresh adapter is the base: with lambda = 1 an advantage is what is yet to be paid.
    steps, improved = await trained(base)
    advantages = {row.turn.id: row.advantages for row in improved[0].rows}
    f1s, begun = set(), set()
    for episode in steps.episodes[0]:
        f1s.add(episode.rewards.get("right", 0.0))
        for turn in episode.turns:
            lost = sum(turn.rewards.get(f"own.{name}", 0.0) for name in ("query", "selection", "length", "failure"))
            if (turn.agent, turn.trajectory) not in begun:  # Before its first turn an agent has paid nothing yet.
                assert advantages[turn.id][0] == pytest.approx(episode.rewards.get("right", 0.0) + lost, abs=1e-4)
            begun.add((turn.agent, turn.trajectory))
    assert f1s == {0.0, 1.0}
    spoken = {(turn.role, turn.adapter.name) for one in steps.episodes[0] for turn in one.turns if turn.adapter}
    assert spoken == {(role, "shared") for role in ROLES}
    assert list(steps.metrics[0]["adapters"]) == ["shared"]
    assert "kl" in steps.metrics[0]["adapters"]["shared"]
