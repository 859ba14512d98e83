"""The receiving side of one process without a broker, for tests of what it says."""

import msgspec

from mas.bus.envelopes import EnvelopeFactory
from mas.bus.limits import Limits
from mas.bus.memory import MemoryBus
from mas.bus.mqtt.frames import Codec, Frame, Mode, Send, Status, Word
from mas.bus.mqtt.options import MqttOptions
from mas.bus.mqtt.receiver import Desk
from mas.bus.mqtt.references import References
from mas.bus.mqtt.topics import Peer
from mas.core.messages import Delivery, Envelope, Note
from mas.testing.bus_suite import LoopTurn

ALICE = Peer("alice", "p")
CODEC = Codec()


class Heard:
    """A desk, its local bus with a clock that the test moves, and what it said."""

    def __init__(self, remembered: int = 100) -> None:
        self.time_s = 100.0
        self.bus = MemoryBus(clock=lambda: self.time_s, limits=Limits(max_attempts=3))
        self.addresses = {"b"}
        self.said: list[Frame] = []
        self.desk = Desk(
            self.bus,
            process="q",
            codec=CODEC,
            say=lambda peer, frame: self.said.append(CODEC.decode(frame)),
            pass_on=lambda peer, frame: False,
            listens=self.addresses.__contains__,
            remembered=remembered,
            references=References(CODEC, None, options=MqttOptions(), clock=self.bus.now),
        )
        self._notes = EnvelopeFactory("a", principal="alice")

    def send(
        self,
        ticket: str,
        attempt: int = 1,
        *,
        mode: Mode = "tell",
        delivery: Delivery = Delivery.EFFECTIVELY_ONCE,
        remaining_s: float | None = None,
        tries: int = 0,
        key: str | None = None,
    ) -> Envelope:
        envelope = self._notes.new("b", Note(text=ticket), delivery=delivery, key=key)
        deadline = None if remaining_s is None else self.bus.now() + remaining_s
        timed = msgspec.structs.replace(envelope, deadline=deadline)
        self.desk.send(ALICE, Send("p", ticket, attempt, mode, remaining_s, False, timed, tries))
        return envelope

    async def words(self) -> list[Word]:
        """What was said of messages since the last call, when all that is ready has run."""
        for _ in range(5):
            await LoopTurn()
        found = [word for frame in self.said if isinstance(frame, Status) for word in frame.words]
        self.said = [frame for frame in self.said if not isinstance(frame, Status)]
        return found

    async def standings(self) -> list[tuple[str, int, str]]:
        """The words without what goes with them."""
        return [(word.ticket, word.attempt, word.standing) for word in await self.words()]
