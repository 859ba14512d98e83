"""What agents are saying right now, at the foot of a terminal, token by token."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from mas.core.bus import Gap, Restart
from mas.core.naming import agent_of
from mas.core.text import printable
from mas.graph.plan import TeamPlan
from mas.runtime.payloads import Piece
from mas.runtime.streaming import streamed_to

_SHOWN = 400
"""Characters of a text that are shown, its last ones: what scrolled away cannot be taken back."""
LOST = "…"
"""Stands for pieces that were lost on the way."""


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
