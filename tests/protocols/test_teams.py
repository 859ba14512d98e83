"""Ready-made teams compile, and play as their names say: scripted members on a bus, in a world that records actions."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import ClassVar

import msgspec
import pytest
import yaml

from mas import protocols
from mas.bus.memory import MemoryBus
from mas.core.environment import EnvironmentSpec, Task
from mas.core.errors import ConfigError, GraphError
from mas.core.naming import local_name
from mas.core.records import Episode
from mas.core.role import RoleSpec
from mas.core.team import TeamSpec
from mas.graph import compile_team, load_team
from mas.graph.draw import mermaid
from mas.protocols import (
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
from mas.roles import build_roles
from mas.runtime.team import TeamRuntime
from mas.scenarios.world import RecordEnvironment
from mas.testing.scripted import ScriptedEngine
from mas.training.sampling.chains import play_once

Script = Callable[[str], str]
"""Prompt -> what is said. Every template here begins with its role's initial."""


class Said(msgspec.Struct, frozen=True):
    """The team's action, None before it acted."""

    action: str | None = None


class Stage(RecordEnvironment[Said]):
    """One team turn; solved by the action `right`."""

    state_type: ClassVar[type[msgspec.Struct]] = Said

    def __init__(self, views: tuple[str, ...]) -> None:
        super().__init__(EnvironmentSpec(name="stage", seats=("team",), views=views, max_turns=1, terms=("right",)))

    def initial(self, task: Task) -> Said:
        return Said()

    def fields(self, state: Said, view: str) -> Mapping[str, str]:
        return {"seen": view}

    def legal(self, seat: str) -> None:
        return None

    def act(self, state: Said, action: str) -> tuple[Said, dict[str, float], bool]:
        return Said(action), {"right": float(action == "right")}, True

    def is_over(self, state: Said) -> bool:
        return state.action is not None

    def is_solved(self, state: Said) -> bool:
        return state.action == "right"

    def render(self) -> str:
        return str(self.state.action)


def role(kind: str, template: str) -> RoleSpec:
    return RoleSpec(type=kind, template=template)


PLANNER, EXECUTOR = role("planner", "P"), role("executor", "E{from.planner}")
VERIFIER = role("verifier", "V{from.executor}")
FEEDBACK = role("feedback", "F{from.verifier}")
REVISING = role("executor", "E{from.planner}|{self}|{from.feedback}")


async def play(team: TeamSpec, script: Script) -> tuple[Episode, str | None]:
    """The episode and the team's action."""
    plan = compile_team(team, build_roles(team))
    views = tuple(dict.fromkeys(member.spec.view or local_name(agent) for agent, member in plan.roles.items()))
    engine, bus, stage = ScriptedEngine(lambda prompt, adapter, seed: script(prompt)), MemoryBus(), Stage(views)
    async with TeamRuntime(plan, engine, bus, adapters={}, timeout_s=5.0) as runtime:
        episode = await play_once(runtime, stage, Task(id="train-0", seed=0), seed=0)
    await bus.close()
    return episode, stage.state.action


def speakers(episode: Episode) -> list[str]:
    return [line.agent for line in episode.lines]


ALL = {
    "solo": solo(),
    "plan_execute": plan_execute(),
    "plan_execute_verify": plan_execute_verify(),
    "fan_out": fan_out({"left": RoleSpec(type="executor"), "right": RoleSpec(type="executor")}),
    "fan_out with a planner": fan_out({"left": RoleSpec(type="executor")}, planner=RoleSpec(type="planner")),
    "vote": vote(),
    "vote with a planner": vote(planner=RoleSpec(type="planner"), voters=5),
    "pipeline": pipeline({"reader": RoleSpec(), "writer": RoleSpec(type="executor")}),
    "nested": nested({"left": plan_execute(), "right": plan_execute()}),
    "nested with a planner": nested({"left": solo(), "right": vote()}, planner=RoleSpec(type="planner")),
    "debate": debate(),
    "debate of three": debate({name: RoleSpec() for name in ("a", "b", "c_1")}, rounds=3),
    "critique_and_refine": critique_and_refine(rounds=2),
    "self_play": self_play({name: RoleSpec(type="executor") for name in ("player_0", "player_1")}),
}


@pytest.mark.parametrize("team", ALL.values(), ids=ALL)
def test_every_team_compiles_with_the_built_in_roles(team: TeamSpec) -> None:
    plan = compile_team(team, build_roles(team))
    assert plan.agents[-1] == team.output or team.name in ("plan_execute_verify", "self_play")


@pytest.mark.parametrize("name", protocols.__all__)
def test_the_page_has_a_picture_of_every_team(name: str) -> None:
    page = (Path(__file__).parents[2] / "docs" / "protocols.md").read_text()
    section = page.partition(f"\n## {name}\n")[2].partition("\n## ")[0]
    shown = {"fan_out": fan_out({"left": EXECUTOR, "right": EXECUTOR}, planner=PLANNER)}
    assert f"```mermaid\n{mermaid(shown.get(name, ALL[name])).rstrip()}\n```" in section
    assert f"`{name}(" in section


@pytest.mark.parametrize("team", ALL.values(), ids=ALL)
def test_a_team_written_to_yaml_is_the_same_team(team: TeamSpec, tmp_path: Path) -> None:
    path = tmp_path / "team.yaml"
    path.write_text(yaml.safe_dump(team.model_dump(mode="json", exclude_defaults=True)))
    assert load_team(path) == team


async def test_solo_acts_alone() -> None:
    episode, action = await play(solo(role("executor", "S{seen}")), lambda prompt: {"Ssolo": "right"}[prompt])
    assert (speakers(episode), action, episode.success) == (["solo"], "right", True)


async def test_the_executor_hears_the_plan() -> None:
    episode, action = await play(plan_execute(PLANNER, EXECUTOR), {"P": "north", "Enorth": "go north"}.__getitem__)
    assert (speakers(episode), action) == (["planner", "executor"], "go north")


async def test_an_accepted_action_is_committed_at_once() -> None:
    script = {"P": "plan", "Eplan||": "right", "Vright": "accept"}.__getitem__
    episode, action = await play(plan_execute_verify(PLANNER, REVISING, VERIFIER, FEEDBACK), script)
    assert (speakers(episode), action) == (["planner", "executor", "verifier"], "right")


async def test_a_rejected_action_is_revised_with_feedback_and_verified_again() -> None:
    script = {
        "P": "plan",
        "Eplan||": "wrong",
        "Vwrong": "reject",
        "Freject": "turn",
        "Eplan|wrong|turn": "right",
        "Vright": "accept",
    }.__getitem__
    episode, action = await play(plan_execute_verify(PLANNER, REVISING, VERIFIER, FEEDBACK), script)
    assert speakers(episode) == ["planner", "executor", "verifier", "feedback", "executor", "verifier"]
    assert action == "right"


@pytest.mark.parametrize("revisions", [1, 2, 3])
async def test_the_revision_loop_is_bounded_and_a_last_rejection_passes(revisions: int) -> None:
    def stubborn(prompt: str) -> str:
        return {"P": "plan", "E": "wrong", "V": "reject", "F": "no"}[prompt[0]]

    team = plan_execute_verify(PLANNER, REVISING, VERIFIER, FEEDBACK, revisions=revisions)
    episode, action = await play(team, stubborn)
    # the planner, executor and verifier once, then feedback, executor and verifier once per revision
    assert len(episode.lines) == 3 + 3 * revisions
    assert action == ""


async def test_workers_fan_out_from_the_planner_and_the_judge_hears_them_all() -> None:
    workers = {name: role("executor", f"{name}:{{from.planner}}") for name in ("left", "right")}
    judge = role("executor", "J{from.left}{from.right}")
    script = {"P": "go", "left:go": "1", "right:go": "2", "J12": "both"}.__getitem__
    episode, action = await play(fan_out(workers, judge, PLANNER), script)
    assert (speakers(episode)[0], set(speakers(episode)[1:3]), speakers(episode)[3]) == (
        "planner",
        {"left", "right"},
        "judge",
    )
    assert action == "both"


async def test_the_judge_waits_for_voters_that_failed_to_say_something_legal() -> None:
    worker = RoleSpec(type="executor", template="W", choices=("a", "b"))
    judge = role("executor", "J{from.worker_1}{from.worker_2}")
    episode, action = await play(vote(worker, judge, voters=2), {"W": "z", "J??": "none"}.__getitem__)
    assert [line.failure is not None for line in episode.lines] == [True, True, False]
    assert action == "none"


async def test_stages_hear_the_one_before_and_the_last_acts() -> None:
    stages = {
        name: role("executor", f"{name}{heard}")
        for name, heard in zip("ABC", ("", "{from.A}", "{from.B}"), strict=True)
    }
    episode, action = await play(pipeline(stages), {"A": "1", "B1": "2", "C2": "3"}.__getitem__)
    assert (speakers(episode), action) == (["A", "B", "C"], "3")


async def test_the_judge_hears_what_teams_within_the_team_do() -> None:
    inner = plan_execute(PLANNER, EXECUTOR)
    judge = role("executor", "J{from.left}{from.right}")
    script = {"P": "go", "Ego": "1", "J11": "both"}.__getitem__
    episode, action = await play(nested({"left": inner, "right": inner}, judge), script)
    assert sorted(speakers(episode)[:-1]) == ["left.executor", "left.planner", "right.executor", "right.planner"]
    assert action == "both"


async def test_debaters_hear_all_of_the_round_before_and_the_judge_the_last_one() -> None:
    team = debate({"pro": RoleSpec(), "con": RoleSpec()}, RoleSpec(type="executor"), rounds=2)
    heard: dict[str, str] = {}

    def say(prompt: str) -> str:
        *lines, last = prompt.splitlines()
        heard[prompt] = last
        return {"pro:": "yes", "con:": "no", "judge:": "right"}[last] + (
            "!" * (len(lines) > 1) if last != "judge:" else ""
        )

    episode, action = await play(team, say)
    assert (len(episode.lines), speakers(episode)[-1], action) == (5, "judge", "right")
    assert {prompt.replace("\n", "|") for prompt, last in heard.items()} == {
        "seen: pro|pro:",
        "seen: con|con:",
        "seen: pro|pro_1: yes|con_1: no|pro:",
        "seen: con|pro_1: yes|con_1: no|con:",
        "seen: judge|pro_2: yes!|con_2: no!|judge:",
    }


async def test_a_refiner_hears_draft_and_critique_and_its_own_draft_is_criticised_next() -> None:
    writer, critic = role("agent", "W"), role("feedback", "C")
    team = critique_and_refine(writer, critic, RoleSpec(type="executor"), rounds=2)
    drafts = iter(["second", "third"])

    def say(prompt: str) -> str:
        told.append(prompt.replace("\n", "|"))
        return {"W": "first", "C": "longer"}.get(prompt) or next(drafts)

    told: list[str] = []
    episode, action = await play(team, say)
    assert speakers(episode) == ["writer", "critic_1", "refiner_1", "critic_2", "refiner_2"]
    assert told[2] == "seen: refiner|writer: first|critic_1: longer|refiner:"
    assert told[4] == "seen: refiner|refiner_1: second|critic_2: longer|refiner:"
    assert action == "third"


def test_players_of_a_match_hear_nothing_of_each_other() -> None:
    team = ALL["self_play"]
    assert set(team.plays) == {"player_0", "player_1"}
    assert not [edge for edge in team.edges if edge.source in team.agents and edge.target in team.agents]


def test_voters_are_agents_of_one_role_and_one_view() -> None:
    team = vote(voters=4)
    assert [name for name, played in team.members().items() if played == "worker"] == [
        "worker_1",
        "worker_2",
        "worker_3",
        "worker_4",
    ]
    assert team.roles["worker"].view == "worker"
    assert vote(RoleSpec(type="executor", view="planner")).roles["worker"].view == "planner"


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: plan_execute_verify(revisions=0), "revisions=0"),
        (lambda: vote(voters=0), "no worker"),
        (lambda: fan_out({}), "no worker"),
        (lambda: fan_out({"judge": EXECUTOR}), "'judge'"),
        (lambda: fan_out({"planner": EXECUTOR}), "'planner'"),
        (lambda: pipeline({}), "has no stages"),
        (lambda: nested({}), "there is no worker"),
        (lambda: nested({"judge": solo()}), "'judge'"),
        (lambda: nested({"a": solo(), "b": solo(PLANNER)}), "cannot be made of these teams: role 'solo' .* rename one"),
        (lambda: debate({"pro": EXECUTOR}), "1 debaters"),
        (lambda: debate(rounds=0), "0 rounds"),
        (lambda: debate({"pro": EXECUTOR, "judge": EXECUTOR}), "none of them called 'judge'"),
        (lambda: critique_and_refine(rounds=0), "rounds=0 refines nothing"),
        (lambda: self_play({"player_0": EXECUTOR}), "1 players are no match"),
    ],
)
def test_a_team_that_makes_no_sense_is_refused(make: Callable[[], TeamSpec], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        make()


def test_a_role_that_cannot_play_its_part_is_refused_when_compiled() -> None:
    team = plan_execute_verify(verifier=RoleSpec(type="executor"))
    with pytest.raises(GraphError, match="no routes"):
        compile_team(team, build_roles(team))
