"""How a process takes part in a bus over MQTT."""

from dataclasses import dataclass, fields

from mas.core.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class MqttOptions:
    """Times in seconds, sizes as said. The same for all processes of a bus is best, and needed for `max_frame_bytes`.

    Attributes:
        keepalive_s: silence after which either side asks whether the other is there; a process that hangs is noticed
            after one and a half of it.
        patience_s: how long connecting and subscribing may take.
        backoff_s: longest wait between two attempts to connect; the first wait is a twentieth. Each is drawn at random
            up to its bound, so that processes do not come back all at once.
        ack_s: how long nothing may be heard of a message before its receivers are asked for it.
        poll_s: how often at least the process that holds a message is asked for it.
        absent_s: how long a process that vanished may stay away before its messages go elsewhere.
        away_s: how long a process with a journal that is gone may stay away before what it asked is stopped, and what
            became of what it sent is forgotten; the others grant a day at most.
        grace_s: how long after a deadline the receiver's own word is waited for.
        outbox: messages on their way or not yet done, at most; further senders wait. Half of it may wait for listeners.
        remembered: messages that are over and still recognised when they come again, the oldest forgotten first.
        max_attempts: attempts to handle a message in all processes, the first one included, before it is given up on.
        dead_letters: messages given up on that each side of this process keeps; the oldest is forgotten first.
        max_cards: processes of one principal that are known at once, and that are away at once; more are ignored.
        max_card_bytes: what the cards of one principal may be long, all together; more are ignored.
        max_frame_bytes: longest message that is sent or taken.
        inline_bytes: longest payload that travels in its message where there is a store; longer ones travel by
            reference. Less, where the broker says that it takes less.
        max_stored_bytes: longest payload that is stored or fetched.
        keep_s: how long a payload stays in the store; longer than any message may wait for its receiver.
        store_s: how long storing or fetching one may take.

    Raises:
        ConfigError: a value is not above 0.
    """

    keepalive_s: int = 10
    patience_s: float = 5.0
    backoff_s: float = 1.0
    ack_s: float = 1.0
    poll_s: float = 5.0
    absent_s: float = 5.0
    away_s: float = 300.0
    grace_s: float = 0.25
    outbox: int = 1024
    remembered: int = 16_384
    max_attempts: int = 5
    dead_letters: int = 1024
    max_cards: int = 256
    max_card_bytes: int = 1 << 20
    max_frame_bytes: int = 4 << 20
    inline_bytes: int = 64 << 10
    max_stored_bytes: int = 1 << 30
    keep_s: float = 86_400.0
    store_s: float = 60.0

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if not value > 0:
                raise ConfigError(f"{field.name} is {value}; it must be above 0")
