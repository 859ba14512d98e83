"""One module per framework: how each graph of the probes is built and run there.

Every module has `PACKAGE` (the distribution), `NOT_OFFERED` (probe -> why it cannot be asked there), and
`build(shape, work)`, which returns a function that runs the graph once; it raises where the framework refuses the
graph.
"""

from collections.abc import Awaitable, Callable

Work = Callable[[str], Awaitable[str | int]]
"""What a node does, by its name; returns what it says."""
Run = Callable[[], Awaitable[object]]

SYSTEMS = {
    "mas": "mas",
    "langgraph": "LangGraph",
    "agentchat": "AutoGen AgentChat",
    "agent_framework": "Microsoft Agent Framework",
    "google_adk": "Google ADK",
    "crewai": "CrewAI",
    "pydantic_graph": "pydantic-graph",
}
"""Module (without `of_`) -> what the table calls it."""
