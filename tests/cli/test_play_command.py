"""`mas play` as a person meets it: what is shown, what is refused, and how it ends."""

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from bidding import Bidding

from mas.config.options import ScenarioOptions
from mas.core.environment import Environment
from mas.scenarios import build_scenario
from mas.scenarios.commons import CommonsEnvironment
from mas.scenarios.plan_path import PathEnvironment
from mas.scenarios.relay import RelayEnvironment

Mas = Callable[..., Any]
Keyboard = Callable[[str], None]


@pytest.fixture
def keyboard() -> Iterator[Keyboard]:
    """`keyboard("b\\n")`: what a person types, and then the end of the input."""
    before = os.dup(0)

    def types(text: str) -> None:
        end, begin = os.pipe()
        os.write(begin, text.encode())
        os.close(begin)
        os.dup2(end, 0)
        os.close(end)

    yield types
    os.dup2(before, 0)
    os.close(before)


def begun(name: str, task: int = 0) -> Environment:
    scenario = build_scenario(ScenarioOptions(name=name))
    environment = scenario.environment()
    environment.reset(scenario.task("eval", task))
    return environment


def right_digit(task: int = 0) -> str:
    environment = begun("relay", task)
    assert isinstance(environment, RelayEnvironment)
    return environment.state.table[environment.state.goal]


def test_of_a_huge_answer_the_beginning_is_repeated(mas: Mas, keyboard: Keyboard) -> None:
    keyboard("z" * 50_000 + "\nb\n")
    ran = mas("play", "relay", "--as", "planner", "--others", "expert", "--task", "2")
    flat = ran.out.replace("\n", "")
    assert "(50,000 characters in all)" in flat
    assert 2000 <= flat.count("z") < 2100
    assert "solved in 1 turn" in ran.out


def test_a_person_and_an_expert_solve_the_task(mas: Mas, keyboard: Keyboard) -> None:
    keyboard("b\n")
    ran = mas("play", "relay", "--as", "planner", "--others", "expert", "--task", "2")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.endswith("solved in 1 turn\nscore: 1 (right +1)\n")


@pytest.mark.parametrize(("offset", "end"), [(0, "solved in 1 turn\nscore: 1"), (1, "not solved in 1 turn\nscore: 0")])
def test_a_person_may_decide_what_the_team_does(mas: Mas, keyboard: Keyboard, offset: int, end: str) -> None:
    keyboard(f"{(int(right_digit()) + offset) % 10}\n")
    ran = mas("play", "relay", "--as", "executor", "--others", "random")
    assert ran.code == 0
    assert end in ran.out


def test_the_seed_decides_what_random_partners_say(mas: Mas, keyboard: Keyboard) -> None:
    heard = []
    for seed in (0, 1, 2, 0):
        keyboard("")
        out = mas("play", "relay", "--as", "executor", "--others", "random", "--seed", str(seed)).out
        heard.append(out.partition("planner says: ")[2][:1])
    assert set(heard) <= set("abcd")
    assert len(set(heard)) > 1
    assert heard[0] == heard[-1]


@pytest.mark.parametrize(("role", "line"), [("planner", "00"), ("executor", "U"), ("verifier", "n"), ("feedback", "U")])
def test_a_person_sees_the_view_of_the_role_and_nothing_else(
    mas: Mas, keyboard: Keyboard, role: str, line: str
) -> None:
    keyboard(f"{line}\n" * 40)
    # with seed 3 the verifier rejects at once, so that the feedback agent is asked
    ran = mas("play", "plan_path", "--as", role, "--others", "random", "--seed", "3")
    environment = begun("plan_path")
    assert isinstance(environment, PathEnvironment)
    views = {view: environment.observe(view).fields for view in environment.spec.views}
    for name, value in views[role].items():
        assert f"\n{name}: {value}\n" in ran.out
    for name in views["solo"].keys() - views[role].keys():
        assert f"{name}: " not in ran.out
    for row in environment.render().splitlines():
        assert row not in ran.out.splitlines()
    assert ran.out.count(f"you are {role}") > 1


def test_who_wants_sees_the_whole_world_at_the_end(mas: Mas, keyboard: Keyboard) -> None:
    keyboard("b\n")
    out = mas("play", "relay", "--as", "planner", "--others", "expert", "--reveal").out
    assert out.index("score") > out.index("turn 1, planner: b\nturn 1, executor: ")
    assert f"answer {right_digit()}" in out


def test_wrong_input_is_told_and_asked_again(mas: Mas, keyboard: Keyboard) -> None:
    keyboard("z\n\n\x1b[2J\nb\n")
    ran = mas("play", "relay", "--as", "planner", "--others", "expert")
    assert ran.code == 0
    assert ran.out.count("Once more:") == 3
    assert "'z'" in ran.out
    assert "is none of the choices ['a', 'b', 'c', 'd']" in ran.out
    assert "\x1b" not in ran.out


@pytest.mark.parametrize("typed", ["", "D\n", "D\nU"])
def test_the_end_of_the_input_ends_the_play_with_the_score_so_far(mas: Mas, keyboard: Keyboard, typed: str) -> None:
    keyboard(typed)
    ran = mas("play", "plan_path/solo")
    assert (ran.code, ran.err) == (0, "")
    assert "the input ended, and with it the play\nscore so far: " in ran.out
    assert ("turn 1 of at most 12 is over" in ran.out) is bool(typed)


def test_what_a_team_does_that_is_not_legal_is_said(mas: Mas, keyboard: Keyboard) -> None:
    keyboard("U\n" * 20)
    ran = mas("play", "plan_path/solo")
    assert (ran.code, ran.err) == (0, "")
    assert "'U' was not legal; the turn is spent" in ran.out


def test_a_size_is_played_that_way(mas: Mas, keyboard: Keyboard) -> None:
    keyboard("D\n")
    ran = mas("play", "plan_path/solo", "--size", "medium")
    assert "turn 1 of at most 18 is over" in ran.out


def test_several_roles_may_be_one_persons(mas: Mas, keyboard: Keyboard) -> None:
    keyboard(f"a\n{right_digit()}\n")
    out = mas("play", "relay", "--as", "planner", "--as", "executor").out
    assert "planner says: a" in out
    assert out.endswith("score: 1 (right +1)\n")


def test_one_of_several_members_of_a_role_may_be_a_persons(mas: Mas, keyboard: Keyboard) -> None:
    keyboard("4\n")
    out = mas("play", "debate", "--as", "second", "--others", "random").out
    assert out.count("you are ") == out.count("you are second\n") == 1
    assert "own terms of second (you): " in out
    keyboard("4\n4\n")
    out = mas("play", "debate", "--as", "debater", "--others", "random").out
    assert "you are first\n" in out
    assert "own terms of first (you): " in out
    assert "own terms of second (you): " in out


def test_at_the_end_stand_the_own_terms_and_what_was_measured_beside_the_score(mas: Mas, keyboard: Keyboard) -> None:
    environment = begun("commons")
    assert isinstance(environment, CommonsEnvironment)
    best = environment.plan.best[0][environment.state.stock][-1]
    keyboard("4\n")
    out = mas("play", "commons", "--as", "east", "--as", "west", "--as", "adviser").out
    assert "own terms" not in out, "the turn was not played"
    # Two boats that take all they can empty the lake at once; a boat's part of the best catch is half, rounded up.
    keyboard("0\n4\n4\n" * 4)
    fine = (4 - -(-best // 2)) / environment.rules.limit
    out = mas("play", "commons", "--as", "east", "--as", "west", "--as", "adviser").out
    assert "score: " in out
    assert fine > 0
    assert f"own terms of west (you): {-fine:g} (excess {-fine:g})" in out
    assert "own terms of adviser" not in out, "it has none"
    assert "\nmeasured: efficiency " in out
    assert "survival " in out.rpartition("measured: ")[2]


def test_instructions_are_shown_once_and_what_is_seen_in_every_turn(mas: Mas, keyboard: Keyboard) -> None:
    keyboard("00\n" * 40)
    out = mas("play", "plan_path", "--as", "planner", "--others", "expert").out
    turns = out.count("you are planner\n")
    assert turns > 1
    assert out.count("Only you know the goal") == 1
    assert out.count("\ngoal: ") == out.count("Answer with these characters only") == turns
    assert out.count("Your answer:\n") == turns


def test_a_model_plays_the_rest_untrained_or_as_a_run_trained_it(
    mas: Mas, keyboard: Keyboard, small_overrides: tuple[str, ...], tmp_path: Path, base_for: Any
) -> None:
    base_for("relay")
    keyboard("b\n")
    ran = mas("play", "relay", *small_overrides, "--as", "planner")
    assert ran.code == 0, ran.err
    assert "score: " in ran.out
    run = tmp_path / "run"
    short = ("train.steps=1", "train.tasks_per_step=2", "train.eval_tasks=2", "algorithm.sampler.candidates=2")
    assert mas("train", "scenario=relay", *short, *small_overrides, f"run_dir={run}").code == 0
    keyboard("5\n")
    ran = mas("play", "relay", "--as", "executor", "--run", str(run), "--sampled")
    assert ran.code == 0, ran.err
    assert re.search(r"\n(planner says: [a-d]|The answer of planner could not be read\.)\n", ran.out)
    other = mas("play", "two_hop", "--as", "planner", "--run", str(run))
    assert (other.code, other.err) == (2, f"error: run {run} trained relay/team, not two_hop\n")


MISTAKES = [
    (("play", "rely"), "no scenario 'rely'. Did you mean 'relay' or 'safe_reply'?"),
    (("play", "relay/sollo"), "Did you mean 'solo'?"),
    (("play", "relay"), "say who of team 'relay' you are: --as planner, --as executor; --as may"),
    (("play", "relay", "--as", "plannr"), "team 'relay' has no such role and no such member. Did you mean 'planner'?"),
    (("play", "relay", "--as", "planner", "--others", "god"), "--others god: nobody plays like that. Possible: model,"),
    (("play", "relay", "--as", "executor", "--others", "expert"), "the expert decides what the team does"),
    (("play", "relay/solo", "--others", "random"), "--others is about the others, and people play everything here"),
    (("play", "relay/solo", "--sampled"), "--sampled is about the others"),
    (("play", "relay", "--as", "planner", "--others", "random", "--sampled"), "--others random plays without one"),
    (("play", "relay", "train.seed=3", "--as", "planner"), "'train.seed=3' has no effect on `mas play`"),
    (("play", "relay", "model.threads=1", "--as", "planner", "--others", "random"), "has no effect on `mas play`"),
    (("play", "relay/solo", "algorithm.team=team"), "names a team, and algorithm.team= another one"),
    (("play", "relay", "--as", "planner", "--run", "none"), "holds no run"),
    (("play", "pettingzoo:seats", "--run", "runs/x", "--as", "left"), "no model takes a seat of a game"),
    (("play", "pettingzoo:seats", "--others", "expert", "--as", "left"), "bidding has no expert"),
    (("play", "pettingzoo:seats", "train.steps=1"), "'train.steps=1' has no effect on a game of another library"),
    (("play", "relay", "--size", "huge", "--as", "planner"), "scenario 'relay' has no size 'huge'"),
    (("play", "debate"), "--as debater, --as judge, or one of first, second (all are debater)"),
    (("play", "debate", "--as", "third"), "Possible: 'debater', 'first', 'judge', 'second'."),
    (("play", "debate", "--as", "judge", "--size", "medium"), "name a model that reads words"),
    (("play", "pettingzoo:seats", "--size", "small"), "games of other libraries have none"),
    (("play", "pettingzoo:seats"), "say which seat of bidding you take: --as left or --as right"),
]


@pytest.mark.parametrize(("words", "text"), MISTAKES, ids=[" ".join(words) for words, _ in MISTAKES])
def test_a_mistake_is_one_line_and_exit_code_2(
    words: tuple[str, ...], text: str, mas: Mas, keyboard: Keyboard, bridges: None
) -> None:
    keyboard("")
    ran = mas(*words)
    assert ran.code == 2
    assert ran.err.startswith("error: ")
    assert text in ran.err
    assert ran.err.count("\n") == 1


@pytest.fixture
def bridges(monkeypatch: pytest.MonkeyPatch) -> None:
    """A library with one game."""
    module = ModuleType("mas.scenarios.bridges")
    module.open_bridge = lambda name: {"pettingzoo:seats": Bidding()}[name]
    monkeypatch.setitem(sys.modules, module.__name__, module)


def test_a_person_takes_a_seat_of_another_librarys_game(mas: Mas, keyboard: Keyboard, bridges: None) -> None:
    keyboard("2\n7\n2\n")
    ran = mas("play", "pettingzoo:seats", "--as", "right")
    assert (ran.code, ran.err) == (0, "")
    assert "'7' is not possible now. Possible: 0, 1, 2, 9" in ran.out
    assert "score of right (you): 2 (point +2)" in ran.out


def test_a_users_class_is_played_and_drawn_by_its_name(mas: Mas, keyboard: Keyboard, tmp_path: Path) -> None:
    name = f"{Path(__file__).parents[2] / 'examples' / 'largest.py'}:Largest"
    for team, drawn, people in (("", "plan_execute", ("planner", "executor")), ("/solo", "solo", ("solo",))):
        keyboard("7\n7\n")
        ran = mas("play", f"{name}{team}", *(word for role in people for word in ("--as", role)))
        assert (ran.code, ran.err) == (0, "")
        graph = mas("graph", f"{name}{team}", "--out", str(tmp_path))
        assert (graph.code, (tmp_path / f"{drawn}.svg").is_file()) == (0, True)
    assert "Did you mean 'team'" in mas("graph", f"{name}/taem").err


def test_where_there_are_no_bridges_it_is_said(mas: Mas, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mas.person.command.BRIDGES", "mas.scenarios.no_bridges")
    assert (
        "'pettingzoo:b' would be a game of another library, and there are no bridges here"
        in mas("play", "pettingzoo:b").err
    )


def test_playing_without_a_model_and_measuring_loads_no_tensor_library() -> None:
    code = (
        "import sys\nfrom mas.cli import main\n"
        "for words in ('play relay --as planner --others random', 'scenarios relay --measure --episodes 3'):\n"
        "    sys.argv = ['mas', *words.split()]\n"
        "    try: main()\n"
        "    except SystemExit as end: assert not end.code, end.code\n"
        "print('LOADED', *sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], input="b\n", capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "score: " in done.stdout
    assert not {"torch", "transformers", "peft"} & set(done.stdout.partition("LOADED")[2].split())
