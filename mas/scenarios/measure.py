"""What a scenario's tasks are worth to players that need no model: the lower and the upper end of any result."""

from collections.abc import Mapping
from random import Random
from statistics import fmean

import msgspec

from mas.core.environment import Script, Task, mean_measures, measures_of, random_script
from mas.core.scenario import Scenario
from mas.core.seeds import derive_seed
from mas.observe.significance import wilson
from mas.scenarios.world import expert_of


class Baseline(msgspec.Struct, frozen=True, kw_only=True):
    """One player over held-out tasks.

    Attributes:
        success: share of tasks that are solved; low, high: its 95 % interval (Wilson's).
        rewards: mean over episodes of the summed terms, every weight 1, by seat.
        turns: mean number of steps.
        illegal: share of steps in which somebody's action was not legal.
        measures: means of what the environment tells beside rewards.
    """

    player: str
    episodes: int
    success: float
    low: float
    high: float
    rewards: Mapping[str, float]
    turns: float
    illegal: float
    measures: Mapping[str, float] = {}


def baselines(scenario: Scenario, episodes: int, seed: int) -> tuple[Baseline, ...]:
    """The random player, where legal actions can be listed, and the expert, where there is one; equal for equal
    arguments."""
    players = {"random": random_script, "expert": expert_of(scenario)}
    found = (measure(scenario, name, policy, episodes, seed) for name, policy in players.items() if policy is not None)
    return tuple(baseline for baseline in found if baseline is not None)


def players(scenario: Scenario) -> tuple[str, ...]:
    """Names of the players that `baselines` measures, without playing.

    Raises:
        MissingPackage: the scenario's tasks need another package.
    """
    environment = scenario.environment()
    environment.reset(scenario.task("eval", 0))
    is_listed = random_script(environment, Random(0)) is not None
    return (*(["random"] if is_listed else []), *(["expert"] if expert_of(scenario) is not None else []))


def measure(scenario: Scenario, player: str, policy: Script, episodes: int, seed: int) -> Baseline | None:
    """A policy over the first held-out tasks. None: it could not tell what to do."""
    plays = []
    for index in range(episodes):
        task = scenario.task("eval", index)
        play = _play(scenario, task, policy, Random(derive_seed("baseline", player, seed, task.id)))
        if play is None:
            return None
        plays.append(play)
    interval = wilson(sum(play.success for play in plays), episodes)
    turns = sum(play.turns for play in plays)
    return Baseline(
        player=player,
        episodes=episodes,
        success=fmean(play.success for play in plays),
        low=interval.low,
        high=interval.high,
        rewards={seat: fmean(play.rewards[seat] for play in plays) for seat in plays[0].rewards},
        turns=turns / episodes,
        illegal=sum(play.illegal for play in plays) / max(turns, 1),
        measures=mean_measures(play.measures for play in plays),
    )


class _MeasuredPlay(msgspec.Struct, frozen=True, kw_only=True):
    success: bool
    rewards: Mapping[str, float]
    turns: int
    illegal: int
    measures: Mapping[str, float]


def _play(scenario: Scenario, task: Task, policy: Script, random: Random) -> _MeasuredPlay | None:
    environment = scenario.environment()
    environment.reset(task)
    rewards = dict.fromkeys(environment.spec.seats, 0.0)
    turns = illegal = 0
    while environment.to_move():
        actions = policy(environment, random)
        if actions is None:
            return None
        step = environment.step(actions)
        for seat, terms in step.rewards.items():
            rewards[seat] += sum(terms.values())
        turns += 1
        illegal += bool(step.illegal)
    measures = measures_of(environment)
    return _MeasuredPlay(
        success=environment.success(), rewards=rewards, turns=turns, illegal=illegal, measures=measures
    )
