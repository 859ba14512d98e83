"""What a person sees while a team trains: a live panel in a terminal, one line every few seconds elsewhere.

Shown first are `reward` (of the team, mean over the step's episodes) with its recent course, `success` of the last
evaluation and `tokens` so far; every other metric is listed below them. A metric keeps its last value until a new one.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import TracebackType

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

Counted = Callable[[str, int, int], None]
"""(what, so many done, of so many) -> nothing."""
_BARS = "▁▂▃▄▅▆▇█"
_RECENT = 40
_FIRST = ("reward", "success", "tokens")


class TrainingProgress:
    """Context manager that shows how far the training is and how well it goes.

    Args:
        total: number of the last step.
        title: what is trained.
        start: step that a resumed run goes on from; it counts as done, and the time left ignores it.
        console: where to; standard output by default.
        interval_s: least time between two lines when the console is no terminal.
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
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._total, self._title, self._start = total, title, start
        self._console = Console() if console is None else console
        self._interval_s, self._clock = interval_s, clock
        self._step = start
        self._metrics: dict[str, float] = {}
        self._rewards: tuple[float, ...] = ()
        self._began_s = clock()
        self._printed_s: float | None = None
        self._is_told = True
        self._bar = Progress(
            TextColumn("step"), MofNCompleteColumn(), BarColumn(bar_width=None), TextColumn("{task.percentage:>3.0f}%"),
            TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn(), console=self._console, expand=True,
        )  # fmt: skip
        self._task = self._bar.add_task(title, total=total, completed=start)
        self._live = Live(get_renderable=self._panel, console=self._console, refresh_per_second=4)

    def update(self, step: int, metrics: Mapping[str, float]) -> None:
        """Show that `step` is done, with what was measured in it; the module says which names come first."""
        self._step = step
        self._metrics = {**self._metrics, **metrics}  # a new mapping: the display's thread reads the old one
        if "reward" in metrics:
            self._rewards = (*self._rewards, metrics["reward"])[-_RECENT:]
        self._bar.update(self._task, completed=step)
        self._is_told = False
        if not self._console.is_terminal and step < self._total and self._is_due():
            self._print_line()

    def note(self, text: str) -> None:
        """Print one line that stays, such as where a checkpoint is."""
        self._console.print(Text(text))

    def __enter__(self) -> "TrainingProgress":
        self._began_s = self._clock()
        if self._console.is_terminal:
            self._live.start(refresh=True)
        else:
            self.note(f"{self._title}: steps {self._start} to {self._total}")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._console.is_terminal:
            self._live.stop()
        elif not self._is_told:
            self._print_line()

    def _is_due(self) -> bool:
        return self._printed_s is None or self._clock() - self._printed_s >= self._interval_s

    def _print_line(self) -> None:
        self._printed_s, self._is_told = self._clock(), True
        numbers = [f"{name} {format_number(self._metrics[name])}" for name in self._ordered()]
        parts = [f"step {self._step}/{self._total}", *numbers, f"left {self._time_left()}"]
        self._console.print(Text("  ".join(parts)), soft_wrap=True)

    def _time_left(self) -> str:
        done = self._step - self._start
        if done <= 0:
            return "unknown"
        seconds = (self._clock() - self._began_s) / done * (self._total - self._step)
        return f"{int(seconds) // 3600}:{int(seconds) // 60 % 60:02d}:{int(seconds) % 60:02d}"

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
