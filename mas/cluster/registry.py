"""Opens a cluster of the kind that the options name."""

from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

from mas.cluster.contract import Cluster
from mas.cluster.options import ClusterOptions
from mas.core.errors import MissingPackage

CLUSTERS = {"local": "mas.cluster.local:LocalCluster", "ray": "mas.cluster.ray_cluster:RayCluster"}


def check_installed(options: ClusterOptions) -> None:
    """Refuse a kind of cluster whose package is missing, without importing it.

    Raises:
        MissingPackage: says how to install it.
    """
    try:
        is_there = options.kind == "local" or find_spec("ray") is not None
    except ValueError:  # a module without a specification stands in its place
        is_there = False
    if not is_there:
        raise MissingPackage(
            f"cluster.kind={options.kind} needs the package 'ray': pip install 'mas[ray]'; kind=local does without it"
        )


def open_cluster(options: ClusterOptions, logs: Path) -> Cluster:
    """A cluster to be entered with `async with`; see `Cluster` for the arguments.

    Raises:
        MissingPackage: see `check_installed`.
    """
    check_installed(options)
    module, _, name = CLUSTERS[options.kind].partition(":")
    cluster: Cluster = getattr(import_module(module), name)(options, logs)
    return cluster
