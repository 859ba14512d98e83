"""What `mas algorithms` tells: every preset, its paper and its parts."""

from collections.abc import Callable
from typing import Any

from mas.algorithms.registry import FORMER
from mas.commands.algorithms import status_of
from mas.config.load import presets
from mas.config.study_results import STUDY_RESULTS


def test_every_algorithm_is_listed_with_its_paper(mas: Callable[..., Any]) -> None:
    shown = mas("algorithms").out
    for name in presets("algorithm"):
        assert name in shown
    assert "2510.11062" in shown
    assert str(STUDY_RESULTS["at_grpo"]) in shown


def test_one_algorithm_says_what_it_sets_and_how_to_run_it(mas: Callable[..., Any]) -> None:
    shown = mas("algorithms", "matpo").out
    assert "arXiv 2510.04678" in shown
    assert "algorithm.options.inherit=planner" in shown
    assert "the agent whose advantage all others have" in shown
    assert "mas train scenario=subagents algorithm=matpo" in shown
    assert "Status: tested; docs/algorithms/matpo.md" in shown


def test_an_algorithm_of_the_fair_comparison_has_its_result_and_the_study() -> None:
    assert status_of("rloo") == "fair_presets, relay: 0.24 → 0.71"


def test_the_command_of_an_algorithm_has_what_it_cannot_run_without(mas: Callable[..., Any]) -> None:
    shown = mas("algorithms", "arpo").out
    assert "mas train algorithm=arpo train.tasks.source=epochs train.tasks.count=64" in shown
    shown = mas("algorithms", "training_free").out
    assert "mas train algorithm=training_free model=smollm2 scenario=shop" in shown


def test_a_question_mark_lists_them_where_one_would_be_chosen(mas: Callable[..., Any]) -> None:
    assert "gigpo" in mas("train", "algorithm=?").out


def test_an_unknown_algorithm_is_one_error(mas: Callable[..., Any]) -> None:
    failed = mas("algorithms", "gigop")
    assert failed.code == 2
    assert "Did you mean 'gigpo'" in failed.err


def test_an_algorithm_by_the_name_that_it_had_before_is_told_its_present_one(mas: Callable[..., Any]) -> None:
    assert set(FORMER.values()) <= set(presets("algorithm"))
    assert not set(FORMER) & set(presets("algorithm"))
    assert "no algorithm 'hrpo'. 'hrpo' is now called 'action_grpo'." in mas("algorithms", "hrpo").err
