"""Every ready-made team is trained: one step on the tiny base changes every adapter."""

import json
from pathlib import Path
from typing import Any

import pytest

import mas
from mas.core.role import RoleSpec
from mas.core.team import TeamSpec
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

SHORT = {"train.tasks_per_step": 2, "train.eval_tasks": 1, "train.eval_first": False, "algorithm.sampler.candidates": 2}


def role(kind: str, **more: Any) -> RoleSpec:
    return RoleSpec(type=kind, view="solo", max_tokens=2, **more)


ACT, SAY, PLAN, WORD = role("executor"), role("agent"), role("planner"), role("feedback")
VERIFY = role("verifier", accept_text="y", reject_text="n")
RELAY = {
    "solo": solo(ACT),
    "pipeline": pipeline({"first": SAY, "second": ACT}),
    "plan_execute": plan_execute(PLAN, ACT),
    "plan_execute_verify": plan_execute_verify(PLAN, ACT, VERIFY, WORD),
    "critique_and_refine": critique_and_refine(SAY, WORD, ACT, rounds=2),
    "fan_out": fan_out({"left": ACT, "right": ACT}, ACT),
    "vote": vote(ACT, ACT, voters=2),
    "nested": nested({"left": plan_execute(PLAN, ACT), "right": plan_execute(PLAN, ACT)}, ACT),
    "debate": debate({"pro": SAY, "con": SAY}, ACT),
}
MATCH = self_play(
    {seat: RoleSpec(type="executor", template="{seat}{seen}>", max_tokens=1) for seat in ("player_0", "player_1")}
)


@pytest.mark.parametrize(
    ("team", "task"), [*((team, "relay") for team in RELAY.values()), (MATCH, "two_player")], ids=[*RELAY, "self_play"]
)
def test_a_step_of_training_runs_and_every_role_has_an_adapter(
    team: TeamSpec, task: str, tmp_path: Path, small_overrides: tuple[str, ...]
) -> None:
    tiny = {key: json.loads(value) for key, _, value in (word.partition("=") for word in small_overrides)}
    run = mas.train(team, task, steps=1, run_dir=tmp_path / "run", options={**SHORT, **tiny}, quiet=True)
    assert run.steps == 1
    assert set(run.export(tmp_path / "out")) == set(team.roles)
    assert sum(line["tokens"] for line in run.metrics() if "tokens" in line) > 0
