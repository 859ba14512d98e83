"""Carrying a flow by hand: agents say texts, which their roles parse."""

from mas.core.naming import agent_of
from mas.graph import TeamPlan
from mas.runtime.flow import Flow


def say(flow: Flow, agent: str, text: str = "x") -> Flow:
    """The flow after the agent or instance has begun and said the text."""
    return flow.begin(agent).complete(agent, flow.plan.roles[agent_of(agent)].parse(text))


def said_all(plan: TeamPlan, *words: tuple[str, str]) -> Flow:
    """The flow after agents have said texts, in this order."""
    flow = Flow.start(plan)
    for agent, text in words:
        flow = say(flow, agent, text)
    return flow


def contents(flow: Flow, agent: str) -> list[tuple[str, str]]:
    """What the agent has heard, with its senders."""
    return [(message.sender, message.payload.content) for message in flow.messages(agent)]
