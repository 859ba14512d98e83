"""Whether what a run learned can play the team and the prompts of another scenario (`mas eval --on`)."""

from collections.abc import Iterable

from mas.core.errors import ConfigError
from mas.core.naming import listed, local_name
from mas.core.role import View
from mas.roles import build_roles
from mas.serving.model import BaseModel
from mas.training.setup import Setup, trainable_adapters


def check_adapters(setup: Setup, learned: Iterable[str]) -> None:
    """Refuse a team whose roles the run has not trained.

    Args:
        learned: names of the run's adapters; of a run that learned as text the roles that did.

    Raises:
        ConfigError: a trainable role of the scenario's team uses an adapter that the run does not have.
    """
    scenario, team, has = setup.scenario, setup.team, set(learned)
    policy = "per_role" if setup.algorithm.is_training_free else setup.algorithm.policy
    needed = set(trainable_adapters(team, policy).values())
    if missing := sorted(needed - has):
        raise ConfigError(
            f"--on {scenario.name}: its team {team.name!r} uses {listed(sorted(needed))}, and the run has "
            f"trained {listed(sorted(has))}: there is no {listed(missing)}. Choose a team of these roles with "
            "algorithm.team=NAME or your own team.yaml, or evaluate a run of algorithm.policy=shared"
        )


def check_prompts(setup: Setup, base: BaseModel) -> None:
    """Refuse prompts that the run's base cannot read, by those of the first held-out task.

    Raises:
        ConfigError: a prompt has characters that the tokenizer does not know, or is too long with its answer.
    """
    scenario, team = setup.scenario, setup.team
    environment = scenario.environment()
    environment.reset(scenario.task("eval", 0))
    roles, tokenizer = build_roles(team), base.tokenizer
    unknown = tokenizer.inner.unk_token_id
    for agent, name in team.members().items():
        role = roles[name]
        view = View(observation=environment.observe(role.spec.view or local_name(agent)))
        ids = (
            tokenizer.chat(*role.chat(view), role.prefill(view)) if base.chats else tokenizer.encode(role.prompt(view))
        )
        if not base.chats and unknown is not None and unknown in ids:
            raise ConfigError(
                f"--on {scenario.name}: what role {name!r} is told has characters that the run's base does not know: "
                f"{role.prompt(view)[:80]!r}; choose other scenario.options, or a run of a model that reads words"
            )
        if len(ids) + role.spec.max_tokens > base.limits.context:
            raise ConfigError(
                f"--on {scenario.name}: role {name!r} is told {len(ids)} tokens and may answer {role.spec.max_tokens}, "
                f"and the run's base reads {base.limits.context}; choose other scenario.options"
            )
