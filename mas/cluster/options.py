"""Options of a cluster, with their defaults."""

from typing import Literal, Self

from pydantic import Field, model_validator

from mas.core.options import Options


class ClusterOptions(Options):
    """Where workers run, and how long the driver waits for them."""

    kind: Literal["local", "ray"] = "local"
    """`local`: subprocesses of the driver. `ray`: actors of Ray, which needs the extra `mas[ray]`."""
    address: str | None = Field(default=None, pattern=r"^(auto|[^\s/:]+:\d{1,5})$")
    """Of a Ray cluster to join, `HOST:PORT` or `auto`. None: one is started on this machine."""
    cpus: float | None = Field(default=None, gt=0)
    """How many CPUs workers may ask for together; a count, not a limit on what they use. None: this machine's cores; of
    `mas train` and `mas league run` as many as their processes ask for, if that is more."""
    gpus: int | None = Field(default=None, ge=0)
    """How many GPUs of this machine workers may ask for together. None: none."""
    store_mib: int | None = Field(default=None, ge=80)
    """Shared memory of the Ray that is started here; objects beyond it are written to disk. None: 512 MiB."""
    strategy: Literal["pack", "spread"] | None = None
    """How Ray places what is reserved (`Cluster.reserve`, as `mas train` and `mas league run` do) on the nodes of a
    cluster that is joined: `pack`, on few of them; `spread`, on many. None: `pack`."""
    payload_mib: int = Field(default=256, ge=1, le=2047)
    """The largest payload of a call and of its answer. What is larger travels by reference."""
    environment: tuple[str, ...] = ()
    """Names of variables that workers get beside the usual ones, such as HF_TOKEN, as the driver has them. One that
    the driver does not have stays what the node of the worker has."""
    start_s: float = Field(default=120.0, gt=0)
    """How long a worker may take until its factory has returned, and Ray until it is up."""
    heartbeat_s: float = Field(default=1.0, gt=0)
    """How often a worker is asked whether it lives."""
    hung_s: float | None = Field(default=60.0, gt=0)
    """A worker that leaves a heartbeat unanswered for this long is killed. None: never for that reason."""
    stop_s: float = Field(default=5.0, gt=0)
    """How long a worker that is stopped may take to end by itself."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.kind == "local":
            why = "is of Ray: set kind=ray, or leave it out"
            self._refuse(why, address=self.address, store_mib=self.store_mib, strategy=self.strategy)
        elif self.address is not None:
            why = "is of a Ray that is started here; the one at the address has its own"
            self._refuse(why, cpus=self.cpus, gpus=self.gpus, store_mib=self.store_mib)
        else:
            self._refuse("is of a Ray with several nodes: set address, or leave it out", strategy=self.strategy)
        return self

    @staticmethod
    def _refuse(why: str, **unused: object) -> None:
        for name, value in unused.items():
            if value is not None:
                raise ValueError(f"{name}={value} {why}")
