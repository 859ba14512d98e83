"""CPUs and GPUs of this machine, counted out to local workers."""

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from mas.cluster.options import ClusterOptions
from mas.cluster.records import ResourceRequest
from mas.core.errors import NoResources

_SLACK = 1e-9
_Options = TypeVar("_Options", bound=ClusterOptions)


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """What one worker holds."""

    cpus: float
    gpu_share: float
    """Of each of `devices`."""
    devices: tuple[int, ...]


class Resources:
    """What is free. CPUs are a count: nothing limits what a worker uses of them."""

    def __init__(self, cpus: float, gpus: int) -> None:
        self._cpus, self._free_cpus = cpus, cpus
        self._free_gpus = [1.0] * gpus
        self._reserved: dict[str, Share] = {}

    def reserve(self, requests: Sequence[ResourceRequest]) -> None:
        """Count out the shares of all these workers, or of none. `take` gives each its own, as often as it is asked.

        Raises:
            NoResources: there is less, or less is free; says what was asked for, what there is and what is free.
        """
        shares, there = dict[str, Share](), self._there()
        try:
            for request in requests:
                for name in request.names:
                    shares[name] = self.take(name, request.cpus, request.gpus)
        except NoResources:
            for share in shares.values():
                self.give_back(share)
            raise NoResources(
                f"{asked_text(requests)}; {there}, so none was started: take fewer processes, ask for less, or raise "
                "`cpus` or `gpus` of the cluster"
            ) from None
        self._reserved = shares

    def take(self, name: str, cpus: float, gpus: float) -> Share:
        """Count out a share; one that is reserved is the name's already.

        Args:
            gpus: a whole number of whole devices, or below 1: a part of one, of the fullest that has it.

        Raises:
            NoResources: there is less, or less is free; says what was asked for, what there is and what is free.
        """
        if name in self._reserved:
            return self._reserved[name]
        part = gpus if 0 < gpus < 1 else 1.0
        fitting = [device for device, free in enumerate(self._free_gpus) if free >= part - _SLACK]
        fitting.sort(key=lambda device: (self._free_gpus[device], device))
        number = 1 if 0 < gpus < 1 else int(gpus)
        if cpus > self._free_cpus + _SLACK or number > len(fitting):
            raise NoResources(
                f"{name} asks for {cpus:g} CPUs and {gpus:g} GPUs; {self._there()}: stop a worker, ask for less, or "
                "raise `cpus` or `gpus` of the cluster"
            )
        share = Share(cpus=cpus, gpu_share=part, devices=tuple(sorted(fitting[:number])))
        self._add(share, -1)
        return share

    def give_back(self, share: Share) -> None:
        """Have a share free again; one that is reserved stays so."""
        if not any(share is reserved for reserved in self._reserved.values()):
            self._add(share, 1)

    def _there(self) -> str:
        return (
            f"this cluster has {self._cpus:g} CPUs, of which {self._free_cpus:g} are free, and {len(self._free_gpus)} "
            f"GPUs, of which {sum(self._free_gpus):g} are free"
        )

    def _add(self, share: Share, sign: int) -> None:
        self._free_cpus += sign * share.cpus
        for device in share.devices:
            self._free_gpus[device] += sign * share.gpu_share


def asked_text(requests: Sequence[ResourceRequest]) -> str:
    """What all of them ask for, as the begin of an error."""
    asking = [request for request in requests if request.count]
    each = " and ".join(
        f"{request.count} {request.kind} of {request.cpus:g} CPUs and {request.gpus:g} GPUs" for request in asking
    )
    cpus = sum(request.count * request.cpus for request in asking)
    gpus = sum(request.count * request.gpus for request in asking)
    return f"the processes ({each}) ask for {cpus:g} CPUs and {gpus:g} GPUs together"


def visible_devices(share: Share, variables: Mapping[str, str]) -> str:
    """CUDA_VISIBLE_DEVICES for a share: of the devices that the driver sees; empty where it holds none."""
    seen = [name for name in variables.get("CUDA_VISIBLE_DEVICES", "").split(",") if name]
    return ",".join(seen[device] if device < len(seen) else str(device) for device in share.devices)


def with_room(options: _Options, cpus: float) -> _Options:
    """The options of a cluster for processes that ask for so many CPUs together: one that is started here, and for
    which no number is given, has as many, and this machine's cores at least."""
    if options.address is not None or options.cpus is not None:
        return options
    return options.model_copy(update={"cpus": float(max(cores(), math.ceil(cpus - _SLACK)))})


def cores() -> int:
    """How many this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
