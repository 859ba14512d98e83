"""A person in a team: sees what the role sees, and says what it says; everything else stays hidden until the end."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from rich.console import Console
from rich.text import Text

from mas.bus.memory import MemoryBus
from mas.core.environment import Environment, Step, Task
from mas.core.errors import AgentFailed
from mas.core.messages import Envelope
from mas.core.records import Episode
from mas.core.role import Role, View
from mas.core.team import TeamSpec
from mas.graph.plan import compile_team
from mas.person.cast import Partners
from mas.roles import build_roles
from mas.runtime.flow import Flow
from mas.runtime.interrupt import drains_on_interrupt
from mas.runtime.play import team_action
from mas.runtime.team import TeamRuntime
from mas.testing.scripted import ScriptedEngine
from mas.training.sampling.ledger import Ledger
from mas.training.sampling.single import SingleDecision
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
    """A team that speaks through its desk alone."""
    bus = MemoryBus()
    try:
        nobody = ScriptedEngine(lambda prompt, adapter, seed: "")
        async with TeamRuntime(compile_team(team, build_roles(team)), nobody, bus, adapters={}, desk=desk) as runtime:
            yield runtime
    finally:
        await bus.close()


async def play_team(
    runtime: TeamRuntime,
    desk: PartnerDesk,
    environment: Environment,
    task: Task,
    seed: int,
    console: Console,
    *,
    temperature: float | None = 0.0,
) -> Episode:
    """Play an environment that was reset to the task. Nothing is printed but what the desk asks, which turn is
    over, and whether its action was not legal. Where the input ends, so does the episode.

    Args:
        temperature: of whoever speaks through a model; 0: greedy, None: each role's own.

    Raises:
        AgentFailed: an agent failed for another reason. Halted: Ctrl-C.
    """
    ledger = Ledger(id=f"{task.id}#played", task=task.id)
    decide = SingleDecision(runtime, ledger, seed, temperature)

    def on_turn(turn: int, flow: Flow, step: Step) -> None:
        ledger.on_turn(turn, flow, step)
        if step.illegal:
            did = "what the team did" if flow.plan.spec.joint else repr(team_action(flow))
            console.print(Text(f"{did} was not legal; the turn is spent", style="red"))
        if environment.to_move():
            console.print(Text(f"turn {turn + 1} of at most {environment.spec.max_turns} is over", style="dim"))

    try:
        with drains_on_interrupt(runtime):
            await runtime.play(ledger.id, environment, decide, on_turn, on_attempt=ledger.on_attempt)
    except AgentFailed as error:
        if not desk.is_over:
            raise
        return ledger.failed(error)
    return ledger.close(environment, ())


def tell_end(console: Console, environment: Environment, episode: Episode, *, reveal: bool) -> None:
    """How it ended and what it was worth; with `reveal` also the whole world, and all that was said."""
    if reveal:
        for line in episode.lines:
            console.print(Text(f"turn {line.turn + 1}, {line.agent}: {line.text or '(nothing)'}"))
        console.print(Text(environment.render(), style="dim"))
    if episode.status == "failed":
        console.print(Text("the input ended, and with it the play", style="yellow"))
    else:
        outcome = ("solved", "bold green") if episode.success else ("not solved", "bold red")
        console.print(Text.assemble(outcome, f" in {episode.length} turn" + "s" * (episode.length != 1)))
    terms = ", ".join(f"{name} {value:+g}" for name, value in episode.rewards.items())
    so_far = " so far" if episode.status == "failed" else ""
    console.print(Text(f"score{so_far}: {sum(episode.rewards.values()):g}" + (f" ({terms})" if terms else "")))
