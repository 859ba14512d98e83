"""What a team must be like to be trained as the options say. Needs no model."""

from collections.abc import Set

from mas.config.options import AlgorithmOptions
from mas.core.errors import ConfigError
from mas.core.naming import agent_of, did_you_mean, local_name
from mas.core.policy import Policy
from mas.core.role import View
from mas.core.scenario import Scenario
from mas.core.team import TeamSpec
from mas.roles import PromptedRole, build_roles


def check_siblings(algorithm: AlgorithmOptions, team: TeamSpec, max_turns: int) -> None:
    """Refuse full trees that may grow too large, and roles to imitate that are not trained.

    Each member decides once in a team turn here; one that speaks more often meets the bound while the tree grows.

    Raises:
        ConfigError: candidates ** (members x turns) is above `max_leaves`, or `sft_only` names a role that the team
            does not train.
    """
    sampler, members = algorithm.sampler, len(team.members())
    turns = min(max_turns, max(sampler.horizon.turns)) if sampler.horizon is not None else max_turns
    decisions = members * turns
    leaves = float(sampler.candidates) ** min(decisions, 300)
    if sampler.mode == "full_tree" and leaves > sampler.max_leaves:
        raise ConfigError(
            f"algorithm.sampler.mode=full_tree with {sampler.candidates} candidates at each of {decisions} decisions "
            f"({members} members x {turns} team turns) has {leaves:.3g} leaves, and max_leaves is "
            f"{sampler.max_leaves}: lower candidates or the scenario's turns, raise algorithm.sampler.max_leaves, "
            "or use sampler.mode=tree"
        )
    trained = [name for name, role in team.roles.items() if role.trainable]
    for name in algorithm.preference.sft_only if algorithm.update == "preference" else ():
        if name not in trained:
            raise ConfigError(
                f"algorithm.preference.sft_only has {name!r}, which team {team.name!r} does not train. "
                f"{did_you_mean(name, trained)}"
            )


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
            role.prompt(View(observation=observation))
            policy = team.policies.get(agent, Policy())
            for other in (policy.fallback, policy.compensation):
                stand_in = roles[team.members().get(other, other)] if other else None
                if isinstance(stand_in, PromptedRole):
                    stand_in.prompt(View(observation=observation))


def check_inherit(algorithm: AlgorithmOptions, team: TeamSpec) -> None:
    """Refuse an agent to inherit from that the team does not have.

    Raises:
        ConfigError: says which agents there are.
    """
    name, agents = algorithm.advantage.inherit, {agent_of(member) for member in team.members()}
    if name is not None and name not in agents:
        raise ConfigError(
            f"algorithm.advantage.inherit is {name!r}, and team {team.name!r} has no such agent. "
            f"{did_you_mean(name, agents)}"
        )


def check_late(algorithm: AlgorithmOptions, paid: Set[str]) -> set[str]:
    """Names of the terms that come late.

    Raises:
        ConfigError: one of them is paid already.
    """
    late = algorithm.reward.late
    names = set() if late is None else set(late.terms)
    if twice := sorted(names & paid):
        raise ConfigError(
            f"algorithm.reward.late.terms has {twice[0]!r}, which is paid as turns are sampled: give it another name "
            f"(paid already: {', '.join(sorted(paid))})"
        )
    return names


def check_turns(algorithm: AlgorithmOptions, scenario: Scenario, team: TeamSpec) -> None:
    """Refuse parts that compare turns of a trajectory where every trajectory has one.

    Raises:
        ConfigError: says which part.
    """
    if scenario.environment().spec.max_turns > 1 or any(edge.loop for edge in team.edges):
        return
    parts = {
        "sampler.horizon": algorithm.sampler.horizon,
        "advantage.step": algorithm.advantage.step,
        "advantage.strata": algorithm.advantage.strata,
        "reward.discount": algorithm.reward.discount < 1 or None,
        "reward.model": algorithm.reward.model,
        "loss.ratio=sequence": algorithm.loss.ratio == "sequence" or None,
    }
    for name, part in parts.items():
        if part is not None:
            raise ConfigError(
                f"algorithm.{name} makes no sense here: every agent of team {team.name!r} speaks once in an episode of "
                f"{scenario.name!r}. Leave it out, or choose a scenario of several turns, such as plan_path"
            )
