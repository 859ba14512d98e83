"""What a setup must have to be trained, found out before a model is loaded."""

from collections.abc import Collection

from mas.config.options import AlgorithmOptions
from mas.config.owned import renamed
from mas.core.errors import ConfigError
from mas.core.naming import did_you_mean
from mas.core.team import TeamSpec
from mas.serving.vllm_options import check_limits
from mas.training.adapter_assignment import AdapterAssignment
from mas.training.checks import (
    check_answers,
    check_fork,
    check_inherit,
    check_late,
    check_repairs,
    check_seats,
    check_shared,
    check_siblings,
    check_spending,
    check_templates,
    check_turns,
    check_warm_start,
)
from mas.training.costs import check_costs
from mas.training.engines import check_published
from mas.training.experience.readers import check_editor, check_readers
from mas.training.opponents import check_opponents
from mas.training.rewards import FAILURE, MODEL, OWN
from mas.training.setup import Setup, trainable_adapters
from mas.training.shaping.proposing import check_proposer
from mas.training.timing import check_untimed


def check_trainable(setup: Setup) -> None:
    """Refuse what would change nothing, or could never be played. Needs no model.

    Raises:
        ConfigError: an engine that nothing can be published to, reward
            weights of terms that nobody pays, no agent to inherit from, no trainable role, options of an adapter that
            no role trains, a role that a person plays, a trainable role that is sampled greedily, a frozen role that
            speaks through an adapter that nobody trains, a template that reads what its view does not show, limits on
            tokens that vLLM cannot say the supports of, or a team in which time decides what is said; see
            `check_untimed` and `check_siblings`; without gradients a trainable role that does not read experiences.
    """
    try:
        _check(setup)
    except ConfigError as error:
        own = setup.method.algorithm if setup.method is not None else None
        raise type(error)(renamed(str(error), own)) from error


def _check(setup: Setup) -> None:
    algorithm, scenario, team = setup.algorithm, setup.scenario, setup.team
    if not algorithm.is_training_free:
        check_published(setup.engine)
    check_templates(scenario, team)
    if setup.engine.name == "vllm":
        check_limits(team)
    check_untimed(team)
    check_siblings(algorithm, team, scenario.environment().spec.max_turns)
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
    check_fork(algorithm, setup.model, adapters)
    check_turns(algorithm, scenario, team)
    check_seats(algorithm, scenario, team)
    check_warm_start(algorithm, scenario)
    check_proposer(algorithm, scenario, team)
    check_spending(algorithm, team)
    check_inherit(algorithm, team)
    check_answers(algorithm, scenario, team)
    check_shared(algorithm, scenario, team)
    check_opponents(setup)
    check_repairs(algorithm, scenario, team)
    if algorithm.is_training_free:
        check_editor(setup)
        check_readers(scenario, team)


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
                f"role {name!r} is frozen and speaks through adapter {role.adapter!r}, which nobody trains. "
                f"{did_you_mean(role.adapter, adapters)} Without an adapter it speaks through the bare base."
            )
        if role.trainable and role.temperature == 0:
            raise ConfigError(f"role {name!r} is trainable but its temperature is 0: its candidates would all be equal")
