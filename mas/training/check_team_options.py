"""Which options of an algorithm need a team or a scenario of a certain kind. Needs no model.

Each function yields what it refuses: which option, what there is, and what to write.
"""

from collections.abc import Iterable, Iterator, Set
from itertools import chain

from mas.algorithms.parts.options import AlgorithmOptions
from mas.config.options import ModelOptions
from mas.core.environment import Answered, Named, Tooled
from mas.core.errors import ConfigError
from mas.core.naming import agent_of, did_you_mean
from mas.core.policy import Budget
from mas.core.scenario import Finite, Scenario
from mas.core.team import DONE, TeamSpec
from mas.training.opponents import opponent_refusals
from mas.training.setup import Setup


def refuse(refusals: Iterable[str]) -> None:
    """Raises ConfigError: the first refusal, if there is any."""
    for why in refusals:
        raise ConfigError(why)


def team_refusals(setup: Setup) -> Iterator[str]:
    """All of those below but `sibling_refusals`, in order."""
    algorithm, scenario, team = setup.algorithm, setup.scenario, setup.team
    return chain(
        fork_refusals(algorithm, setup.model, set(setup.trained_adapters.values())),
        turn_refusals(algorithm, scenario, team),
        seat_refusals(algorithm, scenario, team),
        warm_start_refusals(algorithm, scenario),
        proposer_refusals(algorithm, scenario, team),
        spending_refusals(algorithm, team),
        inherit_refusals(algorithm, team),
        answer_refusals(algorithm, scenario, team),
        shared_refusals(algorithm, scenario, team),
        opponent_refusals(setup),
        repair_refusals(algorithm, scenario, team),
    )


def sibling_refusals(algorithm: AlgorithmOptions, team: TeamSpec, max_turns: int) -> Iterator[str]:
    """Full trees that may grow too large, and roles to imitate that are not trained.

    Each member decides once in a team turn here; one that speaks more often meets the bound while the tree grows.
    """
    sampler, members = algorithm.sampler, len(team.members())
    turns = min(max_turns, max(sampler.horizon.turns)) if sampler.horizon is not None else max_turns
    decisions = members * turns
    leaves = float(sampler.candidates) ** min(decisions, 300)
    if sampler.mode == "full_tree" and leaves > sampler.max_leaves:
        yield (
            f"algorithm.sampler.mode=full_tree with {sampler.candidates} candidates at each of {decisions} decisions "
            f"({members} members x {turns} team turns) has {leaves:.3g} leaves, and max_leaves is "
            f"{sampler.max_leaves}: lower candidates or the scenario's turns, raise max_leaves where the "
            "algorithm has it, or use sampler.mode=tree"
        )
    trained = [name for name, role in team.roles.items() if role.trainable]
    for name in algorithm.preference.sft_only if algorithm.update == "preference" else ():
        if name not in trained:
            yield (
                f"algorithm.preference.sft_only has {name!r}, which team {team.name!r} does not train. "
                f"{did_you_mean(name, trained)}"
            )


def seat_refusals(algorithm: AlgorithmOptions, scenario: Scenario, team: TeamSpec) -> Iterator[str]:
    """What reads one outcome of an episode, or one seat's turns, for a team that plays several seats."""
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
            yield f"team {team.name!r} plays {', '.join(team.seats)}, and algorithm.{reason}"


def warm_start_refusals(algorithm: AlgorithmOptions, scenario: Scenario) -> Iterator[str]:
    """A warm start on more tasks than there are."""
    options = algorithm.warm_start
    if options is not None and isinstance(scenario, Finite) and options.tasks > scenario.size("train"):
        yield (
            f"algorithm.warm_start.tasks is {options.tasks}, but scenario {scenario.name!r} has "
            f"{scenario.size('train')} training tasks: set it to that at most"
        )


def spending_refusals(algorithm: AlgorithmOptions, team: TeamSpec) -> Iterator[str]:
    """What a team may spend in an episode where its episodes are a tree that no single episode pays for."""
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
            yield (
                f"team {team.name!r} has {name}, and algorithm.sampler.mode={algorithm.sampler.mode} shares turns "
                "between episodes, so that none of them spends them alone: leave it out, or use sampler.mode=parallel"
            )


def fork_refusals(algorithm: AlgorithmOptions, model: ModelOptions, adapters: Set[str]) -> Iterator[str]:
    """A fork into adapters that are not alike."""
    usual = model.lora
    for name in sorted(adapters) if algorithm.fork is not None else ():
        if model.lora_of(name) != usual:
            yield (
                f"algorithm.fork copies one adapter for all, and model.adapters gives {name!r} another rank, alpha or "
                "targets: leave model.adapters out, and set model.lora for all of them"
            )


def inherit_refusals(algorithm: AlgorithmOptions, team: TeamSpec) -> Iterator[str]:
    """An agent to inherit from that the team does not have."""
    name, agents = algorithm.advantage.inherit, {agent_of(member) for member in team.members()}
    if name is not None and name not in agents:
        yield (
            f"algorithm.advantage.inherit is {name!r}, and team {team.name!r} has no such agent. "
            f"{did_you_mean(name, agents)}"
        )


def repair_refusals(algorithm: AlgorithmOptions, scenario: Scenario, team: TeamSpec) -> Iterator[str]:
    """Repairs that could not be told from answers to another prompt."""
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
            yield (
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


def shared_refusals(algorithm: AlgorithmOptions, scenario: Scenario, team: TeamSpec) -> Iterator[str]:
    """To share what nobody is paid alone, or with nobody."""
    if not algorithm.reward.shared:
        return
    if not scenario.reward.terms:
        yield (
            f"algorithm.reward.shared adds up what agents are paid alone, and scenario {scenario.name!r} pays only the "
            "team: leave it out, or choose a scenario with own terms, such as refine with algorithm.team=pair"
        )
    if len(team.members()) < 2:
        yield (
            f"algorithm.reward.shared adds up what several agents are paid, and team {team.name!r} has one: leave it "
            "out, or choose another algorithm.team"
        )


def turn_refusals(algorithm: AlgorithmOptions, scenario: Scenario, team: TeamSpec) -> Iterator[str]:
    """Parts that compare turns of a trajectory where every trajectory has one."""
    advantage, has_tools = algorithm.advantage, isinstance(scenario.environment(), Tooled)
    if advantage.early is not None and not has_tools:
        yield (
            f"algorithm.advantage.early reads which turns call tools, and the environment of {scenario.name!r} does "
            "not tell. Leave it out, or choose a scenario with tools, such as tool_use"
        )
    if advantage.strata is not None and advantage.strata.by == "calls" and not has_tools:
        yield (
            f"algorithm.advantage.strata.by=calls counts calls of tools, and the environment of {scenario.name!r} has "
            "none. Write algorithm.advantage.strata.by=turns, or choose a scenario with tools, such as retrieval"
        )
    if scenario.environment().spec.max_turns > 1 or any(edge.loop for edge in team.edges):
        return
    if advantage.uncertainty is not None and advantage.uncertainty.clarity:
        yield (
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
            yield (
                f"algorithm.{name} makes no sense here: every agent of team {team.name!r} speaks once in an episode of "
                f"{scenario.name!r}. Leave it out, or choose a scenario of several turns, such as plan_path"
            )


def answer_refusals(algorithm: AlgorithmOptions, scenario: Scenario, team: TeamSpec) -> Iterator[str]:
    """Rewards that read the right answer of a task where there is none, or nothing to learn from it."""
    environment, reward = scenario.environment(), algorithm.reward
    if reward.partial is not None and not isinstance(environment, Named):
        yield (
            f"algorithm.reward.partial looks for the entities of a task, and the environment of {scenario.name!r} "
            "names none (it has no method entities): leave it out, or choose a scenario that does, such as retrieval"
        )
    if reward.gain is None:
        return
    if not isinstance(environment, Answered):
        yield (
            f"algorithm.reward.gain asks how likely the right answer is, and the environment of {scenario.name!r} says "
            "none (it has no method right_answer): leave it out, or choose a scenario that does, such as retrieval"
        )
    role = team.roles[team.members()[team.output]]
    if team.joint or role.voice in ("human", "a2a") or role.peer is not None:
        player = role.peer or ("a person" if role.a2a is None else "an agent elsewhere")
        why = "several say its action" if team.joint else f"{team.output!r} is played by {player}"
        yield (
            f"algorithm.reward.gain asks the agent that answers how likely the right answer is, and of team "
            f"{team.name!r} {why}: leave it out, or choose another team"
        )
    if len(team.members()) == environment.spec.max_turns == 1 and not any(edge.loop for edge in team.edges):
        yield (
            f"algorithm.reward.gain is of all turns but the last of an episode, and team {team.name!r} has one turn in "
            f"an episode of {scenario.name!r}: leave it out, or choose a team of more members, or more turns"
        )


def proposer_refusals(algorithm: AlgorithmOptions, scenario: Scenario, team: TeamSpec) -> Iterator[str]:
    """To pay who poses tasks where nobody does or attempts them, and to compare agents of one role of which the
    team has one."""
    options, terms = algorithm.reward.proposer, scenario.environment().spec.terms
    roles = [*team.members().values()]
    if options is not None and options.role not in roles:
        yield (
            f"algorithm.reward.proposer.role is {options.role!r}, and team {team.name!r} has no such role. "
            f"{did_you_mean(options.role, set(roles))} (propose is a scenario with a proposer)"
        )
    if options is not None and options.term not in terms:
        yield (
            f"algorithm.reward.proposer.term is {options.term!r}, and scenario {scenario.name!r} pays no such term. "
            f"{did_you_mean(options.term, terms)}"
        )
    if options is not None and set(roles) == {options.role}:
        yield (
            f"algorithm.reward.proposer.role is {options.role!r}, and team {team.name!r} has no other role, whose "
            "attempts could be read: choose a team in which others attempt what it poses"
        )
    is_alone = len(set(roles)) == len(roles) and not any(edge.map for edge in team.edges)
    if algorithm.advantage.key == "episode" and is_alone and algorithm.sampler.mode != "tree":
        yield (
            f"algorithm.advantage.key=episode compares the agents of one role in an episode, and team {team.name!r} "
            "has one of each: leave it out, or choose a team in which several agents have one role"
        )
