"""Agents that do not speak in a team turn, because the environment says so."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mas.core.environment import Observation
from mas.core.errors import RunError
from mas.core.messages import Payload
from mas.graph import TeamPlan, compile_team
from mas.runtime.flow import Flow
from mas.runtime.play import DecisionPoint, play_turn, silent_agents
from mas.testing.teams import plan_of, team_of

BOTH = ("start -> actor", "actor -> checker", "checker -> done", "start -> reflector", "reflector -> done")
LOOP = ("start -> actor", "actor -> checker", "checker -> done when accept", "checker -> actor loop 1")


def both() -> TeamPlan:
    """A team, and a reflector whose word is the team's where the team is silent."""
    spec, roles = team_of(BOTH, "checker")
    return compile_team(spec.model_copy(update={"else_output": ("reflector",)}), roles)


def fired(plan: TeamPlan, silent: tuple[str, ...]) -> tuple[list[str], Flow]:
    flow, said = Flow.start(plan, silent=silent), []
    while not flow.finished:
        for agent in flow.ready():
            flow = flow.begin(agent).complete(agent, flow.plan.roles[agent].parse(f"{agent} speaks"))
            said.append(agent)
    return said, flow


def test_a_silent_agent_is_a_branch_that_is_not_taken() -> None:
    plan = both()
    said, flow = fired(plan, ("reflector",))
    assert (said, flow.committed) == (["actor", "checker"], True)
    said, flow = fired(plan, ("actor", "checker"))
    assert (said, flow.committed) == (["reflector"], True)
    assert flow.action() == flow.outputs["reflector"]


def test_what_comes_only_from_silent_agents_is_not_reached() -> None:
    said, flow = fired(both(), ("actor",))
    assert said == ["reflector"]
    assert flow.committed


def test_a_turn_in_which_nobody_speaks_is_a_pass() -> None:
    said, flow = fired(both(), ("actor", "checker", "reflector"))
    assert (said, flow.finished, flow.committed, flow.action()) == ([], True, False, None)


def test_a_loop_is_silent_as_a_whole_or_not_at_all() -> None:
    plan = plan_of(LOOP, "actor")
    with pytest.raises(RunError, match=r"agents \['checker'\] are silent and others of their loop are not"):
        Flow.start(plan, silent=("checker",))
    assert fired(plan, ("actor", "checker"))[0] == []


def test_flows_with_other_silent_agents_are_other_states() -> None:
    plan = both()
    assert len({Flow.start(plan, silent=silent).key() for silent in ((), ("reflector",), ("actor", "checker"))}) == 3


@given(st.sets(st.sampled_from(["actor", "checker", "reflector"])))
def test_no_silent_agent_is_ever_asked(silent: set[str]) -> None:
    plan = both()
    said, flow = fired(plan, tuple(sorted(silent)))
    assert not silent & set(said)
    assert flow.finished


def test_observations_say_who_is_silent() -> None:
    plan = both()
    seen = {agent: Observation({}, is_silent=agent != "reflector") for agent in plan.agents}
    assert silent_agents(seen) == ("actor", "checker")
    asked = []

    async def decide(point: DecisionPoint) -> Payload:
        asked.append(point.agent)
        return plan.roles[point.agent].parse("x")

    begin = Flow.start(plan, silent=silent_agents(seen))
    asyncio.run(play_turn(begin, None, seen, 0, decide))
    assert asked == ["reflector"]
