"""What a person sees while a team trains: a live panel in a terminal, one line every few seconds elsewhere.

Shown first are `reward` (of the team, mean over the step's episodes) with its recent course, `success` of the last
evaluation and `tokens` so far; every other metric of the last step is listed below them.
The phase of the step is shown, too: in a terminal always, elsewhere whenever nothing was printed for a while.
"""

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from mas.core.tracing import Counted
from mas.observe.durations import clock_time

_BARS = "▁▂▃▄▅▆▇█"
_RECENT = 40
_FIRST = ("reward", "success", "tokens")


class TrainingProgress:
    """Context manager that shows how far the training is and how well it goes.

    Args:
        total: number of the last step.
        title: what is trained.
        start: step that a resumed run goes on from; it counts as done.
        console: where to; standard output by default.
        interval_s: least time between two lines when the console is no terminal.
        silence_s: longest time without a line there, while a phase goes on.
        clock: seconds, monotonic.
    """

    def __init__(
        self,
        total: int,
        title: str,
        *,
        start: int = 0,
        console: Console | None = None,
        interval_s: float = 5.0,
        silence_s: float = 20.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._total, self._title, self._start = total, title, start
        self._left_s: float | None = None
        self._console = Console() if console is None else console
        self._interval_s, self._silence_s, self._clock = interval_s, silence_s, clock
        self._phase: tuple[str, int, int, float] | None = None
        self._heartbeat: threading.Thread | None = None
        self._stopped = threading.Event()
        self._step = start
        self._metrics: dict[str, float] = {}
        self._rewards: tuple[float, ...] = ()
        self._printed_s: float | None = None
        self._printed_step = start
        self._spoke_s = clock()
        self._bar = Progress(
            TextColumn("step"), MofNCompleteColumn(), BarColumn(bar_width=None), TextColumn("{task.percentage:>3.0f}%"),
            TimeElapsedColumn(), TextColumn("left {task.fields[left]}"), console=self._console, expand=True,
        )  # fmt: skip
        self._task = self._bar.add_task(title, total=total, completed=start, left=clock_time(None))
        self._live = Live(get_renderable=self._panel, console=self._console, refresh_per_second=4)

    def update(self, step: int, metrics: Mapping[str, float], left_s: float | None = None) -> None:
        """Show that `step` is done, with what was measured in it; the module says which names come first.

        Args:
            left_s: seconds to the end; None: unknown.
        """
        self._left_s = left_s
        self._step = step
        is_step = "reward" in metrics  # what a step leaves out, such as failures, it has not; else it is an evaluation
        before = {name: value for name, value in self._metrics.items() if not is_step or name in _FIRST}
        self._metrics = {**before, **metrics}  # a new mapping: the display's thread reads the old one
        if is_step:
            self._rewards = (*self._rewards, metrics["reward"])[-_RECENT:]
        self._bar.update(self._task, completed=step, left=clock_time(left_s))
        is_new = step != self._printed_step  # what an evaluation found is a note
        if not self._console.is_terminal and step < self._total and is_new and self._is_due():
            self._print_line()

    def expect(self, left_s: float) -> None:
        """Show an estimate of the seconds to the end."""
        self._left_s = left_s
        self._bar.update(self._task, left=clock_time(left_s))

    def note(self, text: str) -> None:
        """Print a text that stays, such as where a checkpoint is: one line, at a terminal broken between words."""
        self._console.print(Text(text), soft_wrap=not self._console.is_terminal)
        self._spoke_s = self._clock()

    def phase(self, what: str, done: int, of: int) -> None:
        """Show what goes on now, as `Counted`."""
        before = self._phase
        began_s = before[3] if before is not None and before[0] == what else self._clock()
        self._phase = (what, done, of, began_s)

    def beat(self) -> None:
        """Print the phase, where nothing was printed for a while."""
        if self._phase is not None and self._clock() - self._spoke_s >= self._silence_s:
            self.note(f"{self._step} of {self._total} steps done; {self._phase_text()}")

    def __enter__(self) -> "TrainingProgress":
        if self._console.is_terminal:
            self._live.start(refresh=True)
        else:
            self.note(f"{self._title}: steps {self._start} to {self._total}")
            self._heartbeat = threading.Thread(target=self._beat_often, name="progress", daemon=True)
            self._heartbeat.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stopped.set()
        if self._heartbeat is not None:
            self._heartbeat.join()
        if self._console.is_terminal:
            self._live.stop()
        elif self._step != self._printed_step:
            self._print_line()

    def _beat_often(self) -> None:
        """In a thread: a step of the learner holds up the event loop."""
        while not self._stopped.wait(1.0):
            try:
                self.beat()
            except OSError:  # the reader of the output has gone; the trainer's own next line says so
                return

    def _phase_text(self) -> str:
        if self._phase is None:
            return ""
        what, done, of, began_s = self._phase
        count = f" {done}/{of}" if of else ""
        return f"{what}{count}, {clock_time(self._clock() - began_s)}"

    def _is_due(self) -> bool:
        return self._printed_s is None or self._clock() - self._printed_s >= self._interval_s

    def _print_line(self) -> None:
        self._printed_s = self._spoke_s = self._clock()
        self._printed_step = self._step
        numbers = [f"{name} {format_number(self._metrics[name])}" for name in self._ordered()]
        parts = [f"step {self._step}/{self._total}", *numbers]
        if self._left_s is not None:
            parts.append(f"left {clock_time(self._left_s)}")
        self._console.print(Text("  ".join(parts)), soft_wrap=True)

    def _ordered(self) -> list[str]:
        return [n for n in _FIRST if n in self._metrics] + sorted(n for n in self._metrics if n not in _FIRST)

    def _panel(self) -> RenderableType:
        rows: list[RenderableType] = [self._bar.get_renderable()]
        if any(name in self._metrics for name in _FIRST):
            rows.append(self._first_numbers())
        others = [name for name in self._ordered() if name not in _FIRST]
        if others:
            text = "  ".join(f"{name} {format_number(self._metrics[name])}" for name in others)
            rows.append(Text(text, style="dim"))
        if self._phase is not None:
            rows.append(Text(self._phase_text(), style="dim"))
        return Panel(Group(*rows), title=Text(self._title), border_style="cyan")

    def _first_numbers(self) -> Table:
        table = Table.grid(padding=(0, 3))
        cells = []
        if "reward" in self._metrics:
            value = format_number(self._metrics["reward"])
            cells.append(Text.assemble("reward ", (value, "bold green"), "  ", (sparkline(self._rewards), "green")))
        for name in ("success", "tokens"):
            if name in self._metrics:
                cells.append(Text.assemble(f"{name} ", (format_number(self._metrics[name]), "bold")))
        table.add_row(*cells)
        return table


@contextmanager
def counting(console: Console | None = None) -> Iterator[Counted]:
    """A bar of what is done, gone when it ends; nothing at all where the console is no terminal.

    Args:
        console: standard error by default, as standard output belongs to results.
    """
    console = Console(stderr=True) if console is None else console
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("", total=None)

        def told(what: str, done: int, of: int) -> None:
            if what != bar.tasks[task].description:  # the time left is that of what is done now
                bar.reset(task)
            bar.update(task, description=what, completed=done, total=of)

        yield told


def sparkline(values: Sequence[float]) -> str:
    """One block per value, the least lowest and the greatest highest; equal values lie in the middle, NaN is `·`."""
    finite = [value for value in values if value == value and abs(value) != float("inf")]
    if not finite:
        return "·" * len(values)
    low, span = min(finite), max(finite) - min(finite)
    return "".join(_block((value - low) / span if span else 0.5) for value in values)


def _block(height: float) -> str:
    if height != height:
        return "·"
    return _BARS[round(min(max(height, 0.0), 1.0) * (len(_BARS) - 1))]


def format_number(value: float) -> str:
    """Short for people: `0.532`, `12.5k`, `3.4M`, `1.0e-05`; whole numbers below 10,000 stay whole."""
    for limit, unit in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if limit <= abs(value) < 1e12:
            return f"{value / (1e3 if unit == 'k' else limit):.1f}{unit}"
    if isinstance(value, int) and abs(value) < 1e4:
        return str(value)
    if value and (abs(value) < 1e-3 or abs(value) >= 1e12):
        return f"{value:.1e}"
    return f"{value:.3f}"
