"""From a configuration to what is played and trained: everything that it names is found, compiled and checked here.

    setup = resolve(config)  # to play
    setup = resolve_training(config)  # to train

Needs no model, and asks no server.
"""

from dataclasses import fields, replace
from functools import partial

from mas.config.checks import check_peers
from mas.config.custom_algorithm import method_of
from mas.config.options import Config
from mas.core.scenario import Scenario
from mas.graph.load import find_team
from mas.runs.scenario import build_configured, configured_scenario
from mas.training.setup import Setup, TrainSetup, compiled, plan_tasks
from mas.training.tasks.plan import build_arms


def resolve(config: Config, scenario: Scenario | None = None) -> Setup:
    """What plays.

    Args:
        scenario: what is played instead of the scenario that `config` names; None: that one.

    Raises:
        ConfigError: there is no such scenario or team, external models are not as the team needs them, or a
            user's own algorithm cannot be loaded; see `method_of`.
        GraphError: the team's file cannot be read as a team.
    """
    scenario = configured_scenario(config) if scenario is None else scenario
    team = find_team(scenario, config.algorithm.team)
    check_peers(config, team)
    return Setup(
        scenario=scenario,
        plan=compiled(team),
        algorithm=config.algorithm,
        model=config.model,
        engine=config.engine,
        peers=config.peers,
        learner=config.learner,
        train=config.train,
        trace=config.trace,
        method=method_of(config.algorithm),
    )


def with_tasks(config: Config, played: Setup) -> TrainSetup:
    """What plays, with the tasks that `train.tasks` says.

    Raises:
        ConfigError: they are not there; see `build_arms` and `plan_tasks`.
    """
    build = partial(build_configured, config=config)
    arms = build_arms(config.train.tasks, config.scenario, config.algorithm.team, played.scenario, build)
    setup = TrainSetup(**{field.name: getattr(played, field.name) for field in fields(played)}, arms=arms)
    plan_tasks(setup)  # only for its errors: the trainer makes its own, which has a state
    return setup


def resolve_training(config: Config, scenario: Scenario | None = None) -> TrainSetup:
    """What is trained, checked for every arm that tasks come from.

    Raises:
        ConfigError: training would change nothing; see `check_trainable`. Otherwise as `resolve` and `with_tasks`.
    """
    return checked_for_training(config, resolve(config, scenario))


def checked_for_training(config: Config, played: Setup) -> TrainSetup:
    """What `resolve` made of a configuration, as what is trained.

    Raises:
        ConfigError: as `resolve_training`.
    """
    from mas.training.check_setup import check_trainable  # loads what serves, which `mas config` does without

    check_trainable(played)
    setup = with_tasks(config, played)
    for arm in setup.arms.values():
        check_trainable(replace(setup, scenario=arm.scenario))
    return setup
