"""One episode for people: the world, and every word that the team's members say, as it goes.

`LiveOutput` shows what agents are saying right now, at the foot of a terminal, token by token.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from types import MappingProxyType

from rich.console import Console, Group
from rich.live import Live
from rich.panel import Panel
from rich.text import Text

from mas.core.bus import Gap, Restart
from mas.core.environment import Environment, Step, Task
from mas.core.messages import Payload
from mas.core.naming import agent_of
from mas.core.printable import printable
from mas.core.records import Attempt, Episode, Line
from mas.graph.plan import TeamPlan
from mas.runtime.flow import Flow
from mas.runtime.payloads import Piece
from mas.runtime.play import DecisionPoint
from mas.runtime.replay_events import Setting
from mas.runtime.replay_log import ReplayLog
from mas.runtime.streaming import streamed_to
from mas.training.sampling.chains import SingleDecision
from mas.training.sampling.sampler import EpisodeRecorder, loops_of, turn_text
from mas.training.session import TeamSession
from mas.training.step_metrics import gates

_COLOURS = ("cyan", "yellow", "magenta", "blue", "green", "bright_red")
_SHOWN = 400
"""Characters of a text that are shown, its last ones: what scrolled away cannot be taken back."""
LOST = "…"
"""Stands for pieces that were lost on the way."""


async def show_episode(
    session: TeamSession,
    task: Task,
    seed: int,
    console: Console,
    *,
    temperature: float | None = 0.0,
    settings: Mapping[str, Setting] = MappingProxyType({}),
) -> Episode:
    """Play a task and print it; temperature 0 is greedy, None each role's own. `settings`: see `TeamRuntime.play`."""
    environment = session.scenario.environment()
    environment.reset(task)
    story = _Story(console, environment, session.plan)
    story.world(f"{session.scenario.name} {task.id}")
    recorder = EpisodeRecorder(id=shown_as(task), task=task.id)
    decide = SingleDecision(session.runtime, recorder, seed, temperature)

    live_output = LiveOutput(console, session.plan, story.colours)

    async def decide_live(point: DecisionPoint) -> Payload:
        with live_output.of(point.agent):
            payload = await decide(point)
        story.line(recorder.lines[-1])
        return payload

    def on_turn(turn: int, flow: Flow, step: Step) -> None:
        recorder.on_turn(turn, flow, step)
        story.turn(turn, flow, step)

    def on_attempt(attempt: Attempt) -> None:
        recorder.on_attempt(attempt)
        story.attempt(attempt)

    every = {**settings, "train.seed": seed, "temperature": temperature}
    await session.runtime.play(recorder.id, environment, decide_live, on_turn, on_attempt=on_attempt, settings=every)
    episode = recorder.close(environment, ())
    story.end(episode)
    return episode


def shown_as(task: Task) -> str:
    """The episode that a task is shown as."""
    return f"{task.id}#shown"


async def tell_what_was(log: ReplayLog, team: str, task: Task, console: Console) -> None:
    """Say whether what follows was begun before, and how it stands."""
    for play in await log.plays():
        if (play.team, play.episode) == (team, shown_as(task)):
            state = "was played before: this is its record" if play.is_over else "was begun before: it goes on"
            failed = f"; it failed with {play.failure}" if play.failure else ""
            console.print(Text(f"this episode {state}, from {log.path}{failed}", style="dim"), soft_wrap=True)


class _Story:
    """Prints an episode. Model text is printed as it is, never as markup."""

    def __init__(self, console: Console, environment: Environment, plan: TeamPlan) -> None:
        self._console, self._environment = console, environment
        self._bounds, agents = dict(loops_of(plan)), list(plan.spec.members())
        self.colours = {agent: _COLOURS[number % len(_COLOURS)] for number, agent in enumerate(agents)}
        self._width = max(len(agent) for agent in agents)

    def world(self, title: str) -> None:
        self._console.print(
            Panel(Text(printable(self._environment.render())), title=Text(title), expand=False, style="dim")
        )

    def line(self, line: Line) -> None:
        name = (line.agent.rjust(self._width), f"bold {self.colours[agent_of(line.agent)]}")
        self._console.print(Text.assemble(name, "  reads ", (printable(line.prompt), "dim")))
        said = Text.assemble(" " * self._width, "  says  ", (printable(line.text) or "(nothing)", "bold"))
        if line.failure:
            said.append(f"   does not parse: {printable(line.failure)}", style="red")
        self._console.print(said)

    def attempt(self, attempt: Attempt) -> None:
        """A try that failed, or that followed one; or a compensation."""
        name = (attempt.agent.rjust(self._width), f"bold {self.colours[attempt.agent]}")
        outcome = f"failed: {attempt.cause}" if attempt.cause else "succeeded"
        what = f"  {attempt.purpose} of {attempt.asked}, attempt {attempt.number}, {outcome}"
        self._console.print(Text.assemble(name, (what, "red" if attempt.cause else "dim")))

    def turn(self, turn: int, flow: Flow, step: Step) -> None:
        self._console.print(Text(turn_text(turn, flow, step), style="bold"))
        self.world(f"after turn {turn}")

    def end(self, episode: Episode) -> None:
        outcome = ("solved", "bold green") if episode.success else ("not solved", "bold red")
        self._console.print(Text.assemble(outcome, f"  {episode.calls} generations, {episode.tokens} tokens"))
        for loop, gate in gates(self._bounds, [episode]).items():
            self._console.print(Text(gate.line(loop), style="dim"))


class LiveOutput:
    """Rows that come while an agent speaks and go when it has spoken; for its answer is printed then.

    On a console that is no terminal nothing can be taken back, and with people in the team somebody types there: then
    nobody listens, and agents answer in one piece.
    """

    def __init__(self, console: Console, plan: TeamPlan, colours: Mapping[str, str]) -> None:
        roles = (*plan.roles.values(), *plan.stand_ins.values())
        self._is_on = console.is_terminal and all(role.spec.voice != "human" for role in roles)
        self._console = console
        self._colours = colours
        self._texts: dict[str, str] = {}
        self._live: Live | None = None

    @contextmanager
    def of(self, agent: str) -> Iterator[None]:
        """Show what this agent says to the question that is asked within."""
        if not self._is_on:
            yield
            return
        self._texts[agent] = ""
        try:
            with streamed_to(partial(self._hear, agent)):
                yield
        finally:
            del self._texts[agent]
            self._show()

    def _hear(self, agent: str, told: Piece | Gap | Restart) -> None:
        match told:
            case Piece():
                self._texts[agent] += told.text
            case Gap():
                self._texts[agent] += LOST
            case Restart():
                self._texts[agent] = ""
        self._show()

    def _show(self) -> None:
        rows = [self._row(agent, text) for agent, text in self._texts.items() if text]
        if rows and self._live is None:
            self._live = Live(console=self._console, auto_refresh=False, transient=True)
            self._live.start()
        if self._live is not None:
            self._live.update(Group(*rows), refresh=True)
        if not rows and self._live is not None:
            self._live.stop()
            self._live = None

    def _row(self, agent: str, text: str) -> Text:
        """Model text is shown as it is, never as markup."""
        shown = text if len(text) <= _SHOWN else f"{LOST}{text[-_SHOWN:]}"
        return Text.assemble((agent, f"bold {self._colours[agent_of(agent)]}"), "  says  ", printable(shown))
