"""The parts of an advantage, put together by options: golden numbers through the whole of `turn_advantages`."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracles import ORACLES, near
from parts import make_turn

from mas.algorithms.parts.advantages.group import RunningBaseline
from mas.algorithms.parts.advantages.pipeline import AdvantageOptions, Known, turn_advantages
from mas.algorithms.parts.advantages.steps import Anchor
from mas.algorithms.parts.rewards.terms import RewardOptions, total_reward
from mas.algorithms.parts.sampling.selection import ToolUse
from mas.core.records import Turn, facts_of
from mas.training.batch import token_weights

BASELINES = ORACLES["28_baselines"]


def advantages(turns: Sequence[Turn], options: Mapping[str, Any], known: Known | None = None) -> list[float]:
    return turn_advantages(turns, RewardOptions(), AdvantageOptions.model_validate(options), known)


def rows(rewards: Sequence[float], **more: Any) -> list[Turn]:
    """One turn per trajectory, all of one group."""
    return [
        make_turn(group="q/solo", trajectory=f"t{k}", rewards={"team.right": reward}, **more)
        for k, reward in enumerate(rewards)
    ]


def walk(episode: str, rewards: Sequence[float], **more: Any) -> list[Turn]:
    """One trajectory of the group `q`, with a turn per step and its reward; the state is the step's number."""
    return [
        make_turn(
            group="q",
            trajectory=episode,
            episode=episode,
            turn=step,
            facts=facts_of(Anchor(state=f"s{step}")),
            rewards={"team.right": sum(rewards)},
            paid={"team.right": reward},
            **more,
        )
        for step, reward in enumerate(rewards)
    ]


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"scale": "none"}, "dr_grpo"),
        ({"baseline": "leave_one_out", "scale": "none"}, "rloo"),
        ({"baseline": "length_weighted", "scale": "none"}, "opo"),
        ({"scale": "nonzero"}, "gpg"),
        ({"baseline": "best"}, "pass_at_k"),
        ({"baseline": "none", "scale": "none", "whiten": "tokens"}, "reinforcepp_gamma1"),
        ({"scale": "none", "whiten": "tokens"}, "reinforcepp_baseline"),
    ],
)
def test_baselines_as_published(options: Mapping[str, Any], name: str) -> None:
    turns = [
        make_turn(group="q", trajectory=f"t{k}", rewards={"team.right": reward}, completion_ids=(7,) * length)
        for k, (reward, length) in enumerate(zip([1.0, 0.0, 0.0, 0.0], [2, 4, 4, 2], strict=True))
    ]
    assert advantages(turns, options) == near(BASELINES[name])


def test_components_are_compared_one_by_one() -> None:
    right, form = [1.0, 0.0, 1.0, 0.0], [1.0, 1.0, 0.0, 1.0]
    turns = [
        make_turn(group="q", trajectory=f"t{k}", rewards={"team.right": one, "own.form": other})
        for k, (one, other) in enumerate(zip(right, form, strict=True))
    ]
    assert advantages(turns, {"components": True}) == near(BASELINES["gdpo_sum_then_whiten"])
    together = advantages(turns, {})
    assert together[1] == together[2] == together[3]
    assert together == near(BASELINES["grpo_on_summed_reward"])


def test_stratified_advantages_compare_trajectories_of_one_length() -> None:
    oracle = ORACLES["13_stratified_grpo"]
    # A trajectory's stratum is how many turns it has.
    turns = [
        make_turn(group="q", trajectory=f"t{k}", turn=turn, rewards={"team.right": reward})
        for k, (reward, stratum) in enumerate(zip(oracle["rewards"], oracle["strata"], strict=True))
        for turn in range(1 + stratum)
    ]
    found = advantages(turns, {"strata": {"blend": 0.8}})
    assert [found[turns.index(turn)] for turn in turns if turn.turn == 0] == near(oracle["blend_08"])


def test_gigpo_adds_what_turns_of_one_state_are_worth() -> None:
    oracle = ORACLES["06_gigpo"]
    first, second = walk("a", [0.0, 0.0, 1.0]), walk("b", [0.0, 0.0, 0.0])
    elsewhere = facts_of(Anchor(state="elsewhere"))
    second[2] = make_turn(group="q", trajectory="b", turn=2, facts=elsewhere, rewards={"team.right": 0.0}, paid={})
    found = advantages(first + second, {"scale": "none", "step": {"scale": "none"}})
    assert found == near([value for row in oracle["adv_no_std"] for value in row])
    assert advantages(first + second, {"step": {}})[:3] == near(oracle["adv_std"][0])


def test_a_step_term_of_its_own_is_not_compared() -> None:
    oracle = ORACLES["11_hrpo_our_reading"]
    actions = [[0.2, -0.1], [0.0, 0.3], [0.1, 0.1], [-0.2, 0.0]]
    turns = [
        make_turn(group="q", trajectory=f"t{k}", turn=n, rewards={"team.right": outcome}, paid={"own.edit": value})
        for k, (outcome, own) in enumerate(zip([1.0, 0.0, 1.0, 0.0], actions, strict=True))
        for n, value in enumerate(own)
    ]
    found = advantages(turns, {"step": {"weight": 0.5, "value": "reward", "key": "none"}})
    assert found == near([value for row in oracle["adv"] for value in row])


def test_earlier_rounds_of_long_runs_earn_less() -> None:
    oracle = ORACLES["35_eapo"]
    turns = [
        make_turn(group="q", trajectory=name, turn=turn, id=f"{name}{turn}", rewards={"team.right": outcome})
        for name, length, outcome in (("a", 4, 1.0), ("b", 2, 1.0), ("c", 2, 0.0))
        for turn in range(length)
    ]
    found = turn_advantages(turns, RewardOptions(discount=0.9), AdvantageOptions())
    assert found == near([value for row in oracle["round_adv"] for value in row])


def test_workers_have_the_advantage_of_the_rollout_that_called_them() -> None:
    oracle = ORACLES["05_matpo"]
    turns, options = [], RewardOptions(weights={"correct": 0.9, "form": 0.1})
    paid = [
        {"team.correct": right, "team.form": form} for right, form in ((1.0, 1.0), (0.0, 1.0), (1.0, 0.0), (0.0, 0.0))
    ]
    assert [total_reward(terms, options) for terms in paid] == near(oracle["reward"])
    for k, workers in enumerate([2, 0, 1, 3]):
        said: dict[str, Any] = {"episode": f"e{k}", "trajectory": f"e{k}"}
        turns.append(make_turn(agent="planner", group="q/planner", rewards=paid[k], **said))
        turns += [
            make_turn(agent=f"worker[{n}]", group=f"q/worker[{n}]", rewards={"own.right": float(n)}, **said)
            for n in range(workers)
        ]
    found = turn_advantages(turns, options, AdvantageOptions(inherit="planner"))
    assert [value for turn, value in zip(turns, found, strict=True) if turn.agent == "planner"] == near(
        oracle["planner_adv"]
    )
    inherited = [value for turn, value in zip(turns, found, strict=True) if turn.agent != "planner"]
    assert inherited == near([value for own in oracle["worker_adv"] for value in own])
    # Each row weighs as much as a planner's: the mean over rows times rows / planners.
    weights = token_weights([1] * len(turns), "episode_mean", 1, episodes=[turn.episode for turn in turns])
    assert len(turns) == oracle["rows"]
    assert weights == near([oracle["seq_mean_loss_multiplier"] / oracle["rows"]] * len(turns))


def test_a_running_baseline_is_read_before_it_is_updated_and_goes_on() -> None:
    oracle = ORACLES["04_spiral_rae"]
    options = AdvantageOptions(key="role", baseline="running", scale="none")
    running, found = RunningBaseline(0.95), []
    for number, (value, role) in enumerate(zip(oracle["returns"], oracle["roles"], strict=True)):
        turn = make_turn(role=f"seat{role}", group=f"g{number}", trajectory="t", rewards={"team.won": value})
        found += turn_advantages([turn], RewardOptions(), options, running=running)
        running = RunningBaseline(0.95, dict(running.state()))
    assert found == near(oracle["adv_read_then_update"])


def test_confident_turns_count_more() -> None:
    oracle = ORACLES["16_empg"]
    entropies = [[0.2, 0.8, 1.4], [0.4, 1.0, 0.2]]
    # Two trajectories whose advantages are +-1: rewards 1 and -1 without scale.
    turns = [
        make_turn(group="q", trajectory=f"t{k}", turn=step, rewards={"team.right": 1.0 - 2 * k})
        for k in range(2)
        for step in range(3)
    ]
    known = Known(entropies=[value for row in entropies for value in row])
    options = {"scale": "none", "uncertainty": {"scale": 1.0, "clarity": 0.1, "clarity_scale": 1.0}}
    assert advantages(turns, options, known) == near([value for row in oracle["final_zero_mean"] for value in row])


def test_long_completions_lose_reward() -> None:
    turns = [
        make_turn(group="q", trajectory=f"t{k}", rewards={"team.right": 1.0}, completion_ids=(7,) * length)
        for k, length in enumerate([70, 90, 100])
    ]
    rewards = RewardOptions.model_validate({"length": {"most": 100, "margin": 20}})
    # 1, 1 - 0.5 and 1 - 1, less their mean of 0.5.
    assert turn_advantages(turns, rewards, AdvantageOptions(scale="none")) == pytest.approx([0.5, 0.0, -0.5])


@given(rewards=st.lists(st.floats(-3, 3, width=16), min_size=2, max_size=12), shift=st.floats(-4, 4, width=16))
def test_what_all_are_paid_changes_no_comparison(rewards: list[float], shift: float) -> None:
    every: list[dict[str, Any]] = [{}, {"baseline": "leave_one_out"}, {"scale": "none"}, {"components": True}]
    for options in every:
        before = advantages(rows(rewards), options)
        after = advantages(rows([reward + shift for reward in rewards]), options)
        assert after == pytest.approx(before, abs=1e-3)


@given(lengths=st.lists(st.integers(1, 5), min_size=2, max_size=6), data=st.data())
def test_a_trajectory_enters_the_statistics_once(lengths: list[int], data: st.DataObject) -> None:
    rewards = data.draw(st.lists(st.integers(0, 1), min_size=len(lengths), max_size=len(lengths)))
    long = [
        make_turn(group="q", trajectory=f"t{k}", turn=turn, rewards={"team.right": float(reward)})
        for k, (length, reward) in enumerate(zip(lengths, rewards, strict=True))
        for turn in range(length)
    ]
    found = advantages(long, {})
    short = advantages(rows([float(reward) for reward in rewards]), {})
    assert [value for turn, value in zip(long, found, strict=True) if turn.turn == 0] == short


@given(value=st.floats(-2, 2), names=st.lists(st.sampled_from("abcdef"), min_size=1, max_size=6, unique=True))
def test_equal_rewards_teach_nothing_whatever_the_parts(value: float, names: list[str]) -> None:
    turns = [
        make_turn(group="q", trajectory=name, id=name, rewards={"team.right": value}, paid={"team.right": value})
        for name in names
    ]
    every: list[dict[str, Any]] = [
        {},
        {"scale": "none", "whiten": "turns"},
        {"components": True},
        {"strata": {}},
        {"step": {}},
        {"key": "batch"},
        {"inherit": "executor"},
    ]
    for options in every:
        assert advantages(turns, options) == [0.0] * len(turns)


def test_uncertainty_scales_each_turn_s_own_advantage() -> None:
    first, second = walk("a", [0.0, 0.0, 1.0]), walk("b", [0.0, 0.0, 0.0])
    step = {"scale": "none", "step": {"scale": "none"}}
    known = Known(entropies=[0.7] * 6)
    plain = advantages(first + second, step)
    scaled = advantages(first + second, step | {"uncertainty": {"clarity": 0.0}}, known)
    # Equal entropies scale by 1, and the mean of all is 0 already.
    assert scaled == pytest.approx(plain)
    assert len(set(plain[:3])) > 1


def test_each_role_s_entropies_are_compared_among_themselves() -> None:
    def of(role: str) -> list[Turn]:
        rewards = enumerate([2.0, -1.0, 5.0])
        return [make_turn(role=role, group=role, trajectory=f"{k}", rewards={"team.x": r}) for k, r in rewards]

    options = {"scale": "none", "uncertainty": {"clarity": 0.0}}
    alone = advantages(of("a"), options, Known(entropies=[0.1, 0.2, 0.15]))
    beside = advantages(of("a") + of("b"), options, Known(entropies=[0.1, 0.2, 0.15, 5.0, 9.0, 7.0]))
    assert beside[:3] == pytest.approx(alone)
    assert alone != pytest.approx(advantages(of("a"), {"scale": "none"}), abs=1e-3)


def test_the_agent_that_is_inherited_from_keeps_its_own_and_others_follow() -> None:
    planner = walk("a", [1.0], agent="planner", role="planner") + walk("b", [0.0], agent="planner", role="planner")
    silent = make_turn(group="q/worker", trajectory="c", episode="c", agent="worker", rewards={"own.x": 3.0})
    found = advantages([*planner, silent], {"inherit": "planner"})
    assert found == near([0.707106, -0.707106, 0.0])


def test_a_turn_may_be_compared_by_what_it_alone_was_paid() -> None:
    # Right at once (1), or wrong and then right (0 + 1): each answer by itself, not the sum of a trajectory's.
    turns = [
        make_turn(group="q", trajectory="a", id="a0", rewards={"own.good": 1.0}, paid={"own.good": 1.0}),
        make_turn(group="q", trajectory="b", id="b0", rewards={"own.good": 2.0}, paid={"own.good": 1.0}),
        make_turn(group="q", trajectory="b", id="b1", visit=1, rewards={"own.good": 2.0}, paid={"own.good": 1.0}),
    ]
    own = RewardOptions(of="turn")
    assert turn_advantages(turns, own, AdvantageOptions()) == [0.0, 0.0, 0.0]
    assert turn_advantages(turns, RewardOptions(), AdvantageOptions())[0] < 0


def test_the_index_of_a_turn_counts_its_agent_s_turns() -> None:
    # The second turn of b comes two team turns later, and is still its second.
    first = walk("a", [0.0, 1.0])
    second = [*walk("b", [0.0, 0.0])[:1], *walk("b", [0.0, 0.0, 0.0])[2:]]
    second = [msgspec.structs.replace(turn, rewards={"team.right": 0.0}) for turn in second]
    options = {"scale": "none", "step": {"key": "index", "scale": "none", "value": "reward"}}
    # 0.5 of the episode and +-0.5 of the second step.
    assert advantages(first + second, options) == near([0.5, 1.0, -0.5, -1.0])


def test_random_groups_stay_within_a_role_and_change_with_the_step() -> None:
    turns = [
        make_turn(role=role, group=f"{role}{k}", trajectory=f"{k}", id=f"{role}{k}", paid={"own.x": float(k + shift)})
        for role, shift in (("a", 0), ("b", 100))
        for k in range(8)
    ]
    step = {"value": "reward", "key": "random", "size": 4, "scale": "none"}
    found = advantages(turns, {"scale": "none", "step": step}, Known(step=1))
    assert max(map(abs, found)) < 8
    assert found != advantages(turns, {"scale": "none", "step": step}, Known(step=2))


def test_prompts_are_compared_by_their_tokens() -> None:
    turns = [
        make_turn(group=f"g{k}", trajectory="t", id=f"{k}", prompt_ids=prompt, rewards={"team.x": reward})
        for k, (prompt, reward) in enumerate([((1, 2), 1.0), ((1, 2), 0.0), ((1, 3), 5.0)])
    ]
    assert advantages(turns, {"key": "prompt", "scale": "none"}) == [0.5, -0.5, 0.0]


def test_strata_may_be_outputs_that_did_not_parse() -> None:
    turns = [
        make_turn(group="q", trajectory=f"{k}", failure=failure, rewards={"team.x": reward})
        for k, (failure, reward) in enumerate([(None, 1.0), (None, 0.0), ("bad", -1.0), ("bad", -3.0)])
    ]
    assert advantages(turns, {"scale": "none", "strata": {"by": "failures", "blend": 1.0}}) == [0.5, -0.5, 1.0, -1.0]


@pytest.mark.parametrize("options", [{"scale": "none", "whiten": "turns"}, {"components": True}])
def test_each_adapter_s_batch_is_whitened_by_itself(options: Mapping[str, Any]) -> None:
    def of(role: str, size: float) -> list[Turn]:
        return [make_turn(role=role, group=role, trajectory=f"{k}", rewards={"team.x": k * size}) for k in range(4)]

    alone = advantages(of("a", 1.0), options)
    assert advantages(of("a", 1.0) + of("b", 50.0), options)[:4] == pytest.approx(alone)
    shared = Known(adapter_of={"a": "shared", "b": "shared"})
    if "whiten" in options:
        assert advantages(of("a", 1.0) + of("b", 50.0), options, shared)[:4] != pytest.approx(alone)


def test_components_weigh_rows_and_not_their_tokens() -> None:
    turns = [
        make_turn(group="q", trajectory=f"{k}", rewards={"team.x": x, "own.y": y}, completion_ids=(7,) * length)
        for k, (x, y, length) in enumerate([(1.0, 1.0, 2), (0.0, 1.0, 4), (1.0, 0.0, 40), (0.0, 1.0, 2)])
    ]
    assert advantages(turns, {"components": True}) == near(BASELINES["gdpo_sum_then_whiten"])


def test_a_discount_takes_nothing_off_what_a_turn_loses() -> None:
    turns = [
        make_turn(group="q", trajectory="t", turn=number, id=f"{number}", rewards={"team.right": 1.0})
        for number in range(2)
    ]
    # The first of two turns: 1 x 0.5 - 0.25 and not (1 - 0.25) x 0.5; the last one: 1 - 0.25.
    plain = AdvantageOptions(baseline="none", scale="none")
    found = turn_advantages(turns, RewardOptions(discount=0.5), plain, Known(penalties=[0.25, 0.25]))
    assert found == pytest.approx([0.25, 0.75])


@pytest.mark.parametrize("key", ["group", "state", "index"])
def test_step_terms_of_two_agents_in_one_state_are_compared_apart(key: str) -> None:
    def of(agent: str, size: float) -> list[Turn]:
        return [
            make_turn(
                role=agent,
                group=f"q/{agent}",
                trajectory=f"{k}",
                id=f"{agent}{k}",
                facts=facts_of(Anchor(state="same")),
                rewards={"team.right": 0.0},
                paid={"own.form": k * size},
            )
            for k in range(2)
        ]

    options = {"scale": "none", "step": {"key": key, "value": "reward", "scale": "none"}}
    # Each agent's own mean is taken off: 0.5 of the first, 50 of the second.
    assert advantages(of("a", 1.0) + of("b", 100.0), options) == pytest.approx([-0.5, 0.5, -50.0, 50.0])


def test_the_place_of_a_tool_is_that_of_its_first_call_in_an_episode_that_was_won() -> None:
    def episode(name: str, calls: Sequence[int], right: float) -> list[Turn]:
        """Three turns of 10 tokens each, some of which call a tool."""
        return [
            make_turn(
                group="q",
                trajectory=name,
                episode=name,
                id=f"{name}{number}",
                turn=number,
                rewards={"team.right": right},
                completion_ids=(7,) * 10,
                facts=facts_of(ToolUse(calls=int(number in calls))),
            )
            for number in range(3)
        ]

    turns = episode("a", (0, 2), 1.0) + episode("b", (1,), 1.0) + episode("c", (0,), 0.0)
    options = {"scale": "none", "early": {"delta": -0.3, "bound": 0.9}}
    found = advantages(turns, options, Known(won={"a", "b"}))
    # Rewards less 2/3. Places 0 and 10, mean 5; lengths 30: -0.3 x (0 - 5) / 30 = 0.05 for the first, -0.05 for the
    # second, nothing for the one that lost, which called first. By the last call a would stand at 20 and lose 0.05.
    assert found[::3] == pytest.approx([1 / 3 + 0.05, 1 / 3 - 0.05, -2 / 3])


def test_workers_of_an_episode_without_a_word_of_the_planner_learn_nothing() -> None:
    planned = walk("a", [1.0], agent="planner", role="planner") + walk("b", [0.0], agent="planner", role="planner")
    workers = [
        make_turn(group="q/worker", trajectory=name, episode=name, id=name, agent="worker", rewards={"own.x": paid})
        for name, paid in (("a", 0.0), ("c", 3.0), ("d", -3.0))
    ]
    # By what workers were paid themselves the last two would have +-1.
    assert advantages([*planned, *workers], {"inherit": "planner"}) == near([0.707106, -0.707106, 0.707106, 0.0, 0.0])
