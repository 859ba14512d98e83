"""How many of an agent may work at once: one golden message per mistake."""

import pytest

from mas.core.errors import GraphError
from mas.core.policy import Replicas
from mas.core.team import TeamSpec
from mas.graph import compile_team, load_team
from mas.roles import build_roles

TEAM: dict[str, object] = {
    "name": "t",
    "roles": {"worker": {"type": "executor"}, "clerk": {"type": "planner", "voice": "human", "trainable": False}},
    "edges": ["start -> clerk", "clerk -> worker", "worker -> done"],
    "output": "worker",
}


def compiled(team: dict[str, object]) -> TeamSpec:
    spec = load_team(team)
    return compile_team(spec, build_roles(spec)).spec


def problem(replicas: dict[str, object]) -> str:
    with pytest.raises(GraphError) as caught:
        compiled(TEAM | {"replicas": replicas})
    _, line = str(caught.value).split("\n")
    return line.removeprefix("  - ")


def test_limits_are_read_and_one_is_usual() -> None:
    spec = load_team(TEAM | {"replicas": {"worker": {"least": 2, "most": 4, "concurrency": 8}}})
    assert spec.replicas == {"worker": Replicas(least=2, most=4, concurrency=8)}
    assert (Replicas().least, Replicas().most, Replicas().concurrency) == (1, 1, None)


@pytest.mark.parametrize(
    ("replicas", "says"),
    [
        (
            {"wroker": {}},
            "'replicas' names the unknown agent 'wroker'. Did you mean 'worker'? Possible: 'clerk', 'worker'.",
        ),
        (
            {"worker": {"least": 3, "most": 2, "concurrency": 1}},
            "'replicas.worker': least is 3, but most is 2; most must be at least as much",
        ),
        (
            {"worker": {"most": 2}},
            "'replicas.worker': there may be several, but it is not said how many questions one of them takes at once, "
            "so the first would take all; add 'concurrency'",
        ),
        ({"worker": {"least": 0}}, "'replicas.worker.least' is 0, but: input should be greater than or equal to 1"),
        (
            {"worker": {"mots": 2}},
            "unknown key 'replicas.worker.mots' (value 2). Did you mean 'most'? "
            "Possible: 'concurrency', 'least', 'most'.",
        ),
        (
            {"clerk": {"most": 2, "concurrency": 1}},
            "'replicas': a person plays agent 'clerk', and is not more than one; remove the key",
        ),
    ],
)
def test_a_mistake_is_one_line(replicas: dict[str, object], says: str) -> None:
    assert problem(replicas) == says


def test_a_stand_in_may_have_limits_and_a_team_within_may_not_set_them() -> None:
    roles = {"worker": {"type": "executor"}, "spare": {"type": "executor"}}
    alone: dict[str, object] = {
        "name": "t", "roles": roles, "edges": ["start -> worker", "worker -> done"], "output": "worker",
        "policies": {"worker": {"fallback": "spare"}}, "replicas": {"spare": {"most": 2, "concurrency": 1}},
    }  # fmt: skip
    assert compiled(alone).replicas["spare"].most == 2
    inner = {key: value for key, value in alone.items() if key != "policies"} | {"roles": {"worker": roles["worker"]}}
    with pytest.raises(ValueError, match="sets 'replicas', which only the outermost team can have"):
        TeamSpec.model_validate(
            {"name": "o", "roles": {}, "agents": {"a": {"team": inner}}, "edges": [], "output": "a"}
        )
