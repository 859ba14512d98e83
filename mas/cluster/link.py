"""The seam between the driver's view of a worker and how its process is reached: what an implementation writes."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

from mas.cluster.records import HeartbeatReply, Outcome, Ref


class WorkerLink(ABC):
    """One process. It has no time limits: `Handle` has them, and cancels.

    Each method but `kill` raises WorkerLost when the process is gone.
    """

    pid: int | None = None
    node: str = ""

    @abstractmethod
    async def start(self, lost: Callable[[str], None]) -> Outcome:
        """Start the process and have its factory called.

        Args:
            lost: is called once with the reason when the process is gone, or sends what is no message.

        Raises:
            NoResources: the cluster lacks what the worker asks for.
        """

    @abstractmethod
    async def call(self, method: str, payload: bytes, refs: Sequence[Ref]) -> Outcome:
        """Call a method. If this call is cancelled, the worker cancels the method.

        Raises:
            ClusterError: an object is not there.
        """

    @abstractmethod
    async def ping(self) -> HeartbeatReply:
        """Ask for a sign of life."""

    @abstractmethod
    async def stop(self) -> None:
        """Have the worker close itself, and wait until its process has ended."""

    @abstractmethod
    async def kill(self) -> None:
        """End the process and those that it started; nothing if they have ended. Waits for the end."""
