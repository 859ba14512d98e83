"""What the driver and its workers tell each other, and what the driver can list."""

from typing import Literal

import msgspec

from mas.core.version import VERSION

State = Literal["starting", "alive", "stopped", "lost"]


class Ref(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes that a cluster holds for calls; of use in that cluster only."""

    key: str
    size: int
    """In bytes."""


class WorkerSpec(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker is made of; enough to make the same one again."""

    kind: str
    factory: str
    arguments: bytes
    cpus: float
    gpus: float
    threads: int
    """Of numeric libraries: OMP_NUM_THREADS and its like."""
    environment: tuple[str, ...] = ()
    """Names of variables that it gets beside the usual ones and those of the cluster."""
    version: str = VERSION
    """Of mas in the driver."""


class ResourceRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What workers of one kind ask for: so many of them, each for so much."""

    kind: str
    count: int
    cpus: float
    gpus: float

    @property
    def names(self) -> list[str]:
        return [f"{self.kind}-{index}" for index in range(self.count)]


class ProcessStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A worker as the driver sees it."""

    name: str
    kind: str
    pid: int | None
    """On its machine; None: it has not started."""
    node: str
    state: State
    restarts: int
    calls: int
    """In flight."""
    rss_bytes: int | None
    """Memory at the last heartbeat; None: no heartbeat yet, or the platform does not tell."""


class Done(msgspec.Struct, frozen=True, tag="done"):
    """The answer to a call."""

    payload: bytes


class FailedCall(msgspec.Struct, frozen=True, tag="failed"):
    """A call that raised, as text: no exception object travels."""

    error_type: str
    text: str
    traceback: str


Outcome = Done | FailedCall


class HeartbeatReply(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to a heartbeat."""

    rss_bytes: int | None
