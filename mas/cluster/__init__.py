"""Processes that one driver starts, calls and stops: here as subprocesses, or as actors of Ray on many machines.

`open_cluster` opens one of two implementations of the contract `Cluster`. A worker is any object that a factory makes,
and its methods take and return bytes. The package knows nothing of teams, models or training. It leaves out on purpose:
restarting by itself (the driver decides, with `respawn`), and calls from worker to worker.
"""

from mas.cluster.contract import Cluster, open_cluster
from mas.cluster.handle import Handle
from mas.cluster.options import ClusterOptions
from mas.cluster.records import ProcessStatus, Ref, ResourceRequest

__all__ = ["Cluster", "ClusterOptions", "Handle", "ProcessStatus", "Ref", "ResourceRequest", "open_cluster"]
