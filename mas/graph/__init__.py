"""Teams as checked graphs, and their pictures."""

from mas.graph.load import load_team
from mas.graph.plan import Plan, compile_team

__all__ = ["Plan", "compile_team", "load_team"]
