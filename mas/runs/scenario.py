"""The scenario that a configuration plays, and whether its model can read what the team is told."""

from mas.config.options import Config, ScenarioOptions
from mas.core.errors import ConfigError, MissingPackage
from mas.core.scenario import Scenario
from mas.scenarios import build_scenario
from mas.scenarios.attempts import attempted
from mas.scenarios.catalogue import longest, untaught
from mas.training.setup import Setup


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
