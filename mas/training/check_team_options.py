"""Which options of an algorithm need a team or a scenario of a certain kind. Needs no model."""

from collections.abc import Set

from mas.algorithms.parts.options import AlgorithmOptions
from mas.config.options import ModelOptions
from mas.core.environment import Answered, Named, Tooled
from mas.core.errors import ConfigError
from mas.core.naming import agent_of, did_you_mean
from mas.core.policy import Budget
from mas.core.scenario import Finite, Scenario
from mas.core.team import DONE, TeamSpec


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
            f"{sampler.max_leaves}: lower candidates or the scenario's turns, raise max_leaves where the "
            "algorithm has it, or use sampler.mode=tree"
        )
    trained = [name for name, role in team.roles.items() if role.trainable]
    for name in algorithm.preference.sft_only if algorithm.update == "preference" else ():
        if name not in trained:
            raise ConfigError(
                f"algorithm.preference.sft_only has {name!r}, which team {team.name!r} does not train. "
                f"{did_you_mean(name, trained)}"
            )


def check_seats(algorithm: AlgorithmOptions, scenario: Scenario, team: TeamSpec) -> None:
    """Refuse what reads one outcome of an episode, or one seat's turns, for a team that plays several seats.

    Raises:
        ConfigError: says which part, and what to write.
    """
    if not team.seats:
        return
    sampler, advantage, update = algorithm.sampler, algorithm.advantage, algorithm.update
    in_turn = scenario.environment().spec.dynamics == "sequential"
    roles = [team.members()[agent] for agent in team.seats.values()]
    won = "reads who won, and seats win and lose apart: leave it out"
    wrong = {
        f"sampler.mode={sampler.mode} grows the tree of one seat: use sampler.mode=parallel, or sampler.mode=tree with "
        "lookahead=episode": sampler.mode in ("full_tree", "entropy_tree"),
        f"sampler.lookahead={sampler.lookahead} ends before the other seat has answered, so that a move is paid "
        "nothing: write sampler.lookahead=episode": (
            sampler.mode == "tree" and in_turn and sampler.lookahead != "episode"
        ),
        f"reward.model {won}": algorithm.reward.model is not None,
        f"sampler.replay {won}": sampler.replay is not None,
        f"sampler.resample {won}": sampler.resample is not None,
        f"advantage.early {won}": advantage.early is not None,
        "preference.value=outcome reads who won, and seats win and lose apart: write "
        "algorithm.preference.value=reward": (update == "preference" and algorithm.preference.value == "outcome"),
        "experience.score=success reads who won, and seats win and lose apart: write "
        "algorithm.experience.score=reward": (update == "training_free" and algorithm.experience.score == "success"),
        "warm_start keeps what succeeded, and seats win and lose apart: write warm_start.threshold": (
            algorithm.warm_start is not None and algorithm.warm_start.threshold is None
        ),
        "advantage.inherit gives one seat the advantage of another, which lost where it won: leave it out": (
            advantage.inherit is not None
        ),
        f"advantage.baseline=running keeps a baseline for each role, and one role, {roles[0]!r}, plays several seats: "
        "choose a team with a role for each seat; policy=shared gives them one adapter": (
            advantage.baseline == "running" and len(set(roles)) < len(roles)
        ),
    }
    for reason, is_wrong in wrong.items():
        if is_wrong:
            raise ConfigError(f"team {team.name!r} plays {', '.join(team.seats)}, and algorithm.{reason}")


def check_warm_start(algorithm: AlgorithmOptions, scenario: Scenario) -> None:
    """Refuse a warm start on more tasks than there are.

    Raises:
        ConfigError: says how many there are.
    """
    options = algorithm.warm_start
    if options is not None and isinstance(scenario, Finite) and options.tasks > scenario.size("train"):
        raise ConfigError(
            f"algorithm.warm_start.tasks is {options.tasks}, but scenario {scenario.name!r} has "
            f"{scenario.size('train')} training tasks: set it to that at most"
        )


def check_spending(algorithm: AlgorithmOptions, team: TeamSpec) -> None:
    """Refuse what a team may spend in an episode where its episodes are a tree that no single episode pays for.

    Raises:
        ConfigError: says which budget or policy.
    """
    if algorithm.sampler.mode not in ("full_tree", "entropy_tree"):
        return
    kept = {
        "budget.turn": team.budget.turn != Budget(),
        "budget.episode": team.budget.episode != Budget(),
        **{f"policies.{agent}.budget": policy.budget != Budget() for agent, policy in team.policies.items()},
        **{
            f"policies.{agent}.compensation": policy.compensation is not None for agent, policy in team.policies.items()
        },
    }
    for name, is_there in kept.items():
        if is_there:
            raise ConfigError(
                f"team {team.name!r} has {name}, and algorithm.sampler.mode={algorithm.sampler.mode} shares turns "
                "between episodes, so that none of them spends them alone: leave it out, or use sampler.mode=parallel"
            )


def check_fork(algorithm: AlgorithmOptions, model: ModelOptions, adapters: Set[str]) -> None:
    """Refuse a fork into adapters that are not alike.

    Raises:
        ConfigError: says which one differs.
    """
    usual = model.lora
    for name in sorted(adapters) if algorithm.fork is not None else ():
        if model.lora_of(name) != usual:
            raise ConfigError(
                f"algorithm.fork copies one adapter for all, and model.adapters gives {name!r} another rank, alpha or "
                "targets: leave model.adapters out, and set model.lora for all of them"
            )


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


def check_repairs(algorithm: AlgorithmOptions, scenario: Scenario, team: TeamSpec) -> None:
    """Refuse repairs that could not be told from answers to another prompt.

    Raises:
        ConfigError: an attempt is several team turns, or the last who speaks in one does not speak for the team.
    """
    attempts = algorithm.sampler.attempts
    if attempts is None or algorithm.update != "preference" or not algorithm.preference.repairs:
        return
    last = {edge.source for edge in team.edges if edge.target == DONE}
    wrong = {
        f"an attempt at {scenario.name!r} is several team turns": scenario.environment().spec.max_turns > attempts.most,
        f"{sorted(last)} of team {team.name!r} may be the last to speak, and {list(team.outputs)} give its answer": (
            not last <= set(team.outputs)
        ),
    }
    for reason, is_wrong in wrong.items():
        if is_wrong:
            raise ConfigError(
                f"algorithm.preference.repairs lets who failed imitate the repair of its answer, but {reason}: write "
                "algorithm.preference.repairs=false, or choose a scenario of one turn and a team that ends with its "
                "answer, such as scenario=refine algorithm.team=solo"
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


def check_shared(algorithm: AlgorithmOptions, scenario: Scenario, team: TeamSpec) -> None:
    """Refuse to share what nobody is paid alone, or with nobody.

    Raises:
        ConfigError: the scenario pays no role a term of its own, or the team has one member.
    """
    if not algorithm.reward.shared:
        return
    if not scenario.reward.terms:
        raise ConfigError(
            f"algorithm.reward.shared adds up what agents are paid alone, and scenario {scenario.name!r} pays only the "
            "team: leave it out, or choose a scenario with own terms, such as refine with algorithm.team=pair"
        )
    if len(team.members()) < 2:
        raise ConfigError(
            f"algorithm.reward.shared adds up what several agents are paid, and team {team.name!r} has one: leave it "
            "out, or choose another algorithm.team"
        )


def check_turns(algorithm: AlgorithmOptions, scenario: Scenario, team: TeamSpec) -> None:
    """Refuse parts that compare turns of a trajectory where every trajectory has one.

    Raises:
        ConfigError: says which part.
    """
    advantage, has_tools = algorithm.advantage, isinstance(scenario.environment(), Tooled)
    if advantage.early is not None and not has_tools:
        raise ConfigError(
            f"algorithm.advantage.early reads which turns call tools, and the environment of {scenario.name!r} does "
            "not tell. Leave it out, or choose a scenario with tools, such as tool_use"
        )
    if advantage.strata is not None and advantage.strata.by == "calls" and not has_tools:
        raise ConfigError(
            f"algorithm.advantage.strata.by=calls counts calls of tools, and the environment of {scenario.name!r} has "
            "none. Write algorithm.advantage.strata.by=turns, or choose a scenario with tools, such as retrieval"
        )
    if scenario.environment().spec.max_turns > 1 or any(edge.loop for edge in team.edges):
        return
    if advantage.uncertainty is not None and advantage.uncertainty.clarity:
        raise ConfigError(
            "algorithm.advantage.uncertainty.clarity pays turns that lead to a confident one, and every agent of team "
            f"{team.name!r} speaks once in an episode of {scenario.name!r}: write "
            "algorithm.advantage.uncertainty.clarity=0, or choose a scenario of several turns, such as plan_path"
        )
    parts = {
        "sampler.horizon": algorithm.sampler.horizon,
        "advantage.step": algorithm.advantage.step,
        "advantage.strata": algorithm.advantage.strata,
        "reward.discount": algorithm.reward.discount < 1 or None,
        "sampler.mode=entropy_tree": (algorithm.sampler.mode == "entropy_tree" and len(team.members()) == 1) or None,
        "reward.model": algorithm.reward.model,
        "loss.ratio=sequence": algorithm.loss.ratio == "sequence" or None,
    }
    for name, part in parts.items():
        if part is not None:
            raise ConfigError(
                f"algorithm.{name} makes no sense here: every agent of team {team.name!r} speaks once in an episode of "
                f"{scenario.name!r}. Leave it out, or choose a scenario of several turns, such as plan_path"
            )


def check_answers(algorithm: AlgorithmOptions, scenario: Scenario, team: TeamSpec) -> None:
    """Refuse rewards that read the right answer of a task where there is none, or nothing to learn from it.

    Raises:
        ConfigError: says why.
    """
    environment, reward = scenario.environment(), algorithm.reward
    if reward.partial is not None and not isinstance(environment, Named):
        raise ConfigError(
            f"algorithm.reward.partial looks for the entities of a task, and the environment of {scenario.name!r} "
            "names none (it has no method entities): leave it out, or choose a scenario that does, such as retrieval"
        )
    if reward.gain is None:
        return
    if not isinstance(environment, Answered):
        raise ConfigError(
            f"algorithm.reward.gain asks how likely the right answer is, and the environment of {scenario.name!r} says "
            "none (it has no method right_answer): leave it out, or choose a scenario that does, such as retrieval"
        )
    role = team.roles[team.members()[team.output]]
    if team.joint or role.voice in ("human", "a2a") or role.peer is not None:
        player = role.peer or ("a person" if role.a2a is None else "an agent elsewhere")
        why = "several say its action" if team.joint else f"{team.output!r} is played by {player}"
        raise ConfigError(
            f"algorithm.reward.gain asks the agent that answers how likely the right answer is, and of team "
            f"{team.name!r} {why}: leave it out, or choose another team"
        )
    if len(team.members()) == environment.spec.max_turns == 1 and not any(edge.loop for edge in team.edges):
        raise ConfigError(
            f"algorithm.reward.gain is of all turns but the last of an episode, and team {team.name!r} has one turn in "
            f"an episode of {scenario.name!r}: leave it out, or choose a team of more members, or more turns"
        )


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
