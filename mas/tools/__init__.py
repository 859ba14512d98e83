"""Typed tools that agents call with text: checked parameters, one clear refusal, and what a call is worth."""

from mas.core.tool_call import ToolCall
from mas.tools.calculator import CALCULATOR, calculate
from mas.tools.retrieval import Bm25, retrieval_tool
from mas.tools.score import ToolScore, tool_score
from mas.tools.state_tool import StateTool, StateToolbox
from mas.tools.toolbox import NoParameters, Parameters, Shorthand, Tool, Toolbox, read_call

__all__ = [
    "Bm25",
    "CALCULATOR",
    "NoParameters",
    "Parameters",
    "Shorthand",
    "StateTool",
    "StateToolbox",
    "Tool",
    "ToolCall",
    "ToolScore",
    "Toolbox",
    "calculate",
    "read_call",
    "retrieval_tool",
    "tool_score",
]
