"""Whether a setup can be trained at all: all checks that need no model, in order, and those of time, of the editor
and of what prompts show.

Teams in which time decides what is said are played, and not trained. A limit that ends an episode is no such thing:
what is not played to its end is recorded, and not trained on. For training without gradients the editor must be able to
write.
"""

from collections.abc import Collection

from mas.algorithms.parts.options import AlgorithmOptions
from mas.algorithms.parts.rewards.names import FAILURE, MODEL, OWN
from mas.algorithms.parts.rewards.terms import check_costs
from mas.cluster.contract import check_installed
from mas.config.owned import renamed
from mas.core.environment import Observation
from mas.core.errors import ConfigError
from mas.core.naming import did_you_mean, local_name
from mas.core.policy import Budget, Policy
from mas.core.role import View
from mas.core.scenario import Scenario
from mas.core.team import TeamSpec
from mas.roles import PromptedRole, build_roles
from mas.roles.experiences import is_reader
from mas.serving.vllm_options import check_limits
from mas.training.check_team_options import check_late, refuse, sibling_refusals, team_refusals
from mas.training.check_tinker import check_tinker
from mas.training.engines import check_published
from mas.training.setup import Setup, trainable_adapters
from mas.training.stages import AdapterAssignment

_WHY = "what is trained must not depend on who was quick"


def check_trainable(setup: Setup) -> None:
    """Refuse what would change nothing, or could never be played. Needs no model.

    Raises:
        ConfigError: an engine that nothing can be published to, reward
            weights of terms that nobody pays, no agent to inherit from, no trainable role, options of an adapter that
            no role trains, a role that a person plays, a trainable role that is sampled greedily, a frozen role that
            uses an adapter that nobody trains, a template that reads what its view does not show, limits on
            tokens that vLLM cannot say the supports of, or a team in which time decides what is said; see
            `check_untimed` and `team_refusals`; without gradients a trainable role that does not read experiences.
    """
    try:
        _check(setup)
    except ConfigError as error:
        own = setup.method.algorithm if setup.method is not None else None
        raise type(error)(renamed(str(error), own)) from error


def _check(setup: Setup) -> None:
    algorithm, scenario, team = setup.algorithm, setup.scenario, setup.team
    if not algorithm.is_training_free:
        if setup.engine.name == "tinker":
            check_tinker(setup)
        else:
            check_published(setup.engine)
    check_templates(scenario, team)
    if setup.engine.name == "vllm":
        check_limits(team)
    check_untimed(team)
    refuse(sibling_refusals(algorithm, team, scenario.environment().spec.max_turns))
    trained = trainable_adapters(team, algorithm.policy)
    adapters = set(setup.trained_adapters.values())
    if not trained:
        raise ConfigError(f"team {team.name!r} has no trainable role: set trainable: true on one")
    for name in setup.model.adapters:
        if name not in adapters:
            raise ConfigError(f"model.adapters has {name!r}, which no role trains. {did_you_mean(name, adapters)}")
    terms = {*scenario.environment().spec.terms, *scenario.reward.terms, FAILURE.removeprefix(OWN)}
    if algorithm.reward.model is not None and algorithm.reward.model.joins != "step":
        terms.add(MODEL)
    terms |= check_costs(algorithm.reward.cost, team)
    terms |= check_late(algorithm, terms)
    _check_weights(algorithm, terms)
    if not algorithm.reward.alpha and not scenario.reward.terms and algorithm.update != "preference":
        raise ConfigError(
            f"algorithm.reward.alpha is 0, and scenario {scenario.name!r} pays no role a term of its own: nobody would "
            "be paid for anything but output that parses. Give alpha a weight, or choose a scenario with own terms"
        )
    _check_roles(team, adapters)
    AdapterAssignment(algorithm, trained)  # only for its errors: `TrainableAdapters` makes its own
    refuse(team_refusals(setup))
    if algorithm.is_training_free:
        check_editor(setup)
        check_readers(scenario, team)


def check_staleness(setup: Setup, *, is_distributed: bool) -> None:
    """Refuse `train.staleness` where batches cannot be in flight, and too few places of vLLM for the adapter versions
    of all batches.

    Args:
        is_distributed: the team's agents are processes of their own.

    Raises:
        ConfigError: says why.
    """
    staleness = setup.train.staleness
    _check_places(setup)
    if not staleness:
        return
    why = ""
    if is_distributed:
        why = "with --bus agents are processes that play one batch at a time: train without --bus"
    elif setup.algorithm.is_training_free:
        why = "roles that learn as text have one version of their experiences: choose an algorithm that trains adapters"
    elif setup.train.tasks.replay.share:
        why = "train.tasks.replay counts tries step by step, and the next tasks are drawn before: leave it out"
    elif setup.team.budget.run != Budget():
        why = "which batch uses up the team's budget.run would depend on what was quick: leave it out"
    if why:
        raise ConfigError(f"train.staleness={staleness} cannot be used here: {why}")


def _check_places(setup: Setup) -> None:
    engine, staleness = setup.engine, setup.train.staleness
    adapters = len(set(setup.trained_adapters.values()))
    needed = adapters * (staleness + 1)
    if engine.name == "vllm" and needed > engine.places:
        raise ConfigError(
            f"engine.adapters={engine.places} is too small: {needed} adapter versions are used at once ({adapters} "
            f"trained adapters, train.staleness={staleness}); leave it out, or set it to {needed} or more"
        )


def check_processes(setup: Setup, *, is_distributed: bool, is_started: bool) -> None:
    """Refuse `cluster.workers`, `.engines` and `.learners` where they have no use, and agents in processes of their own
    where a Tinker service trains.

    Args:
        is_distributed: the team's agents are processes of their own. is_started: somebody starts the processes.

    Raises:
        ConfigError: says why, or what is to be installed.
    """
    cluster = setup.cluster
    if setup.engine.name == "tinker" and is_distributed:
        raise ConfigError("engine=tinker samples and trains at a service for one process: train without --bus")
    if not cluster.is_used:
        return
    kind = "workers" if cluster.workers else "engines" if cluster.engines else "learners"
    if not is_started:
        why = "nobody starts processes here: train with `mas train` or mas.train"
    elif setup.algorithm.is_training_free:
        why = "it needs adapters, and here roles learn as text: choose an algorithm that trains adapters"
    elif cluster.workers:
        why = _why_no_workers(setup, is_distributed=is_distributed)
    else:
        why = _why_no_engines(setup, is_distributed=is_distributed) if cluster.engines else ""
    if not why and cluster.shard_base and setup.engine.name == "transformers" and not cluster.engines:
        kind = "shard_base"
        why = (
            "the process that trains holds a part of the base, and engine=transformers samples or evaluates with the "
            "whole of it there: set cluster.engines=2 (not cluster.workers), or engine=vllm_server"
        )
    if why:
        raise ConfigError(f"cluster.{kind}={getattr(cluster, kind)} cannot be used here: {why}")
    check_installed(cluster)


def _why_no_workers(setup: Setup, *, is_distributed: bool) -> str:
    if is_distributed:
        return "with --bus agents are processes already: train without --bus"
    if setup.algorithm.opponents is not None:
        return "workers do not have the players that algorithm.opponents names: train without workers"
    if setup.team.tools:
        return "what came of calls of tools is recorded in one process: train without workers"
    if setup.team.budget.run != Budget():
        return "the team's budget.run is of one process: leave it out"
    if setup.engine.name == "vllm_server":
        return (
            "each worker would load all versions into the servers once more: leave workers out, as the process that "
            "trains asks all servers of engine.remote.replicas itself, or use engine=vllm, which each worker starts"
        )
    if setup.engine.name == "openai":
        return "the model is on a server elsewhere: use engine=transformers or engine=vllm"
    return ""


def _why_no_engines(setup: Setup, *, is_distributed: bool) -> str:
    if is_distributed:
        return "with --bus each agent has an engine of its own: train without --bus"
    if setup.engine.name == "vllm_server":
        return "the servers are started by others: name further ones with engine.remote.replicas"
    if setup.engine.name == "openai":
        return "the model is on a server elsewhere: use engine=transformers or engine=vllm"
    return ""


def _check_weights(algorithm: AlgorithmOptions, terms: Collection[str]) -> None:
    weights = {f"stages[{number}].weights": stage.weights for number, stage in enumerate(algorithm.stages)}
    for key, own in {"reward.weights": algorithm.reward.weights, **weights}.items():
        for name in own:
            if name not in terms:
                raise ConfigError(f"algorithm.{key} has {name!r}, a term never paid. {did_you_mean(name, terms)}")


def _check_roles(team: TeamSpec, adapters: set[str]) -> None:
    for name, role in team.roles.items():
        if role.voice == "human":
            raise ConfigError(f"role {name!r} is played by a person (voice: human): such a team cannot be trained")
        if not role.trainable and role.adapter is not None and role.adapter not in adapters:
            raise ConfigError(
                f"role {name!r} is frozen and uses adapter {role.adapter!r}, which nobody trains. "
                f"{did_you_mean(role.adapter, adapters)} Without an adapter it uses the bare base."
            )
        if role.trainable and role.temperature == 0:
            raise ConfigError(f"role {name!r} is trainable but its temperature is 0: its candidates would all be equal")


def check_untimed(team: TeamSpec) -> None:
    """Refuse joins with a time limit, and limits of agents after which the team goes on without them.

    Raises:
        ConfigError: says where the limit is, and what to remove.
    """
    for name, join in team.joins.items():
        if join.timeout_s is not None:
            raise ConfigError(
                f"team {team.name!r} has a time limit at the join of {name!r} ({join.timeout_s:g} s): {_WHY}; "
                "remove 'timeout_s' to train it"
            )
    for name, policy in team.policies.items():
        limits = _limits(policy) + (_seconds(team, policy) if policy.on_failure == "isolate" else [])
        if limits and (policy.fallback is not None or policy.on_failure == "isolate"):
            raise ConfigError(
                f"team {team.name!r} goes on without agent {name!r} when it is late ({', '.join(limits)}, and then "
                f"{_then(policy)}): {_WHY}; remove one of the two from its policy to train it"
            )


def check_vanishing(team: TeamSpec) -> None:
    """Refuse to train over processes what goes on without an agent whose process is gone: that, too, is timing.

    Raises:
        ConfigError: says which agent, and what to remove.
    """
    for name, policy in team.policies.items():
        if policy.fallback is not None or policy.on_failure == "isolate":
            raise ConfigError(
                f"team {team.name!r} goes on without agent {name!r} when its process is gone ({_then(policy)}): {_WHY};"
                " remove that from its policy to train it over a bus"
            )
        if policy.idle_s is not None:
            raise ConfigError(
                f"team {team.name!r} waits for heartbeats of agent {name!r} (idle_s): over a bus, training learns "
                "from the broker whose process is gone; remove 'idle_s' to train it"
            )


def _limits(policy: Policy) -> list[str]:
    """The limits of one answer, as the policy has them."""
    return [name for name in ("timeout_s", "idle_s") if getattr(policy, name) is not None]


def _seconds(team: TeamSpec, policy: Policy) -> list[str]:
    """Budgets in seconds that the agent's calls fall under."""
    budgets = {"budget": policy.budget}
    budgets |= {f"the team's budget.{name}": getattr(team.budget, name) for name in ("turn", "episode", "run")}
    return [f"{name}.seconds" for name, budget in budgets.items() if budget.seconds is not None]


def _then(policy: Policy) -> str:
    return f"fallback: {policy.fallback}" if policy.fallback is not None else "on_failure: isolate"


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
