"""Training without gradients: its editor must be able to write, and prompts must show what was learned."""

from mas.core.errors import ConfigError
from mas.core.naming import local_name
from mas.core.role import View
from mas.core.scenario import Scenario
from mas.core.team import TeamSpec
from mas.roles import build_roles
from mas.roles.builtin import is_reader
from mas.training.setup import Setup


def check_editor(setup: Setup) -> None:
    """Refuse an editor that cannot write.

    Raises:
        ConfigError: it is the tiny base.
    """
    is_here = setup.engine.name in ("transformers", "vllm")
    if setup.algorithm.experience.editor == "base" and setup.model.path == "tiny" and is_here:
        raise ConfigError(
            "algorithm.experience.editor=base asks the run's base to write experiences, and the tiny base writes no "
            "sentences: name a model that does with model.path, a peer (algorithm.experience.editor=NAME "
            "peers.NAME.url=...), or editor=quote, which asks no model"
        )


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
