"""EAPO: what turns earn by their distance to the end, and how many of them a step learns from."""

import pytest
from conftest import BaseFor
from mixed import mixed
from oracles import ORACLES, near
from parts import SKILLED, make_turn
from rows import batch_of, learner_of

from mas.algorithms.parts.advantages.pipeline import turn_advantages
from mas.config.load import load_config
from mas.core.errors import ConfigError
from mas.core.records import Episode, Turn
from mas.training.updates.policy_gradient import PolicyGradient

EAPO = ORACLES["35_eapo"]


def run(name: str, rounds: int, reward: float) -> list[Turn]:
    same = {"group": "q", "trajectory": name, "episode": name, "rewards": {"team.right": reward}, "role": "planner"}
    return [make_turn(**same, id=f"{name}{turn}", turn=turn) for turn in range(rounds)]


def test_early_rounds_of_long_runs_earn_least() -> None:
    # gamma 0.9; runs of 4, 2 and 2 rounds that end with 1, 1 and 0, all in one group.
    chosen = load_config(["algorithm=eapo", "scenario=plan_path", "algorithm.reward.discount=0.9"]).algorithm
    turns = run("a", 4, 1.0) + run("b", 2, 1.0) + run("c", 2, 0.0)
    wanted = [value for own in EAPO["round_adv"] for value in own]
    assert turn_advantages(turns, chosen.reward, chosen.advantage) == near(wanted)


@pytest.mark.parametrize(("rounds", "kept"), [(37, 32), (16, 16), (7, 7)])
def test_a_step_learns_from_the_largest_multiple_of_its_rows_and_counts_the_others(
    base_for: BaseFor, rounds: int, kept: int
) -> None:
    chosen = load_config(["algorithm=eapo", "scenario=plan_path"]).algorithm
    assert chosen.loss.multiple_of == 8
    learner = learner_of(base_for("relay", SKILLED))
    update = PolicyGradient(learner, chosen)
    turns = run("a", rounds - 3, 1.0) + run("b", 3, 0.0)
    episode = Episode(
        id="e", task="t", success=True, turns=tuple(turns), lines=(), rewards={}, prompt_tokens=0,
        completion_tokens=0, calls=0,
    )  # fmt: skip
    seen = []
    for step in (1, 2):
        found = update.improve([episode], {"planner": "planner"}, step=step, lr_scale=0.0)
        assert len(found.rows) == kept
        assert len(found.advantages) == rounds
        assert found.learned["planner"]["rows"] == kept
        assert found.learned["planner"]["left_out"] == rounds - kept
        assert sum(row.weight for row in found.rows) == pytest.approx(1.0), "weights are those of the rows that stay"
        whole = {turn.id: value for turn, value in zip(turns, found.advantages, strict=True)}
        assert all(row.advantage == whole[row.turn.id] for row in found.rows), "compared before any is left out"
        seen.append([row.turn.id for row in found.rows])
    assert (seen[0] == seen[1]) is (rounds == kept), "which are left out changes from step to step"


def test_without_it_every_row_is_learned_from(base_for: BaseFor) -> None:
    chosen = load_config(["algorithm=eapo", "scenario=plan_path", "algorithm.options.multiple_of=null"]).algorithm
    update = PolicyGradient(learner_of(base_for("relay", SKILLED)), chosen)
    rows = batch_of([make_turn(role="planner", id=str(k)) for k in range(13)], [0.0] * 13)
    assert update._downsampled(rows, 1) is rows


def test_it_is_refused_beside_a_critic() -> None:
    with pytest.raises(ConfigError, match=r"critic does not go together with loss\.multiple_of"):
        load_config(mixed("algorithm=ppo", "algorithm.loss.multiple_of=8"))
