"""A person in a team: sees what the role sees, and says what it says; everything else stays hidden until the end."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass

from rich.console import Console
from rich.text import Text

from mas.bus.memory import MemoryBus
from mas.core.environment import Environment, Step, Task
from mas.core.errors import AgentFailed
from mas.core.messages import Envelope, Payload
from mas.core.printable import printable, quoted, shortened
from mas.core.records import Episode
from mas.core.role import Role, View
from mas.core.team import TeamSpec
from mas.graph.plan import compile_team
from mas.person.cast import Partners
from mas.person.score import OwnTerms, measured, scored
from mas.roles import build_roles
from mas.runtime.flow import Flow
from mas.runtime.play import DecisionPoint, team_action
from mas.runtime.team import TeamRuntime, drains_on_interrupt
from mas.testing.scripted import ScriptedEngine
from mas.training.sampling.chains import SingleDecision
from mas.training.sampling.sampler import EpisodeRecorder
from mas.training.terminal import TerminalDesk


class PartnerDesk(TerminalDesk):
    """Asks people at the terminal, and of some roles their partners, who answer at once. `partners` None: nobody has
    any."""

    def __init__(self, console: Console, partners: Partners | None = None, descriptor: int = 0) -> None:
        super().__init__(console, descriptor)
        self._partners = partners

    async def ask(self, envelope: Envelope, role: Role, view: View) -> str:
        if self._partners is not None and role.name in self._partners.roles:
            return self._partners.answer(envelope.target.partition("/")[2], role)
        return await super().ask(envelope, role, view)


@asynccontextmanager
async def without_model(team: TeamSpec, desk: PartnerDesk) -> AsyncIterator[TeamRuntime]:
    """A team of people alone, which no model answers for."""
    bus = MemoryBus()
    try:
        nobody = ScriptedEngine(lambda prompt, adapter, seed: "")
        async with TeamRuntime(compile_team(team, build_roles(team)), nobody, bus, adapters={}, desk=desk) as runtime:
            yield runtime
    finally:
        await bus.close()


@dataclass(frozen=True, slots=True)
class TeamPlay:
    """An environment that was reset, and a team with people in it. Nothing is printed but what the desk asks, which
    turn is over, and whether its action was not legal.

    Attributes:
        own: is told what was said in every turn.
    """

    runtime: TeamRuntime
    desk: PartnerDesk
    environment: Environment
    console: Console
    own: OwnTerms

    async def play(self, task: Task, seed: int, *, temperature: float | None = 0.0) -> Episode:
        """To the end of the episode, which is also where the input ends.

        Args:
            task: the one that the environment was reset to.
            temperature: of roles that use a model; 0: greedy, None: each role's own.

        Raises:
            AgentFailed: an agent failed for another reason. Halted: Ctrl-C.
        """
        recorder = EpisodeRecorder(id=f"{task.id}#played", task=task.id)
        single = SingleDecision(self.runtime, recorder, seed, temperature)

        async def decide(point: DecisionPoint) -> Payload:
            payload = await single(point)
            self.own.heard(point, payload)
            return payload

        def on_turn(turn: int, flow: Flow, step: Step) -> None:
            recorder.on_turn(turn, flow, step)
            self.own.on_turn(flow)
            self._tell_turn(turn, flow, step)

        try:
            with drains_on_interrupt(self.runtime):
                await self.runtime.play(recorder.id, self.environment, decide, on_turn, on_attempt=recorder.on_attempt)
        except AgentFailed as error:
            if not self.desk.is_over:
                raise
            return recorder.failed(error)
        return recorder.close(self.environment, ())

    def _tell_turn(self, turn: int, flow: Flow, step: Step) -> None:
        if step.illegal:
            did = "what the team did" if flow.plan.spec.joint else quoted(team_action(flow))
            self.console.print(Text(f"{did} was not legal; the turn is spent", style="red"))
        if self.environment.to_move():
            most = self.environment.spec.max_turns
            self.console.print(Text(f"turn {turn + 1} of at most {most} is over", style="dim"))


def tell_end(
    console: Console,
    environment: Environment,
    episode: Episode,
    own: Mapping[str, Mapping[str, float]],
    *,
    reveal: bool,
) -> None:
    """How it ended, what it was worth to the team and, as `own`, to each of the people by their roles' own terms, and
    what the environment measured; with `reveal` also the whole world, and all that was said."""
    if reveal:
        for line in episode.lines:
            console.print(Text(f"turn {line.turn + 1}, {line.agent}: {printable(shortened(line.text)) or '(nothing)'}"))
        console.print(Text(printable(environment.render()), style="dim"))
    if episode.status == "failed":
        console.print(Text("the input ended, and with it the play", style="yellow"))
    else:
        outcome = ("solved", "bold green") if episode.success else ("not solved", "bold red")
        console.print(Text.assemble(outcome, f" in {episode.length} turn" + "s" * (episode.length != 1)))
    so_far = " so far" if episode.status == "failed" else ""
    console.print(Text(f"score{so_far}: {scored(episode.rewards)}"))
    for agent, terms in own.items():
        console.print(Text(f"own terms of {agent} (you){so_far}: {scored(terms)}"))
    if episode.measures:
        console.print(Text(f"measured: {measured(episode.measures)}"))
