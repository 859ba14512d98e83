"""What `mas bench bus` is asked."""

from dataclasses import dataclass, field

from mas.core.errors import ConfigError
from mas.core.naming import did_you_mean

AUTOGEN = "autogen-core"
LANGGRAPH = "langgraph"
AIOMQTT = "aiomqtt"

WORKLOADS = {
    "request": "answers",
    "one_by_one": "answers",
    "fan_out": "deliveries",
    "graph": "runs",
    "agents": "agents",
    "rollout": "engine calls",
    "mqtt_request": "answers",
    "mqtt_one_way": "messages",
}
"""Name -> what is counted as work."""

OPTIONAL = {"autogen": AUTOGEN, "langgraph": LANGGRAPH}
"""What `--without` takes -> the row that it leaves out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Amounts:
    """How much work one round holds.

    Attributes:
        requests: of `request` and `one_by_one`, and messages of both over MQTT; a multiple of `in_flight`.
        in_flight: requests, and messages of `fan_out`, that are on their way at the same time.
        messages: of `fan_out`; a multiple of `in_flight`. `receivers`: each of them gets every message.
        payload_bytes: length of every payload's text, which is ASCII.
        runs: of the graph.
        agents: numbers of agents that listen on one bus; every point starts as many as the largest, set after set.
        tasks: rollouts, one after the other. `call_s`: seconds that one call of the engine takes.
    """

    requests: int = 4096
    in_flight: int = 64
    messages: int = 1024
    receivers: int = 8
    payload_bytes: int = 1024
    runs: int = 1000
    agents: tuple[int, ...] = (100, 1_000, 10_000)
    tasks: int = 10
    call_s: float = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class BusBench:
    """One benchmark.

    Attributes:
        workloads: keys of `WORKLOADS`.
        repeats: measured rounds of each.
        without: keys of `OPTIONAL`.
    """

    workloads: tuple[str, ...] = tuple(WORKLOADS)
    repeats: int = 5
    without: frozenset[str] = frozenset()
    amounts: Amounts = field(default_factory=Amounts)

    def __post_init__(self) -> None:
        for name in self.workloads:
            if name not in WORKLOADS:
                raise ConfigError(f"--workload {name}: no such workload. {did_you_mean(name, WORKLOADS)}")
        for name in self.without:
            if name not in OPTIONAL:
                raise ConfigError(f"--without {name}: nothing to leave out. {did_you_mean(name, OPTIONAL)}")
