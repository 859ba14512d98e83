"""Ready-made teams: who speaks when, for any roles. Each function returns a `TeamSpec` like one read from YAML."""

from mas.protocols.teams import (
    critique_and_refine,
    debate,
    fan_out,
    nested,
    pipeline,
    plan_execute,
    plan_execute_verify,
    self_play,
    solo,
    vote,
)

__all__ = [
    "critique_and_refine",
    "debate",
    "fan_out",
    "nested",
    "pipeline",
    "plan_execute",
    "plan_execute_verify",
    "self_play",
    "solo",
    "vote",
]
