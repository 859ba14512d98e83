"""Names and values in errors: the nearest valid ones, and how a value is shown; and names of agents in nested teams."""

from collections.abc import Iterable
from difflib import get_close_matches

_LONGEST = 80


def did_you_mean(value: str, options: Iterable[str]) -> str:
    """One sentence that lists the options, the nearest first: `Did you mean 'x'? Possible: 'x', 'y'.`"""
    names = sorted(options)
    if not names:
        return "Nothing is possible here."
    listed = "Possible: " + ", ".join(repr(name) for name in names) + "."
    near = get_close_matches(value, names, n=2, cutoff=0.5)
    return f"Did you mean {' or '.join(repr(name) for name in near)}? {listed}" if near else listed


def shown(value: object) -> str:
    """A value as errors show it, cut where it is long."""
    text = repr(value)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."


def listed(names: Iterable[str]) -> str:
    """Names in a sentence, in order: `'a', 'b'`; `nobody` where there are none."""
    return ", ".join(repr(name) for name in sorted(names)) or "nobody"


# Agents of a team within a team are named `team.agent`, and the instances of a mapped agent `agent[0]`, `agent[1]`, ...
# A team is a scope: its own ends are `team.start` and `team.done`.


def scope_of(name: str) -> str:
    """The team that a name stands in: `a.b` for `a.b.writer`, empty for one of the outermost team."""
    return name.rpartition(".")[0]


def local_name(name: str) -> str:
    """What the others of its own team call it: `writer` for `a.b.writer`."""
    return name.rpartition(".")[2]


def scoped(scope: str, name: str) -> str:
    """The name seen from outside the team `scope`; an empty scope changes nothing."""
    return f"{scope}.{name}" if scope else name


def agent_of(name: str) -> str:
    """The agent that an instance is one of: `worker` for `worker[2]`; an agent's name stays as it is."""
    return name.partition("[")[0]


def instance(agent: str, number: int) -> str:
    """The name of the `number`-th instance of a mapped agent, from 0."""
    return f"{agent}[{number}]"
