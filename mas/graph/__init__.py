"""Teams as checked graphs, and their pictures."""

from mas.graph.load import load_team
from mas.graph.plan import TeamPlan, compile_team

__all__ = ["TeamPlan", "compile_team", "load_team"]
