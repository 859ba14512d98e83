"""`retrieval`: a search between roles, MMOA-RAG's penalties, and what plays are worth."""

import itertools
import json
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import pytest

from mas.algorithms.parts.rewards.terms import RewardOptions, total_reward
from mas.config.options import ScenarioOptions
from mas.core.environment import Environment, Move, Reward, Task
from mas.core.messages import Action, Failure, Note, Payload, Plan
from mas.graph.plan import compile_team
from mas.roles import build_roles
from mas.runtime.flow import Flow
from mas.scenarios import SCENARIOS, build_scenario
from mas.scenarios.retrieval.cases import ALIASES, RetrievalCase, search
from mas.scenarios.retrieval.environment import (
    RetrievalEnvironment,
    RetrievalReward,
    RetrievalState,
    chosen_documents,
    demonstrations,
    expert,
    overlap,
)
from mas.scenarios.world import FolderScenario
from mas.testing.environment import EnvironmentContract
from mas.testing.reward import RewardContract

ORACLE: dict[str, float] = json.loads((Path(__file__).parents[1] / "data" / "oracles.json").read_text())["26_mmoa_rag"]
DOCUMENTS = ("b 1 9", "a 3 7", "b 2 8", "a 1 5", "a 4 2", "b 3 0", "c 1 1", "d 1 1")
LETTERS = RetrievalCase("yn", "bdac", DOCUMENTS, 4, "2", "a")
"""What y is: the third of the glossary, a. Its documents are of the years 3, 1 and 4; the newest has a 2."""
TALES = (
    "Annals of 1850: the campaner, wage 41 silver crowns.",
    "Annals of 1870: the campaner, wage 12 copper pence.",
    "Annals of 1860: the campaner, home grey mill.",
    "Tale of 1890: the bell keeper talked about wage and weather.",
)
QUESTION = "Which wage do the latest annals give the bell keeper?"
WORDS = RetrievalCase(QUESTION, "bell keeper: campaner", TALES, 1, "12 copper pence", "campaner wage")


@cache
def scenario_of(size: str) -> FolderScenario:
    built = build_scenario(ScenarioOptions(name="retrieval", options=dict(SCENARIOS["retrieval"].sizes[size])))
    assert isinstance(built, FolderScenario)
    return built


def world(case: RetrievalCase = LETTERS, hits: tuple[int, ...] | None = None) -> RetrievalEnvironment:
    environment = RetrievalEnvironment("letters" if case is LETTERS else "words", 4)
    environment._state = RetrievalState(case, hits=hits)
    return environment


def begun(size: str, index: int) -> RetrievalEnvironment:
    environment = scenario_of(size).environment()
    assert isinstance(environment, RetrievalEnvironment)
    environment.reset(scenario_of(size).task("eval", index))
    return environment


def play(environment: RetrievalEnvironment, *actions: str) -> list[dict[str, float]]:
    return [dict(environment.step({"team": action}).rewards["team"]) for action in actions]


class TestLetters(EnvironmentContract):
    size = "small"
    privacy: Mapping[str, frozenset[str]] = dict.fromkeys(("selector", "answerer"), frozenset({"question", "hits"}))

    def make_environment(self) -> Environment:
        return scenario_of(self.size).environment()

    def task(self, number: int) -> Task:
        return scenario_of(self.size).task("train", number)


class TestWords(TestLetters):
    size = "medium"


class TestRetrievalReward(RewardContract):
    def make_reward(self) -> Reward:
        return RetrievalReward()

    def moves(self) -> Iterable[Move]:
        outputs: list[Payload] = [Action(text=text) for text in ("a", "w", "=", "2", "", "é", "1, 2")]
        for role, hits in itertools.product(("rewriter", "selector", "answerer", "solo"), (None, (), (1, 3, 4))):
            for output in (*outputs, Failure(text="a", cause="nonsense")):
                yield Move(agent=role, role=role, environment=world(hits=hits), output=output, before={}, after={})


def own(
    role: str, text: str | None, case: RetrievalCase = LETTERS, hits: tuple[int, ...] | None = None
) -> Mapping[str, float]:
    output: Payload = Failure(text="", cause="nonsense") if text is None else Note(text=text)
    move = Move(agent=role, role=role, environment=world(case, hits), output=output, before={}, after={})
    return RetrievalReward().own(move)


def test_a_search_by_the_archive_s_name_shows_its_documents_and_the_newest_one_answers() -> None:
    environment = world()
    assert environment.observe("rewriter").fields == {"question": "yn", "glossary": "bdac", "hits": ""}
    assert play(environment, "a") == [{"found": 0.5}]
    assert environment.observe("selector").fields == {"question": "yn", "hits": "a37a15a42"}
    assert play(environment, "2") == [{"right": 1.0}]
    assert environment.success()


@pytest.mark.parametrize(("query", "hits"), [("y", "!"), ("c", "c11"), ("b", "b19b28b30")])
def test_another_name_finds_nothing_or_what_is_not_asked_for(query: str, hits: str) -> None:
    environment = world()
    assert sum(play(environment, query)[0].values()) == -0.1
    assert environment.observe("solo").fields["hits"] == hits


def test_found_is_paid_back_where_another_search_loses_the_document() -> None:
    paid = play(world(), "a", "b", "a", "2")
    assert paid == [{"found": 0.5}, {"found": -0.5, "waste": -0.1}, {"found": 0.5}, {"right": 1.0}]


def test_in_words_the_question_s_own_name_finds_a_tale_and_several_sub_questions_take_turns() -> None:
    # The tale alone has bell and keeper. "campaner": the three annals, shorter first, equals in order: 1, 2 (12 pence),
    # home; "tale": the tale. In turn: best annals, tale, the rest.
    assert search(TALES, ("bell keeper",), 5) == (3,)
    assert search(TALES, ("campaner wage", "tale"), 3)[:2] == (0, 3)
    environment = world(WORDS)
    play(environment, "Search: campaner wage")
    assert environment.observe("answerer").fields["hits"].splitlines()[:2] == [
        "search for 'campaner wage'",
        "1. Annals of 1850: the campaner, wage 41 silver crowns.",
    ]
    assert play(environment, "The 12 copper pence!") == [{"right": 1.0}]
    assert environment.success()


@pytest.mark.parametrize(
    ("said", "f1"),
    [
        ("12 copper pence", 1.0),
        # precision 2/4, recall 2/3: 2 · 2 / (4 + 3).
        ("about 12 or pence", 4 / 7),
        ("41 silver crowns", 0.0),
    ],
)
def test_an_answer_in_words_is_worth_its_f1(said: str, f1: float) -> None:
    assert overlap(said, WORDS.answer) == pytest.approx(f1)
    assert play(world(WORDS), said) == [{"right": pytest.approx(f1)}]


def test_penalties_are_those_of_the_paper() -> None:
    # An answer with an F1 of 0.6 after a rewriter of 5 sub-questions, a valid selection, an answer of 35 words.
    cases = {
        "rewriter_5_subquestions": own("rewriter", "search: campaner; wage; annals; tale; keeper", WORDS),
        "selector_valid": own("selector", "2", WORDS, (0, 1)),
        "generator_35_words": own("answerer", "word " * 35, WORDS),
    }
    for name, terms in cases.items():
        paid = {"team.right": 0.6} | {f"own.{term}": value for term, value in terms.items()}
        assert total_reward(paid, RewardOptions()) == pytest.approx(ORACLE[name])


QUERIES = {
    ("search: campaner", None): 0.0, ("search: " + "campaner " * 40, None): -0.5, ("search: dragon", None): -0.5,
    ("search:", None): -0.5, (None, (0, 1)): -0.5, ("enough", (0, 1)): 0.0, ("Enough.", None): -0.5,
    ("enough", ()): -0.5, ("search: campaner\x00", None): -0.5,
}  # fmt: skip
# Both documents where one is right: F1 = 2 · 1 / (2 + 1), 1/3 short of 1. Document 2 is out of sight in (0, 2).
SELECTIONS = {
    ("2", (0, 1)): 0.0, ("1, 2", (0, 1)): -1 / 3, ("1", (0, 1)): -1.0, ("1", (0, 2)): 0.0, ("2, 2", (0, 1)): -1.0,
    ("3", (0, 1)): -1.0, ("0", (0, 1)): -1.0, (None, (0, 1)): -1.0, ("1", None): -1.0,
}  # fmt: skip


OURS = [(("search: dragon", None), -0.5), (("Enough.", None), -0.5), (("enough", ()), -0.5)]
"""Queries that find nothing, and enough of nothing: the paper has no penalty for them."""


@pytest.mark.parametrize(("said", "penalty"), QUERIES.items())
def test_a_rewriter_pays_for_queries_that_find_nothing(said: Any, penalty: float) -> None:
    text, hits = said
    terms = own("rewriter", text, WORDS, hits)
    assert terms == {"query": penalty - terms["empty"], "empty": penalty * ((said, penalty) in OURS)}


@pytest.mark.parametrize(("said", "penalty"), SELECTIONS.items())
def test_a_selector_pays_for_irrelevant_and_unreadable_choices(said: Any, penalty: float) -> None:
    text, hits = said
    is_readable = chosen_documents(text or "", len(hits or ())) is not None
    assert own("selector", text, WORDS, hits) == {
        "selection": 0.0 if is_readable else penalty, "choice": pytest.approx(penalty) if is_readable else 0.0
    }  # fmt: skip


def test_no_own_term_is_ever_above_0_and_solo_pays_as_the_role_that_it_plays() -> None:
    for move in TestRetrievalReward().moves():
        assert all(-1 <= value <= 0 for value in RetrievalReward().own(move).values())
    assert own("solo", "search: dragon", WORDS) == {"query": 0.0, "empty": -0.5}
    assert own("solo", "word " * 31, WORDS) == {"length": -1.0}
    assert own("solo", "y") == {"query": 0.0, "empty": -0.5}
    assert own("solo", "7") == {"length": 0.0}
    assert chosen_documents("1,2, 3.", 3) == (1, 2, 3)


def best_return(environment: RetrievalEnvironment) -> float:
    """The most that any row of legal actions earns, by trying all of them."""
    if not environment.to_move():
        return 0.0
    branches = [(environment.clone(), action) for action in (*(environment.legal("team") or ()), "")]
    return max(sum(play(clone, action)[0].values()) + best_return(clone) for clone, action in branches)


def test_no_row_of_actions_earns_more_than_the_expert() -> None:
    environment = world()
    # The last three of 4 turns: 19 actions, three deep.
    environment._state = RetrievalState(LETTERS, turn=1)
    assert best_return(environment) == pytest.approx(1.5)


Policy = Callable[[RetrievalEnvironment], str]
TRICKS: dict[str, Policy] = {
    "idle": lambda environment: "",
    "search on and on": lambda environment: "ab"[environment.state.turn % 2],
    "search for the question's word": lambda environment: environment.state.case.question[0],
    "know it already": lambda environment: environment.state.case.answer,
    "find, then guess": lambda environment: "7" if environment.state.is_found else environment.state.case.query,
}


def earned(environment: RetrievalEnvironment, policy: Policy) -> float:
    total = 0.0
    while environment.to_move():
        total += sum(play(environment, policy(environment))[0].values())
    return total


@pytest.mark.parametrize("trick", TRICKS)
def test_no_trick_earns_what_the_expert_earns(trick: str) -> None:
    sums = {"trick": 0.0, "expert": 0.0}
    for index in range(40):
        for name, policy in (("trick", TRICKS[trick]), ("expert", lambda one: expert(one, Random(0))["team"])):
            sums[name] += earned(begun("small", index), policy) / 40
    assert sums["expert"] == pytest.approx(1.5)
    assert sums["trick"] <= 1.0 + 1e-9


@pytest.mark.parametrize("size", ["medium", "large"])
def test_in_words_the_expert_finds_the_document_and_the_question_s_own_words_seldom_do(size: str) -> None:
    seldom = 0
    for index in range(60):
        environment = begun(size, index)
        case = environment.state.case
        assert case.documents[case.needed].endswith(f"{case.answer}.")
        seldom += case.needed in search(case.documents, (case.question,), 5)
        assert earned(environment, lambda one: expert(one, Random(0))["team"]) == pytest.approx(1.5)
        assert environment.success()
    assert seldom < 20


def test_two_tasks_whose_good_search_shows_the_same_are_in_one_split() -> None:
    built = scenario_of("small")
    pools = {split: {built.content_of(built.task(split, index)) for index in range(300)} for split in ("train", "eval")}
    assert pools["train"].isdisjoint(pools["eval"])


def test_a_team_turn_is_a_search_or_an_answer_as_the_rewriter_chose() -> None:
    team = scenario_of("small").teams["team"]
    plan = compile_team(team, build_roles(team))
    for said in ({"rewriter": "a"}, {"rewriter": "=", "selector": "3", "answerer": "2"}):
        flow, fired = Flow.start(plan), []
        while not flow.finished:
            (agent,) = flow.ready()
            flow = flow.begin(agent).complete(agent, plan.roles[agent].parse(said[agent]))
            fired.append(agent)
        assert fired == list(said)
        action = flow.action()
        assert action is not None
        assert action.content == list(said.values())[-1]


def test_what_a_rewriter_says_chooses_the_way_and_nonsense_is_a_pass() -> None:
    role = build_roles(scenario_of("medium").teams["team"])["rewriter"]
    routes = {text: role.parse(text).route for text in ("search: wage", "enough", "Enough.", "I do not know")}
    assert routes == {"search: wage": "search", "enough": "enough", "Enough.": "enough", "I do not know": "search"}
    assert isinstance(role.parse("I do not know"), Failure)
    assert isinstance(role.parse("enough"), Plan)


def test_an_expert_s_demonstrations_solve_what_they_show() -> None:
    stream: Any = demonstrations(Random(0), 1.0)
    for _ in range(500):
        prompt, said = next(stream)
        hits, *asked = prompt[1:-1].split(";")
        documents = [(hits[at + 1], hits[at + 2]) for at in range(0, len(hits) - 2, 3)]
        if prompt[0] == "A":
            assert said == documents[int(asked[0]) - 1][1]
            continue
        best = (max if asked[-1][1] == "n" else min)(documents, default=None)
        if prompt[0] == "S":
            assert documents[int(said) - 1] == best
        elif best is None:
            assert said == asked[0][ALIASES.index(asked[1][0])]
        else:
            assert said == ("=" if prompt[0] == "R" else best[1])
