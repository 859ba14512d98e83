"""What the workers of one driver take of a Ray, held before the first one starts: a placement group with a bundle each.

Ray gives a group all of its bundles or none. When a node is lost, Ray moves its bundles to other nodes as soon as these
have room. A group ends with the job that made it.
"""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import ray
from ray.util.placement_group import PlacementGroup, placement_group, placement_group_table, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from mas.cluster.ray_link import RaySession, check_fits_node
from mas.cluster.records import ResourceRequest
from mas.cluster.resources import asked_text
from mas.core.errors import ClusterError, NoResources

_SLACK = 1e-9
_POLL_S = 0.25
"""How often Ray is asked whether it holds a group."""


class RayReservation:
    """One placement group. A worker that asks for nothing has no bundle: Ray allows no empty one."""

    def __init__(self, session: RaySession, requests: Sequence[ResourceRequest]) -> None:
        self._session = session
        self._requests = [request for request in requests if request.count and (request.cpus or request.gpus)]
        named = [(name, request) for request in self._requests for name in request.names]
        self._bundles = [_bundle(request) for _, request in named]
        self._index = {name: index for index, (name, _) in enumerate(named)}
        self._group: PlacementGroup | None = None

    async def make(self) -> None:
        """Hold all of it. What is not free is waited for, half of `start_s`.

        Raises:
            NoResources: there is less, or less is free; nothing is held.
        """
        if not self._bundles:
            return
        await self._session.blocking("counting resources", self._check_totals)
        limit_s = self._session.options.start_s / 2
        try:
            async with asyncio.timeout(limit_s):
                group = await self._session.blocking("reserving resources", self._make)
                while not await self._session.blocking("reserving resources", partial(_is_held, group)):  # noqa: ASYNC110 - Ray tells of no event
                    await asyncio.sleep(_POLL_S)
        except BaseException as error:  # also if cancelled: nothing stays held
            with suppress(ClusterError):  # the first error says more; leaving the cluster tries again
                await self.release()
            if isinstance(error, TimeoutError):
                raise await self._session.blocking("counting resources", partial(self._not_free, limit_s)) from None
            raise

    async def release(self) -> None:
        """Hold nothing any more; nothing if nothing is held."""
        await self._session.blocking("giving resources back", self._remove)

    def placing(self, name: str) -> Any:
        """Where Ray is to start a worker: in its bundle, or, if it has none, where there is room."""
        if self._group is None or name not in self._index:
            return "DEFAULT"
        return PlacementGroupSchedulingStrategy(self._group, placement_group_bundle_index=self._index[name])

    def is_waiting(self, name: str) -> bool:
        """Whether the bundle of a worker was lost with its node, and is on no other one yet. Asks Ray, and blocks."""
        if self._group is None or name not in self._index:
            return False
        return not _is_held(self._group)

    def _make(self) -> PlacementGroup:
        strategy = (self._session.options.strategy or "pack").upper()
        self._group = placement_group(self._bundles, strategy=strategy)
        return self._group

    def _remove(self) -> None:
        if self._group is not None:
            remove_placement_group(self._group)
            self._group = None

    def _check_totals(self) -> None:
        """Refuse at once what could never be held. To a Ray that others started, nodes may still come."""
        if self._session.options.address is None:
            for request in self._requests:
                check_fits_node(request.names[0], request.cpus, request.gpus)
            there = ray.cluster_resources()
            asked = (sum(bundle.get(name, 0) for bundle in self._bundles) for name in ("CPU", "GPU"))
            if any(number > there.get(name, 0) + _SLACK for number, name in zip(asked, ("CPU", "GPU"), strict=True)):
                raise self._not_free(0)

    def _not_free(self, waited_s: float) -> NoResources:
        there, free = ray.cluster_resources(), ray.available_resources()
        shown = " and ".join(
            f"{free.get(name, 0):g} of {there.get(name, 0):g} {name}s are free" for name in ("CPU", "GPU")
        )
        after = f"after {waited_s:g} s " if waited_s else ""
        return NoResources(
            f"{asked_text(self._requests)}, and {after}on all nodes {shown}, so none was started: take fewer "
            "processes, ask for less, add a node, or wait until what others hold is free"
        )


def _is_held(group: PlacementGroup) -> bool:
    return bool(placement_group_table(group)["state"] == "CREATED")


def _bundle(request: ResourceRequest) -> dict[str, float]:
    return {name: number for name, number in (("CPU", request.cpus), ("GPU", request.gpus)) if number}
