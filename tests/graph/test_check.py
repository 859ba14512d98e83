"""One golden message per problem."""

import pytest

from mas.core.errors import GraphError
from mas.core.team import TeamSpec
from mas.graph import compile_team, load_team
from mas.roles import build_roles

DPE = {
    "name": "t",
    "roles": {name: {"type": name} for name in ("planner", "executor", "verifier", "feedback")},
    "edges": [
        "start -> planner",
        "planner -> executor",
        "executor -> verifier",
        "verifier -> done when accept",
        "verifier -> feedback when reject",
        "feedback -> executor loop 2",
    ],
    "output": "executor",
}


def problems(changes: dict[str, object], replace: dict[str, str] | None = None) -> list[str]:
    """The problems of the plan-execute-verify team with other keys, and some edges replaced (by nothing: left out)."""
    edges = [(replace or {}).get(edge, edge) for edge in DPE["edges"]]
    return problems_of(load_team(DPE | {"edges": [edge for edge in edges if edge]} | changes))


def problems_of(spec: TeamSpec) -> list[str]:
    with pytest.raises(GraphError) as caught:
        compile_team(spec, build_roles(spec))
    first, *listed = str(caught.value).split("\n")
    assert first == "team 't' is not well formed:"
    return [line.removeprefix("  - ") for line in listed]


NAMES = "Possible: 'done', 'executor', 'feedback', 'planner', 'verifier'."


def test_a_misspelt_target_is_one_problem_and_not_a_cascade() -> None:
    assert problems({}, {"planner -> executor": "planner -> exectuor"}) == [
        f"edge 'planner -> exectuor' leads to the unknown agent 'exectuor'. Did you mean 'executor'? {NAMES}"
    ]


def test_a_misspelt_source_names_the_nearest() -> None:
    assert problems({}, {"executor -> verifier": "exector -> verifier"}) == [
        "edge 'exector -> verifier' leaves the unknown agent 'exector'. "
        "Did you mean 'executor'? Possible: 'executor', 'feedback', 'planner', 'start', 'verifier'."
    ]


def test_an_unknown_output_and_join_name_the_nearest() -> None:
    assert problems({"output": "executer", "joins": {"verifer": "any"}}) == [
        f"'joins' names the unknown agent 'verifer'. Did you mean 'verifier'? {NAMES}",
        "'output' names the unknown agent 'executer'. "
        "Did you mean 'executor'? Possible: 'executor', 'feedback', 'planner', 'verifier'.",
    ]


def test_an_agent_with_an_unknown_role_names_the_roles() -> None:
    agents = {name: name for name in DPE["roles"]} | {"planner": "plan"}
    found = problems({"agents": agents})
    assert found[0] == (
        "agent 'planner' plays the unknown role 'plan'. "
        "Did you mean 'planner'? Possible: 'executor', 'feedback', 'planner', 'verifier'."
    )


def test_a_role_that_nobody_plays_is_refused() -> None:
    assert problems({"roles": DPE["roles"] | {"spare": {}}, "agents": {name: name for name in DPE["roles"]}}) == [
        "role 'spare' is played by no agent; add one under 'agents' or remove the role"
    ]


def test_a_reserved_name_is_refused() -> None:
    found = problems({"roles": DPE["roles"] | {"done": {}}})
    assert "agent 'done' has a reserved name; 'start' and 'done' are the ends of every team, choose another" in found


def test_an_unreachable_agent_is_named() -> None:
    assert problems({}, {"start -> planner": "start -> executor"}) == ["agent 'planner' cannot be reached from 'start'"]


def test_an_agent_without_a_way_to_done_is_named() -> None:
    assert problems({}, {"feedback -> executor loop 2": ""}) == ["from agent 'feedback' no path leads to 'done'"]


def test_a_team_that_never_starts_is_refused() -> None:
    assert problems({}, {"start -> planner": ""}) == [
        "no edge leaves 'start'; add 'start -> AGENT'. Possible: 'executor', 'feedback', 'planner', 'verifier'."
    ]


def test_a_team_that_never_ends_is_refused() -> None:
    found = problems({}, {"verifier -> done when accept": ""})
    assert (
        "no edge leads to 'done'; add 'AGENT -> done'. Possible: 'executor', 'feedback', 'planner', 'verifier'."
        in found
    )


def test_a_team_without_edges_is_refused() -> None:
    assert problems({"edges": []}) == [
        "the team has no edges; begin with 'start -> AGENT' and end with 'AGENT -> done'"
    ]


def test_edges_beyond_the_ends_are_refused() -> None:
    extra = ["done -> planner", "planner -> start", "start -> done"]
    assert problems({"edges": [*DPE["edges"], *extra]}) == [
        "edge 'done -> planner' leaves 'done', where the turn is over",
        "edge 'planner -> start' leads to 'start', where nothing can arrive",
        "edge 'start -> done' would end the turn before any agent has spoken",
    ]


def test_a_cycle_without_a_bound_is_shown_whole() -> None:
    assert problems({}, {"feedback -> executor loop 2": "feedback -> executor"}) == [
        "the cycle executor -> verifier -> feedback -> executor has no bound; "
        "write 'loop N' on the edge that leads back"
    ]


def test_an_agent_that_feeds_itself_without_a_bound_is_a_cycle() -> None:
    assert problems({"edges": [*DPE["edges"], "executor -> executor"]}) == [
        "the cycle executor -> executor has no bound; write 'loop N' on the edge that leads back"
    ]


def test_a_loop_edge_that_leads_forward_is_refused() -> None:
    assert problems({}, {"planner -> executor": "planner -> executor loop 3"}) == [
        "edge 'planner -> executor loop 3' does not lead back: no path of edges without 'loop' goes from "
        "'executor' to 'planner'; remove 'loop 3'"
    ]


def test_a_route_that_the_role_does_not_have_lists_its_routes() -> None:
    assert problems({}, {"verifier -> done when accept": "verifier -> done when acept"}) == [
        "edge 'verifier -> done when acept' has the route 'acept', which role 'verifier' does not have. "
        "Did you mean 'accept'? Possible: 'accept', 'reject'.",
        "route 'accept' of agent 'verifier' is taken by no edge; add 'verifier -> AGENT when accept'",
    ]


def test_a_route_of_a_role_without_routes_says_so() -> None:
    assert problems({}, {"planner -> executor": "planner -> executor when ready"}) == [
        "edge 'planner -> executor when ready' has a route, but role 'planner' of type 'planner' has no routes; "
        "remove 'when ready' or use a role that chooses"
    ]


def test_start_chooses_no_route() -> None:
    assert problems({}, {"start -> planner": "start -> planner when new"}) == [
        "edge 'start -> planner when new' has a route, but 'start' chooses nothing; remove 'when new'"
    ]


def test_a_route_that_no_edge_takes_is_named() -> None:
    changed = {"verifier -> feedback when reject": "executor -> feedback"}
    assert problems({}, changed) == [
        "route 'reject' of agent 'verifier' is taken by no edge; add 'verifier -> AGENT when reject'"
    ]


def test_an_edge_without_a_route_takes_them_all() -> None:
    edges = ["start -> executor", "executor -> verifier", "verifier -> done"]
    roles = {name: {"type": name} for name in ("executor", "verifier")}
    spec = load_team(DPE | {"edges": edges, "roles": roles})
    assert compile_team(spec, build_roles(spec)).agents == ("executor", "verifier")


def test_a_kind_that_the_target_does_not_accept_is_listed() -> None:
    roles = DPE["roles"] | {"executor": {"type": "executor", "accepts": ["plan"]}}
    assert problems({"roles": roles}) == [
        "edge 'feedback -> executor loop 2' brings 'feedback', which role 'executor' does not accept. "
        "Possible: 'failure', 'plan'."
    ]


def test_the_output_agent_must_act_or_say_what_it_emits() -> None:
    assert problems({"output": "planner"}) == [
        "the output agent 'planner' emits 'plan', not 'action'; choose one that does (['executor']), "
        "or set 'emits' of role 'planner' if it is meant"
    ]
    roles = DPE["roles"] | {"planner": {"type": "planner", "emits": "plan"}}
    spec = load_team(DPE | {"output": "planner", "roles": roles})
    assert compile_team(spec, build_roles(spec)).spec.output == "planner"


def test_edges_that_repeat_or_overlap_are_refused() -> None:
    extra = ["start -> planner", "verifier -> feedback"]
    assert problems({"edges": [*DPE["edges"], *extra]}) == [
        "edge 'start -> planner' repeats 'start -> planner'; keep one of them",
        "edge 'verifier -> feedback' overlaps 'verifier -> feedback when reject'; keep one of them",
    ]


def test_a_template_that_reads_somebody_who_sends_nothing_is_refused() -> None:
    roles = DPE["roles"] | {"executor": {"type": "executor", "template": "{from.planer}{from.verifier}{from.feedback}"}}
    assert problems({"roles": roles}) == [
        "the template of role 'executor' reads {from.planer}, but 'planer' sends it nothing. "
        "Did you mean 'planner'? Possible: 'feedback', 'planner'.",
        "the template of role 'executor' reads {from.verifier}, but 'verifier' sends it nothing. "
        "Possible: 'feedback', 'planner'.",
    ]


@pytest.mark.parametrize("field", ["ask", "prefill"])
def test_an_ask_or_prefill_that_reads_an_agent_that_sends_nothing_is_refused(field: str) -> None:
    roles = DPE["roles"] | {"executor": {"type": "executor", field: "{from.verifier}"}}
    assert problems({"roles": roles}) == [
        f"the {field} of role 'executor' reads {{from.verifier}}, but 'verifier' sends it nothing. "
        "Possible: 'feedback', 'planner'."
    ]


def test_a_role_that_was_not_built_is_named() -> None:
    spec = load_team(DPE)
    roles = build_roles(spec)
    del roles["planner"]
    with pytest.raises(GraphError, match=r"role 'planner' was not built; pass build_roles\(spec\)"):
        compile_team(spec, roles)


def test_all_problems_come_in_one_error() -> None:
    changed = {"planner -> executor": "planner -> exectuor", "feedback -> executor loop 2": "feedback -> executor"}
    found = problems({"output": "executer", "joins": {"x": "any"}}, changed)
    assert len(found) == 4


def test_members_who_act_together_are_known_named_once_and_have_the_output_among_them() -> None:
    assert problems({"joint": ["executor", "plannr"]}) == [
        "'joint' names the unknown agent 'plannr'. "
        "Did you mean 'planner'? Possible: 'executor', 'feedback', 'planner', 'verifier'.",
    ]
    assert problems({"joint": ["executor", "executor"]}) == [
        "'joint' names an agent twice: executor, executor; name each once"
    ]
    assert problems({"joint": ["planner"]}) == [
        "'joint' leaves out the output agent 'executor'; add it, or name one of them as 'output'"
    ]
    (problem,) = problems({"joint": ["executor"], "else_output": ["planner"]})[:1]
    assert problem.startswith("'joint' and 'else_output' exclude each other")
    spec = load_team(DPE | {"joint": ["planner", "executor"]})
    assert compile_team(spec, build_roles(spec)).spec.joint == ("planner", "executor")


def test_an_unknown_or_repeated_actor_is_a_problem() -> None:
    (problem,) = problems({"leader": "plannr"})
    assert problem.startswith("'leader' names the unknown agent 'plannr'. Did you mean 'planner'?")
    assert problems({"else_output": ["plannr"]}) == [
        "'else_output' names the unknown agent 'plannr'. "
        "Did you mean 'planner'? Possible: 'executor', 'feedback', 'planner', 'verifier'.",
    ]
    assert problems({"else_output": ["executor"]}) == [
        "'output' and 'else_output' name an agent twice: executor, executor; name each once"
    ]
    (problem,) = problems({"else_output": ["planner"]})
    assert problem.startswith("the output agent 'planner' emits 'plan', not 'action'")
