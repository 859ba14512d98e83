"""A reward that is NaN, infinite or beyond 1e30 is a recorded failure of its episode: never equal, and never best."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from parts import make_turn, runtime_of, sample

from mas.algorithms.parts.advantages.group import RunningBaseline, group_advantages, groups_of, standardised, std
from mas.algorithms.parts.advantages.normalisation import whiten
from mas.algorithms.parts.rewards.terms import RewardOptions, total_reward
from mas.algorithms.parts.rewards.transforms import RewardModelOptions
from mas.algorithms.parts.sampling.options import SamplerOptions
from mas.algorithms.parts.sampling.selection import filter_groups
from mas.core.environment import LARGEST, Move, check_finite
from mas.core.errors import RewardError, TrainingError
from mas.core.messages import Payload
from mas.core.records import Episode
from mas.core.role import RoleSpec
from mas.core.scenario import Scenario
from mas.core.seeds import derive_seed
from mas.core.team import TeamSpec
from mas.scenarios.plan_path import PathEnvironment, PathOptions, PathRules, PathState, build
from mas.scenarios.world import FolderScenario
from mas.testing.scripted import ScriptedEngine
from mas.training.evaluate import evaluate
from mas.training.reward_models import StepScores, Trajectory
from mas.training.step_metrics import step_metrics
from mas.training.updates.rewarded import Rewarded
from mas.training.updates.update import UpdateResult

BAD = (math.nan, math.inf, -math.inf, 1.7e308)
WALKER = TeamSpec(
    name="walker",
    roles={
        "executor": RoleSpec(type="executor", view="solo", template="E{cell}>", choices=tuple("UDLR"), max_tokens=1)
    },
    edges=("start -> executor", "executor -> done"),
    output="executor",
)
MODES = {
    "tree": SamplerOptions(candidates=3),
    "parallel": SamplerOptions(mode="parallel", candidates=3),
    "full_tree": SamplerOptions(mode="full_tree", candidates=2),
    "entropy_tree": SamplerOptions.model_validate(
        {"mode": "entropy_tree", "candidates": 4, "branch": {"chains": 2, "expand": 1}}
    ),
}


def walks(prompt: str, adapter: str | None, seed: int) -> str:
    return "UDLR"[derive_seed(prompt, seed) % 4]


class Broken(PathEnvironment):
    """Pays what is no number for going right."""

    value = math.nan

    def act(self, state: PathState, action: str) -> tuple[PathState, dict[str, float], bool]:
        after, terms, legal = super().act(state, action)
        return after, {**terms, "progress": self.value} if action == "R" else terms, legal


class BrokenReward:
    """Own terms that are no number for a move to the right."""

    terms = ("own",)

    def __init__(self, value: float) -> None:
        self.value = value

    def own(self, move: Move) -> Mapping[str, float]:
        return {"own": self.value if _text(move.output) == "R" else 1.0}


def _text(payload: Payload) -> str:
    return str(getattr(payload, "content", ""))


def world_of(value: float) -> Scenario:
    kind = type("Broken", (Broken,), {"value": value})
    return replace(path_scenario(), make_environment=lambda: kind(PathRules(size=3, walls=1, max_turns=3)))


def rewarded_by(value: float) -> Scenario:
    return replace(path_scenario(), reward=BrokenReward(value))


def path_scenario() -> FolderScenario:
    return build(PathOptions(size=3, walls=1, max_turns=3))


async def played(scenario: Scenario, options: SamplerOptions) -> list[Episode]:
    async with runtime_of(WALKER, ScriptedEngine(walks)) as runtime:
        return await sample(runtime, scenario, range(6), options)


@pytest.mark.parametrize("value", BAD)
@pytest.mark.parametrize("broken", [world_of, rewarded_by])
@pytest.mark.parametrize("mode", MODES)
async def test_an_episode_that_was_paid_no_number_failed_and_teaches_nothing(
    mode: str, broken: Callable[[float], Scenario], value: float
) -> None:
    episodes = await played(broken(value), MODES[mode])
    assert all(math.isfinite(paid) for one in episodes for turn in one.turns for paid in turn.rewards.values())
    failed = [episode for episode in episodes if episode.status == "failed"]
    assert failed
    for episode in failed:
        assert not episode.turns
        assert not episode.success
        assert episode.cause is not None
        assert episode.cause.startswith("RewardError: ")
        assert f"={value}: a reward must be a finite number" in episode.cause
    if mode == "parallel":  # one move to the right fails its own episode, not its siblings
        assert any(episode.status == "done" and episode.turns for episode in episodes)
        advantages = [0.0] * sum(len(episode.turns) for episode in episodes)
        improved = UpdateResult(rows=[], advantages=advantages, learned={}, metrics={})
        metrics = step_metrics(episodes, improved, RewardOptions(), {})
        assert metrics["episodes"]["failed"] == len(failed)
        assert math.isfinite(metrics["reward"])


async def test_an_evaluation_counts_an_episode_that_was_paid_no_number_as_not_played() -> None:
    async with runtime_of(WALKER, ScriptedEngine(walks)) as runtime:
        found = await evaluate(runtime, world_of(math.inf), 12)
    assert 0 < found.unplayed == sum(episode.status == "failed" for episode in found.episodes)


@given(st.sampled_from(BAD), st.lists(st.floats(-9, 9), max_size=6), st.data())
def test_no_comparison_depends_on_where_a_number_that_is_none_stands(
    bad: float, values: list[float], data: st.DataObject
) -> None:
    rewards = [*values, bad]
    rewards = [rewards[i] for i in data.draw(st.permutations(range(len(rewards))))]
    keys = ["g"] * len(rewards)
    comparisons: Sequence[Callable[[], object]] = (
        lambda: group_advantages(rewards, keys),
        lambda: group_advantages(rewards, keys, baseline="best"),
        lambda: groups_of(rewards, keys),
        lambda: whiten(rewards),
        lambda: std(rewards),
        lambda: standardised(rewards),
        lambda: filter_groups({"g": rewards}, "dapo"),
        lambda: RunningBaseline().advantages(rewards, keys, range(len(rewards))),
    )
    for compare in comparisons:
        with pytest.raises(ValueError, match="only finite numbers can be compared"):
            compare()


@given(st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=8), st.data())
def test_finite_rewards_get_the_same_advantage_in_any_order(values: list[float], data: st.DataObject) -> None:
    order = data.draw(st.permutations(range(len(values))))
    straight = group_advantages(values, ["g"] * len(values))
    shuffled = group_advantages([values[i] for i in order], ["g"] * len(values))
    assert [straight[i] for i in order] == pytest.approx(shuffled, abs=1e-9)
    assert [whiten(values)[i] for i in order] == pytest.approx(whiten([values[i] for i in order]), abs=1e-6)


def test_weights_that_make_no_number_of_finite_terms_are_an_error() -> None:
    options = RewardOptions(weights={"a": 1e300})
    with pytest.raises(RewardError, match="the weighted sum of the terms paid R=inf"):
        total_reward({"team.a": 1e300}, options)
    with pytest.raises(RewardError, match="paid R=1e\\+61"):
        total_reward({"team.a": 1e30}, RewardOptions(weights={"a": 1e31}))
    assert total_reward({"team.a": 1e30, "own.b": 1e30}, RewardOptions()) == 2e30, "a sum may be larger than its terms"


@pytest.mark.parametrize("sign", [-1, 1])
def test_the_bound_itself_may_be_paid_and_nothing_beyond_it(sign: int) -> None:
    check_finite({"a": sign * LARGEST}, "nobody")
    with pytest.raises(RewardError, match=r"nobody paid a=-?1\.01e\+30: .* between -1e\+30 and 1e\+30"):
        check_finite({"a": sign * 1.01 * LARGEST}, "nobody")


@given(st.lists(st.sampled_from([-LARGEST, LARGEST, 0.0, 1.0]), min_size=2, max_size=9))
def test_the_largest_rewards_compare_without_overflow(values: list[float]) -> None:
    keys = ["g"] * len(values)
    compared = [
        group_advantages(values, keys, baseline="leave_one_out", scale="none"),
        group_advantages(values, keys),
        whiten(group_advantages(values, keys, scale="nonzero")),
        standardised(values),
    ]
    assert all(math.isfinite(value) for one in compared for value in one)


class Diverged:
    """A reward model whose weights are no numbers any more."""

    def step(self, trajectories: Sequence[Trajectory], *, lr_scale: float) -> StepScores:
        return StepScores(scores=[[math.nan] * len(one.rows) for one in trajectories], told={})


def test_a_reward_model_that_says_no_number_ends_the_training_with_its_adapters_name() -> None:
    turn = make_turn(role="executor")
    episode = Episode(
        id="e",
        task="t",
        success=True,
        turns=(turn,),
        lines=(),
        rewards={},
        prompt_tokens=0,
        completion_tokens=0,
        calls=0,
    )
    update = Rewarded(None, Diverged(), RewardModelOptions(kind="progress"))
    with pytest.raises(TrainingError, match=r"model of adapter 'executor' pays turn 'g/t' nan.*option reward_lr"):
        update.improve([episode], {"executor": "executor"}, step=0, lr_scale=1.0)
