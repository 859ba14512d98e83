"""What `code_team` pays to each member: AT-GRPO's advantages, and nothing for a longer or a shorter episode."""

import json
from collections.abc import Iterable, Mapping
from itertools import product
from pathlib import Path
from random import Random
from typing import Any

import pytest
from code_team_parts import SUM, act, world

from mas.algorithms.parts.advantages.group import group_advantages
from mas.core.environment import Move, Reward
from mas.core.messages import Action, Failure, Payload, joint_action
from mas.scenarios.code_team import CodeEnvironment, CodeReward
from mas.scenarios.code_team.language import DIGITS, Function, run
from mas.testing.reward import RewardContract

ORACLE: dict[str, Any] = json.loads((Path(__file__).parents[1] / "data" / "oracles.json").read_text())["01_at_grpo"]
MEMBERS_SAY = {"coder": ("+2", "*7", "+3"), "tester": ("13", "14", "20")}


class TestCodeReward(RewardContract):
    def make_reward(self) -> Reward:
        return CodeReward()

    def moves(self) -> Iterable[Move]:
        said: tuple[Payload, ...] = (
            Action(text="+2"),
            Action(text="13"),
            Action(text="+213"),
            Failure(text="?", cause="?"),
        )
        for role, output in product(("coder", "tester", "solo"), said):
            yield Move(agent=role, role=role, environment=world(SUM), output=output, before={}, after={})


def own(
    role: str, text: str, environment: CodeEnvironment | None = None, before: Mapping[str, Payload] | None = None
) -> Mapping[str, float]:
    output = Action(text=text)
    return CodeReward().own(
        Move(agent=role, role=role, environment=environment or world(SUM), output=output, before=before or {}, after={})
    )


def test_own_terms_are_changes_and_judge_the_tester_by_the_reference() -> None:
    assert own("coder", "+2") == {"program": 1.0}
    assert own("coder", "*7")["program"] == pytest.approx(0.2)
    assert own("tester", "13") == {"test": 1.0}
    assert own("tester", "14") == {"test": 0.0}
    assert own("solo", "+214") == {"program": 1.0, "test": 0.0}
    assert own("coder", "nonsense") == {"program": 0.0}


@pytest.mark.parametrize("last", ["", "*1", "*6"])
def test_advantages_are_those_of_at_grpo_in_the_first_turn_and_in_later_ones(last: str) -> None:
    """All terms differ from AT-GRPO's by constants of the group. For 6 x: 5 x = 0 for even digits alone."""
    tripled = Function(kind="digit", steps=(("*", 2), ("*", 3)), spec="*2*3", golden=tuple(DIGITS))
    before = world(tripled, turns=5)
    if last:
        act(before, coder=last, tester="26")
    coder, tester, expected = [], [], []
    for program, test, passed in (("*1", "16", 0.5), ("*6", "15", 1.0), ("+3", "22", 0.0), ("*1", "25", 0.5)):
        after = before.clone()
        team = act(after, coder=program, tester=test)
        assert after.state.share == passed
        coder.append(team + own("coder", program, before)["program"])
        tester.append(team + own("tester", test, before)["test"])
        expected.append(passed + (test in ("16", "22")))
    assert group_advantages(coder, ["one"] * 4) == pytest.approx(ORACLE["coder_adv"], abs=2e-6)
    assert group_advantages(tester, ["one"] * 4) == pytest.approx(group_advantages(expected, ["one"] * 4), abs=2e-6)


@pytest.mark.parametrize("nothing", [Failure(text="?", cause="?"), Action(text="junk"), Action(text="")])
def test_what_does_not_parse_has_neither_p_nor_q_in_later_turns_either(nothing: Payload) -> None:
    before = world(SUM, turns=5)
    act(before, coder="*7", tester="13")
    for role, term, lost in (("coder", "program", 0.2), ("tester", "test", 1.0)):
        move = Move(agent=role, role=role, environment=before, output=nothing, before={}, after={})
        assert CodeReward().own(move)[term] == pytest.approx(-lost)


def episode(seed: int, junk: bool) -> tuple[CodeEnvironment, dict[str, float]]:
    """One of up to five turns, of one agent or of two, who speak twice a turn with odd seeds; and what it paid."""
    random, environment, totals = Random(seed), world(SUM, turns=5), dict.fromkeys(("program", "test", "passed"), 0.0)
    texts = {"solo": ("+213", "*714", "+314")} if seed % 3 == 0 else MEMBERS_SAY
    while environment.to_move():
        said: dict[str, str] = {}
        for role, known in texts.items():
            for _ in range(1 + seed % 2):
                before: Mapping[str, Payload] = {role: Action(text=said[role])} if role in said else {}
                said[role] = random.choice((*known, "", "junk", "\ud800") if junk else known)
                for name, value in own(role, said[role], environment, before).items():
                    totals[name] += value
        step = environment.step({"team": said["solo"] if "solo" in said else joint_action(said)})
        totals["passed"] += step.rewards["team"]["passed"]
    return environment, totals


@pytest.mark.parametrize("junk", [False, True])
def test_own_terms_add_up_to_what_stands_at_the_end_however_long_the_episode_is(junk: bool) -> None:
    lengths = set()
    for seed in range(300):
        environment, totals = episode(seed, junk)
        state = environment.state
        lengths.add(state.turn)
        stands = {
            "program": state.share,
            "test": float(environment.language.is_right(SUM, state.test)),
            "passed": state.share,
        }
        if junk:
            # what does not parse never pays
            assert all(totals[name] <= value + 1e-9 for name, value in stands.items())
        else:
            assert totals == pytest.approx(stands)
    assert lengths == {1, 2, 3, 4, 5}


def test_who_tests_honestly_and_revises_earns_more_over_an_episode_than_who_ends_it_at_once() -> None:
    """A program is right one time in five. An honest test is right; the other one is what the program does."""
    earned, solved = dict.fromkeys((True, False), 0.0), dict.fromkeys((True, False), 0)
    for honest, seed in product((True, False), range(1000)):
        random, environment = Random(seed), world(SUM, turns=5)
        while environment.to_move():
            program = "+2" if random.random() < 0.2 else "+3"
            text = f"{program}1{3 if honest else run(program, 1)}"
            own_terms = own("solo", text, environment)
            earned[honest] += sum(own_terms.values()) + environment.step({"team": text}).rewards["team"]["passed"]
        solved[honest] += environment.success()
    # right within five turns: 1 - 0.8^5 = 0.67, which pays three times less two, as the test is right anyway
    assert (solved[True] > 600, solved[False] < 250) == (True, True)
    assert earned[True] > earned[False] + 1000


def test_a_member_whose_partner_is_not_legal_is_heard_and_paid_once() -> None:
    environment = world(SUM, turns=3)
    for gained in (1.0, 0.0):
        assert own("tester", "13", environment) == {"test": gained}
        assert environment.step({"team": joint_action({"coder": "junk", "tester": "13"})}).illegal == ("team",)
        assert environment.state.test == "13"
