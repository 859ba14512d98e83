"""What a policy is worth exactly, in games small enough for all their decisions to be asked for.

Nothing is played or drawn: at every information state the engine scores each legal action, and their probabilities,
made to add up to 1, are the policy. That is how it plays where who makes no legal move is asked again; `legal` says how
much of the policy lies on legal actions at all.
Leaves out on purpose: seats whose agents talk first, or whose action stands in a longer text. Their policy is a sum
over all that could be said, which nobody can add up.
"""

from collections.abc import Mapping, Sequence
from math import exp, fsum, log
from statistics import fmean
from typing import NamedTuple

from mas.core.errors import EngineError
from mas.core.role import View
from mas.core.scenario import Decision, Scenario, Solvable
from mas.core.team import RoleSpec
from mas.graph.plan import TeamPlan
from mas.roles import PromptedRole
from mas.runtime.team import TeamRuntime


class ScoredPolicy(NamedTuple):
    """A policy: by key of the decision and action; `legal`: by key, probability of all legal actions together at
    temperature 1."""

    policy: Mapping[str, Mapping[str, float]]
    legal: Mapping[str, float]


async def exact_measures(
    runtime: TeamRuntime, scenario: Scenario, temperature: float | None = None
) -> Mapping[str, float]:
    """What the scenario measures of the team's policy, such as `nash_conv`, and `legal`, the mean probability of all
    legal actions together at temperature 1. Empty: see `scored_policy`.

    Args:
        temperature: 0: of the greedy policy, None: each role's own.
    """
    found = await scored_policy(runtime, scenario, temperature)
    if found is None:
        return {}
    assert isinstance(scenario, Solvable)
    return {**scenario.solve(found.policy), "legal": fmean(found.legal.values())}


async def scored_policy(
    runtime: TeamRuntime, scenario: Scenario, temperature: float | None = None
) -> ScoredPolicy | None:
    """The team's policy at every decision; None: the scenario is not `Solvable` or has too many decisions, or the
    policy cannot be scored.

    Args:
        temperature: 0: the greedy policy, None: each role's own.
    """
    decisions = scenario.decisions() if isinstance(scenario, Solvable) else ()
    speakers = _speakers(runtime.plan)
    if not decisions or any(not _is_scored(runtime.plan, speakers.get(one.seat), one) for one in decisions):
        return None
    if any(_is_restricted(runtime.plan.roles[agent].spec) for agent in speakers.values()):
        return None
    policy, legal = {}, {}
    for one in decisions:
        agent = speakers[one.seat]
        view = View(observation=one.observation)
        try:
            scores = await runtime.log_chances(agent, view, one.legal)
        except EngineError:  # an engine elsewhere that exchanges text
            return None
        if scores is None:
            return None
        own = runtime.plan.roles[agent].spec.temperature
        chances = spelled_shares(one.legal, scores, own if temperature is None else temperature)
        policy[one.key] = dict(zip(one.legal, chances, strict=True))
        legal[one.key] = sum(exp(score) for score in scores)
    return ScoredPolicy(policy, legal)


def shares(logprobs: Sequence[float], temperature: float) -> list[float]:
    """Log-probabilities at temperature 1 as probabilities at another one that add up to 1; at 0 all of the greatest,
    the first of equals.

    p_i = exp(l_i / T) / sum_j exp(l_j / T).
    """
    best = max(logprobs)
    if temperature == 0:
        return [float(index == logprobs.index(best)) for index in range(len(logprobs))]
    weights = [exp((logprob - best) / temperature) for logprob in logprobs]
    return [weight / sum(weights) for weight in weights]


def spelled_shares(texts: Sequence[str], logprobs: Sequence[float], temperature: float) -> list[float]:
    """`shares` of texts that are said letter by letter, where the temperature is of every letter: of those that go on
    with the same letter, p(letter) is that of them all together.

    Args:
        texts: all that count, each another; one letter each is what `shares` says.
        logprobs: [texts] of the whole texts at temperature 1.
    """

    def spread(indices: Sequence[int], at: int, chance: float) -> None:
        if len(indices) == 1:
            found[indices[0]] = chance
            return
        branches: dict[str, list[int]] = {}
        for index in indices:
            branches.setdefault(texts[index][at : at + 1], []).append(index)
        best = max(logprobs[index] for index in indices)
        totals = [log(fsum(exp(logprobs[index] - best) for index in branch)) for branch in branches.values()]
        for branch, share in zip(branches.values(), shares(totals, temperature), strict=True):
            spread(branch, at + 1, chance * share)

    found = [0.0] * len(texts)
    spread(range(len(texts)), 0, 1.0)
    return found


def _speakers(plan: TeamPlan) -> dict[str, str]:
    """Seat -> its one agent, of seats that have one."""
    own = {seat: [agent for agent in plan.agents if plan.seat_of[agent] == seat] for seat in plan.starting}
    return {seat: agents[0] for seat, agents in own.items() if len(agents) == 1}


def _is_scored(plan: TeamPlan, agent: str | None, decision: Decision) -> bool:
    if agent is None:
        return False
    role = plan.roles[agent]
    spec, said = role.spec, set(decision.legal)
    if isinstance(role, PromptedRole) and role.is_spelled:
        said = set("".join(said)) if max(map(len, said)) <= spec.max_tokens else said
    return spec.pattern is None and said <= set(spec.choices)


def _is_restricted(spec: RoleSpec) -> bool:
    """Whether texts are drawn from less than the whole vocabulary, which scores know nothing of."""
    return spec.constraint is not None or spec.top_k > 0 or spec.top_p < 1 or spec.min_p > 0
