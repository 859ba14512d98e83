"""The trainer and the canary: what is published is what was learned, and nothing goes on that cannot teach."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import pytest
import torch
from conftest import BaseFor
from parts import SKILLED, make_turn

from mas.config.options import Config, LearnerOptions
from mas.core.errors import ConfigError, EngineError, NotServed, TrainingError
from mas.core.records import Cost, Episode, Prompts, cost_of, total_cost
from mas.core.scenario import Scenario
from mas.core.team import TeamSpec
from mas.runs.resolve import resolve_training
from mas.scenarios import build_scenario
from mas.scenarios.world import FolderScenario
from mas.serving.model import BaseModel
from mas.serving.store import AdapterStore
from mas.serving.transformers_engine import TransformersEngine
from mas.training.adapters import TrainableAdapters
from mas.training.evaluate import Evaluation
from mas.training.learner import Learner
from mas.training.trainer import Trainer, TrainingOutcome
from mas.training.updates.policy_gradient import PolicyGradient


class Notes:
    """A watcher that remembers."""

    def __init__(self) -> None:
        self.steps: list[tuple[int, dict[str, Any], Sequence[Episode]]] = []
        self.evaluations: list[tuple[int, str]] = []

    def on_resume(self, step: int) -> None:
        self.resumed = step

    def on_step(self, step: int, metrics: dict[str, Any], episodes: Sequence[Episode]) -> None:
        self.steps.append((step, metrics, episodes))

    def on_note(self, step: int, note: Mapping[str, Any]) -> None:
        """Only editors leave notes."""

    def on_evaluation(self, step: int, name: str, evaluation: Evaluation) -> None:
        self.evaluations.append((step, name))


def config_of(algorithm: dict[str, Any] | None = None, **train: Any) -> Config:
    options = {"steps": 2, "tasks_per_step": 4, "eval_tasks": 5, "eval_every": 0} | train
    return Config.model_validate(
        {
            "scenario": {"name": "relay"},
            "model": SKILLED.model_dump(),
            "algorithm": {"sampler": {"candidates": 4}} | (algorithm or {}),
            "train": options,
        }
    )


@pytest.fixture(scope="module")
def base(base_for: BaseFor) -> BaseModel:
    return base_for("relay", SKILLED)


@pytest.fixture
def scenario() -> Scenario:
    return build_scenario(config_of().scenario)


async def train(config: Config, scenario: Scenario, base: BaseModel) -> tuple[TrainingOutcome, Notes]:
    notes = Notes()
    return await Trainer(resolve_training(config, scenario), base).run(notes), notes


def with_role(scenario: Scenario, role: str, **changes: Any) -> Scenario:
    """The scenario with one role of its team changed."""
    assert isinstance(scenario, FolderScenario)
    team = scenario.teams["team"]
    roles = dict(team.roles) | {role: team.roles[role].model_copy(update=changes)}
    changed: dict[str, TeamSpec] = {**scenario.teams, "team": team.model_copy(update={"roles": roles})}
    object.__setattr__(scenario, "teams", changed)
    return scenario


async def test_every_step_publishes_the_next_version_and_samples_with_it(base: BaseModel, scenario: Scenario) -> None:
    outcome, notes = await train(config_of(steps=3), scenario, base)
    assert outcome.progress.versions == {"planner": 3, "executor": 3}
    assert outcome.reason == "3 steps done"
    for step, metrics, episodes in notes.steps:
        used = {(turn.role, str(turn.adapter)) for episode in episodes for turn in episode.turns}
        assert used == {("planner", f"planner@{step - 1}"), ("executor", f"executor@{step - 1}")}
        assert set(metrics["canary"]) == {"planner", "executor"}
        assert max(found["gap"] for found in metrics["canary"].values()) < 1e-4
        assert all(found["from_previous"] > 0 for found in metrics["canary"].values())
    spent = sum(episode.tokens for _, _, episodes in notes.steps for episode in episodes)
    assert outcome.progress.tokens == spent
    assert notes.evaluations == [(0, "greedy"), (0, "sampled"), (3, "greedy"), (3, "sampled")]


async def test_training_is_repeatable_and_depends_on_the_seed(base: BaseModel, scenario: Scenario) -> None:
    first, again, other = [
        (await train(config_of(seed=seed), scenario, base))[0].adapters["planner"].parameters() for seed in (0, 0, 1)
    ]
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    assert not any(torch.equal(a, b) for a, b in zip(first, other, strict=True))


async def test_an_update_that_the_engine_does_not_load_is_noticed(
    base: BaseModel, scenario: Scenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    score, first = TransformersEngine.score_version, dict[str, Any]()

    async def stale(engine: TransformersEngine, version: Any, *tokens: Any) -> Any:
        held = version if version is None else first.setdefault(version.ref.name, version)
        return await score(engine, held, *tokens)

    monkeypatch.setattr(TransformersEngine, "score_version", stale)
    with pytest.raises(NotServed, match="not served as it was trained"):
        await train(config_of(), scenario, base)


async def test_an_update_delivered_to_the_wrong_adapter_is_noticed(
    base: BaseModel, scenario: Scenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish, other = AdapterStore.publish_all, {"planner": "executor", "executor": "planner"}

    async def swapped(store: AdapterStore, updates: Mapping[str, Any], **options: Any) -> Any:
        found = await publish(store, {other[name]: update for name, update in updates.items()}, **options)
        return {name: found[other[name]] for name in updates}

    monkeypatch.setattr(AdapterStore, "publish_all", swapped)
    with pytest.raises(TrainingError, match=r"not drawn from the policy in training|holds other weights"):
        await train(config_of(), scenario, base)


@pytest.mark.parametrize("lr", [3e-3, 1e-7])
async def test_an_update_of_any_size_that_is_not_handed_over_is_noticed(
    base: BaseModel, scenario: Scenario, monkeypatch: pytest.MonkeyPatch, lr: float
) -> None:
    make, first = AdapterStore._make, dict[str, Any]()

    def relabelled(store: AdapterStore, ref: Any, weights: Any) -> Any:
        return make(store, ref, first.setdefault(ref.name, weights))

    monkeypatch.setattr(AdapterStore, "_make", relabelled)
    config = config_of()
    slow = config.model_copy(update={"learner": config.learner.model_copy(update={"lr": lr})})
    with pytest.raises((TrainingError, NotServed)):
        await train(slow, scenario, base)


async def test_samples_of_another_policy_are_noticed(
    base: BaseModel, scenario: Scenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    generate = TransformersEngine.generate

    async def bare(engine: TransformersEngine, request: Any) -> Any:
        generations = await generate(engine, msgspec.structs.replace(request, adapter=None))
        ref = engine.adapters()[request.adapter]
        return tuple(msgspec.structs.replace(generation, adapter=ref) for generation in generations)

    monkeypatch.setattr(TransformersEngine, "generate", bare)
    with pytest.raises(TrainingError, match="were not drawn from the policy in training"):
        await train(config_of(steps=3), scenario, base)


async def test_a_frozen_role_speaks_through_the_base_and_is_not_trained(base: BaseModel, scenario: Scenario) -> None:
    outcome, notes = await train(config_of(), with_role(scenario, "planner", trainable=False), base)
    assert set(outcome.adapters) == {"executor"}
    for _, metrics, episodes in notes.steps:
        adapters = {turn.role: turn.adapter for episode in episodes for turn in episode.turns}
        assert adapters["planner"] is None
        assert adapters["executor"] is not None
        assert set(metrics["adapters"]) == {"executor"}
        assert metrics["roles"]["planner"]["is_trained"] == 0


async def test_a_shared_policy_is_one_adapter_that_learns_from_all_roles(base: BaseModel, scenario: Scenario) -> None:
    outcome, notes = await train(config_of({"policy": "shared"}), scenario, base)
    assert set(outcome.adapters) == {"shared"}
    _, metrics, episodes = notes.steps[-1]
    assert metrics["adapters"]["shared"]["rows"] == sum(len(episode.turns) for episode in episodes)


async def test_the_learning_rate_falls_with_steps_or_budget(
    base: BaseModel, scenario: Scenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    step, scales = Learner.step, list[float]()

    def noted(learner: Learner, rows: Any, *, lr_scale: float) -> Any:
        scales.append(lr_scale)
        learned = step(learner, rows, lr_scale=lr_scale)
        assert all(group["lr"] == 3e-3 * lr_scale for one in learner.optimisers.values() for group in one.param_groups)
        return learned

    monkeypatch.setattr(Learner, "step", noted)
    learner = {"final_lr": 0.2}
    falling = config_of(steps=4).model_copy(update={"learner": LearnerOptions.model_validate(learner)})
    await train(falling, scenario, base)
    assert scales == pytest.approx([1.0, 0.8, 0.6, 0.4])
    scales.clear()
    spent = falling.model_copy(update={"train": falling.train.model_copy(update={"steps": 500, "token_budget": 1500})})
    _, notes = await train(spent, scenario, base)
    tokens = [0, *(metrics["tokens"] for _, metrics, _ in notes.steps[:-1])]
    assert scales == pytest.approx([1 - 0.8 * max(n / 500, count / 1500) for n, count in enumerate(tokens)])


@pytest.mark.parametrize("prompts", ["per_call", "shared", "none"])
async def test_the_token_budget_ends_training_by_the_column_that_it_names(
    base: BaseModel, scenario: Scenario, prompts: Prompts
) -> None:
    outcome, notes = await train(config_of(steps=50, token_budget=400, budget_prompts=prompts), scenario, base)
    assert outcome.reason == f"token budget of 400 spent (prompts: {prompts})"
    before = total_cost(cost_of(episodes) for _, _, episodes in notes.steps[:-1])
    assert outcome.progress.cost == before + cost_of(notes.steps[-1][2])
    assert outcome.progress.cost.tokens(prompts) >= 400 > before.tokens(prompts)
    spent = {one: outcome.progress.cost.tokens(one) for one in ("per_call", "shared", "none")}
    assert spent["per_call"] > spent["shared"] > spent["none"] > 0


async def test_metrics_have_every_column_and_how_often_weights_were_changed(
    base: BaseModel, scenario: Scenario
) -> None:
    config = config_of(steps=2).model_copy(update={"learner": LearnerOptions(epochs=2, minibatches=2)})
    outcome, notes = await train(config, scenario, base)
    last, cost = notes.steps[-1][1], outcome.progress.cost
    assert {name: last[name] for name in (*Cost.__struct_fields__, "tokens")} == {
        **msgspec.structs.asdict(cost), "tokens": cost.prompt_tokens + cost.completion_tokens
    }  # fmt: skip
    # Two steps of two passes over two minibatches each.
    assert outcome.progress.optimiser_steps == last["optimiser_steps"] == 8


async def test_a_task_that_cannot_be_played_is_counted_and_a_step_without_any_is_an_error(
    base: BaseModel, scenario: Scenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    generate, broken = TransformersEngine.generate, {"P?>"}

    async def refusing(engine: TransformersEngine, request: Any) -> Any:
        if any(engine.tokenizer.decode(request.prompt_ids).startswith(start) for start in broken):
            raise EngineError("not this one")
        return await generate(engine, request)

    monkeypatch.setattr(TransformersEngine, "generate", refusing)
    broken |= {"PA", "PB"}
    _, notes = await train(config_of(tasks_per_step=12), scenario, base)
    for _, metrics, episodes in notes.steps:
        failed = [episode for episode in episodes if episode.status == "failed"]
        assert metrics["episodes"] == {"done": 12 - len(failed), "failed": len(failed)}
        cause = "AgentFailed: agent 'planner' failed in turn 0: EngineError: not this one"
        assert {episode.cause for episode in failed} == {cause}
        assert metrics["passes"] == 0
    broken |= {"P"}
    with pytest.raises(TrainingError, match="none of the 5 held-out tasks could be played: AgentFailed"):
        await train(config_of(), scenario, base)
    with pytest.raises(TrainingError, match="none of the 4 tasks of step 1 could be played: AgentFailed"):
        await train(config_of(eval_first=False), scenario, base)


def test_weights_of_terms_that_nobody_pays_are_refused(base: BaseModel, scenario: Scenario) -> None:
    with pytest.raises(ConfigError, match=r"'rihgt', a term never paid\. Did you mean 'right'"):
        Trainer(resolve_training(config_of({"reward": {"weights": {"rihgt": 2.0}}}), scenario), base)
    Trainer(resolve_training(config_of({"reward": {"weights": {"right": 2.0, "failure": 0.5}}}), scenario), base)


def test_a_trainable_role_that_is_always_greedy_is_refused(base: BaseModel, scenario: Scenario) -> None:
    with pytest.raises(ConfigError, match="'planner' is trainable but its temperature is 0"):
        Trainer(resolve_training(config_of(), with_role(scenario, "planner", temperature=0.0)), base)


async def test_a_stop_text_of_several_tokens_is_refused(base: BaseModel, scenario: Scenario) -> None:
    with pytest.raises(ConfigError, match="stop 'ab' is 2 tokens"):
        await train(config_of(), with_role(scenario, "planner", stop=("ab",)), base)


def test_a_team_without_a_trainable_role_is_refused(base: BaseModel, scenario: Scenario) -> None:
    frozen = with_role(with_role(scenario, "planner", trainable=False), "executor", trainable=False)
    with pytest.raises(ConfigError, match="no trainable role"):
        Trainer(resolve_training(config_of(), frozen), base)


def test_a_frozen_role_with_an_adapter_that_nobody_trains_is_refused(base: BaseModel, scenario: Scenario) -> None:
    frozen = with_role(scenario, "planner", trainable=False, adapter="exectuor")
    with pytest.raises(ConfigError, match=r"'exectuor', which nobody trains\. Did you mean 'executor'"):
        Trainer(resolve_training(config_of(), frozen), base)
    with pytest.raises(ConfigError, match="'executor', which nobody trains"):
        Trainer(
            resolve_training(config_of({"policy": "shared"}), with_role(scenario, "planner", adapter="executor")), base
        )
    Trainer(resolve_training(config_of(), with_role(scenario, "planner", adapter="executor")), base)


def test_a_template_that_reads_what_its_view_does_not_show_is_refused(base: BaseModel, scenario: Scenario) -> None:
    with pytest.raises(ConfigError, match="gaol"):
        Trainer(resolve_training(config_of(), with_role(scenario, "planner", template="P{gaol}>")), base)


async def test_the_kl_is_paid_by_rewards_before_turns_are_compared(scenario: Scenario, base: BaseModel) -> None:
    quiet = {"entropy": 0.0}
    _, free = await train(config_of({"loss": quiet}, steps=3), scenario, base)
    _, paying = await train(config_of({"loss": quiet | {"kl": 5.0, "kl_in": "reward"}}, steps=3), scenario, base)
    # Fresh adapters are the base itself, so the first step pays nothing and learns the same.
    first, *later = (metrics["adapters"]["planner"] for _, metrics, _ in paying.steps)
    assert first["kl"] == pytest.approx(0, abs=1e-5)
    assert first["gradient_norm"] == pytest.approx(free.steps[0][1]["adapters"]["planner"]["gradient_norm"], rel=1e-3)
    assert max(abs(metrics["kl"]) for metrics in later) > 1e-3
    assert later[0]["gradient_norm"] != pytest.approx(
        free.steps[1][1]["adapters"]["planner"]["gradient_norm"], rel=1e-3
    )
    assert all("kl" not in metrics["adapters"]["planner"] for _, metrics, _ in free.steps)


def test_a_turn_pays_for_being_likelier_than_under_the_base(
    scenario: Scenario, base: BaseModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = config_of({"loss": {"kl": 0.5, "kl_in": "reward"}, "advantage": {"scale": "none"}})
    learner = TrainableAdapters(resolve_training(config, scenario), base).learner
    turns = [make_turn(role="planner", trajectory=name, completion_ids=(8, 9)) for name in "ab"]
    own = {id(turns[0]): (-1.0, -1.0), id(turns[1]): (-2.0, -2.0)}
    bare = {id(turn): (-1.5, -1.5) for turn in turns}
    monkeypatch.setattr(learner, "logprobs", lambda rows, is_reference=False: bare if is_reference else own)
    advantages, rows = PolicyGradient(learner, config.algorithm).rows(turns, {"planner": "planner"})
    # 0.5 x 2 x 0.5 is taken from the first, and as much given to the second; their mean stays 0.
    assert advantages == pytest.approx([-0.5, 0.5])
    assert [row.reference for row in rows] == [(-1.5, -1.5)] * 2
