"""PPO with a critic: who is paid what and when, and how a run goes on."""

import io
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from conftest import BaseFor
from mixed import mixed
from parts import SKILLED, make_turn
from rich.console import Console
from rows import ROLES, learner_of

from mas.algorithms.parts.advantages.pipeline import turn_advantages
from mas.algorithms.parts.options import AlgorithmOptions
from mas.config.load import load_config
from mas.config.options import Config
from mas.core.errors import ConfigError, TrainingError
from mas.core.records import Episode, Turn
from mas.observe.metrics import read_metrics
from mas.runs.train import train_in_directory
from mas.scenarios import build_scenario
from mas.serving.model import BaseModel
from mas.training.batch import train_rows
from mas.training.checkpoint import list_checkpoints, update_tensors
from mas.training.updates.ppo import Ppo
from mas.training.updates.update import UpdateResult

ADAPTER_OF = {name: name for name in ROLES[:2]}


@pytest.fixture(scope="module")
def base(base_for: BaseFor) -> BaseModel:
    return base_for("relay", SKILLED)


def ppo_of(base: BaseModel, critic: dict[str, Any], **loss: Any) -> Ppo:
    algorithm = AlgorithmOptions.model_validate(
        {
            "sampler": {"mode": "parallel"},
            "advantage": {"baseline": "critic"},
            "critic": {"whiten": False} | critic,
            "loss": {"entropy": 0.0} | loss,
        }
    )
    return Ppo(learner_of(base, **{"entropy": 0.0} | loss), algorithm, seed=0)


def said(role: str, trajectory: str, completions: Sequence[tuple[int, ...]], reward: float) -> list[Turn]:
    """All that one agent said in an episode; a prompt shows what it said before."""
    turns: list[Turn] = []
    prompt: tuple[int, ...] = (5, 6, 7)
    for place, ids in enumerate(completions):
        turn = make_turn(
            role=role, group=f"task/{role}", trajectory=trajectory, prompt_ids=prompt, completion_ids=ids,
            rewards={"team.won": reward},
        )  # fmt: skip
        turns.append(msgspec.structs.replace(turn, id=f"{role}/{trajectory}/{place}"))
        prompt = (*prompt, *ids, 12)
    return turns


def episode(*turns: Turn) -> Episode:
    return Episode(
        id="e", task="t", success=True, turns=turns, lines=(), rewards={}, prompt_tokens=0, completion_tokens=0, calls=0
    )


def improved(ppo: Ppo, *episodes: Episode, lr_scale: float = 1.0) -> UpdateResult:
    return ppo.improve(episodes, ADAPTER_OF, step=1, lr_scale=lr_scale)


def advantages(found: UpdateResult) -> dict[str, list[float]]:
    return {row.turn.id: list(row.advantages) for row in found.rows}


@pytest.mark.parametrize(
    ("level", "wanted"),
    [
        # V = 0 and lambda = 1: the reward 2 at the end of the second turn, discounted by 1/2 for every token behind it,
        # for every turn behind it, or for every turn behind this one.
        ("token", [[0.25, 0.5], [1.0, 2.0]]),
        ("bad", [[1.0, 1.0], [2.0, 2.0]]),
        ("turn", [[1.0, 1.0], [2.0, 2.0]]),
    ],
)
def test_an_agent_is_paid_at_the_end_of_its_last_turn(base: BaseModel, level: str, wanted: list[list[float]]) -> None:
    ppo = ppo_of(base, {"level": level, "gamma": 0.5, "lam": 1.0})
    turns = [*said("planner", "a", [(8, 9), (10, 11)], 2.0), *said("executor", "a", [(9,)], -1.0)]
    found = improved(ppo, episode(turns[0], turns[2], turns[1]))
    assert advantages(found) == {"planner/a/0": wanted[0], "planner/a/1": wanted[1], "executor/a/0": [-1.0]}
    means = [sum(turn) / 2 for turn in wanted]
    assert list(found.advantages) == [means[0], -1.0, means[1]]


def test_lambda_below_one_trusts_the_values(base: BaseModel) -> None:
    # V = 0: A = (gamma lambda)^k x reward.
    ppo = ppo_of(base, {"gamma": 0.9, "lam": 0.5})
    found = improved(ppo, episode(*said("planner", "a", [(8, 9, 10)], 1.0)))
    assert advantages(found)["planner/a/0"] == pytest.approx([0.2025, 0.45, 1.0])


def test_episodes_and_candidates_are_trajectories_of_their_own(base: BaseModel) -> None:
    ppo = ppo_of(base, {"lam": 1.0})
    found = improved(
        ppo, episode(*said("planner", "a", [(8,)], 1.0), *said("planner", "b", [(8,)], 3.0)),
        episode(*said("planner", "c", [(8,), (9,)], 5.0)),
    )  # fmt: skip
    assert list(found.advantages) == [1.0, 3.0, 5.0, 5.0]


def test_turns_of_frozen_roles_are_not_valued(base: BaseModel) -> None:
    ppo = ppo_of(base, {})
    found = improved(ppo, episode(*said("verifier", "a", [(8, 9)], 1.0), *said("planner", "a", [(8,)], 1.0)))
    assert list(found.advantages) == [0.0, 1.0]
    assert [row.turn.role for row in found.rows] == ["planner"]
    assert set(found.learned) == {"planner"}


def test_whitening_is_over_all_tokens_of_an_adapter(base: BaseModel) -> None:
    # Returns of the planner 1, 1, 3 (lambda = 1): mean 5/3, sample deviation sqrt(4/3) = 1.154701.
    ppo = ppo_of(base, {"lam": 1.0, "whiten": True})
    planner = [*said("planner", "a", [(8, 9)], 1.0), *said("planner", "b", [(8,)], 3.0)]
    found = advantages(improved(ppo, episode(*planner, *said("executor", "a", [(8,)], 7.0))))
    assert found["planner/a/0"] == pytest.approx([-0.577350] * 2, abs=1e-5)
    assert found["planner/b/0"] == pytest.approx([1.154700], abs=1e-5)
    assert found["executor/a/0"] == [0.0]


@pytest.mark.parametrize("level", ["token", "bad", "turn"])
def test_a_kl_in_the_reward_is_paid_by_each_token(base: BaseModel, level: str) -> None:
    beta = 0.4
    ppo = ppo_of(base, {"lam": 1.0, "level": level}, kl=beta, kl_in="reward")
    turns = said("planner", "a", [(8, 9), (10, 11)], 2.0)
    before = learner_of(base)
    found = improved(ppo, episode(*turns))
    own, reference = before.logprobs(found.rows), before.logprobs(found.rows, is_reference=True)
    paid = [beta * (a - b) for turn in turns for a, b in zip(own[id(turn)], reference[id(turn)], strict=True)]
    assert max(map(abs, paid)) > 0.05
    # gamma = lambda = 1: of every token (of a turn: its first), the reward less what is paid from there on.
    wanted = [2.0 - math.fsum(paid[at:]) for at in range(4)]
    if level == "turn":
        wanted = [wanted[0], wanted[0], wanted[2], wanted[2]]
    got = advantages(found)
    assert got["planner/a/0"] + got["planner/a/1"] == pytest.approx(wanted, abs=1e-5)
    assert "kl" in found.learned["planner"]


def test_a_kl_in_the_loss_is_not_in_the_reward(base: BaseModel) -> None:
    ppo = ppo_of(base, {"lam": 1.0}, kl=0.4, kl_in="loss")
    assert advantages(improved(ppo, episode(*said("planner", "a", [(8, 9)], 2.0)))) == {"planner/a/0": [2.0, 2.0]}


@pytest.mark.nightly
@pytest.mark.parametrize("level", ["token", "bad", "turn"])
def test_the_critic_learns_so_that_advantages_shrink(base: BaseModel, level: str) -> None:
    ppo = ppo_of(base, {"level": level, "epochs": 20, "lr": 1e-2})
    turns = [said("planner", name, [(8 + index, 9), (10,)], float(index)) for index, name in enumerate("abcd")]
    episodes = [episode(*own) for own in turns]
    told = [improved(ppo, *episodes, lr_scale=1e-9 if not step else 1.0).learned["planner"] for step in range(8)]
    assert told[0]["value"] == 0.0
    assert told[0]["return"] == pytest.approx(1.5)
    assert told[0]["explained_variance"] == 0.0
    assert told[-1]["value_loss"] < 0.5 * told[0]["value_loss"]
    assert told[-1]["value"] == pytest.approx(1.5, abs=0.5)
    assert told[-1]["explained_variance"] > 0.2


def test_what_is_paid_better_than_expected_becomes_likelier_beside_what_is_not(base: BaseModel) -> None:
    ppo = ppo_of(base, {"whiten": True})
    turns = [*said("planner", "a", [(8, 9)], 1.0), *said("planner", "b", [(10, 11)], 0.0)]
    before = ppo.learner.logprobs(train_rows(turns, [0.0, 0.0], ADAPTER_OF, aggregation="token_mean", max_length=8))
    turns = [msgspec.structs.replace(turn, logprobs=tuple(before[id(turn)])) for turn in turns]
    after = ppo.learner.logprobs(improved(ppo, episode(*turns), lr_scale=0.01).rows)
    good, bad = (sum(after[id(turn)]) - sum(turn.logprobs) for turn in turns)
    assert good - bad > 1e-3


SHORT = (
    "scenario=relay", "algorithm=ppo", "train.tasks_per_step=2", "train.eval_tasks=3", "train.eval_every=0",
    "train.checkpoint_every=1", "algorithm.sampler.candidates=3",
)  # fmt: skip


def train(run: Path, overrides: Sequence[str], *more: str) -> Config:
    config = load_config([*SHORT, *overrides, *more, f"run_dir='{run}'"])
    train_in_directory(config, build_scenario(config.scenario), console=Console(file=io.StringIO()))
    return config


def measured(run: Path) -> list[dict[str, Any]]:
    lines = [line for line in read_metrics(run / "metrics.jsonl") if "reward" in line]
    return [{name: value for name, value in line.items() if name != "seconds"} for line in lines]


def test_a_run_that_goes_on_ends_with_the_bits_of_one_that_never_stopped(
    tmp_path: Path, small_overrides: tuple[str, ...], base_for: Callable[..., BaseModel]
) -> None:
    base_for("relay")
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    train(whole, small_overrides, "train.steps=3")
    for steps in (1, 3):
        train(parts, small_overrides, f"train.steps={steps}")
    assert measured(whole) == measured(parts)
    assert len(measured(whole)) == 3
    assert all(line["adapters"]["planner"]["value_loss"] > 0 for line in measured(whole))
    last = [list_checkpoints(run / "checkpoints")[-1] for run in (whole, parts)]
    names = [sorted(str(file.relative_to(path)) for file in path.rglob("*") if file.is_file()) for path in last]
    assert names[0] == names[1]
    for name in ("update.safetensors", "adapters/planner/adapter_model.safetensors", "optimisers/executor.safetensors"):
        assert (last[0] / name).read_bytes() == (last[1] / name).read_bytes()
    assert {name.partition("/")[0] for name in update_tensors(last[0])} == {"planner", "executor"}
    assert sorted(path.name for path in (whole / "adapters").iterdir()) == ["executor", "planner"]


def test_a_checkpoint_of_a_run_without_critic_has_no_file_of_it(
    tmp_path: Path, small_overrides: tuple[str, ...], base_for: Callable[..., BaseModel]
) -> None:
    base_for("relay")
    train(tmp_path / "run", small_overrides, "train.steps=1", "algorithm=parallel_grpo")
    (checkpoint,) = list_checkpoints(tmp_path / "run" / "checkpoints")
    assert not (checkpoint / "update.safetensors").exists()
    assert update_tensors(checkpoint) == {}


def test_in_tree_sampling_a_candidate_is_paid_what_it_earned(
    tmp_path: Path, small_overrides: tuple[str, ...], base_for: Callable[..., BaseModel]
) -> None:
    base_for("relay")
    train(
        tmp_path / "run", small_overrides, "train.steps=1", "algorithm.sampler.mode=tree", "algorithm.options.lam=1.0"
    )
    (line,) = measured(tmp_path / "run")
    for role, told in line["roles"].items():
        assert line["adapters"][role]["return"] == pytest.approx(told["reward"])


TREE = ("algorithm=poad", "algorithm.sampler.mode=tree")


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["algorithm=ppo", "algorithm.advantage.baseline=mean", "algorithm.options.lam=1"], "mean has no critic"),
        (["algorithm=ppo", "algorithm.advantage.scale=none"], "compares with no group"),
        ([*TREE, "algorithm.options.gamma=0.9"], "a trajectory is one turn"),
        (
            ["algorithm=turn_ppo", "algorithm.sampler.mode=tree", "algorithm.options.lam=0.9"],
            "a trajectory is one turn",
        ),
    ],
)
def test_options_without_effect_are_refused(words: list[str], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        load_config(words)


def test_options_with_effect_are_not() -> None:
    load_config(["algorithm=ppo", *(f"algorithm.options.{word}" for word in ("gamma=0.9", "lam=1", "critic_clip=0.2"))])
    load_config(["algorithm=ppo", "algorithm.sampler.mode=tree", "algorithm.options.gamma=0.9"])


def test_a_mean_over_a_turn_needs_one_advantage_per_turn() -> None:
    words = ["algorithm=ppo", "algorithm.loss.surrogate=gmpo"]
    with pytest.raises(ConfigError, match=r"gmpo weighs a turn as one"):
        load_config(words)
    assert load_config(mixed(*words, "algorithm.critic.level=turn")).algorithm.critic.level == "turn"


def test_groups_know_nothing_of_a_critic() -> None:
    algorithm = load_config(["algorithm=ppo"]).algorithm
    with pytest.raises(TrainingError, match="baseline=critic compares nothing inside groups"):
        turn_advantages([make_turn()], algorithm.reward, algorithm.advantage)
