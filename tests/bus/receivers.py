"""The receiving side of one process without a broker, for tests of what it tells senders."""

import msgspec

from mas.bus.counters import BusLimits
from mas.bus.memory import MemoryBus
from mas.bus.mqtt.frames import Codec, Frame, MessageState, Mode, Send, Status
from mas.bus.mqtt.options import MqttOptions
from mas.bus.mqtt.receiver import Receiver
from mas.bus.mqtt.references import References
from mas.bus.mqtt.topics import Peer
from mas.bus.serve import EnvelopeFactory
from mas.core.messages import Delivery, Envelope, Note
from mas.testing.bus_suite import LoopTurn

ALICE = Peer("alice", "p")
CODEC = Codec()


class Heard:
    """A receiver, its local bus with a clock that the test moves, and the frames that it wrote."""

    def __init__(self, remembered: int = 100) -> None:
        self.me = Peer("bob", "q")
        self.time_s = 100.0
        self.bus = MemoryBus(clock=lambda: self.time_s, limits=BusLimits(max_attempts=3))
        self.addresses = {"b"}
        self.said: list[Frame] = []
        options = MqttOptions(remembered=remembered)
        self.receiver = Receiver(
            self.bus,
            codec=CODEC,
            writer=self,
            routes=self.addresses,
            options=options,
            references=References(CODEC, None, options=options, clock=self.bus.now),
        )
        self._notes = EnvelopeFactory("a", principal="alice")

    def reply(self, peer: Peer, frame: bytes) -> None:
        self.said.append(CODEC.decode(frame))

    def part(self, peer: Peer, frame: bytes) -> bool:
        return False

    def send(
        self,
        ticket: str,
        attempt: int = 1,
        *,
        mode: Mode = "publish",
        delivery: Delivery = Delivery.EFFECTIVELY_ONCE,
        remaining_s: float | None = None,
        tries: int = 0,
        key: str | None = None,
    ) -> Envelope:
        envelope = self._notes.new("b", Note(text=ticket), delivery=delivery, key=key)
        deadline = None if remaining_s is None else self.bus.now() + remaining_s
        timed = msgspec.structs.replace(envelope, deadline=deadline)
        self.receiver.take(ALICE, Send("p", ticket, attempt, mode, remaining_s, False, timed, tries))
        return envelope

    async def states(self) -> list[MessageState]:
        """What was told of messages since the last call, when all that is ready has run."""
        for _ in range(5):
            await LoopTurn()
        found = [state for frame in self.said if isinstance(frame, Status) for state in frame.states]
        self.said = [frame for frame in self.said if not isinstance(frame, Status)]
        return found

    async def brief_states(self) -> list[tuple[str, int, str]]:
        """The states without what goes with them."""
        return [(state.ticket, state.attempt, state.state) for state in await self.states()]
