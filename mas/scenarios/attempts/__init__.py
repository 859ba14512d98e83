"""Any scenario, its episodes several attempts at one task: fail, be guided, attempt it again from the same start."""

from collections.abc import Callable

from mas.config.algorithm import AttemptOptions
from mas.config.options import Config, ScenarioOptions
from mas.core.scenario import Scenario
from mas.scenarios import build_scenario
from mas.scenarios.attempts.scenario import AttemptedScenario


def attempted(scenario: Scenario, options: AttemptOptions | None) -> Scenario:
    """The scenario with so many attempts at each task; None: one, as it is.

    Raises:
        ConfigError: it cannot be attempted again in this way; says why.
    """
    return scenario if options is None else AttemptedScenario(scenario, options)


def configured_scenario(config: Config) -> Scenario:
    """The scenario that a configuration plays.

    Raises:
        ConfigError: as `build_scenario` and `attempted`.
    """
    return arm_builder(config)(config.scenario)


def arm_builder(config: Config) -> Callable[[ScenarioOptions], Scenario]:
    """Makes any scenario, attempted as often as a configuration says."""
    return lambda options: attempted(build_scenario(options), config.algorithm.sampler.attempts)
