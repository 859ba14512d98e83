"""How good a team is: success over held-out tasks, and the baseline that knows nothing."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from itertools import count
from random import Random
from statistics import fmean
from types import MappingProxyType
from typing import Any

import msgspec

from mas.core.concurrency import together
from mas.core.environment import Script, Task, mean_measures, measures_of
from mas.core.errors import Halted, RunError
from mas.core.records import Cost, Episode, cost_of, total_cost
from mas.core.scenario import Scenario
from mas.core.seeds import derive_seed
from mas.observe.significance import Interval, wilson
from mas.runtime.team import TeamRuntime
from mas.training.exploitability import exact_measures
from mas.training.sampling.chains import play_once
from mas.training.sampling.sampler import loops_of
from mas.training.step_metrics import Gate, gates, pass_share
from mas.training.tasks.plan import ProgramPlayer

Progress = Callable[[int, int], None]
"""(tasks played, tasks) -> nothing."""
SHOWN_TASKS = 24
"""Held-out tasks whose greedy episodes are kept at every evaluation of a training: the same ones, before and after."""
_TOGETHER = 1024
"""Tasks that are played at the same time."""


class Evaluation(msgspec.Struct, frozen=True, kw_only=True):
    """Means over episodes.

    `passes`: share of team turns without a committed action; `failures`: share of outputs that did not parse;
    `unplayed`: episodes ended by an error; `measures`: what the environment tells beside rewards, of those played;
    `loops`: how often the team's loops were taken.
    """

    success: float
    turns: float
    passes: float
    failures: float
    unplayed: int
    tokens: int
    episodes: tuple[Episode, ...]
    measures: Mapping[str, float] = {}
    loops: Mapping[str, Gate] = {}

    @property
    def cost(self) -> Cost:
        """Of all tasks, each for itself: prompts that only different tasks have in common count for each."""
        return total_cost(cost_of([episode]) for episode in self.episodes)

    @property
    def interval(self) -> Interval:
        """Wilson's 95 % interval of `success`, over tasks. Of other seeds of training it says nothing."""
        return wilson(self.success * len(self.episodes), len(self.episodes))

    @property
    def calls(self) -> int:
        """Generations that were asked for."""
        return sum(episode.calls for episode in self.episodes)

    def __repr__(self) -> str:
        return f"Evaluation(success={self.success:.3f}, tasks={len(self.episodes)}, turns={self.turns:.1f})"

    def metrics(self) -> dict[str, Any]:
        """The numbers without the episodes; measures and loops, where there are any, below `measures` and `loops`."""
        names = ("success", "turns", "passes", "failures", "unplayed")
        numbers: dict[str, Any] = {name: getattr(self, name) for name in names}
        if self.measures:
            numbers["measures"] = dict(self.measures)
        if self.loops:
            numbers["loops"] = {name: msgspec.to_builtins(gate) for name, gate in self.loops.items()}
        return numbers


async def evaluate(
    runtime: TeamRuntime,
    scenario: Scenario,
    tasks: int,
    *,
    temperature: float | None = 0.0,
    seed: int = 0,
    progress: Progress = lambda done, of: None,
    scenes: int = 0,
    programs: ProgramPlayer | None = None,
) -> Evaluation:
    """Play the first `tasks` held-out tasks, greedy at temperature 0, sampled as the roles say at None.

    A task that cannot be played is a recorded failure and counts as not solved. If that is so for all of a thousand
    that are played together, the rest is not tried. Measures have also what is known exactly, see `exact_measures`.

    Args:
        progress: told after every task.
        scenes: of so many tasks, the first, the record holds what their worlds looked like.
        programs: play in place of the runtime.

    Raises:
        Halted: the team is stopping.
    """
    episodes: list[Episode] = []
    ended = count(1)

    async def counted(play: Awaitable[Episode]) -> Episode:
        episode = await play
        progress(next(ended), tasks)
        return episode

    if programs is not None:
        held_out = [scenario.task("eval", index) for index in range(tasks)]
        on_played = lambda: progress(next(ended), tasks)  # noqa: E731
        return summarise(await programs.evaluate(held_out, temperature=temperature, seed=seed, on_played=on_played))
    for begin in range(0, tasks, _TOGETHER):
        plays = [
            play_once(
                runtime,
                scenario.environment(),
                scenario.task("eval", index),
                derive_seed("evaluate", seed, index),
                temperature=temperature,
                has_scenes=index < scenes,
            )
            for index in range(begin, min(begin + _TOGETHER, tasks))
        ]
        played = await together(map(counted, plays), "evaluate")
        episodes += played
        if runtime.is_draining:
            done = sum(episode.status == "done" for episode in episodes)
            raise Halted(f"the evaluation was stopped after {done} of {tasks} tasks")
        if all(episode.status == "failed" for episode in played):
            break
    exact = await exact_measures(runtime, scenario, temperature)
    found = summarise(episodes, dict(loops_of(runtime.plan)))
    return msgspec.structs.replace(found, measures={**found.measures, **exact}) if exact else found


def check_played(result: Evaluation) -> None:
    """Refuse to report what was never played.

    Raises:
        RunError: no task could be played.
    """
    if result.unplayed == len(result.episodes):
        raise RunError(f"none of {result.unplayed} tasks could be played: {result.episodes[0].cause}")


def summarise(episodes: Sequence[Episode], bounds: Mapping[str, int] = MappingProxyType({})) -> Evaluation:
    """The evaluation of episodes already played. `bounds`: of the team's loops; see `loops_of`."""
    lines = [line for episode in episodes for line in episode.lines]
    return Evaluation(
        success=fmean(episode.success for episode in episodes),
        turns=fmean(episode.length for episode in episodes),
        passes=pass_share(episodes),
        failures=fmean([line.failure is not None for line in lines] or [0.0]),
        unplayed=sum(episode.status == "failed" for episode in episodes),
        tokens=sum(episode.tokens for episode in episodes),
        episodes=tuple(episodes),
        measures=mean_measures(episode.measures for episode in episodes),
        loops=gates(bounds, episodes),
    )


def scripted(scenario: Scenario, policy: Script, tasks: int, seed: int) -> Evaluation | None:
    """The first held-out tasks played by a policy, which costs no calls and no tokens.

    None: the policy cannot tell what to do.
    """
    played = [_scripted(scenario, policy, scenario.task("eval", index), seed) for index in range(tasks)]
    known = [episode for episode in played if episode is not None]
    return summarise(known) if len(known) == len(played) else None


def _scripted(scenario: Scenario, policy: Script, task: Task, seed: int) -> Episode | None:
    environment = scenario.environment()
    environment.reset(task)
    random, length = Random(derive_seed("random", seed, task.id)), 0
    while environment.to_move():
        actions = policy(environment, random)
        if actions is None:
            return None
        environment.step(actions)
        length += 1
    return Episode(
        id=task.id,
        task=task.id,
        success=environment.success(),
        turns=(),
        lines=(),
        rewards={},
        length=length,
        measures=measures_of(environment),
        prompt_tokens=0,
        completion_tokens=0,
        calls=0,
    )
