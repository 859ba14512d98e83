"""The agent that calls tools: it answers a message that is a call with the text of the tool's result.

Whoever sent the message must be allowed to call the tool, so often and with these arguments; what the sender's text
says beside that changes nothing.
"""

from collections.abc import Iterable, Iterator

from mas.core.errors import ConfigError, RunError, ToolRefused
from mas.core.messages import Envelope, Note
from mas.core.naming import local_name
from mas.core.privilege import Privilege
from mas.core.role import Message, Role, RoleSpec, View
from mas.core.team import TeamSpec
from mas.core.tool_call import ToolCall
from mas.graph.check_tools import callers_of
from mas.runtime.agents import DENIED, denial
from mas.runtime.payloads import AgentAnswer, Ask, Candidate
from mas.tools.recorded import RecordedTools, canonical
from mas.tools.toolbox import read_call


class ToolAgent:
    """One agent with `voice: tools`.

    Args:
        name: of the agent in its team.

    Raises:
        ConfigError: no tools are open.
    """

    def __init__(self, name: str, role: Role, team: TeamSpec, tools: RecordedTools | None) -> None:
        if tools is None:
            raise ConfigError(
                f"role {role.name!r} is played by tools (voice: tools), and none are open: `mas train`, `mas eval`, "
                "`mas run` and `mas serve` open them in one process, not with --bus; in Python "
                "`mas.tools.recorded.open_tools` does"
            )
        self.role = role
        self._name, self._tools = name, tools
        self._callers = {local_name(caller): other for caller, other in callers_of(team, name).items()}

    async def handle(self, envelope: Envelope) -> AgentAnswer:
        """Answer one `Ask` with the results of the calls in the new messages."""
        ask = envelope.payload
        if not isinstance(ask, Ask):
            raise RunError(f"agent {self._name!r} was sent {envelope.kind!r}, it answers 'ask'")
        candidates = await self.answer(ask.view, ask.seeds, session=envelope.episode)
        return AgentAnswer.model_construct(candidates=candidates)

    async def answer(
        self, view: View, seeds: tuple[int, ...], temperature: float | None = None, *, session: str | None = None
    ) -> tuple[Candidate, ...]:
        """The same for every seed. `session`: the episode, in which an equal call is made once."""
        *before, now = _heard(view)
        results = []
        for at, message in enumerate(now):
            earlier = [*(one for messages in before for one in messages), *now[:at]]
            results.append((message.sender, *await self._result(message, earlier, session or "")))
        text = results[0][1] if len(results) == 1 else "\n".join(f"{sender}: {said}" for sender, said, _ in results)
        route = DENIED if any(is_denied for _, _, is_denied in results) else None
        asked = "\n".join(message.payload.content for message in now)
        return tuple(
            Candidate.unsampled(
                self.role.name, prompt=asked, text=text, payload=Note(text=text, chosen_route=route), seed=seed
            )
            for seed in seeds
        )

    def most(self, view: View, candidates: int) -> tuple[int, int]:
        """No tokens."""
        return 0, 0

    async def _result(self, message: Message, earlier: list[Message], episode: str) -> tuple[str, bool]:
        """What came of a call, and whether it was denied."""
        try:
            call = read_call(message.payload.content)
        except ToolRefused as refused:
            return f"error: {refused}", False
        caller = self._callers.get(message.sender, RoleSpec())
        rule = caller.privileges.get(call.name)
        made = 0 if rule is None else _made(rule, call.name, message.sender, earlier)
        denied = denial(caller.server_tools, rule, message.sender, call, made)
        if denied is not None:
            return denied, True
        number = sum(_is_equal(one, message, call) for one in earlier)
        return await self._tools.call(episode, self._name, call, number), False


def _made(rule: Privilege, name: str, sender: str, earlier: Iterable[Message]) -> int:
    """How many calls of a tool the sender has made that its arguments did not deny."""
    calls = (_call(one) for one in earlier if one.sender == sender)
    return sum(call is not None and call.name == name and rule.problem(call.arguments) is None for call in calls)


def _call(message: Message) -> ToolCall | None:
    try:
        return read_call(message.payload.content)
    except ToolRefused:
        return None


def _heard(view: View) -> Iterator[tuple[Message, ...]]:
    """The messages that were new at each of the agent's calls in the episode, this one's last."""
    seen = 0
    for one in (*(call.view for call in view.past), view):
        yield one.messages[seen if one.own else 0 :]
        seen = len(one.messages)


def _is_equal(other: Message, message: Message, call: ToolCall) -> bool:
    if other == message:
        return True
    made = _call(other)
    return made is not None and made.name == call.name and canonical(made) == canonical(call)
