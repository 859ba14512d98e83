"""Where teams work: one folder each."""

from mas.scenarios.registry import SCENARIOS, ScenarioEntry, build_scenario, find_scenario

__all__ = ["SCENARIOS", "ScenarioEntry", "build_scenario", "find_scenario"]
