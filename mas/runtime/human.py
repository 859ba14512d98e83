"""People as members of a team: their questions are open on a desk until they are answered.

A question is named by the message that asks it: an episode resumed by another process (`mas.runtime.replay_log`) puts
the same question again. Leaves out on purpose: how people are asked (a terminal, the endpoint).
"""

import asyncio
from collections.abc import Callable

import msgspec

from mas.core.errors import ConfigError, RefusedRequest, RunError
from mas.core.messages import Envelope, Failure
from mas.core.naming import did_you_mean
from mas.core.printable import quoted
from mas.core.role import Role, View
from mas.core.seeds import digest
from mas.runtime.payloads import AgentAnswer, Ask, Candidate
from mas.runtime.replay_log import ReplayLog


class HumanQuestion(msgspec.Struct, frozen=True, kw_only=True):
    """What a person is asked.

    Attributes:
        id: unique on its desk; of a play with a log the same in every process that resumes it.
        team, agent, role: who would speak; `episode`, `turn`: when.
        instructions: who the person is in the team and how an answer must look; text: what the agent sees.
        choices: the legal answers, empty where they cannot be listed.
    """

    id: str
    team: str
    agent: str
    role: str
    episode: str
    turn: int
    instructions: str
    text: str
    choices: tuple[str, ...]


class _OpenQuestion:
    """A question with the role that reads the answer, and how many wait for it: it may be asked again before whoever
    asked it first is known to be gone."""

    def __init__(self, question: HumanQuestion, role: Role) -> None:
        self.question, self.role = question, role
        self.waiting = 0
        self.answer: asyncio.Future[str] = asyncio.get_running_loop().create_future()


class HumanDesk:
    """Open questions, any number of them, of all teams that were given this desk. For one event loop.

    Args:
        on_question: called when a question is laid down, and `on_gone` when it is answered or not awaited any more.
        log: keeps answers, so that what was answered before a kill is not asked again; None: they are not kept.
    """

    def __init__(
        self,
        on_question: Callable[[HumanQuestion], None] = lambda question: None,
        on_gone: Callable[[HumanQuestion], None] = lambda question: None,
        log: ReplayLog | None = None,
    ) -> None:
        self._on_question, self._on_gone = on_question, on_gone
        self._open: dict[str, _OpenQuestion] = {}
        self._log = log

    def questions(self) -> tuple[HumanQuestion, ...]:
        """All open questions, the oldest first."""
        return tuple(entry.question for entry in self._open.values())

    def answer(self, question_id: str, text: str) -> None:
        """Answer an open question.

        Raises:
            RefusedRequest: no such question is open, or its role cannot read the text; the question stays open.
        """
        entry = self._open.get(question_id)
        if entry is None or entry.answer.done():
            raise RefusedRequest(f"no question {question_id!r} is open. {did_you_mean(question_id, self._open)}")
        parsed = entry.role.parse(text)
        if isinstance(parsed, Failure):
            raise RefusedRequest(f"the answer {quoted(text)} is not possible: {parsed.cause}.")
        if self._log is not None:
            self._log.replied(question_id, text)
        entry.answer.set_result(text)

    async def kept(self) -> None:
        """Wait until the answers so far survive a kill; without a log they do not, and nothing is waited for.

        Raises:
            JournalError: the log cannot be written.
        """
        if self._log is not None:
            await self._log.is_safe()

    def fail(self, error: Exception) -> None:
        """Give all open questions up: the desk closes."""
        for entry in self._open.values():
            if not entry.answer.done():
                entry.answer.set_exception(error)

    async def ask(self, envelope: Envelope, role: Role, view: View) -> str:
        """Lay a question down and wait for its answer; it is removed when the asking task is cancelled."""
        instructions, asked = role.chat(view)
        earlier = [f"{before}\n\nYou answered: {answer}" for before, answer in role.earlier(view)]
        team, _, agent = envelope.target.partition("/")
        question = HumanQuestion(
            id=digest(envelope.id),
            team=team,
            agent=agent,
            role=role.name,
            episode=envelope.episode or "",
            turn=envelope.turn or 0,
            instructions=instructions,
            text="\n\n".join([*earlier, asked]),
            choices=role.spec.choices,
        )
        known = None if self._log is None else self._log.reply_to(question.id)
        if known is not None:
            return known
        entry = self._open.setdefault(question.id, _OpenQuestion(question, role))
        entry.waiting += 1
        try:
            if entry.waiting == 1:
                self._on_question(question)
            return await asyncio.shield(entry.answer)
        finally:
            entry.waiting -= 1
            if not entry.waiting:
                del self._open[question.id]
                self._on_gone(question)


class HumanAgent:
    """One agent that a person plays: that of a role with `voice: human`.

    Raises:
        ConfigError: there is no desk.
    """

    def __init__(self, role: Role, desk: HumanDesk | None) -> None:
        if desk is None:
            raise ConfigError(
                f"role {role.name!r} is played by a person (voice: human), and there is no desk to ask at; `mas run` "
                "and `mas serve` ask people, and in Python a TeamRuntime with a desk does"
            )
        self.role, self._desk = role, desk

    async def handle(self, envelope: Envelope) -> AgentAnswer:
        """Answer one `Ask` with what a person says.

        Raises:
            RunError: several candidates are wanted.
        """
        ask = envelope.payload
        if not isinstance(ask, Ask) or len(ask.seeds) != 1:
            raise RunError(f"agent {self.role.name!r} is a person, who gives one answer to one 'ask'")
        text = await self._desk.ask(envelope, self.role, ask.view)
        prompt, payload = self.role.prompt(ask.view), self.role.parse(text)
        candidate = Candidate.unsampled(self.role.name, prompt=prompt, text=text, payload=payload, seed=ask.seeds[0])
        return AgentAnswer.model_construct(candidates=(candidate,))

    async def answer(
        self, view: View, seeds: tuple[int, ...], temperature: float | None = None, *, session: str | None = None
    ) -> tuple[Candidate, ...]:
        """Refused: people are not asked what they would say.

        Raises:
            RunError: always.
        """
        raise RunError(f"agent {self.role.name!r} is a person, whose answers cannot be imagined")

    def most(self, view: View, candidates: int) -> tuple[int, int]:
        return 0, 0
