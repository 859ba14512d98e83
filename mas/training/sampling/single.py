"""One candidate per decision: how a team is evaluated, shown to people, and played in parallel sampling."""

from dataclasses import dataclass

from mas.core.environment import Environment, Step, Task
from mas.core.errors import MasError
from mas.core.messages import Payload
from mas.core.naming import derive_seed
from mas.core.records import Episode
from mas.core.tracing import in_environment
from mas.runtime.flow import DecisionPoint, Flow
from mas.runtime.payloads import Candidate
from mas.runtime.team import TeamRuntime
from mas.training.sampling.episode_recorder import EpisodeRecorder, turn_text


@dataclass(frozen=True, slots=True)
class SingleDecision:
    """Asks for one candidate, writes it down and commits it. `temperature` None: each role's own; 0: greedy."""

    runtime: TeamRuntime
    recorder: EpisodeRecorder
    seed: int
    temperature: float | None = None

    async def __call__(self, point: DecisionPoint) -> Payload:
        return (await self.draw(point)).payload

    async def draw(self, point: DecisionPoint) -> Candidate:
        """The committed candidate."""
        seed = derive_seed("single", self.seed, point.turn, point.agent, point.flow.visits(point.agent))
        (candidate,) = await self.runtime.ask(point, (seed,), episode=self.recorder.id, temperature=self.temperature)
        self.recorder.count((candidate,))
        self.recorder.say(point, candidate)
        return candidate


async def play_once(
    runtime: TeamRuntime,
    environment: Environment,
    task: Task,
    seed: int,
    *,
    temperature: float | None = None,
    has_scenes: bool = False,
) -> Episode:
    """One episode without training records; temperature 0 is greedy, None each role's own.

    It is played in step, so that it does not depend on who was quick. A task that cannot be played to its end is a
    record with status `failed`. `has_scenes`: the record holds what the world looked like, for people.
    """
    recorder = EpisodeRecorder.open(task, seed)
    decide = SingleDecision(runtime, recorder, seed, temperature)
    return await play_decided(runtime, environment, task, recorder, decide, has_scenes=has_scenes)


async def play_decided(
    runtime: TeamRuntime,
    environment: Environment,
    task: Task,
    recorder: EpisodeRecorder,
    decide: SingleDecision,
    *,
    has_scenes: bool = False,
) -> Episode:
    """One episode in which `decide` says what is committed and records it; see `play_once`."""

    def on_turn(turn: int, flow: Flow, step: Step) -> None:
        recorder.on_turn(turn, flow, step)
        if has_scenes:
            recorder.look(environment, turn, turn_text(turn, flow, step))

    try:
        with in_environment():
            environment.reset(task)
        if has_scenes:
            recorder.look(environment)
        await runtime.play(recorder.id, environment, decide, on_turn, on_attempt=recorder.on_attempt, in_step=True)
    except MasError as error:
        return recorder.failed(error)
    return recorder.close(environment, ())
