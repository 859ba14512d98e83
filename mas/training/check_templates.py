"""What the prompts of a team must show, tried on the first training task. Needs no model."""

from mas.core.environment import Observation
from mas.core.errors import ConfigError
from mas.core.naming import local_name
from mas.core.policy import Policy
from mas.core.role import View
from mas.core.scenario import Scenario
from mas.core.team import TeamSpec
from mas.roles import PromptedRole, build_roles
from mas.roles.experiences import is_reader


def check_templates(scenario: Scenario, team: TeamSpec) -> None:
    """Refuse templates that read what their view does not show.

    Raises:
        ConfigError: says which one, and what there is.
    """
    environment = scenario.environment()
    environment.reset(scenario.task("train", 0))
    roles = build_roles(team)
    for agent, name in team.members().items():
        role = roles[name]
        if isinstance(role, PromptedRole):
            observation = environment.observe(role.spec.view or local_name(agent))
            _fill(role, observation)
            policy = team.policies.get(agent, Policy())
            for other in (policy.fallback, policy.compensation):
                stand_in = roles[team.members().get(other, other)] if other else None
                if isinstance(stand_in, PromptedRole):
                    _fill(stand_in, observation)


def _fill(role: PromptedRole, observation: Observation) -> None:
    view = View(observation=observation)
    role.prompt(view)
    role.chat(view)
    role.prefill(view)


def check_readers(scenario: Scenario, team: TeamSpec) -> None:
    """Refuse a trainable role whose prompts leave its experiences out.

    Raises:
        ConfigError: names the role.
    """
    environment = scenario.environment()
    environment.reset(scenario.task("train", 0))
    roles = build_roles(team)
    for agent, name in team.members().items():
        role = roles[name]
        seen = environment.observe(role.spec.view or local_name(agent))
        if role.spec.trainable and not is_reader(role, View(observation=seen)):
            raise ConfigError(
                f"role {name!r} of type {role.spec.type!r} does not show its experiences in its prompts, so it cannot "
                "learn by algorithm.update=training_free: let its class render `self.spec.experiences` as "
                "mas.roles.PromptedRole does, or set trainable: false"
            )
