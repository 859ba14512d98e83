"""One golden message per problem of a policy or a budget; what stands in is part of the plan."""

import pickle

import pytest

from mas.core.errors import GraphError
from mas.graph import compile_team, load_team
from mas.roles import build_roles

TEAM = {
    "name": "t",
    "roles": {"planner": {"type": "planner"}, "executor": {"type": "executor"}},
    "edges": ["start -> planner", "planner -> executor", "executor -> done"],
    "output": "executor",
}


def with_backup(policies: dict[str, object], **backup: object) -> dict[str, object]:
    return TEAM | {"roles": {**TEAM["roles"], "backup": backup}, "policies": policies}


def problem(team: dict[str, object]) -> str:
    spec = load_team(team)
    with pytest.raises(GraphError) as caught:
        compile_team(spec, build_roles(spec))
    _, line = str(caught.value).split("\n")
    return line.removeprefix("  - ")


@pytest.mark.parametrize(
    ("team", "says"),
    [
        (
            TEAM | {"policies": {"exectuor": {}}},
            "'policies' names the unknown agent 'exectuor'. Did you mean 'executor'? Possible: 'executor', 'planner'.",
        ),
        (
            TEAM | {"policies": {"planner": {"fallback": "plannner"}}},
            "'policies': the fallback of agent 'planner' is 'plannner', which is no other agent and no role that "
            "nobody plays. Possible: 'executor'.",
        ),
        (
            TEAM | {"policies": {"planner": {"fallback": "planner"}}},
            "'policies': the fallback of agent 'planner' is 'planner', which is no other agent and no role that "
            "nobody plays. Possible: 'executor'.",
        ),
        (
            with_backup({"planner": {"fallback": "bakcup"}}, type="planner"),
            "'policies': the fallback of agent 'planner' is 'bakcup', which is no other agent and no role that nobody "
            "plays. Did you mean 'backup'? Possible: 'backup', 'executor'.",
        ),
        (
            with_backup({"planner": {"compensation": "bakcup"}, "executor": {"on_failure": "compensate"}})
            | {"agents": {"planner": "planner", "executor": "executor"}},
            "'policies': the compensation of agent 'planner' is 'bakcup', which is no other agent and no role that "
            "nobody plays. Did you mean 'backup'? Possible: 'backup', 'executor'.",
        ),
        (
            TEAM | {"policies": {"planner": {"fallback": "executor"}}},
            "the fallback 'executor' of agent 'planner' emits 'action' with routes []; what stands in for it must emit "
            "'plan' with routes []",
        ),
        (
            with_backup(
                {"planner": {"compensation": "backup"}, "executor": {"on_failure": "compensate"}}, accepts=["note"]
            ),
            "the compensation 'backup' of agent 'planner' is told 'plan', which it does not accept. "
            "Possible: 'failure', 'note'.",
        ),
        (
            TEAM | {"policies": {"executor": {"on_failure": "compensate"}}},
            "agent 'executor' has on_failure: compensate, but no agent has a 'compensation'; add one",
        ),
        (
            with_backup({"planner": {"compensation": "backup"}}),
            "agent 'planner' has a 'compensation', but no agent has on_failure: compensate",
        ),
        (
            with_backup({"planner": {"fallback": "backup"}}, emits="plan", template="{from.executor}>"),
            "the template of role 'backup' reads {from.executor}, but 'executor' sends it nothing. "
            "Nothing is possible here.",
        ),
    ],
)
def test_a_policy_that_the_team_cannot_follow(team: dict[str, object], says: str) -> None:
    assert problem(team) == says


def test_a_budget_in_cost_needs_prices() -> None:
    spec = load_team(TEAM | {"budget": {"run": {"cost": 1.0}}})
    with pytest.raises(GraphError, match=r"role 'planner' has no price, .*\n.*role 'executor' has no price"):
        compile_team(spec, build_roles(spec))


@pytest.mark.parametrize(
    ("keys", "says"),
    [
        (
            {"policies": {"planner": {"timeout": 1}}},
            "unknown key 'policies.planner.timeout' (value 1). Did you mean 't",
        ),
        ({"policies": {"planner": {"retries": {"attempt": 2}}}}, "Did you mean 'attempts'"),
        ({"policies": {"planner": {"budget": {"token": 2}}}}, "Did you mean 'tokens'"),
        ({"budget": {"episodes": {}}}, "Did you mean 'episode'"),
        ({"budget": {"turn": {"call": 1}}}, "Did you mean 'calls'"),
        ({"policies": {"planner": {"timeout_s": 0}}}, "'policies.planner.timeout_s' is 0, but"),
        ({"policies": {"planner": {"retries": {"attempts": 1}}}}, "'policies.planner.retries.attempts' is 1, but"),
    ],
)
def test_a_key_or_value_that_does_not_fit(keys: dict[str, object], says: str) -> None:
    with pytest.raises(GraphError) as caught:
        load_team(TEAM | keys)
    assert says in str(caught.value)


def test_a_stand_in_is_no_agent_and_is_kept_by_the_plan_also_pickled() -> None:
    spec = load_team(with_backup({"planner": {"fallback": "backup"}}, emits="plan", template="{self}>"))
    plan = compile_team(spec, build_roles(spec))
    for one in (plan, pickle.loads(pickle.dumps(plan))):
        assert one.agents == ("planner", "executor")
        assert set(one.stand_ins) == {"backup"}


def test_a_role_that_nobody_plays_and_no_policy_names_is_still_refused() -> None:
    spec = load_team(with_backup({}))
    with pytest.raises(GraphError, match="'backup'"):
        compile_team(spec, build_roles(spec))
