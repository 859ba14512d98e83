"""`imposter`: what is held out is new to the eye, and nobody is paid for losing."""

from collections.abc import Callable
from functools import cache
from random import Random
from typing import Any

import msgspec
import pytest

from mas.config.options import ScenarioOptions
from mas.core.scenario import Scenario, Split
from mas.scenarios import build_scenario
from mas.scenarios.imposter import ImposterEnvironment, beliefs_of_team, caught, expert
from mas.scenarios.imposter.beliefs import listeners, top
from mas.scenarios.imposter.rules import TEAM, ImposterGame, make, talk

Policy = Callable[[ImposterEnvironment, Random], str]
IMPOSTER = {"side": "imposter"}
LARGER = {"style": "words", "players": 6, "rounds": 4, "cunning": 0.5}


@cache
def scenario_of(**options: Any) -> Scenario:
    return build_scenario(ScenarioOptions(name="imposter", options=options))


def begun(split: Split, index: int, **options: Any) -> ImposterEnvironment:
    environment = scenario_of(**options).environment()
    assert isinstance(environment, ImposterEnvironment)
    environment.reset(scenario_of(**options).task(split, index))
    return environment


def best(environment: ImposterEnvironment, random: Random) -> str:
    return expert(environment, random)["team"]


def silent(environment: ImposterEnvironment, random: Random) -> str:
    return ""


def hasty(environment: ImposterEnvironment, random: Random) -> str:
    suspect = top(beliefs_of_team(environment.state, environment.rules))
    return caught(environment.state, environment.rules) + suspect + suspect


def guess(environment: ImposterEnvironment, random: Random) -> str:
    return random.choice(environment.legal("team") or ())


def sights(policy: Policy, split: Split, tasks: int, **options: Any) -> set[str]:
    """All that a team sees that plays so, game by game."""
    found = set()
    for index in range(tasks):
        environment, rounds = begun(split, index, **options), []
        while environment.to_move():
            rounds.append(str([dict(environment.observe(view).fields) for view in environment.spec.views]))
            environment.step({"team": policy(environment, Random(index))})
        found.add("\n".join(rounds))
    return found


@pytest.mark.nightly
@pytest.mark.parametrize(("policy", "options"), [(silent, {}), (best, {}), (best, {"cunning": 0.5}), (best, IMPOSTER)])
def test_no_held_out_game_shows_what_a_game_of_training_shows(policy: Policy, options: dict[str, Any]) -> None:
    held_out, trained = sights(policy, "eval", 300, **options), sights(policy, "train", 1000, **options)
    assert not held_out & trained
    assert len(held_out) >= 30
    assert len(trained) >= 150


@pytest.mark.nightly
@pytest.mark.parametrize(("options", "least"), [({}, 250), (IMPOSTER, 2000)])
def test_there_are_hundreds_of_different_tasks(options: dict[str, Any], least: int) -> None:
    scenario = scenario_of(**options)
    tasks = [scenario.task(split, index) for split in ("train", "eval") for index in range(2500)]
    assert len({scenario.content_of(task) for task in tasks}) >= least


def played(policy: Policy, index: int, **options: Any) -> tuple[bool, float, float]:
    """Whether a game is won, what beliefs were paid, and all pay."""
    environment, random = begun("train", index, **options), Random(index)
    beliefs = paid = 0.0
    while environment.to_move():
        rewards = environment.step({"team": policy(environment, random)}).rewards["team"]
        beliefs, paid = beliefs + rewards["beliefs"], paid + sum(rewards.values())
    return environment.success(), beliefs, paid


@pytest.mark.parametrize("options", [{"rounds": 2}, {"rounds": 5}, pytest.param(LARGER, marks=pytest.mark.nightly)])
def test_no_lost_game_of_the_crew_is_paid_more_than_a_won_one(options: dict[str, Any]) -> None:
    policies = (silent, guess, best) if options == LARGER else (silent, guess, hasty, best)
    games = [played(policy, index, **options) for policy in policies for index in range(60)]
    won, lost = [game for game in games if game[0]], [game for game in games if not game[0]]
    assert len(won) >= 20
    assert len(lost) >= 20
    assert max(beliefs for _, beliefs, _ in lost) <= min(beliefs for _, beliefs, _ in won) + 1e-9
    assert max(paid for _, _, paid in lost) < min(paid for _, _, paid in won)


@pytest.mark.parametrize("rounds", [2, 5])
def test_who_moves_at_once_earns_less_than_who_waits_until_it_is_sure(rounds: int) -> None:
    rushed = [played(hasty, index, rounds=rounds) for index in range(150)]
    waited = [played(best, index, rounds=rounds) for index in range(150)]
    for part in (1, 2):
        assert sum(game[part] for game in rushed) <= sum(game[part] for game in waited) - 0.1 * 150


def test_voting_an_innocent_out_costs_what_the_others_believed() -> None:
    # b and d call each other liars; a joins the wrong one, and one of three listeners' beliefs is all there was.
    game = ImposterGame(imposter="d", rooms=("3120", "1230"), wishes=("1234", "4321"), is_cunning=(False, False))
    environment = begun("train", 0)
    environment._state = game
    assert environment.step({"team": "-bb"}).rewards["team"] == pytest.approx({"win": 0.0, "beliefs": -1 / 3})


def test_an_innocent_that_leaves_a_larger_game_changes_no_pay() -> None:
    rules = begun("train", 0, **LARGER).rules
    for seed in range(40):
        game = make(Random(seed), rules)
        game = msgspec.structs.replace(game, talks=(talk(game, rules),))
        innocent = game.crew.replace(TEAM, "")[0]
        assert listeners(msgspec.structs.replace(game, gone=innocent), rules) == listeners(game, rules)
