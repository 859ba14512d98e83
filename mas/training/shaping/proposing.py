"""Who poses a task is paid by how the others fare with it in the same episode."""

from collections.abc import Sequence

import msgspec

from mas.config.options import AlgorithmOptions
from mas.config.rewards import ProposerOptions
from mas.core.errors import ConfigError, TrainingError
from mas.core.naming import did_you_mean
from mas.core.records import Episode, Turn
from mas.core.scenario import Scenario
from mas.core.team import TeamSpec
from mas.training.rewards import OWN, TEAM
from mas.training.shaping.interaction import proposer_reward

PROPOSAL = f"{OWN}proposal"
"""The term that is added."""


def check_proposer(algorithm: AlgorithmOptions, scenario: Scenario, team: TeamSpec) -> None:
    """Refuse to pay who poses tasks where nobody does or attempts them, and to compare agents of one role of which the
    team has one.

    Raises:
        ConfigError: says which option, and what there is.
    """
    options, terms = algorithm.reward.proposer, scenario.environment().spec.terms
    roles = [*team.members().values()]
    if options is not None and options.role not in roles:
        raise ConfigError(
            f"algorithm.reward.proposer.role is {options.role!r}, and team {team.name!r} has no such role. "
            f"{did_you_mean(options.role, set(roles))} (propose is a scenario with a proposer)"
        )
    if options is not None and options.term not in terms:
        raise ConfigError(
            f"algorithm.reward.proposer.term is {options.term!r}, and scenario {scenario.name!r} pays no such term. "
            f"{did_you_mean(options.term, terms)}"
        )
    if options is not None and set(roles) == {options.role}:
        raise ConfigError(
            f"algorithm.reward.proposer.role is {options.role!r}, and team {team.name!r} has no other role, whose "
            "attempts could be read: choose a team in which others attempt what it poses"
        )
    is_alone = len(set(roles)) == len(roles) and not any(edge.map for edge in team.edges)
    if algorithm.advantage.key == "episode" and is_alone and algorithm.sampler.mode != "tree":
        raise ConfigError(
            f"algorithm.advantage.key=episode compares the agents of one role in an episode, and team {team.name!r} "
            "has one of each: leave it out, or choose a team in which several agents have one role"
        )


def paid_proposers(episodes: Sequence[Episode], options: ProposerOptions) -> tuple[Episode, ...]:
    """Episodes in which the proposer's turns have the term `proposal`, by how often the others' attempts succeeded.

    An attempt is another role's trajectory, not over before the proposer's began, that was paid `team.TERM`: its
    outcome, 0 to 1. Where no other role spoke the proposal was not accepted. The last of the proposer's turns is paid.
    Source: Search Self-Play, arXiv 2510.18821; see `proposer_reward`.

    Raises:
        TrainingError: others spoke and none of them made an attempt, or one was paid something that is no outcome.
    """
    return tuple(
        msgspec.structs.replace(episode, turns=_paid(episode.turns, options)) if episode.turns else episode
        for episode in episodes
    )


def _paid(turns: Sequence[Turn], options: ProposerOptions) -> tuple[Turn, ...]:
    tried = _attempts(turns, options)
    try:
        reward = proposer_reward(
            list(tried.values()),
            mode=options.mode,
            is_valid=bool(tried),
            invalid=options.invalid,
            left=options.left,
            right=options.right,
        )
    except ValueError as error:
        raise TrainingError(
            f"who poses tasks is paid by what attempts were paid as {options.term!r}, and {error}: name a term that "
            "is 0 for a failure and 1 for a success in algorithm.options.proposer.term"
        ) from error
    mine = [number for number, turn in enumerate(turns) if turn.role == options.role]
    return tuple(
        _with_term(turn, reward, reward if number == mine[-1] else 0.0) if number in mine else turn
        for number, turn in enumerate(turns)
    )


def _attempts(turns: Sequence[Turn], options: ProposerOptions) -> dict[str, float]:
    """Outcomes by agent; none where no other role spoke."""
    name = f"{TEAM}{options.term}"
    began = min((turn.turn for turn in turns if turn.role == options.role), default=0)
    others = [turn for turn in turns if turn.role != options.role]
    tried = {turn.agent: turn.rewards[name] for turn in others if name in turn.rewards and turn.turn >= began}
    if others and not tried:
        raise TrainingError(
            f"the algorithm pays role {options.role!r} by what others are paid as {options.term!r} after "
            f"it spoke, and {sorted({turn.role for turn in others})} had turns without that: name who poses tasks in "
            "algorithm.options.proposer.role, and in .term what attempts at them are paid"
        )
    return tried


def _with_term(turn: Turn, reward: float, paid: float) -> Turn:
    return msgspec.structs.replace(turn, rewards={**turn.rewards, PROPOSAL: reward}, paid={**turn.paid, PROPOSAL: paid})
