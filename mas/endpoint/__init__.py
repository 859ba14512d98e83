"""A trained base, its adapters and its teams behind an OpenAI-compatible HTTP endpoint."""

from mas.endpoint.app import build_app
from mas.endpoint.kept import KeptRequests
from mas.endpoint.models import Served, Speaker
from mas.endpoint.server import running
from mas.endpoint.teams import TeamModel

__all__ = ["KeptRequests", "Served", "Speaker", "TeamModel", "build_app", "running"]
