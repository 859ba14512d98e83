"""Token flow: which agents may fire now, what reaches them, when a team turn is over. Pure, no clock, no bus.

Every edge carries a live or a dead token once its source is decided, so a join always learns that a branch was not
taken and can never wait for it. Leaves out on purpose: prompts, sampling, time limits.

A turn ends when nothing can fire any more; with `joins: {done: any}` it ends at the first live token to `done`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from mas.core.errors import RunError
from mas.core.messages import Failure, Payload
from mas.core.role import Message
from mas.core.seeds import digest
from mas.graph.plan import Plan
from mas.graph.wiring import Edge

NONE: Final = 0
"""Edge: not decided in this iteration."""
LIVE: Final = 1
KEPT: Final = 2
"""Edge: live since an earlier iteration of the loop that it leads into."""
HELD: Final = 3
"""Edge: dead, but it leaves a loop that may still iterate; believed when nothing else can happen."""
DEAD: Final = 4

WAITING: Final = 0
READY: Final = 1
RUNNING: Final = 2
STALE: Final = 3
"""Node: running for an iteration that is over; its output is recorded and sent to nobody."""
FIRED: Final = 4
SKIPPED: Final = 5


@dataclass(frozen=True, slots=True)
class Flow:
    """The state of one team turn. Every step returns a new flow and shares what did not change.

    Attributes:
        tokens: one token per edge; status: one per agent; uses: how often each loop was taken.
        said: every agent's outputs; heard: every agent's messages, both oldest first.
        finished: nothing can fire any more, or `done` was reached and asked for no more.
        arrived: a live token reached `done`.
    """

    plan: Plan
    tokens: bytes
    status: bytes
    uses: tuple[int, ...]
    said: tuple[tuple[Payload, ...], ...]
    heard: tuple[tuple[Message, ...], ...]
    finished: bool
    arrived: bool

    @classmethod
    def start(cls, plan: Plan) -> "Flow":
        """A fresh turn: `start` has delivered to its agents."""
        agents, wiring = len(plan.agents), plan.wiring
        empty: tuple[tuple[()], ...] = ((),) * agents
        blank = bytes(len(wiring.edges)), bytes(agents), (0,) * len(wiring.loops)
        draft = _Draft(cls(plan, *blank, empty, empty, False, False))
        for index in wiring.starting:
            draft.tokens[index] = LIVE
        for index in wiring.starting:
            draft.evaluate(wiring.edges[index].head)
        return draft.settled()

    def ready(self) -> tuple[str, ...]:
        """Agents that may fire now, in declared order."""
        if self.finished:
            return ()
        return tuple(name for name, status in zip(self.plan.agents, self.status, strict=True) if status == READY)

    def running(self) -> tuple[str, ...]:
        """Agents that have begun and not completed, in declared order."""
        pairs = zip(self.plan.agents, self.status, strict=True)
        return tuple(name for name, status in pairs if status in (RUNNING, STALE))

    def begin(self, agent: str) -> "Flow":
        """The agent starts to work on what `messages` says.

        Raises:
            RunError: it is not ready.
        """
        node = self.plan.number.get(agent)
        if node is None or self.finished or self.status[node] != READY:
            raise RunError(f"agent {agent!r} cannot begin; ready are: {list(self.ready())}")
        status = self.status[:node] + bytes((RUNNING,)) + self.status[node + 1 :]
        return Flow(self.plan, self.tokens, status, self.uses, self.said, self.heard, self.finished, self.arrived)

    def complete(self, agent: str, payload: Payload) -> "Flow":
        """The agent has spoken: its tokens travel. A turn that is finished stays as it is.

        Raises:
            RunError: it has not begun.
        """
        node = self.plan.number.get(agent)
        if node is None or self.status[node] not in (RUNNING, STALE):
            raise RunError(f"agent {agent!r} cannot complete; running are: {list(self.running())}")
        if self.finished:
            return self
        draft = _Draft(self)
        draft.speak(node, payload)
        return draft.settled()

    def messages(self, agent: str) -> tuple[Message, ...]:
        """What live edges brought to the agent in this turn, all iterations, oldest first."""
        return self.heard[self.plan.number[agent]]

    def own(self, agent: str) -> tuple[Payload, ...]:
        """The agent's own outputs in this turn, oldest first."""
        return self.said[self.plan.number[agent]]

    def visits(self, agent: str) -> int:
        """How often the agent has completed in this turn."""
        return len(self.said[self.plan.number[agent]])

    @property
    def outputs(self) -> Mapping[str, Payload]:
        """The latest output of every agent that has spoken."""
        return {name: said[-1] for name, said in zip(self.plan.agents, self.said, strict=True) if said}

    @property
    def committed(self) -> bool:
        """Whether the turn is over and a live token reached `done`."""
        return self.finished and self.arrived

    def action(self) -> Payload | None:
        """The team's action; None where nothing was committed, or the output agent's last output did not parse."""
        last = self.own(self.plan.spec.output)[-1:]
        if not self.committed or not last or isinstance(last[0], Failure):
            return None
        return last[0]

    def key(self) -> str:
        """Equal for turns of one team with the same content, different for different ones."""
        parts: list[str] = [self.plan.digest, self.tokens.hex(), self.status.hex(), str(self.uses)]
        for name, said, heard in zip(self.plan.agents, self.said, self.heard, strict=True):
            parts.append(name)
            parts.extend(f"said {output.kind} {output.model_dump_json()}" for output in said)
            parts.extend(f"{m.sender} {m.payload.kind} {m.payload.model_dump_json()}" for m in heard)
        return digest(*parts)


class _Draft:
    """A flow while one step is worked out."""

    __slots__ = ("arrived", "heard", "over", "plan", "said", "skipped", "status", "tokens", "uses", "wiring")

    def __init__(self, flow: Flow) -> None:
        self.plan = flow.plan
        self.wiring = flow.plan.wiring
        self.tokens = bytearray(flow.tokens)
        self.status = bytearray(flow.status)
        self.uses = list(flow.uses)
        self.said = list(flow.said)
        self.heard = list(flow.heard)
        self.arrived = flow.arrived
        self.over = flow.finished
        self.skipped: list[int] = []

    def speak(self, node: int, payload: Payload) -> None:
        """Record the output and send its tokens, loop edges last."""
        self.said[node] += (payload,)
        if self.status[node] == STALE:
            self.status[node] = WAITING
            self.evaluate(node)
            return
        self.status[node] = FIRED
        message = Message(self.plan.agents[node], payload)
        route = payload.route
        taken = []
        for edge in self.wiring.out[node]:
            live = edge.when is None or edge.when == route
            if edge.loop is None:
                self.deliver(edge, message) if live else self.kill(edge)
            elif live:
                taken.append(edge.loop)
        for loop in taken:
            self.iterate(loop, message)

    def deliver(self, edge: Edge, message: Message) -> None:
        """Put a live token on a forward edge."""
        self.tokens[edge.index] = LIVE
        if edge.head == len(self.status):
            self.arrived = True
            self.over = self.over or self.wiring.any_join[edge.head]
            return
        self.heard[edge.head] += (message,)
        self.evaluate(edge.head)

    def kill(self, edge: Edge) -> None:
        """Put a dead token on a forward edge, unless an earlier iteration decided it."""
        if self.tokens[edge.index] == NONE:
            self.tokens[edge.index] = HELD if edge.leaves else DEAD
            self.evaluate(edge.head)

    def evaluate(self, node: int) -> None:
        """Decide a waiting node if its tokens suffice: ready, or skipped."""
        if node == len(self.status) or self.status[node] != WAITING:
            return
        tokens = self.tokens
        seen = {tokens[index] for index in self.wiring.forward_in[node]}
        is_open = NONE in seen or HELD in seen
        seen.update(tokens[index] for index in self.wiring.loop_in[node])
        is_live = LIVE in seen or KEPT in seen
        if (is_live and not is_open) or (LIVE in seen and self.wiring.any_join[node]):
            self.status[node] = READY
        elif not is_open:
            self.status[node] = SKIPPED
            self.skipped.append(node)

    def iterate(self, number: int, message: Message) -> None:
        """Take a loop edge, if its bound allows: the body may fire again, what came from outside stays."""
        loop = self.wiring.loops[number]
        if self.uses[number] >= loop.bound:
            return
        self.uses[number] += 1
        for inner in loop.nested:
            self.uses[inner] = 0
        for index in loop.inside:
            self.tokens[index] = NONE
        for index in loop.entries:
            if self.tokens[index] == LIVE:
                self.tokens[index] = KEPT
        for index in loop.exits:
            if self.tokens[index] == HELD:
                self.tokens[index] = NONE
        for node in loop.body:
            self.status[node] = STALE if self.status[node] in (RUNNING, STALE) else WAITING
        self.tokens[loop.edge] = LIVE
        self.heard[loop.head] += (message,)
        self.evaluate(loop.head)

    def drain(self) -> None:
        """Let skipped nodes send their dead tokens on."""
        while self.skipped:
            for edge in self.wiring.out[self.skipped.pop()]:
                if edge.loop is None:
                    self.kill(edge)

    def release(self) -> bool:
        """Believe the innermost held deaths; False where nothing is held."""
        for wave in self.wiring.releases:
            held = [index for index in wave if self.tokens[index] == HELD]
            for index in held:
                self.tokens[index] = DEAD
            for index in held:
                self.evaluate(self.wiring.edges[index].head)
            if held:
                return True
        return False

    def settled(self) -> Flow:
        """The flow after everything that follows without an agent's work."""
        self.drain()
        while not self.over and not any(state in self.status for state in (READY, RUNNING, STALE)):
            self.over = not self.release()
            self.drain()
        return Flow(
            self.plan,
            bytes(self.tokens),
            bytes(self.status),
            tuple(self.uses),
            tuple(self.said),
            tuple(self.heard),
            self.over,
            self.arrived,
        )
