"""Starts a Ray on this machine that listens on loopback only, or joins one that runs.

Ray takes much of its configuration from variables: `ray_variables` has those that this package depends on. Nothing is
reported to anybody (RAY_USAGE_STATS_ENABLED=0).
"""

import asyncio
import ipaddress
import os
import secrets
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from ray._private import ray_constants

from mas.cluster.environment import python_path
from mas.cluster.options import ClusterOptions
from mas.cluster.resources import cores
from mas.core.errors import ClusterError

LOOPBACK = "127.0.0.1"
_CONNECT_S = 10.0
_TOKEN = secrets.token_hex(32)
"""One per process: Ray reads it once."""


def ray_variables(address: str | None, given: Mapping[str, str]) -> dict[str, str]:
    """The variables that Ray is started with.

    A Ray that is started here wants a token of every client; it is new for each driver, and in no file. Its workers
    have the driver's share of a busy CPU: Ray's default niceness of 15 leaves them a thirtieth of it.
    """
    variables = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}
    if address is None:
        variables["PYTHONPATH"] = python_path()
        variables["RAY_worker_niceness"] = given.get("RAY_worker_niceness", "0")
        if "RAY_AUTH_MODE" not in given:
            variables["RAY_AUTH_TOKEN"] = _TOKEN  # with a token there and no mode named, `ray.init` turns them on
    return variables


async def check_listening(address: str) -> None:
    """Refuse an address that accepts no connection: Ray itself would try for minutes.

    Raises:
        ClusterError: no connection within ten seconds.
    """
    host, _, port = address.rpartition(":")
    try:
        async with asyncio.timeout(_CONNECT_S):
            _, writer = await asyncio.open_connection(host, int(port))
    except (OSError, OverflowError) as error:  # a TimeoutError among them
        raise ClusterError(
            f"no Ray listens at {address} ({type(error).__name__}: {error}): start one there with `ray start --head "
            "--port PORT`, or leave the address out to start one here"
        ) from error
    writer.close()


@contextmanager
def keeping_loopback(address: str | None) -> Iterator[None]:
    """Have Ray keep 127.0.0.1 as it is. Otherwise it puts an address in its place that other machines can reach.

    Does nothing for an address of another machine. `RayCluster` checks where Ray listens then.
    """
    if address is not None and not is_loopback(address):
        yield
        return
    before = ray_constants.ENABLE_RAY_CLUSTER
    ray_constants.ENABLE_RAY_CLUSTER = False
    try:
        yield
    finally:
        ray_constants.ENABLE_RAY_CLUSTER = before


def is_loopback(address: str) -> bool:
    """Whether a host, or HOST:PORT, is this machine by its loopback address."""
    host = address.rpartition(":")[0] if address.count(":") == 1 else address
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


def initial_options(options: ClusterOptions, directory: Path | None) -> dict[str, object]:
    """The arguments of `ray.init`. `directory`: of a Ray that is started here, for its sockets, logs and objects."""
    shared: dict[str, object] = {"log_to_driver": False, "configure_logging": False}
    if options.address is not None:
        return shared | {"address": options.address}
    return shared | {
        "address": "local",
        "include_dashboard": False,
        "num_cpus": options.cpus or cores(),
        "num_gpus": options.gpus or 0,
        "object_store_memory": (options.store_mib or 512) << 20,
        "_node_ip_address": LOOPBACK,
        "_temp_dir": str(directory),
    }


def session_directory() -> Path:
    """A new directory that only this user can enter. Short, as paths of Ray's sockets in it may have 107 bytes."""
    return Path(tempfile.mkdtemp(prefix="mas-ray-", dir="/tmp" if Path("/tmp").is_dir() else None))


def changed_variables(before: Mapping[str, str]) -> dict[str, str | None]:
    """Variables of this process that are not as they were, as they were; None: not there."""
    names = {*before, *os.environ}
    return {name: before.get(name) for name in names if os.environ.get(name) != before.get(name)}


def restore_variables(changed: Mapping[str, str | None]) -> None:
    """Set variables as they were."""
    for name, value in changed.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
