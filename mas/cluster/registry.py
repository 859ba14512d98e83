"""Opens a cluster of the kind that the options name."""

from importlib import import_module
from pathlib import Path

from mas.cluster.contract import Cluster
from mas.cluster.options import ClusterOptions
from mas.core.errors import MissingPackage

CLUSTERS = {"local": "mas.cluster.local:LocalCluster", "ray": "mas.cluster.ray_cluster:RayCluster"}


def open_cluster(options: ClusterOptions, logs: Path) -> Cluster:
    """A cluster to be entered with `async with`; see `Cluster` for the arguments.

    Raises:
        MissingPackage: the kind needs a package that is not installed; says how to install it.
    """
    module, _, name = CLUSTERS[options.kind].partition(":")
    try:
        found = getattr(import_module(module), name)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] == "mas":
            raise
        raise MissingPackage(
            f"cluster.kind={options.kind} needs the package {error.name!r}: pip install 'mas[ray]'; "
            "kind=local does without it"
        ) from error
    cluster: Cluster = found(options, logs)
    return cluster
