"""Any scenario, its episodes several attempts at one task: fail, be guided, attempt it again from the same start."""

from mas.config.algorithm import AttemptOptions
from mas.core.scenario import Scenario
from mas.scenarios.attempts.scenario import AttemptedScenario


def attempted(scenario: Scenario, options: AttemptOptions | None) -> Scenario:
    """The scenario with so many attempts at each task; None: one, as it is.

    Raises:
        ConfigError: it cannot be attempted again in this way; says why.
    """
    return scenario if options is None else AttemptedScenario(scenario, options)
