"""What a framework made of a graph, decided from what its nodes did and from nothing else."""

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from benchmarks.probes.shapes import LATE_S, Shape

Kind = Literal["refused at build", "right", "error at run", "silent stall", "wrong", "not offered"]

MOST_VISITS = 6_000
"""How often a node may run before a cycle counts as endless; above every framework's own limit of steps."""


class Failed(Exception):
    """What a failing node raises."""


class Endless(BaseException):
    """Ends a cycle that nothing else ends; no framework catches it."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How one probe ended, and what shows it."""

    kind: Kind
    evidence: str


@dataclass(slots=True)
class Trace:
    """What the nodes of one run did: `begin NAME` and `end NAME`, in order."""

    shape: Shape
    steps: list[str] = field(default_factory=list)
    visits: Counter[str] = field(default_factory=Counter)

    async def work(self, name: str) -> str | int:
        """What the node called `name` does; every framework's node calls this and gives on what it returns.

        Raises:
            Failed: it is the one that fails. Endless: it ran far too often.
        """
        node = next(node for node in self.shape.nodes if node.name == name)
        self.steps.append(f"begin {name}")
        self.visits[name] += 1
        if self.visits[name] > MOST_VISITS:
            raise Endless
        if node.does == "speak late":
            await asyncio.sleep(LATE_S)
        elif node.does == "fail":
            await asyncio.sleep(LATE_S / 5)
            raise Failed(f"{name} fails on purpose")
        self.steps.append(f"end {name}")
        return node.says

    def count(self, name: str) -> int:
        """How often a node began."""
        return self.visits[name]

    def is_before(self, first: str, second: str) -> bool:
        """Whether one step came before another; False where one of them is missing."""
        steps = self.steps
        return first in steps and second in steps and steps.index(first) < steps.index(second)

    @property
    def order(self) -> str:
        """The nodes as they began, the first eight."""
        began = [step.removeprefix("begin ") for step in self.steps if step.startswith("begin ")]
        return "ran: " + ", ".join((*began[:8], "...") if len(began) > 8 else began)


def judge(probe: str, trace: Trace, error: BaseException | None) -> Outcome:
    """The outcome of a run that ended, by itself or with an error."""
    if isinstance(error, Endless):
        return Outcome("wrong", f"nothing ends it: still running after {MOST_VISITS} visits of a node")
    if error is not None:
        return Outcome("error at run", first_line(error))
    return _JUDGES[probe](trace)


def first_line(error: BaseException) -> str:
    """An error as one line: its type and its text without a traceback, at most 160 characters."""
    inner = error
    while isinstance(inner, BaseExceptionGroup):
        inner = inner.exceptions[0]
    text = " ".join(str(inner).partition("Traceback")[0].split())
    whole = f"{type(inner).__name__}: {text}"
    return whole if len(whole) <= 160 else f"{whole[:157]}..."


def _unreachable(trace: Trace) -> Outcome:
    if trace.count("lost"):
        return Outcome("wrong", f"the node that nothing leads to ran; {trace.order}")
    return Outcome("wrong", f"accepted and silently never run; {trace.order}")


def _endless(trace: Trace) -> Outcome:
    return Outcome("wrong", f"it ended by itself without a word after {trace.count('a')} visits")


def _untaken(trace: Trace) -> Outcome:
    if trace.count("d") == 0:
        return Outcome("silent stall", f"the run ended without the join and without an error; {trace.order}")
    if trace.count("d") > 1:
        return Outcome("wrong", f"the join fired {trace.count('d')} times; {trace.order}")
    if not trace.is_before("end b", "begin d") or not trace.is_before("end other", "begin d"):
        return Outcome("wrong", f"the join fired before its live branches; {trace.order}")
    return Outcome("right", f"the join fired once, after the live branches; {trace.order}")


def _depths(trace: Trace) -> Outcome:
    if trace.count("d") == 0:
        return Outcome("silent stall", f"the run ended without the join and without an error; {trace.order}")
    if trace.count("d") > 1:
        return Outcome("wrong", f"the join fired {trace.count('d')} times; {trace.order}")
    if not trace.is_before("end c", "begin d"):
        return Outcome("wrong", f"the join did not wait for the longer path; {trace.order}")
    return Outcome("right", f"the join fired once, after both; {trace.order}")


def _slow(trace: Trace) -> Outcome:
    if not trace.count("after"):
        return Outcome("silent stall", f"the fast path never went on; {trace.order}")
    if trace.is_before("begin after", "end slow"):
        return Outcome("right", "the fast path's second node ran while the slow node worked")
    return Outcome("wrong", "the fast path's second node waited for the slow node, which it does not need")


def _route(trace: Trace) -> Outcome:
    taken = [name for name in ("b", "c") if trace.count(name)]
    if taken:
        return Outcome("wrong", f"a route that was not chosen was taken: {taken}; {trace.order}")
    return Outcome("silent stall", f"the run ended behind the choice without an error; {trace.order}")


def _type(trace: Trace) -> Outcome:
    if trace.count("taker"):
        return Outcome("wrong", "the number was handed to the node that takes a text, without a word")
    return Outcome("silent stall", f"the run ended before the node without an error; {trace.order}")


def _failing(trace: Trace) -> Outcome:
    if trace.count("after"):
        return Outcome("right", f"the others went on and the run ended without an error; {trace.order}")
    return Outcome("wrong", f"the run ended without an error and without the others; {trace.order}")


_JUDGES: dict[str, Callable[[Trace], Outcome]] = {
    "unreachable": _unreachable,
    "endless": _endless,
    "untaken": _untaken,
    "depths": _depths,
    "slow": _slow,
    "route": _route,
    "type": _type,
    "failing": _failing,
}
