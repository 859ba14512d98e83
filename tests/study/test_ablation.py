"""The freeze ablation: which roles are trained in which arm, at which budget, and what is left of the others."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from mas.core.errors import ConfigError
from mas.study.chain import StudyChain
from mas.study.options import ablation, subsets
from mas.study.run import run_study

NAMES = st.lists(st.text("abc", min_size=1, max_size=3), min_size=2, max_size=6, unique=True)


def test_two_and_three_roles_have_all_their_subsets_but_the_empty_one() -> None:
    assert subsets(["p", "e"]) == {"all": ("p", "e"), "only_p": ("p",), "only_e": ("e",)}
    assert {frozenset(arm) for arm in subsets(["a", "b", "c"]).values()} == {
        frozenset(arm) for arm in ("abc", "a", "b", "c", "ab", "ac", "bc")
    }


@given(NAMES)
def test_no_subset_comes_twice_and_each_is_all_one_or_all_but_one(roles: list[str]) -> None:
    arms = [frozenset(arm) for arm in subsets(roles).values()]
    assert len(set(arms)) == len(arms) == (2 * len(roles) + 1 if len(roles) > 2 else 3)
    assert {len(arm) for arm in arms} == {len(roles), 1, len(roles) - 1}


def test_every_arm_trains_its_roles_with_the_algorithm_that_was_named() -> None:
    study = ablation(["scenario=plan_path", "algorithm=rloo", "train.steps=3"], seeds=4)
    (case,) = study.cases.values()
    assert case.seeds == 4
    assert case.reference == "all"
    chain = StudyChain(case="plan_path", options=case, seed=2, eval_tasks=1)
    found = {arm: chain.configure(arm, None if arm == "all" else 77) for arm in case.arms}
    roles = ("planner", "executor", "verifier", "feedback")
    assert found["all"].algorithm.roles == ()
    assert [found[f"only_{role}"].algorithm.roles for role in roles] == [(role,) for role in roles]
    assert found["without_verifier"].algorithm.roles == ("planner", "executor", "feedback")
    assert len(found) == 9
    for arm, config in found.items():
        assert config.algorithm.name == "rloo"
        assert config.train.seed == 2
        assert (config.train.steps, config.train.token_budget) == ((3, None) if arm == "all" else (100_000, 77))


def test_a_preset_that_trains_one_role_can_be_told_not_to() -> None:
    study = ablation(
        ["scenario=plan_path", "algorithm=flow_grpo", "algorithm.team=team", "algorithm.roles=[]"], seeds=1
    )
    (case,) = study.cases.values()
    chain = StudyChain(case="plan_path", options=case, seed=0, eval_tasks=1)
    assert chain.configure("only_verifier").algorithm.roles == ("verifier",)


def test_the_reflector_of_attempts_is_a_role_among_others() -> None:
    whole = ["algorithm.team=solo", "algorithm.sampler.mode=parallel", "algorithm.sampler.attempts.guide=reflector"]
    study = ablation(["scenario=refine", "algorithm.reward.of=attempt", *whole], seeds=1)
    assert study.cases["refine"].arms == ("all", "only_solo", "only_reflector")


@pytest.mark.parametrize(
    ("overrides", "match"),
    [
        ([], "needs a scenario"),
        (["scenario=relay", "algorithm.roles=[planner]"], "who is trained"),
        (["scenario=safe_reply", "algorithm=waltzrl"], "who is trained"),
        (["scenario=relay", "algorithm=single_grpo"], "needs two at least"),
        (["scenario=relay", "train.seed=1"], "its own train.seed"),
    ],
)
def test_what_is_no_ablation_is_refused(overrides: list[str], match: str) -> None:
    with pytest.raises(ConfigError, match=match):
        ablation(overrides, seeds=3)


def test_presets_take_no_overrides(mas: Callable[..., Any]) -> None:
    ended = mas("study", "demo", "scenario=relay")
    assert ended.code == 2
    assert "only `mas study ablation` takes overrides" in ended.err


@pytest.mark.nightly(of=16)
def test_the_arms_of_an_ablation_spend_equal_tokens_and_are_in_table_and_page(
    tmp_path: Path, small_overrides: Sequence[str], mas_cache: Path
) -> None:
    short = ("train.steps=2", "train.tasks_per_step=2", "train.eval_tasks=4", "train.target=null")
    study = ablation(["scenario=relay", *small_overrides, *short], seeds=1).model_copy(update={"eval_tasks": 4})
    summary = run_study(tmp_path, study, command="mas study ablation", console=Console(quiet=True))
    arms = summary["success"]["relay"]
    beside = ["leader_alone", "best_of_n_verified", "best_of_n_voted"]
    assert list(arms) == ["random", "scripted", "untrained_team", "all", *beside, "only_planner", "only_executor"]
    for arm in ("only_planner", "only_executor"):
        assert arms[arm]["tokens"] >= arms["all"]["tokens"] > 0
    text = (tmp_path / "summary.md").read_text()
    assert "| `relay` | `only_planner` |" in text
    assert "only_executor" in (tmp_path / "curves.svg").read_text()
    assert (tmp_path / "report.html").is_file()
