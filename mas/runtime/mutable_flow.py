"""A flow while one step is worked out: tokens travel, joins decide, gates send, until only agents can continue.

A join goes, goes never, or waits on. A *branch* is one source: of several edges from one source, at most one can be
live. A branch is *live* if it brought something in this iteration, or in an earlier one of a loop that it leads into;
*open* if it may still do so.
"""

from collections.abc import Collection, Iterable, Sequence

from mas.core.errors import RunError
from mas.core.messages import Items, Payload
from mas.core.role import Message
from mas.graph.wiring import ALL, QUORUM, Edge, Wiring
from mas.runtime.flow_state import (
    DEAD,
    FIRED,
    HELD,
    KEPT,
    LIVE,
    NONE,
    READY,
    RUNNING,
    SKIPPED,
    STALE,
    WAITING,
    FlowState,
)

_OF_ONE = {NONE: WAITING, LIVE: READY, KEPT: READY, HELD: WAITING, DEAD: SKIPPED}
"""What its only branch means for a node."""


def decide(wiring: Wiring, tokens: Sequence[int], node: int) -> int:
    """`READY`, `SKIPPED` or `WAITING`.

    A join that has only what it kept from earlier iterations waits for something new as long as any branch is open.
    """
    forward = wiring.forward_in[node]
    if len(forward) == 1 and not wiring.loop_in[node]:
        return _OF_ONE[tokens[forward[0]]]
    need = wiring.needs[node]
    seen = {tokens[index] for index in forward}
    is_open = NONE in seen or HELD in seen
    seen.update(tokens[index] for index in wiring.loop_in[node])
    is_new = LIVE in seen
    if need == ALL or need == 1:
        if (is_new and (need == 1 or not is_open)) or (not is_open and KEPT in seen):
            return READY
        return WAITING if is_open else SKIPPED
    live, still_open = _branches(wiring, tokens, node)
    if (live > still_open if need == QUORUM else live >= need) and (is_new or not is_open):
        return READY
    if node in wiring.skips and live + still_open < need:
        return SKIPPED
    if is_open:
        return WAITING
    return READY if live else SKIPPED


def out_of_time(wiring: Wiring, tokens: Sequence[int], node: int) -> int:
    """What a join does that waits no longer: `READY` with what has come, `SKIPPED` with nothing or too little."""
    live, _ = _branches(wiring, tokens, node)
    return READY if live and not (node in wiring.skips and live < wiring.needs[node]) else SKIPPED


def has_begun(wiring: Wiring, tokens: Sequence[int], node: int) -> bool:
    """Whether a live branch has come while another is open."""
    live, still_open = _branches(wiring, tokens, node)
    return live > 0 and still_open > 0


def _branches(wiring: Wiring, tokens: Sequence[int], node: int) -> tuple[int, int]:
    """How many branches are live, and how many are open."""
    edges = wiring.edges
    coming = (*wiring.forward_in[node], *wiring.loop_in[node])
    live = {edges[index].tail for index in coming if tokens[index] in (LIVE, KEPT)}
    still_open = {edges[index].tail for index in wiring.forward_in[node] if tokens[index] in (NONE, HELD)}
    return len(live), len(still_open - live)


class MutableFlow:
    """A changing copy of a flow. `opened` holds gates that are to speak, `skipped` nodes that are to send deaths."""

    __slots__ = ("arrived", "fans", "heard", "opened", "over", "said", "skipped", "status", "tokens", "uses", "wiring")

    def __init__(self, flow: FlowState) -> None:
        self.wiring = flow.plan.wiring
        self.tokens = bytearray(flow.tokens)
        self.status = bytearray(flow.status)
        self.uses = list(flow.uses)
        self.said = list(flow.said)
        self.heard = list(flow.heard)
        self.fans = list(flow.fans)
        self.arrived = flow.arrived
        self.over = flow.finished
        self.skipped: list[int] = []
        self.opened: list[int] = []

    def start(self, live: Collection[int], silent: Iterable[int] = ()) -> None:
        """`start` delivers to its agents, along these edges; the silent nodes send deaths whatever reaches them."""
        for node in silent:
            self.become(node, SKIPPED)
        for index in self.wiring.starting:
            self.tokens[index] = LIVE if index in live else DEAD
        for index in self.wiring.starting:
            self.evaluate(self.wiring.edges[index].head)

    def speak(self, node: int, payload: Payload) -> None:
        """Record the output and send its tokens, loop edges last."""
        self.said[node] += (payload,)
        if self.status[node] == STALE:
            self.status[node] = WAITING
            self.evaluate(node)
            return
        self.send(node, (Message(self.wiring.spoken[node], payload.without_raw()),), payload)

    def speak_as(self, node: int, number: int, payload: Payload) -> None:
        """Record the output of an instance of a mapped agent; the last one lets the agent speak."""
        fan = self.fans[node] = self.fans[node].spoken(number, payload)
        if fan.is_busy:
            return
        if self.status[node] == STALE:
            self.status[node] = WAITING
            self.evaluate(node)
            return
        self.speak(node, fan.joined())

    def send(self, node: int, messages: tuple[Message, ...], payload: Payload | None) -> None:
        """Send messages on the edges that the payload takes, deaths on the others; None takes those without a route."""
        self.status[node] = FIRED
        route = None if payload is None else payload.route
        taken = []
        for edge in self.wiring.out[node]:
            live = edge.when is None or edge.when == route
            if edge.map:
                live = live and self.handed_out(edge, payload)
            if edge.loop is None:
                self.deliver(edge, messages) if live else self.kill(edge)
            elif live:
                taken.append(edge.loop)
        for loop in sorted(taken, key=lambda loop: -len(self.wiring.loops[loop].body)):  # an outer one renews the inner
            self.iterate(loop, messages)

    def handed_out(self, edge: Edge, payload: Payload | None) -> bool:
        """Whether the payload is a list with something in it.

        Raises:
            RunError: it is longer than the role of its sender allows.
        """
        if not isinstance(payload, Items):
            return False
        most = self.wiring.items[edge.head]
        if len(payload.items) > most:
            raise RunError(
                f"agent {edge.source!r} sent {len(payload.items)} items to {edge.target!r}, but its role declares "
                f"max_items: {most}; its 'parse' must make a longer list a Failure"
            )
        return bool(payload.items)

    def deliver(self, edge: Edge, messages: tuple[Message, ...]) -> None:
        """Put a live token on a forward edge."""
        self.tokens[edge.index] = LIVE
        if edge.head == len(self.status):
            self.arrive()
            return
        self.heard[edge.head] += messages
        if self.status[edge.head] == WAITING:
            self.become(edge.head, decide(self.wiring, self.tokens, edge.head))

    def kill(self, edge: Edge) -> None:
        """Put a dead token on a forward edge, unless an earlier iteration decided it."""
        if self.tokens[edge.index] == NONE:
            self.tokens[edge.index] = HELD if edge.leaves else DEAD
            self.evaluate(edge.head)

    def evaluate(self, node: int) -> None:
        """Decide a waiting node if its tokens suffice: ready, or skipped."""
        if node == len(self.status):
            self.arrive()
        elif self.status[node] == WAITING:
            self.become(node, decide(self.wiring, self.tokens, node))

    def become(self, node: int, decision: int) -> None:
        """Let a waiting node do what its join decided."""
        self.status[node] = decision
        if decision == SKIPPED:
            self.skipped.append(node)
        elif decision == READY:
            if node >= self.wiring.agents:
                self.opened.append(node)
            elif self.fans and self.wiring.items[node]:
                self.open_fan(node)

    def open_fan(self, node: int) -> None:
        """Make an instance for every item of the list that has come."""
        message = self.heard[node][-1]
        assert isinstance(message.payload, Items)
        self.fans[node] = self.fans[node].opened(message.sender, message.payload.items)
        self.status[node] = RUNNING

    def arrive(self) -> None:
        """A token has come to `done`: is the turn committed, and, unless `done` waits for all, over?"""
        node = len(self.status)
        if self.wiring.needs[node] == ALL:
            self.arrived = self.arrived or LIVE in [self.tokens[index] for index in self.wiring.forward_in[node]]
        elif decide(self.wiring, self.tokens, node) == READY:
            self.arrived = self.over = True

    def expire(self, node: int) -> None:
        """A waiting node waits no longer."""
        decision = out_of_time(self.wiring, self.tokens, node)
        if node == len(self.status):
            self.arrived, self.over = decision == READY, True
        elif self.status[node] == WAITING:
            self.become(node, decision)

    def iterate(self, number: int, messages: tuple[Message, ...]) -> None:
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
            self.renew(node)
        self.tokens[loop.edge] = LIVE
        self.heard[loop.head] += messages
        self.evaluate(loop.head)

    def renew(self, node: int) -> None:
        """A node may fire again; what is at work becomes stale."""
        if self.status[node] not in (RUNNING, STALE):
            self.status[node] = WAITING
            return
        self.status[node] = STALE
        if self.fans and self.wiring.items[node]:
            fan = self.fans[node] = self.fans[node].outdated()
            self.status[node] = STALE if fan.is_busy else WAITING

    def drain(self) -> None:
        """Let skipped nodes send their dead tokens on, and then gates what they hold."""
        while self.skipped or self.opened:
            if self.skipped:
                for edge in self.wiring.out[self.skipped.pop()]:
                    if edge.loop is None:
                        self.kill(edge)
            else:
                self.pass_on(self.opened.pop(0))

    def pass_on(self, gate: int) -> None:
        """Let a gate speak: an entry hands in what it heard since the last time, an exit sends the team's output."""
        if self.status[gate] != READY:
            return
        heard, self.heard[gate] = self.heard[gate], ()
        last = self.wiring.lasts.get(gate)
        if last is None:
            self.send(gate, heard, None)
        elif self.said[last]:
            self.speak(gate, self.said[last][-1])
        else:
            self.status[gate] = SKIPPED
            self.skipped.append(gate)

    def release(self) -> bool:
        """Believe the innermost held deaths; False where nothing is held."""
        for wave in self.wiring.releases:
            held = sorted(index for part in wave for index in self.believable(part))
            for index in held:
                self.tokens[index] = DEAD
            for index in held:
                self.evaluate(self.wiring.edges[index].head)
            if held:
                return True
        return False

    def believable(self, part: Sequence[int]) -> list[int]:
        """Of edges that wait for each other, the held ones that may count as dead now: first those whose death makes a
        node ready, as that node may start a loop that the other edges leave."""
        held = [index for index in part if self.tokens[index] == HELD]
        if len(held) < 2:
            return held
        tokens = [DEAD if index in held else token for index, token in enumerate(self.tokens)]
        heads = {index: self.wiring.edges[index].head for index in held}
        agents = len(self.status)
        going = [i for i in held if heads[i] < agents and decide(self.wiring, tokens, heads[i]) == READY]
        return going or held

    def settle(self) -> None:
        """Let everything happen that follows without an agent's work."""
        self.drain()
        status = self.status
        while not self.over and READY not in status and RUNNING not in status and STALE not in status:
            self.over = not self.release() or self.over
            self.drain()
