import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

import pytest

from mas.graph import TeamPlan, compile_team, load_team
from mas.graph.draw import mermaid, svg
from mas.graph.layout import place
from mas.roles import build_roles
from mas.testing.teams import plan_of, team_of

DATA = Path(__file__).parent / "data"
PICTURED = ("plan_execute_verify", "debate", "nested")


def load(name: str) -> TeamPlan:
    spec = load_team(DATA / f"{name}.yaml")
    return compile_team(spec, build_roles(spec))


def test_mermaid_shows_agents_routes_and_bounds() -> None:
    assert (
        mermaid(load("plan_execute_verify"))
        == """\
flowchart LR
    start(["start"])
    n0["planner"]
    n1["executor"]
    n2["verifier"]
    n3["feedback"]
    done_(["done"])
    start --> n0
    n0 --> n1
    n1 --> n2
    n2 -->|"accept"| done_
    n2 -->|"reject"| n3
    n3 -.->|"up to 2×"| n1
"""
    )


def test_mermaid_names_the_role_of_an_agent_that_is_called_otherwise() -> None:
    plan = load("debate")
    assert 'n1["pro<br/>debater"]' in mermaid(plan)
    assert mermaid(plan.spec) == mermaid(plan)


@pytest.mark.parametrize("name", PICTURED)
def test_the_drawing_is_xml_and_the_same_every_time(name: str) -> None:
    first = svg(load(name))
    assert ElementTree.fromstring(first).tag.endswith("svg")
    assert svg(load(name)) == first
    assert "<dc:date>" not in first


def test_the_drawing_is_the_same_in_another_process() -> None:
    program = (
        "import sys; from mas.graph import load_team, compile_team; from mas.graph.draw import svg; "
        "from mas.roles import build_roles; spec = load_team(sys.argv[1]); "
        "sys.stdout.buffer.write(svg(compile_team(spec, build_roles(spec))).encode())"
    )
    path = str(DATA / "nested.yaml")
    done = subprocess.run([sys.executable, "-c", program, path], capture_output=True, check=True, timeout=60)
    assert done.stdout.decode() == svg(load("nested"))


def test_drawing_leaves_the_users_figures_and_settings_alone() -> None:
    program = (
        "import sys, matplotlib; from mas.graph import load_team, compile_team; from mas.graph.draw import svg; "
        "from mas.roles import build_roles; spec = load_team(sys.argv[1]); rc = matplotlib.rcParams; "
        "settings = lambda: {key: rc[key] for key in rc if key != 'backend'}; before = settings(); "
        "svg(compile_team(spec, build_roles(spec))); assert settings() == before; "
        "assert 'matplotlib.pyplot' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program, str(DATA / "nested.yaml")], check=True, timeout=60)


def test_every_forward_edge_leads_to_the_right() -> None:
    spec = load("debate").spec
    layout = place(spec)
    forward = [edge for edge in spec.edges if edge.loop is None]
    assert all(layout.column[edge.source] < layout.column[edge.target] for edge in forward)
    assert layout.column["done"] == max(layout.column.values())


def test_nodes_of_one_column_keep_apart() -> None:
    layout = place(
        plan_of(["start -> a", *[f"a -> b{i}" for i in range(7)], *[f"b{i} -> done" for i in range(7)]]).spec
    )
    rows = sorted(layout.row[f"b{i}"] for i in range(7))
    assert all(high - low > 0.999 for low, high in pairwise(rows))


def test_an_arrow_over_several_columns_passes_between_the_nodes() -> None:
    layout = place(plan_of(["start -> a", "a -> b", "b -> c", "a -> c", "c -> done"]).spec)
    source, between, target = layout.paths["a", "c"]
    assert (source, target) == ("a", "c")
    assert layout.column[between] == layout.column["b"]
    assert abs(layout.row[between] - layout.row["b"]) > 0.999


def test_a_self_loop_and_two_routes_to_one_target_can_be_drawn() -> None:
    plan = plan_of(["start -> a", "a -> a when x loop 2", "a -> done when y", "a -> done when z"])
    assert ElementTree.fromstring(svg(plan)).tag.endswith("svg")


def test_an_agent_that_only_a_loop_reaches_is_drawn() -> None:
    edges = ("start -> a", "a -> b", "b -> done when ok", "b -> c when no loop 1", "c -> a")
    plan = plan_of(edges, joins={"a": "any"})
    assert {"a", "b", "c"} <= set(place(plan.spec).row)
    assert svg(plan).startswith("<?xml")


def test_teams_within_lists_and_joins_are_drawn() -> None:
    pair = team_of(["start -> writer", "writer -> critic", "critic -> done"], "writer")[0]
    edges = ["start -> p", "p -> w map", "w -> j", "p -> solve", "solve -> j", "j -> done"]
    plan = plan_of(edges, joins={"j": {"need": 2, "timeout_s": 5}, "solve": "any"}, teams={"solve": pair})
    drawn = mermaid(plan)
    frame = drawn.partition('subgraph t0["solve"]\n')[2].partition("    end\n")[0]
    assert [line.strip() for line in frame.splitlines()] == [
        'g0(["start<br/>waits: any"])',
        'n3["writer"]',
        'n4["critic"]',
        'g1(["done"])',
    ]
    for line in ('n0 -->|"each"| n1', "n0 --> g0", "g1 --> n2", "g0 --> n3", 'n2["j<br/>waits: 2, 5 s"]'):
        assert f"    {line}\n" in drawn
    assert mermaid(plan.spec) == drawn
    assert {"solve.start", "solve.writer", "solve.done"} <= set(place(plan.spec).row) & set(plan.graph.nodes)
    assert ElementTree.fromstring(svg(plan)).tag.endswith("svg")
