"""From a configuration to what is played and trained: everything that it names is found, compiled and checked here.

    setup = resolve(config)  # to play
    setup = resolve_training(config)  # to train

Needs no model, and asks no server; `check_fits` says whether the tiny base could read what the team is told.
"""

from dataclasses import fields, replace
from functools import partial
from typing import get_args

from mas.config.checks import check_peers
from mas.config.custom_algorithm import method_of
from mas.config.options import Config, EngineOptions, ScenarioOptions
from mas.core.errors import ConfigError, MissingPackage
from mas.core.scenario import Scenario
from mas.core.team import TeamSpec
from mas.graph.load import find_team
from mas.scenarios import SCENARIOS, build_scenario
from mas.scenarios.attempts import attempted
from mas.scenarios.catalogue import longest, untaught
from mas.training.setup import Setup, TrainSetup, compiled, plan_tasks, trainable_adapters
from mas.training.tasks.plan import build_arms


def configured_scenario(config: Config) -> Scenario:
    """The scenario that a configuration plays.

    Raises:
        ConfigError: as `build_scenario` and `attempted`.
    """
    return build_configured(config.scenario, config)


def build_configured(options: ScenarioOptions, config: Config) -> Scenario:
    """The scenario of these options, with as many attempts as the configuration says."""
    return attempted(build_scenario(options), config.algorithm.sampler.attempts)


def check_fits(setup: Setup) -> None:
    """Refuse at once what would fail when the tiny base was made, or could not be learned with it.

    Raises:
        ConfigError: no model is named, and the tiny base cannot read the prompt of a role, or the scenario does not
            demonstrate it.
    """
    if setup.model.path != "tiny" or setup.engine.name not in ("transformers", "vllm"):
        return
    name, scenario = setup.algorithm.team, setup.scenario
    try:
        if name in scenario.teams and (asked := untaught(scenario, scenario.teams[name])):
            plain = [other for other, team in scenario.teams.items() if not untaught(scenario, team)]
            raise ConfigError(
                f"team {name!r} of {scenario.name!r} asks its {asked[0]} in words, which the tiny base was not taught: "
                "name a model that reads words, such as model=smollm2"
                + (f", or take algorithm.team={' or '.join(plain)}" if plain else "")
            )
        role, need = longest(scenario, setup.team)
    except MissingPackage:  # whoever plays is told
        return
    if need > setup.model.tiny.context:
        raise ConfigError(
            f"role {role!r} reads and writes {need} characters in {scenario.name!r} with these options, the tiny base "
            f"{setup.model.tiny.context}: name a model that reads words with model.path=, as Qwen/Qwen3-0.6B"
        )


def words_note(setup: Setup) -> str | None:
    """Which option makes the scenario ask in words, where its team is made for the tiny base and another model plays.

    None: the tiny base plays, every role asks in words, the scenario has no words, or the team is a user's own file.
    """
    name, entry = setup.algorithm.team, SCENARIOS.get(setup.scenario.name)
    if (setup.model.path == "tiny" and not setup.is_served_elsewhere) or setup.model.prompts == "compact":
        return None
    if entry is None or name not in setup.scenario.teams:
        return None
    options = (key for key, about in entry.options.model_fields.items() if "words" in get_args(about.annotation))
    key = next(options, None)
    if key is None or all(role.ask or role.format for role in setup.team.roles.values()):
        return None
    return (
        f"note: team {name!r} of {setup.scenario.name!r} is made for the tiny base and asks no question in words; "
        f"for a model that chats add scenario.options.{key}=words"
    )


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
        engine=_engine_of(config, team),
        peers=config.peers,
        learner=config.learner,
        train=config.train,
        trace=config.trace,
        cluster=config.cluster,
        method=method_of(config.algorithm),
    )


def _engine_of(config: Config, team: TeamSpec) -> EngineOptions:
    """The engine's options; vLLM has room for every adapter version that can be in flight: A x (k + 2)."""
    engine = config.engine
    if engine.name != "vllm" or engine.adapters is not None or config.algorithm.is_training_free:
        return engine
    names = set(trainable_adapters(team, config.algorithm.policy).values())
    return engine.model_copy(update={"adapters": max(engine.places, len(names) * (config.train.staleness + 2))})


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
