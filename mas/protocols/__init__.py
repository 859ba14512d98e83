"""Ready-made teams: who speaks when, for any roles. Each function returns a `TeamSpec` like one read from YAML."""

from mas.protocols.teams import fan_out, plan_execute, plan_execute_verify, solo, vote

__all__ = ["fan_out", "plan_execute", "plan_execute_verify", "solo", "vote"]
