"""People who are asked at the terminal: the oldest open question is printed, and the next line answers it."""

import asyncio
import os
import termios

from rich.console import Console
from rich.text import Text

from mas.core.errors import RefusedRequest, RunError
from mas.core.printable import printable
from mas.runtime.human import HumanDesk, HumanQuestion
from mas.runtime.replay_log import ReplayLog

_CHUNK = 65_536


class TerminalDesk(HumanDesk):
    """A desk whose questions are printed one after the other. The input is read only while a question is printed.

    What a role is told is printed with its first question, and what it sees with every one.

    An answer of several lines has a backslash at the end of every line but the last.

    When the input ends, questions fail with a RunError. A question that nobody waits for any more is said to be gone,
    and what was typed for it at a terminal is dropped.

    Args:
        descriptor: of the file that answers are read from.
        log: see `HumanDesk`.

    Attributes:
        is_over: whether the input has ended.
    """

    def __init__(self, console: Console, descriptor: int = 0, log: ReplayLog | None = None) -> None:
        super().__init__(self._laid, self._gone, log)
        self._console, self._descriptor = console, descriptor
        self._shown: str | None = None
        self._told = set[str]()
        self._answered: str | None = None
        self._unread = b""
        self.is_over = False
        self._is_stale = False

    def _laid(self, question: HumanQuestion) -> None:
        if self._shown is None:
            self._show(question)

    def _gone(self, question: HumanQuestion) -> None:
        if question.id != self._shown:
            return
        self._shown = None
        asyncio.get_running_loop().remove_reader(self._descriptor)
        if question.id != self._answered and not self.is_over:
            self._console.print(Text("nobody waits for this answer any more", style="dim"))
            self._is_stale = os.isatty(self._descriptor)
        waiting = self.questions()
        if waiting:
            self._show(waiting[0])

    def _show(self, question: HumanQuestion) -> None:
        if self._is_stale:  # what was typed for a question that is gone must not answer this one
            termios.tcflush(self._descriptor, termios.TCIFLUSH)
            self._unread, self._is_stale = b"", False
        self._shown = question.id
        self._console.print(Text(f"you are {question.agent}", style="bold"))
        if question.instructions not in self._told:
            self._told.add(question.instructions)
            self._console.print(Text(f"{printable(question.instructions)}\n", style="dim"))
        self._console.print(Text(printable(question.text)))  # it holds what models said
        self._console.print(Text("Your answer:", style="bold"))
        self._listen()

    def _listen(self) -> None:
        """Take the next line if it is there already, else wait for it."""
        loop = asyncio.get_running_loop()
        if self.is_over:
            self.fail(RunError("the input ended before the question to a person was answered"))
        elif self._line() is not None:
            loop.call_soon(self._take, self._shown)
        else:
            try:
                loop.add_reader(self._descriptor, self._read)
            except PermissionError:  # a plain file, which is always ready and cannot be waited for
                loop.call_soon(self._read)

    def _line(self) -> tuple[bytes, bytes] | None:
        """The next answer and what follows it; None where it has not ended. A line that ends in a backslash goes on."""
        lines = self._unread.split(b"\n")
        for number, line in enumerate(lines[:-1], start=1):
            if not line.endswith(b"\\"):
                whole = [*(part.removesuffix(b"\\") for part in lines[: number - 1]), line]
                return b"\n".join(whole), b"\n".join(lines[number:])
        return None

    def _read(self) -> None:
        try:
            chunk = os.read(self._descriptor, _CHUNK)
        except OSError:  # the terminal was closed
            chunk = b""
        self._unread += chunk
        self.is_over = not chunk
        asyncio.get_running_loop().remove_reader(self._descriptor)
        self._listen()

    def _take(self, wanted: str | None) -> None:
        if wanted is None or wanted != self._shown:
            return  # nobody waits any more; the line is for the next question
        found = self._line()
        if found is None:
            return
        line, self._unread = found
        try:
            self.answer(wanted, line.decode(errors="replace"))
            self._answered = wanted
        except RefusedRequest as error:
            self._console.print(Text(f"{error} Once more:", style="red"))
            self._listen()
