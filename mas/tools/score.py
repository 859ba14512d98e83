"""What tool calls are worth against the calls that were wanted: ToolRL's reward, part by part.

Source: ToolRL, arXiv 2504.13958, section 3.3 (format and correctness reward, scales -3 to 3 and 0 to 1).
"""

from collections import Counter
from collections.abc import Sequence

import msgspec
import networkx as nx

from mas.core.tool_call import ToolCall


class ToolScore(msgspec.Struct, frozen=True, kw_only=True):
    """The parts before they are put together.

    Attributes:
        format: 1 if the output could be read, else 0.
        name: |names wanted ∩ called| / |names wanted ∪ called|, 0 to 1; a repeated name counts as often as it stands.
        parameters: the same ratio of parameter names, summed over the wanted calls.
        values: parameters with the wanted value, counted over the wanted calls.
        most: what name, parameters and values reach together if all is right: 1 + calls + parameters that are wanted.
    """

    format: float
    name: float
    parameters: float
    values: float
    most: float

    @property
    def correct(self) -> float:
        """6 · (name + parameters + values) / most - 3: from -3 to 3."""
        return 6 * (self.name + self.parameters + self.values) / self.most - 3

    @property
    def total(self) -> float:
        """format + correct: from -3 to 4."""
        return self.format + self.correct


def tool_score(called: Sequence[ToolCall], wanted: Sequence[ToolCall], *, readable: bool) -> ToolScore:
    """Compare the calls of one output with the wanted ones.

    Each wanted call is compared with one call of the same tool at most, and each call with one wanted call: in the
    assignment that gives the highest sum. Nothing called where nothing is wanted is right (name 1 of most 1).

    Args:
        readable: whether the output was in the form that was asked for.
    """
    names_called, names_wanted = Counter(call.name for call in called), Counter(call.name for call in wanted)
    parameters = values = 0.0
    for mine, other in _assigned(called, wanted):
        shared, right = _match(called[mine], wanted[other])
        parameters, values = parameters + shared, values + right
    return ToolScore(
        format=float(readable),
        name=_ratio((names_called & names_wanted).total(), (names_called | names_wanted).total()),
        parameters=parameters,
        values=values,
        most=1 + len(wanted) + sum(len(call.arguments) for call in wanted),
    )


def _assigned(called: Sequence[ToolCall], wanted: Sequence[ToolCall]) -> list[tuple[int, int]]:
    """Pairs (called, wanted) of one tool whose matches have the highest sum."""
    # Numbers as nodes, wanted calls below 0: their order is the same in every process, so that equals are, too.
    graph: nx.Graph[int] = nx.Graph()
    for mine, call in enumerate(called):
        for other, want in enumerate(wanted):
            if call.name == want.name:
                graph.add_edge(mine, -1 - other, weight=sum(_match(call, want)))
    return sorted((max(pair), -1 - min(pair)) for pair in nx.max_weight_matching(graph))


def _match(call: ToolCall, want: ToolCall) -> tuple[float, float]:
    """The ratio of parameter names, and how many values are right."""
    mine, theirs = set(call.arguments), set(want.arguments)
    right = sum(_same(call.arguments[name], want.arguments[name]) for name in mine & theirs)
    return _ratio(len(mine & theirs), len(mine | theirs)), float(right)


def _same(value: object, wanted: object) -> bool:
    """Equal and of one type: True is not 1."""
    return type(value) is type(wanted) and value == wanted


def _ratio(part: int, whole: int) -> float:
    """part / whole; 1 where both are 0: nothing was wanted and nothing is there."""
    return part / whole if whole else 1.0
