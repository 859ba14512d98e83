"""What one server of the Tinker API has: sessions of clients, models in training, what is sampled with, and requests.

Models compute in one thread, one request after the other; the engine samples beside it.
"""

from dataclasses import dataclass

from mas.config.options import LearnerOptions
from mas.serving.transformers_engine import TransformersEngine
from mas.tinker.checkpoints import CheckpointFolder
from mas.tinker.futures import Futures
from mas.tinker.sampling import Samplers, SamplingSessions
from mas.tinker.served_base import ServedBase
from mas.tinker.sessions import ClientSessions
from mas.tinker.training import TrainedModels


@dataclass(frozen=True, slots=True, kw_only=True)
class TinkerLimits:
    """What one server takes on.

    Attributes:
        models: that are trained at the same time.
        samplers: sets of weights that are held for sampling.
        idle_s: a session without a sign of life for so many seconds ends.
    """

    models: int = 16
    samplers: int = 32
    idle_s: float = 600.0


class TinkerService:
    """The parts of a server, put together.

    Args:
        engine: samples; the caller's to close.
        options: how much goes through the model at once.
        names: that clients may call the base by, the first as it is told to them.
    """

    def __init__(
        self,
        engine: TransformersEngine,
        options: LearnerOptions,
        folder: CheckpointFolder,
        limits: TinkerLimits,
        names: tuple[str, ...],
    ) -> None:
        self.base = ServedBase(engine.base, names)
        self.folder = folder
        self.futures = Futures()
        self.sessions = ClientSessions(limits.idle_s, self._free)
        self.samplers = Samplers(engine, limits.samplers)
        self.sampling = SamplingSessions(self.base, folder, self.samplers, self.sessions, self.futures)
        self.training = TrainedModels(
            self.base, folder, self.sampling, self.sessions, self.futures, options=options, most=limits.models
        )

    async def close(self) -> None:
        """End all requests and wait for what computes."""
        await self.futures.close()
        await self.base.close()
        await self.samplers.close()

    def _free(self, session: str) -> None:
        self.training.free(session)
        self.sampling.free(session)
