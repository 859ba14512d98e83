"""Several engines with the same base as one: each holds every version, and an episode stays with one of them.

There is no router process: a request goes to the live replica that rendezvous hashing gives its session (Thaler and
Ravishankar, IEEE/ACM Transactions on Networking 6 (1), 1998), so that a replica that is lost moves its own sessions
only. If that replica has far more in flight than another, the least busy one gets the request. No completion depends on
which replica draws it, but by rounding.

A version is loaded into all replicas and passes the canary of each before its name points to it. A replica that is lost
is started again, gets all versions that are loaded, and passes the canary of the current ones; its requests are sent
again meanwhile. Leaves out on purpose: streams in pieces. A stream is one piece, as no replica may change under it.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Container, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TypeVar

from mas.core.concurrency import together
from mas.core.engine import AdapterRef, Generation, Request
from mas.core.errors import EngineError, EngineLost, MasError, TrainingError
from mas.core.seeds import digest
from mas.serving.in_flight import InFlight
from mas.serving.model import BaseModel
from mas.serving.model_text import ModelLimits
from mas.serving.publication import AdapterVersion, Scorer, check_version
from mas.serving.store import AdapterStore

T = TypeVar("T")
_LOSSES = 3
"""In a row, of one replica without an answer or of one request, after which the engine fails."""
_FAR_MORE, _FEW = 2, 8
"""A replica is far busier than another with more than so many times its completions in flight, and so many more."""
_CLOSED = "the engine is closed"
_log = logging.getLogger(__name__)


class Replica(Scorer, Protocol):
    """One of several engines with the same base. Any call may raise EngineLost: its process or server is gone."""

    async def load(self, version: AdapterVersion) -> None:
        """Make a version ready; one that is ready stays as it is."""

    async def unload(self, version: AdapterVersion) -> None:
        """Forget a version; nothing if it is not there."""

    async def generate_version(self, version: AdapterVersion | None, request: Request) -> tuple[Generation, ...]:
        """See `VersionEngine`."""

    async def restart(self) -> None:
        """Have it serve again after a loss, with no version.

        Raises:
            EngineLost: it was lost once more. MasError: it cannot.
        """

    async def close(self) -> None:
        """End it."""


@dataclass(slots=True)
class Member:
    """What is known of one replica.

    Attributes:
        losses: in a row, without an answer since the first.
        lifetime: how often it was lost; tells calls to the process before from those to the one of now.
        completions: that are in flight.
        requests: that it got since the last `metrics`.
        restarting: starts it again; None: it was never lost.
    """

    name: str
    replica: Replica
    is_live: bool = True
    losses: int = 0
    lifetime: int = 0
    completions: int = 0
    requests: int = 0
    restarting: asyncio.Task[None] | None = None


def choose_member(session: str | None, live: Sequence[Member]) -> Member:
    """The replica of a session, or the least busy one if there is none, or its replica is far busier."""
    least = min(live, key=lambda member: member.completions)
    if session is None:
        return least
    first = max(live, key=lambda member: digest(session, member.name))
    return least if first.completions > _FAR_MORE * least.completions + _FEW else first


class ReplicatedEngine:
    """Satisfies `mas.serving.store.ServingEngine`.

    Args:
        replicas: by name, all with the base and no version.
        limits: what all of them can take.
        reads_files: versions are handed over as PEFT directories, which lie in `files`, see `AdapterStore`.
        restricts: whether the replicas can restrict what is drawn.

    Attributes:
        restarts: how often a replica was started again.
    """

    def __init__(
        self,
        base: BaseModel,
        replicas: Mapping[str, Replica],
        *,
        limits: ModelLimits,
        reads_files: bool = False,
        restricts: bool = True,
        files: Path | None = None,
    ) -> None:
        self.base = base
        self.tokenizer = base.tokenizer
        self.stop_ids = base.stop_ids
        self.origin = base.origin
        self.dtype: str = base.options.dtype
        self.limits, self.reads_files, self.restricts = limits, reads_files, restricts
        self._members = [Member(name, replica) for name, replica in replicas.items()]
        self.store = AdapterStore(self, files=files, parts=self._parts)
        self.restarts = 0
        self._loaded: dict[int, AdapterVersion] = {}
        self._failure = ""
        self._is_closed = False
        self._flights = InFlight()

    def adapters(self) -> Mapping[str, AdapterRef]:
        return self.store.current()

    async def generate(self, request: Request) -> tuple[Generation, ...]:
        """As in the contract.

        Raises:
            TrainingError: replicas are lost again and again.
        """
        with self._flights.accepted():
            self.limits.check_request(request)
            return await self._generate(request)

    async def _generate(self, request: Request) -> tuple[Generation, ...]:
        async with self.store.lease(request.adapter) as version:
            return await self._routed(
                request.session, len(request.seeds), lambda replica: replica.generate_version(version, request)
            )

    async def stream(self, request: Request) -> AsyncGenerator[Generation]:
        """As in the contract, in one piece."""
        with self._flights.accepted():
            self.limits.check_stream(request)
            (whole,) = await self._generate(request)
            yield whole

    async def score(
        self, prompt_ids: Sequence[int], completion_ids: Sequence[int], adapter: str | None = None
    ) -> tuple[float, ...]:
        with self._flights.accepted():
            async with self.store.lease(adapter) as version:
                return await self.score_version(version, prompt_ids, completion_ids)

    async def score_version(
        self, version: AdapterVersion | None, prompt_ids: Sequence[int], completion_ids: Sequence[int]
    ) -> tuple[float, ...]:
        """See `Scorer`; by any replica."""
        self.limits.check_score(prompt_ids, completion_ids)
        return await self._routed(None, 1, lambda replica: replica.score_version(version, prompt_ids, completion_ids))

    async def load(self, version: AdapterVersion) -> None:
        """Make a version ready in every replica, or in none."""
        check_version(self.base.bank, version)
        self._loaded[version.number] = version  # a replica that is being started gets it, too
        try:
            loads = [self._on(member, partial(member.replica.load, version)) for member in self._members]
            await together(loads, "load")
        except MasError:
            await self.unload(version)
            raise

    async def unload(self, version: AdapterVersion) -> None:
        """Free the version's place in every replica; one that is lost has forgotten it."""
        self._loaded.pop(version.number, None)
        live = [member for member in self._members if member.is_live and not self._is_closed]
        found = await asyncio.gather(*(self._forget(member, version) for member in live), return_exceptions=True)
        for error in found:
            if error is not None:
                raise error

    def metrics(self) -> dict[str, Any]:
        """How many replicas there are, how often one was started again so far, and the requests that each got since
        the last call, those sent again included."""
        requests = {member.name: member.requests for member in self._members}
        for member in self._members:
            member.requests = 0
        return {"count": len(self._members), "restarts": self.restarts, "requests": requests}

    async def close(self) -> None:
        if self._flights.is_closed:
            return
        await self._flights.close()
        self._failed(_CLOSED)  # from here on nothing is started again
        tasks = [member.restarting for member in self._members if member.restarting is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for version in [*self._loaded.values()]:
            await asyncio.gather(self.unload(version), return_exceptions=True)
        self._is_closed = True
        await asyncio.gather(*(member.replica.close() for member in self._members), return_exceptions=True)
        self.store.close()

    def _parts(self) -> Mapping[str, Scorer]:
        return {member.name: _Part(self, member) for member in self._members}

    async def _routed(self, session: str | None, completions: int, call: Callable[[Replica], Awaitable[T]]) -> T:
        """The result of a call on the session's replica, made again on another one if that is lost."""
        reason = ""
        for _ in range(_LOSSES):
            member = await self._chosen(session)
            lifetime = member.lifetime
            member.completions += completions
            member.requests += 1
            try:
                result = await call(member.replica)
            except EngineLost as error:
                reason = str(error)
                self._lose(member, lifetime, reason)
            else:
                member.losses = 0
                return result
            finally:
                member.completions -= completions
        raise self._failed(f"{_LOSSES} engine replicas were lost while they answered the same request: {reason}")

    async def _chosen(self, session: str | None) -> Member:
        """The replica for a request, once one is live."""
        while not (live := [member for member in self._members if member.is_live]):
            self._check()
            tasks = [member.restarting for member in self._members if member.restarting is not None]
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        self._check()
        return choose_member(session, live)

    async def _on(self, member: Member, call: Callable[[], Awaitable[T]]) -> T:
        """The result of a call on one replica, made again whenever that was lost and started again."""
        while True:
            while not member.is_live and member.restarting is not None:
                self._check()
                await asyncio.wait({member.restarting})
            self._check()
            lifetime = member.lifetime
            try:
                return await call()
            except EngineLost as error:
                self._lose(member, lifetime, str(error))

    async def _forget(self, member: Member, version: AdapterVersion) -> None:
        lifetime = member.lifetime
        try:
            await member.replica.unload(version)
        except EngineLost as error:
            self._lose(member, lifetime, str(error))

    def _lose(self, member: Member, lifetime: int, reason: str) -> None:
        """Start a replica again that was lost in a lifetime, unless that is known already or the engine has failed."""
        if member.lifetime != lifetime:
            return
        _log.warning("%s was lost: %s", member.name, reason)
        member.is_live = False
        member.lifetime += 1
        member.losses += 1
        if self._failure:
            return
        member.restarting = asyncio.create_task(self._restart(member, reason), name=f"restart-{member.name}")

    async def _restart(self, member: Member, reason: str) -> None:
        """Start a replica again, with all that is loaded; what keeps it from that is the engine's failure."""
        try:
            while member.losses < _LOSSES:
                self.restarts += 1
                held: dict[int, AdapterVersion] = {}
                try:
                    await member.replica.restart()
                    await self._replay(member.replica, held)
                    await self.store.prove(member.name, member.replica)
                    await self._replay(member.replica, held)  # what has changed meanwhile
                except EngineLost as error:
                    member.losses += 1
                    reason = str(error)
                else:
                    member.is_live = True
                    return
            self._failed(f"{member.name} was lost {_LOSSES} times in a row, the last time: {reason}")
        except Exception as error:  # noqa: BLE001 - the boundary: it is the error of all who wait for the replica
            self._failed(f"{member.name} was lost ({reason}), and cannot serve again: {error}")

    async def _replay(self, replica: Replica, held: dict[int, AdapterVersion]) -> None:
        """Load what is loaded elsewhere, oldest first, and unload what is not any more, until `held` is what is loaded
        now."""
        while self._loaded.keys() != held.keys():
            for version in _without(self._loaded, held):
                if version.number not in self._loaded:
                    continue  # it was unloaded while another one was loaded
                try:
                    await replica.load(version)
                except EngineError as error:
                    if isinstance(error, EngineLost) or version.number in self._loaded:
                        raise
                    continue  # it was unloaded, and its files went with it
                held[version.number] = version
            for version in _without(held, self._loaded):
                await replica.unload(version)
                del held[version.number]

    def _failed(self, text: str) -> TrainingError:
        self._failure = self._failure or text
        return TrainingError(text)

    def _check(self) -> None:
        if self._failure:
            raise TrainingError(self._failure)


@dataclass(frozen=True, slots=True)
class _Part:
    """One replica as the canary sees it: it is waited for while it is started again."""

    engine: ReplicatedEngine
    member: Member

    @property
    def dtype(self) -> str:
        return self.member.replica.dtype

    async def score_version(
        self, version: AdapterVersion | None, prompt_ids: Sequence[int], completion_ids: Sequence[int]
    ) -> tuple[float, ...]:
        score = partial(self.member.replica.score_version, version, prompt_ids, completion_ids)
        scores = await self.engine._on(self.member, score)
        self.member.losses = 0
        return scores


def _without(versions: Mapping[int, AdapterVersion], known: Container[int]) -> list[AdapterVersion]:
    return [version for number, version in versions.items() if number not in known]
