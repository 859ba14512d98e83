"""`delegate`: sub-questions that are handed out, workers with a search of their own, MATPO's reward."""

import json
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import pytest

from mas.algorithms.parts.rewards.terms import total_reward
from mas.config.load import load_config
from mas.config.options import ScenarioOptions
from mas.core.environment import Environment, Move, Observation, Reward, Task
from mas.core.messages import Action, Failure, Items, Note, Payload
from mas.core.naming import agent_of
from mas.core.role import EarlierCall, Message, View
from mas.graph.plan import compile_team
from mas.roles import build_role, build_roles
from mas.runtime.flow import Flow
from mas.scenarios import SCENARIOS, build_scenario
from mas.scenarios.delegate import (
    DelegateCase,
    DelegateEnvironment,
    DelegateReward,
    DelegateState,
    demonstrations,
    expert,
    found,
    page,
    plan_value,
)
from mas.scenarios.world import FolderScenario
from mas.testing.environment import EnvironmentContract
from mas.testing.reward import RewardContract

ORACLE: dict[str, Any] = json.loads((Path(__file__).parents[1] / "data" / "oracles.json").read_text())["05_matpo"]
LETTERS = DelegateCase(
    "letters", "bp-dq", ("ap1", "aq4", "bp3", "bq0", "cp2", "cq1", "dp0", "dq4"), (2, 7), ("bp", "dq"), "9"
)
"""3 - 4 = -1, of which the last digit modulo 10 is 9."""
TOLD = (
    "The campaner of Orlo: wage 41 crowns.",
    "The campaner of Orlo: debt 12 crowns.",
    "The campaner of Vash: wage 33 crowns.",
    "The tincter of Orlo: debt 20 crowns.",
)
ASKED = ("the wage of the campaner of Orlo", "the debt of the tincter of Orlo")
WORDS = DelegateCase("words", f"How many crowns are {ASKED[0]}, minus {ASKED[1]}?", TOLD, (0, 3), ASKED, "21")
NONSENSE = Failure(text="??", cause="nonsense")


@cache
def scenario_of(size: str) -> FolderScenario:
    built = build_scenario(ScenarioOptions(name="delegate", options=dict(SCENARIOS["delegate"].sizes[size])))
    assert isinstance(built, FolderScenario)
    return built


def world(case: DelegateCase = LETTERS) -> DelegateEnvironment:
    environment = DelegateEnvironment(case.style, 2)
    environment._state = DelegateState(case)
    return environment


def begun(size: str, index: int) -> DelegateEnvironment:
    environment = scenario_of(size).environment()
    assert isinstance(environment, DelegateEnvironment)
    environment.reset(scenario_of(size).task("eval", index))
    return environment


def own(agent: str, output: Payload, case: DelegateCase = LETTERS, plan: Payload = NONSENSE) -> Mapping[str, float]:
    before = {} if agent in ("planner", "solo") else {"planner": plan}
    role = agent_of(agent)
    move = Move(agent=agent, role=role, environment=world(case), output=output, before=before, after={})
    return DelegateReward().own(move)


class TestLetters(EnvironmentContract):
    size = "small"
    privacy: Mapping[str, frozenset[str]] = {
        "planner": frozenset({"question"}),
        "composer": frozenset({"question"}),
        "worker": frozenset({"archive"}),
    }

    def make_environment(self) -> Environment:
        return scenario_of(self.size).environment()

    def task(self, number: int) -> Task:
        return scenario_of(self.size).task("train", number)


class TestWords(TestLetters):
    size = "large"


class TestDelegateReward(RewardContract):
    def make_reward(self) -> Reward:
        return DelegateReward()

    def moves(self) -> Iterable[Move]:
        plans = (Items(items=("bp", "dq")), Items(items=("?", "bp")), Items(items=()), NONSENSE)
        reports = (Note(text="3"), Note(text="é"), NONSENSE)
        answers = (Action(text="9"), NONSENSE)
        for plan in plans:
            workers = [f"worker[{number}]" for number in range(len(plan.items) if isinstance(plan, Items) else 0)]
            said: dict[str, tuple[Payload, ...]] = {"planner": (plan,), "composer": answers, "solo": answers}
            for agent, outputs in (said | dict.fromkeys(workers, reports)).items():
                before = {} if agent in ("planner", "solo") else {"planner": plan}
                for output in outputs:
                    role = agent_of(agent)
                    yield Move(agent=agent, role=role, environment=world(), output=output, before=before, after={})


@pytest.mark.parametrize(
    ("answer", "right", "legal"), [("9", 1.0, True), ("1", 0.0, True), ("", 0.0, True), ("-1", 0.0, False)]
)
def test_the_answer_is_the_last_digit_of_the_result(answer: str, right: float, legal: bool) -> None:
    environment = world()
    step = environment.step({"team": answer})
    assert step.rewards["team"] == {"right": right}
    assert step.illegal == (() if legal else ("team",))
    assert environment.success() is (right == 1.0)


@pytest.mark.parametrize(("answer", "legal"), [("21", True), ("021", True), ("21 crowns", False), ("9" * 5000, False)])
def test_in_words_the_answer_is_a_number(answer: str, legal: bool) -> None:
    environment = world(WORDS)
    assert environment.step({"team": answer}).illegal == (() if legal else ("team",))
    assert environment.success() is legal


@pytest.mark.parametrize(
    ("case", "part", "shown"),
    [
        # bp has both letters; then the first that has b or p: ap before bq, as the archive has them.
        (LETTERS, "bp", "ap1bp3bq0"),
        (LETTERS, "zz", "!"),
        (LETTERS, "", "!"),
        (WORDS, "dragons", "nothing found"),
    ],
)
def test_a_page_shows_the_best_finds_in_the_archive_s_order(case: DelegateCase, part: str, shown: str) -> None:
    assert page(case.archive, part, case.style) == shown


@pytest.mark.parametrize(
    ("items", "value_"),
    [
        (("bp", "dq"), 1.0),
        (("dq", "bp"), 1.0),
        # one of two is needed: 2 · 1 / (2 + 2).
        (("bp", "bp"), 0.5),
        (("bp", "aq"), 0.5),
        # one sub-question, one of two covered: 2 · 1 / (1 + 2).
        (("bp",), 2 / 3),
        (("z", "y"), 0.0),
        ((), 0.0),
    ],
)
def test_a_plan_is_worth_the_entries_that_its_sub_questions_find(items: tuple[str, ...], value_: float) -> None:
    assert plan_value(LETTERS, Items(items=items)) == pytest.approx(value_)
    assert own("planner", Items(items=items)) == {"format": 0.0, "plan": pytest.approx(value_ - 1)}


def test_a_plan_in_words_is_judged_by_what_it_finds_and_not_by_its_words() -> None:
    plan = Items(items=("What wage has the campaner of Orlo?", "debt of the tincter, Orlo"))
    assert plan_value(WORDS, plan) == 1.0
    assert own("planner", NONSENSE, WORDS) == {"format": -1.0, "plan": -1.0}


@pytest.mark.parametrize(
    ("agent", "report", "penalty"),
    [
        ("worker[0]", Note(text="3"), 0.0),
        ("worker[0]", Note(text="4"), -1.0),
        ("worker[1]", Note(text="4"), 0.0),
        ("worker[1]", NONSENSE, -1.0),
        ("worker[2]", Note(text="4"), 0.0),
    ],
)
def test_a_worker_pays_for_a_report_that_its_own_find_does_not_tell(
    agent: str, report: Payload, penalty: float
) -> None:
    # The third sub-question finds nothing: no report can be wrong.
    terms = own(agent, report, plan=Items(items=("bp", "dq", "zz")))
    assert terms["report"] == penalty
    assert terms["format"] == -float(report is NONSENSE)


@pytest.mark.parametrize(
    ("right", "readable", "at"), [(1.0, True, 0), (0.0, True, 1), (1.0, False, 2), (0.0, False, 3)]
)
def test_answer_and_form_are_paid_as_the_paper_pays(right: float, readable: bool, at: int) -> None:
    weights = load_config(["scenario=delegate"]).algorithm.reward
    terms = own("composer", Action(text="9") if readable else NONSENSE)
    paid = {"team.right": right} | {f"own.{name}": amount for name, amount in terms.items()}
    # The form is a penalty here: the paper's 0.1 for it is a constant less.
    assert total_reward(paid, weights) + 0.1 == pytest.approx(ORACLE["reward"][at])


def test_no_own_term_is_ever_above_0() -> None:
    for move in TestDelegateReward().moves():
        assert all(-1 <= amount <= 0 for amount in DelegateReward().own(move).values())


@pytest.mark.parametrize("size", ["small", "medium", "large"])
def test_the_expert_is_right_its_sub_questions_find_what_is_needed_and_others_earn_less(size: str) -> None:
    right = dict.fromkeys(("expert", "", "0"), 0.0)
    for index in range(60):
        for policy in right:
            environment = begun(size, index)
            case = environment.state.case
            action = expert(environment, Random(0))["team"] if policy == "expert" else policy
            right[policy] += environment.step({"team": action}).rewards["team"]["right"] / 60
        assert plan_value(case, Items(items=case.parts)) == 1.0
        for part, at in zip(case.parts, case.needed, strict=True):
            assert found(case.documents, part, case.style)[0] == at
            assert case.documents[at] in page(case.archive, part, "words") or case.style == "letters"
    assert right.pop("expert") == pytest.approx(1.0)
    assert max(right.values()) < 0.4


def test_nothing_legal_earns_more_than_the_expert() -> None:
    for index in range(20):
        best = {}
        for action in ("", *(begun("small", index).legal("team") or ())):
            environment = begun("small", index)
            best[action] = environment.step({"team": action}).rewards["team"]["right"]
        assert [action for action, paid in best.items() if paid] == [expert(begun("small", index), Random(0))["team"]]


def seen_by_worker(size: str, said: str, case: DelegateCase) -> tuple[str, str]:
    role = build_roles(scenario_of(size).teams["team"])["worker"]
    view = View(
        observation=Observation(world(case).observe("worker").fields),
        messages=(Message("planner", Note(text=said)),),
    )
    return role.prompt(view), "\n".join(role.chat(view))


def test_what_a_worker_was_asked_before_has_its_page_of_then() -> None:
    team = scenario_of("small").teams["team"]
    role = build_role("worker", team.roles["worker"].model_copy(update={"history": 1, "ask": "{page}?"}))
    seen, heard = Observation(world(LETTERS).observe("worker").fields), Message("planner", Note(text="bp"))
    call = EarlierCall(View(observation=seen, messages=(heard,)), Note(text="3"))
    now = View(observation=seen, messages=(Message("planner", Note(text="ap")),), past=(call,))
    assert role.earlier(now) == ((role.chat(call.view)[1], "3"),)
    assert role.chat(now)[1] != role.chat(call.view)[1]


def test_a_worker_sees_its_page_and_neither_archive_nor_question() -> None:
    prompt, chat = seen_by_worker("small", "bp", LETTERS)
    assert prompt == "Wbp;ap1bp3bq0>"
    assert "dq4" not in chat
    prompt, chat = seen_by_worker("medium", ASKED[1], WORDS)
    for text in (prompt, chat):
        assert TOLD[3] in text
        assert ASKED[1] in text
        assert ASKED[0] not in text
        assert "archive:" not in text


@pytest.mark.parametrize("name", ["team", "shared"])
def test_a_turn_hands_the_parts_to_workers_and_their_reports_to_the_composer(name: str) -> None:
    team = scenario_of("small").teams[name]
    plan = compile_team(team, build_roles(team))
    flow, fired, heard = Flow.start(plan), [], ""
    says = {"planner": "bp\ndq", "worker[0]": "3", "worker[1]": "4", "composer": "9"}
    while not flow.finished:
        agent = flow.ready()[0]
        if agent == "composer":
            heard = flow.messages(agent)[0].payload.content
        role = plan.roles[agent.partition("[")[0]]
        flow = flow.begin(agent).complete(agent, role.parse(says[agent]))
        fired.append(agent)
    assert fired == list(says)
    assert heard == "1. 3\n2. 4"
    assert flow.action() == Action(text="9")
    adapters = {role.adapter or role_name for role_name, role in team.roles.items()}
    assert adapters == ({"policy"} if name == "shared" else {"planner", "worker", "composer"})


def test_two_tasks_with_the_same_question_and_entries_are_in_one_split() -> None:
    built = scenario_of("small")
    train, held = ({built.content_of(built.task(split, at)) for at in range(300)} for split in ("train", "eval"))
    assert train.isdisjoint(held)


def test_an_expert_s_demonstrations_fit_together() -> None:
    stream: Any = demonstrations(Random(0), 1.0)
    for _ in range(100):
        (plan, parts), *works, (compose, answer), (alone, same) = (next(stream) for _ in range(5))
        first, second = parts.split("\n")
        assert {f"P{first}{sign}{second}>" for sign in "+-"} & {plan}
        reports = []
        for part, (prompt, report) in zip((first, second), works, strict=True):
            shown = prompt.removeprefix(f"W{part};").rstrip(">")
            assert shown[shown.index(part) + 2] == report
            reports.append(report)
        assert compose == f"C{plan[1:-1]};1. {reports[0]}\n2. {reports[1]}>"
        assert alone.startswith(f"S{plan[1:-1]};ap")
        assert int(answer) == int(same) == result_of(plan[3], *map(int, reports))


def result_of(sign: str, first: int, second: int) -> int:
    return (first + second if sign == "+" else first - second) % 10
