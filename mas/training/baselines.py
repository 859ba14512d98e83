"""Arms that are only played, with no fewer calls (or tokens) for each task than the team: its leader alone, best of N.

Best of N is of one agent that sees all that the team sees. `verified`: N whole episodes, and the task is solved if one
of them solved it; the verifier is the environment itself, so this is the most that any verifier could reach. `voted`:
at each turn N outputs are drawn, and the most frequent one that parses is committed, of equals the one drawn first.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import ceil
from typing import Literal

import msgspec

from mas.core.concurrency import together
from mas.core.errors import ConfigError
from mas.core.messages import Failure, Payload
from mas.core.records import Episode
from mas.core.scenario import Scenario
from mas.core.seeds import derive_seed
from mas.core.team import TeamSpec
from mas.graph.load import find_team
from mas.runtime.play import DecisionPoint
from mas.runtime.team import TeamRuntime, drains_on_interrupt
from mas.serving.adapter_weights import AdapterWeights
from mas.serving.model import BaseModel
from mas.serving.store import ServingEngine
from mas.training.evaluate import Evaluation, evaluate, summarise
from mas.training.sampling.chains import SingleDecision, play_decided
from mas.training.sampling.sampler import EpisodeRecorder
from mas.training.session import open_team
from mas.training.setup import Setup

SOLO = "solo"
LEADER = "leader alone"
Matched = Literal["calls", "tokens"]
_SLACK = 1e-9


@dataclass(frozen=True, slots=True)
class VotedDecision(SingleDecision):
    """Asks for `count` candidates and commits the most frequent output that parses, of equals the one drawn first."""

    count: int = 1

    async def __call__(self, point: DecisionPoint) -> Payload:
        visit = point.flow.visits(point.agent)
        seeds = tuple(
            derive_seed("voted", self.seed, point.turn, point.agent, visit, number) for number in range(self.count)
        )
        candidates = await self.runtime.ask(point, seeds, episode=self.recorder.id, temperature=self.temperature)
        valid = [candidate for candidate in candidates if not isinstance(candidate.payload, Failure)]
        votes = Counter(candidate.payload.model_dump_json() for candidate in valid)
        chosen = max(valid or candidates, key=lambda candidate: votes[candidate.payload.model_dump_json()])
        self.recorder.count(candidates)
        self.recorder.say(point, chosen)
        return chosen.payload


def attempts_for(team: Evaluation, single: Evaluation, matched: Matched) -> int:
    """The least N with which N times the single agent's calls (or tokens) are no fewer than the team's; at least 1."""
    have, one = (team.calls, single.calls) if matched == "calls" else (team.tokens, single.tokens)
    return max(1, ceil(have / one - _SLACK)) if one else 1


async def best_verified(runtime: TeamRuntime, scenario: Scenario, tasks: int, count: int, *, seed: int) -> Evaluation:
    """Sampled episodes, `count` for each task, which is solved if one of them solved it; costs are those of all."""
    runs = [
        await evaluate(runtime, scenario, tasks, temperature=None, seed=derive_seed("verified", seed, number))
        for number in range(count)
    ]
    return summarise([_joined(episodes) for episodes in zip(*(run.episodes for run in runs), strict=True)])


async def best_voted(runtime: TeamRuntime, scenario: Scenario, tasks: int, count: int, *, seed: int) -> Evaluation:
    """Episodes in which every output is the most frequent of `count` sampled ones."""
    plays = []
    for index in range(tasks):
        task, own = scenario.task("eval", index), derive_seed("evaluate", seed, index)
        recorder = EpisodeRecorder.open(task, own)
        decide = VotedDecision(runtime, recorder, own, None, count)
        plays.append(play_decided(runtime, scenario.environment(), task, recorder, decide))
    return summarise(await together(plays, "voted"))


BEST = {"verified": best_verified, "voted": best_voted}
"""How the best of N is found."""


def leader_of(team: TeamSpec) -> str:
    """The role that leads the team: see `TeamSpec.leader`."""
    return team.members()[team.led_by]


def why_no_single(setup: Setup) -> str | None:
    """Why no single agent can play beside the team; None: it can."""
    scenario, team = setup.scenario, setup.team
    if team.seats:
        return f"team {team.name!r} plays every seat of {scenario.name!r}: one agent would play itself"
    if SOLO not in scenario.teams:
        return f"scenario {scenario.name!r} has no team {SOLO!r}"
    if len(team.members()) == 1 or setup.algorithm.team == SOLO:
        return f"team {team.name!r} is a single agent itself"
    return None


def why_no_leader(setup: Setup) -> str | None:
    """Why the team's leader cannot play alone; None: it can."""
    if why := why_no_single(setup):
        return why
    try:
        led(setup)
    except ConfigError as error:
        return str(error)
    return None


def led(setup: Setup) -> dict[str, str]:
    """Role of the single agent -> the adapter that the team's leader uses. Frozen roles beside the single
    agent, such as a simulated user, keep their own.

    Raises:
        ConfigError: nobody trains it.
    """
    team = setup.team
    name = setup.sampling_adapters.get(leader_of(team))
    if name is None or name not in setup.trained_adapters.values():
        raise ConfigError(
            f"role {leader_of(team)!r}, which leads team {team.name!r}, is not trained: it has no adapter. "
            "Another agent leads if the team's file names it as 'leader'"
        )
    return {role: name for role, spec in find_team(setup.scenario, SOLO).roles.items() if spec.trainable}


async def beside_team(
    setup: Setup,
    base: BaseModel,
    adapters: Mapping[str, AdapterWeights],
    team: Evaluation,
    *,
    engine: ServingEngine,
    matched: Matched = "calls",
    temperature: float | None = 0.0,
    told: Callable[[str], None] = lambda name: None,
) -> dict[str, Evaluation]:
    """The leader alone, and best of N of it, by name; N is the least that spends no less than the team.

    Args:
        team: its evaluation, which says the tasks and the budget. engine: serves both. told: each name as it begins.

    Raises:
        ConfigError: no single agent can play beside this team; says why.
    """
    if why := why_no_leader(setup):
        raise ConfigError(f"no baselines of a single agent: {why}")
    scenario, tasks, seed, found = setup.scenario, len(team.episodes), setup.train.seed, {}
    opening = open_team(setup.with_team(SOLO), base, adapters, led(setup), engine=engine)
    async with opening as session:
        with drains_on_interrupt(session.runtime):
            told(LEADER)
            alone = await evaluate(session.runtime, scenario, tasks, temperature=temperature, seed=seed)
            found[LEADER] = alone
            count = attempts_for(team, alone, matched)
            for kind, play in BEST.items():
                told(name := f"best of {count}, {kind}")
                found[name] = await play(session.runtime, scenario, tasks, count, seed=seed)
    return found


def _joined(episodes: tuple[Episode, ...]) -> Episode:
    """The first solved episode of a task, else its first one, with what all of them cost."""
    best = next((episode for episode in episodes if episode.success), episodes[0])
    prompts = {key: tokens for episode in episodes for key, tokens in episode.prompts.items()}
    return msgspec.structs.replace(
        best,
        prompt_tokens=sum(episode.prompt_tokens for episode in episodes),
        completion_tokens=sum(episode.completion_tokens for episode in episodes),
        calls=sum(episode.calls for episode in episodes),
        prompts=prompts,
    )
