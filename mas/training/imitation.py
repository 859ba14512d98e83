"""The warm start of a run: every role imitates what it said in sampled episodes that went well, once, before step 1.

For tasks on which the base hardly ever succeeds: where all candidates of a group fail there is nothing to compare.
Source: STaR, arXiv 2203.14465, without rationalisation; RAFT, arXiv 2304.06767, with a threshold in place of the
best of each prompt. Here one round of sampling and one of cross-entropy, then reinforcement learning goes on.
"""

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mas.algorithms.parts.rewards.terms import RewardOptions, total_reward
from mas.algorithms.parts.sampling.options import SamplerOptions
from mas.algorithms.parts.warm_start import WarmStartOptions, kept_turns
from mas.core.concurrency import together
from mas.core.errors import TrainingError
from mas.core.records import Episode
from mas.core.scenario import Scenario
from mas.core.seeds import derive_seed
from mas.core.tracing import Counted, Stopwatch
from mas.training.adapters import TrainableAdapters
from mas.training.sampling.parallel import ParallelSampler
from mas.training.session import TeamSession
from mas.training.setup import Setup
from mas.training.stages import rewards_of
from mas.training.step_metrics import step_metrics


@dataclass(frozen=True, slots=True)
class WarmStart:
    """What it did: all episodes that were sampled, and metrics as those of a step, with `warm_start` beside them."""

    episodes: Sequence[Episode]
    metrics: dict[str, Any]
    optimiser_steps: int


async def warm_start(
    setup: Setup,
    scenarios: Sequence[Scenario],
    session: TeamSession,
    trainable: TrainableAdapters,
    counted: Counted,
    environments: Stopwatch,
) -> WarmStart:
    """Sample, keep, learn and publish, as `algorithm.warm_start` says.

    Args:
        scenarios: where tasks come from, in turn.
        counted: as in `Trainer.run`. environments: adds up the time that they take.

    Raises:
        TrainingError: nothing was kept; says what was tried.
    """
    options = setup.algorithm.warm_start
    assert options is not None
    began, in_environments = time.perf_counter(), environments.seconds
    trainable.assignment.use(session.runtime, 0)
    rewards = rewards_of(setup.algorithm, 0)
    episodes = await _sampled(setup, options, scenarios, session, rewards, counted)
    imitated = trainable.assignment.warm_start_adapters()
    kept = kept_turns(episodes, imitated, options, rewards)
    if not kept:
        raise TrainingError(_nothing_kept(episodes, options, rewards))
    sampled, in_environments = time.perf_counter(), environments.seconds - in_environments
    counted("learning", 0, 0)
    improved = await trainable.imitate(kept, [turn for episode in episodes for turn in episode.turns], options)
    learned = time.perf_counter()
    counted("publishing", 0, 0)
    published = await trainable.publish(session, improved)
    metrics = step_metrics(episodes, improved, rewards, imitated)
    roles = Counter(turn.role for turn in kept)
    metrics["warm_start"] = {
        "episodes": len(episodes),
        "kept": len({turn.episode for turn in kept}),
        "tasks": len({episode.task for episode in episodes}),
        "tasks_kept": len({turn.task for turn in kept}),
        "turns": {role: roles[role] for role in imitated},
    }
    metrics["seconds"] = {
        "sample": sampled - began,
        "environment": in_environments,
        "learn": learned - sampled,
        "publish": time.perf_counter() - learned,
    }
    return WarmStart(episodes, metrics | dict(published), improved.optimiser_steps)


async def _sampled(
    setup: Setup,
    options: WarmStartOptions,
    scenarios: Sequence[Scenario],
    session: TeamSession,
    rewards: RewardOptions,
    counted: Counted,
) -> list[Episode]:
    """As many tasks at once as a step plays."""
    sampling = SamplerOptions(mode="parallel", candidates=options.attempts)
    rewards = rewards.model_copy(update={"gain": None, "partial": None})  # R has neither
    episodes: list[Episode] = []
    counted("warm start", 0, options.tasks)
    for begin in range(0, options.tasks, setup.train.tasks_per_step):
        plays = []
        for number in range(begin, min(begin + setup.train.tasks_per_step, options.tasks)):
            scenario = scenarios[number % len(scenarios)]
            sampler = ParallelSampler(
                session.runtime, scenario.reward, sampling, rewards, temperature=options.temperature
            )
            task = scenario.task("train", number // len(scenarios))
            seed = derive_seed("warm start", setup.train.seed, number)
            plays.append(sampler.sample(task, scenario.environment(), seed))
        episodes += [episode for group in await together(plays, "task") for episode in group]
        counted("warm start", begin + len(plays), options.tasks)
    return episodes


def _nothing_kept(episodes: Sequence[Episode], options: WarmStartOptions, rewards: RewardOptions) -> str:
    failed = [episode for episode in episodes if episode.status == "failed"]
    tried = f"{len(episodes)} episodes, {options.attempts} attempts at each of {options.tasks} tasks"
    if len(failed) == len(episodes):
        return f"algorithm.warm_start sampled {tried}, and none could be played: {failed[0].cause}"
    at = "each role's own temperature" if options.temperature is None else f"temperature {options.temperature:g}"
    totals = [total_reward(turn.rewards, rewards) for episode in episodes for turn in episode.turns]
    wanted = "that succeeded" if options.threshold is None else f"with a reward of {options.threshold:g} or more"
    return (
        f"algorithm.warm_start sampled {tried} at {at}, and kept nothing of them: it imitates episodes {wanted}; "
        f"{sum(episode.success for episode in episodes)} succeeded, the highest reward is "
        f"{max(totals, default=float('nan')):.3g}, {len(failed)} could not be played. Raise warm_start.tasks, "
        ".attempts or .temperature, lower warm_start.threshold, or begin with tasks that the base sometimes solves"
    )
