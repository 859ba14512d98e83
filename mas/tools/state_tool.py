"""Tools whose calls change a state: one immutable record, which a call replaces by another one.

So a copy of the state is the state itself, no two branches of an episode share an effect, and a call that is refused
has changed nothing.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from mas.core.tool_call import ToolCall
from mas.tools.toolbox import P, Tool, Toolbox

S = TypeVar("S")


@dataclass(frozen=True, slots=True, kw_only=True)
class StateTool(Generic[S, P]):
    """What an agent may call, as `mas.tools.Tool`.

    Attributes:
        function: from the state and the parameters to the state afterwards and the text of the result. The state that
            it is given stays as it is.
    """

    name: str
    description: str
    parameters: type[P]
    function: Callable[[S, P], tuple[S, str]]


class StateToolbox(Generic[S]):
    """Such tools by name.

    Raises:
        ConfigError: as `mas.tools.Tool` and `mas.tools.Toolbox`.
    """

    def __init__(self, tools: Iterable[StateTool[S, Any]]) -> None:
        self._tools = tuple(tools)
        box = Toolbox(_bound(tool, lambda text: text) for tool in self._tools)
        self.names, self.schemas = box.names, box.schemas

    def perform(self, state: S, call: ToolCall) -> tuple[S, str]:
        """Check and do a call: the state afterwards, and the text of the result.

        Raises:
            ToolRefused: as `mas.tools.Toolbox.perform`.
        """
        found: list[S] = []

        def kept(tool: StateTool[S, Any]) -> Callable[[Any], str]:
            def function(parameters: Any) -> str:
                after, text = tool.function(state, parameters)
                found.append(after)
                return text

            return function

        text = Toolbox(_bound(tool, kept(tool)) for tool in self._tools).perform(call)
        return found[0], text


def _bound(tool: StateTool[Any, Any], function: Callable[[Any], str]) -> Tool[Any]:
    return Tool(name=tool.name, description=tool.description, parameters=tool.parameters, function=function)
