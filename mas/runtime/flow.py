"""Token flow: which agents may fire now, what reaches them, when a team turn is over. Pure, no clock, no bus.

Every edge carries a live or a dead token once its source is decided, so a join always learns that a branch was not
taken and can never wait for it. Time enters as an event: the caller says that a join has waited long enough
(`expire`). Leaves out on purpose: prompts, sampling, clocks.

An agent that is reached by an edge with `map` fires as instances `worker[0]`, `worker[1]`, ..., one per item of the
list, which begin and complete like agents; when the last one has, the agent has spoken: one list, in the order of the
items. The entry and exit of a team within the team pass messages on by themselves.

A turn ends when nothing can fire any more; with another join at `done` than `all` it ends as soon as that is met.
"""

import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping

import msgspec

from mas.core.environment import Observation
from mas.core.errors import RunError
from mas.core.messages import Action, Failure, Payload, joint_action
from mas.core.naming import agent_of, did_you_mean, instance
from mas.core.role import EarlierCall, Message, View
from mas.core.seeds import digest
from mas.graph.plan import TeamPlan
from mas.runtime.flow_state import NO_PAST, READY, RUNNING, STALE, WAITING, FlowState, MapInstances, Past
from mas.runtime.mutable_flow import MutableFlow, has_begun

_INSTANCE = re.compile(r"(.+)\[(\d+)\]")


class Flow(FlowState, frozen=True):
    """One team turn: its state, and the steps from it. Every step returns a new flow and shares what did not change."""

    @classmethod
    def start(
        cls, plan: TeamPlan, seats: Iterable[str] | None = None, silent: Collection[str] = (), past: Past = NO_PAST
    ) -> "Flow":
        """A fresh turn: `start` has delivered to its agents.

        Args:
            seats: whose agents speak; None: all that the team plays.
            silent: agents that do not speak in this turn: branches that are not taken.
            past: what the turn before it leaves behind, as `remembered` says.

        Raises:
            RunError: one of them is in a loop with others that speak, so that it would be asked again.
        """
        for body in plan.bodies.values():
            if 0 < len(still := [agent for agent in body if agent in silent]) < len(body):
                raise RunError(f"agents {still} are silent and others of their loop are not: {list(body)}")
        wiring = plan.wiring
        nodes = len(wiring.names) - 1
        empty: tuple[tuple[()], ...] = ((),) * nodes
        tokens, uses = bytes(len(wiring.edges)), (0,) * len(wiring.loops)
        instances = (MapInstances(),) * len(wiring.items) if wiring.items else ()
        flow = cls(plan, tokens, bytes(nodes), uses, empty, empty, empty, instances, False, False, past)
        mutable = MutableFlow(flow)
        moving = plan.starting if seats is None else seats
        live = {index for seat in moving for index in plan.starting[seat]}
        mutable.start(live, [plan.number[agent] for agent in silent])
        return flow._settled(mutable)

    def ready(self) -> tuple[str, ...]:
        """Agents and instances that may fire now, in declared order."""
        return () if self.finished else self._in(READY)

    def running(self) -> tuple[str, ...]:
        """Agents and instances that have begun and not completed, in declared order."""
        return self._in(RUNNING, STALE)

    def waiting_joins(self) -> tuple[str, ...]:
        """Joins that hold a live branch and wait for another one, under the names that `joins` has for them.

        `plan.timeouts` says how long each may: a caller with a clock starts it here, stops it when the name is gone,
        and calls `expire` when it has run out.
        """
        wiring, waiting = self.plan.wiring, []
        if self.finished:
            return ()
        for node, name in enumerate(wiring.names):
            if node == len(self.status) or self.status[node] == WAITING:
                waiting += [name] if has_begun(wiring, self.tokens, node) else []
        return tuple(waiting)

    def begin(self, agent: str) -> "Flow":
        """The agent or instance starts to work on what `messages` says.

        Raises:
            RunError: it is not ready.
        """
        node = self.plan.number.get(agent)
        if node is None:
            return self._begin_instance(agent)
        if self.finished or self.status[node] != READY:
            raise RunError(f"agent {agent!r} cannot begin; ready are: {list(self.ready())}")
        status = self.status[:node] + bytes((RUNNING,)) + self.status[node + 1 :]
        asked = (*self.asked[:node], (*self.asked[node], len(self.heard[node])), *self.asked[node + 1 :])
        return msgspec.structs.replace(self, status=status, asked=asked)

    def complete(self, agent: str, payload: Payload) -> "Flow":
        """The agent or instance has spoken: its tokens travel. A turn that is finished stays as it is.

        Raises:
            RunError: it has not begun, or its role made a longer list than it may.
        """
        node = self.plan.number.get(agent)
        if node is None or (self.fans and self.plan.wiring.items[node]):
            return self._complete_instance(agent, payload)
        if self.status[node] not in (RUNNING, STALE):
            raise RunError(f"agent {agent!r} cannot complete; running are: {list(self.running())}")
        if self.finished:
            return self
        mutable = MutableFlow(self)
        mutable.speak(node, payload)
        return self._settled(mutable)

    def expire(self, join: str) -> "Flow":
        """The join has waited long enough: it fires with what has come, or never, where nothing has or too little for
        a number with `unmet: skip`. A join that is decided already, and a turn that is finished, stay as they are.

        Args:
            join: as `waiting_joins` names it.

        Raises:
            RunError: there is no such join.
        """
        node = self.plan.joins.get(join)
        if node is None:
            raise RunError(f"no join {join!r} can expire. {did_you_mean(join, self.plan.joins)}")
        if self.finished:
            return self
        mutable = MutableFlow(self)
        mutable.expire(node)
        return self._settled(mutable)

    def messages(self, agent: str) -> tuple[Message, ...]:
        """What live edges brought to the agent in this turn, all iterations, oldest first; to an instance, its items.

        What a mapped agent sends is one message: a list in the order of its items.
        """
        node = self.plan.number.get(agent)
        if node is not None:
            return self.heard[node]
        node, number = self._find(agent)
        return self.fans[node].heard[number]

    def own(self, agent: str) -> tuple[Payload, ...]:
        """The outputs of the agent or instance in this turn, oldest first; of a mapped agent, its lists."""
        node = self.plan.number.get(agent)
        if node is not None:
            return self.said[node]
        node, number = self._find(agent)
        return self.fans[node].said[number]

    def view(self, agent: str, observation: Observation) -> View:
        """What the agent or instance may know now. `observation`: what it sees in this team turn."""
        spec = self.plan.roles[agent_of(agent)].spec
        past: tuple[EarlierCall, ...] = ()
        if spec.history:
            past = (*self.past.get(agent, ()), *self._calls(agent, observation))[-spec.history :]
        elif spec.history is None and spec.ask is None:
            past = self._calls(agent, observation)
        return View(observation=observation, messages=self.messages(agent), own=self.own(agent), past=past)

    def remembered(self, observations: Mapping[str, Observation]) -> Past:
        """The calls that agents are to be shown in the next team turn, those of earlier turns with this one's.

        Args:
            observations: what every agent saw in this team turn.
        """
        limits = {agent: role.spec.history for agent, role in self.plan.roles.items() if role.spec.history}
        if not limits:
            return self.past
        past = dict(self.past)
        for name in (*limits, *self._instances()):
            limit = limits.get(agent_of(name))
            if limit and (calls := self._calls(name, observations[agent_of(name)])):
                past[name] = (*past.get(name, ()), *calls)[-limit:]
        return past

    def _instances(self) -> Iterator[str]:
        for name, fan in zip(self.plan.agents, self.fans, strict=False):
            yield from (instance(name, number) for number in range(len(fan.said)))

    def _calls(self, agent: str, observation: Observation) -> tuple[EarlierCall, ...]:
        """The calls of the agent or instance in this turn that are over. What a mapped agent says as one has none."""
        own = self.own(agent)
        if not own:
            return ()
        node = self.plan.number.get(agent)
        if node is None:
            node, number = self._find(agent)
            asked = self.fans[node].asked[number]
        else:
            asked = self.asked[node]
        messages = self.messages(agent)
        return tuple(
            EarlierCall(View(observation=observation, messages=messages[:heard], own=own[:call]), own[call])
            for call, heard in enumerate(asked[: len(own)])
        )

    def visits(self, agent: str) -> int:
        """How often the agent or instance has completed in this turn."""
        return len(self.own(agent))

    @property
    def outputs(self) -> Mapping[str, Payload]:
        """The latest output of every agent that has spoken."""
        return {name: said[-1] for name, said in zip(self.plan.agents, self.said, strict=False) if said}

    @property
    def committed(self) -> bool:
        """Whether the turn is over and `done` got what it waits for."""
        return self.finished and self.arrived

    def action(self) -> Payload | None:
        """The team's action, that of several seats as a joint one; None where nothing was committed, or what was said
        for the team did not parse."""
        if self.plan.spec.joint:
            return self._joint_action(self.plan.spec.joint)
        if self.plan.spec.seats:
            return self._joint_action(tuple(self.plan.spec.seats.values()))
        return self.seat_action(self.plan.spec.seat)

    def seat_action(self, seat: str) -> Payload | None:
        """The action of one of several seats, likewise; of the only one, the team's."""
        if self.plan.spec.joint:
            return self.action()
        agent = self.speaker(seat)
        said = None if agent is None else self.own(agent)[-1]
        return None if isinstance(said, Failure) else said

    def speaker(self, seat: str) -> str | None:
        """The agent whose output is the action of a seat; None: of no agent, or of several together."""
        spec = self.plan.spec
        if not self.committed or spec.joint:
            return None
        agents = (spec.seats[seat],) if spec.seats else self.plan.outputs
        return next((agent for agent in agents if self.own(agent)), None)

    def _joint_action(self, agents: Iterable[str]) -> Payload | None:
        last = self.outputs if self.committed else {}
        said = {agent: last[agent] for agent in agents if agent in last}
        texts = {agent: payload.content for agent, payload in said.items() if not isinstance(payload, Failure)}
        return Action(text=joint_action(texts)) if texts else None

    def key(self) -> str:
        """Equal for turns of one team with the same content, different for different ones."""
        parts: list[str] = [
            self.plan.digest,
            self.tokens.hex(),
            self.status.hex(),
            f"{self.uses} {self.finished} {self.arrived}",
        ]
        for name, said, heard in zip(self.plan.wiring.names, self.said, self.heard, strict=False):
            parts += [name, *_shown(said, heard)]
        for name, fan in zip(self.plan.agents, self.fans, strict=False):
            parts.append(f"{name} {fan.status.hex()}")
            for number, (said, heard) in enumerate(zip(fan.said, fan.heard, strict=True)):
                parts += [instance(name, number), *_shown(said, heard)]
        if self.plan.wiring.loops:  # an agent that speaks again may be shown what it was asked before
            parts.append(f"asked {self.asked} {[fan.asked for fan in self.fans]}")
        for name, calls in sorted(self.past.items()):
            for call in calls:
                fields = json.dumps(dict(call.view.observation.fields))
                parts += [f"{name} saw {fields}", *_shown((*call.view.own, call.answer), call.view.messages)]
        return digest(*parts)

    def _in(self, *wanted: int) -> tuple[str, ...]:
        """Names of the agents and instances with these statuses; a mapped agent itself has none."""
        agents = self.plan.agents
        if not self.fans:
            pairs = zip(agents, self.status, strict=False)
            return tuple([name for name, status in pairs if status in wanted])
        names: list[str] = []
        for node, name in enumerate(agents):
            if not self.plan.wiring.items[node]:
                names += [name] if self.status[node] in wanted else []
                continue
            names += [instance(name, at) for at, now in enumerate(self.fans[node].status) if now in wanted]
        return tuple(names)

    def _begin_instance(self, name: str) -> "Flow":
        if name not in self.ready():
            raise RunError(f"agent {name!r} cannot begin; ready are: {list(self.ready())}")
        node, number = self._find(name)
        instances = (*self.fans[:node], self.fans[node].begun(number), *self.fans[node + 1 :])
        return msgspec.structs.replace(self, fans=instances)

    def _complete_instance(self, name: str, payload: Payload) -> "Flow":
        if name not in self.running():
            raise RunError(f"agent {name!r} cannot complete; running are: {list(self.running())}")
        if self.finished:
            return self
        mutable = MutableFlow(self)
        mutable.speak_as(*self._find(name), payload)
        return self._settled(mutable)

    def _find(self, name: str) -> tuple[int, int]:
        """Node and number of an instance.

        Raises:
            RunError: there is none of that name.
        """
        match = _INSTANCE.fullmatch(name)
        node = self.plan.number.get(match[1]) if match else None
        if match is None or node is None or not self.fans or int(match[2]) >= len(self.fans[node].said):
            raise RunError(f"no agent {name!r} is here. {did_you_mean(name, self.plan.agents)}")
        return node, int(match[2])

    def _settled(self, mutable: MutableFlow) -> "Flow":
        """The flow after everything that follows without an agent's work."""
        mutable.settle()
        return Flow(
            self.plan,
            bytes(mutable.tokens),
            bytes(mutable.status),
            tuple(mutable.uses),
            tuple(mutable.said),
            tuple(mutable.heard),
            self.asked,
            tuple(mutable.fans),
            mutable.over,
            mutable.arrived,
            self.past,
        )


def _shown(said: tuple[Payload, ...], heard: tuple[Message, ...]) -> list[str]:
    return [
        *(f"said {output.kind} {output.model_dump_json()}" for output in said),
        *(f"{message.sender} {message.payload.kind} {message.payload.model_dump_json()}" for message in heard),
    ]
