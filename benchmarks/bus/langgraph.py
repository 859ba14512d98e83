"""The same two functions as a compiled `StateGraph`.

In its favour: it is called by `invoke`, without asyncio, which costs it less than `ainvoke`; no checkpointer.
"""

from typing import TypedDict

from langgraph.graph import END, START, StateGraph

from benchmarks.bus.graph import check_digit, digit_for, relay, signal_for
from benchmarks.bus.options import LANGGRAPH
from mas.core.messages import Action


class State(TypedDict, total=False):
    """What the nodes share."""

    goal: str
    table: str
    signal: str
    answer: str


def _planner(state: State) -> State:
    return {"signal": signal_for(state["goal"])}


def _executor(state: State) -> State:
    return {"answer": digit_for(state["table"], state["signal"])}


class LanggraphRuns:
    """`invoke` from START to END."""

    name = LANGGRAPH

    def __init__(self, runs: int) -> None:
        graph = StateGraph(State)
        graph.add_node("planner", _planner)
        graph.add_node("executor", _executor)
        graph.add_edge(START, "planner")
        graph.add_edge("planner", "executor")
        graph.add_edge("executor", END)
        self._graph = graph.compile()
        self._runs = runs
        scenario = relay()
        environment = scenario.environment()
        environment.reset(scenario.task("train", 0))
        fields = environment.observe("solo").fields
        self._start = State(goal=fields["goal"], table=fields["table"])
        self._right = digit_for(fields["table"], signal_for(fields["goal"]))

    async def run(self, number: int) -> int:
        for _ in range(self._runs):
            end = self._graph.invoke(self._start)
            check_digit(Action(text=end["answer"]), self._right)
        return self._runs
