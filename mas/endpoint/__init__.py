"""A trained base, its adapters and its teams behind an OpenAI-compatible HTTP endpoint.

Names are imported when they are asked for: an address can be checked without torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mas.endpoint.address import known_hosts
    from mas.endpoint.app import build_app
    from mas.endpoint.connections import Bounds
    from mas.endpoint.durable_requests import KeptRequests
    from mas.endpoint.models import RoleModel, Served
    from mas.endpoint.server import running
    from mas.endpoint.teams import TeamModel

__all__ = ["Bounds", "KeptRequests", "Served", "RoleModel", "TeamModel", "build_app", "known_hosts", "running"]
_MODULES = {
    "Bounds": "connections",
    "KeptRequests": "durable_requests",
    "Served": "models",
    "RoleModel": "models",
    "TeamModel": "teams",
    "build_app": "app",
    "known_hosts": "address",
    "running": "server",
}


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
