"""Where a team that is spread over processes is, as one of them knows it."""

from dataclasses import dataclass

from mas.runtime.remote import RemoteAgents

ENVIRONMENT = "environment"
RUN = "run"
"""Names, after the team's, of the addresses where the process that plays a team listens: for requests to the
environment, and for heartbeats."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessRole:
    """What one process does for a team that is spread over several.

    Attributes:
        hosts: the agents and stand-ins that listen here, and `environment` in the process that plays the team.
        principal: as whom the bus of this process sends.
        process: its name, which goes before the ids of its messages; no two that live have the same.
        distant: how the trainer asks the agents elsewhere; None: no agent is trained here.
        comes_back: its bus has a journal, and after a kill the answers to what it had asked.
    """

    hosts: frozenset[str]
    principal: str
    process: str
    distant: RemoteAgents | None = None
    comes_back: bool = False
