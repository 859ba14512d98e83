"""AutoGen AgentChat: a `GraphFlow` of a `DiGraphBuilder`'s graph.

Constructs, by the docstrings of both (https://microsoft.github.io/autogen/stable/): activation `all` waits for all
parents; a text as condition takes an edge where the message contains it; `set_entry_point` says where it begins; a
cyclic graph needs a limit, so that `max_turns` stands above what a probe counts as endless.
"""

from collections.abc import Sequence

from autogen_agentchat.agents import BaseChatAgent
from autogen_agentchat.base import Response
from autogen_agentchat.messages import BaseChatMessage, TextMessage
from autogen_agentchat.teams import DiGraphBuilder, GraphFlow
from autogen_core import CancellationToken

from benchmarks.probes.judge import MOST_VISITS
from benchmarks.probes.shapes import Shape
from benchmarks.probes.systems import Run, Work

PACKAGE = "autogen-agentchat"
NOT_OFFERED = {"type": "edges carry chat messages, whose types are not declared per node"}


class Speaker(BaseChatAgent):
    """An agent that says what the probe says."""

    def __init__(self, name: str, work: Work) -> None:
        super().__init__(name, description=name)
        self._work = work

    @property
    def produced_message_types(self) -> Sequence[type[BaseChatMessage]]:
        return (TextMessage,)

    async def on_messages(self, messages: Sequence[BaseChatMessage], cancellation_token: CancellationToken) -> Response:
        return Response(chat_message=TextMessage(content=str(await self._work(self.name)), source=self.name))

    async def on_reset(self, cancellation_token: CancellationToken) -> None:
        """Nothing to forget."""


def build(shape: Shape, work: Work) -> Run:
    """The flow's `run`."""
    builder = DiGraphBuilder()
    for node in shape.nodes:
        builder.add_node(Speaker(node.name, work), activation="all" if node.joins else "any")
    for edge in shape.edges:
        joins = next(node.joins for node in shape.nodes if node.name == edge.target)
        builder.add_edge(edge.source, edge.target, condition=edge.when, activation_condition="all" if joins else "any")
    builder.set_entry_point(shape.first)
    flow = GraphFlow(builder.get_participants(), graph=builder.build(), max_turns=4 * MOST_VISITS)
    return lambda: flow.run(task="go")
