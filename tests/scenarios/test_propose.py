"""A proposer and its solvers: what the gates let through, who moves when, what is paid and measured."""

from collections.abc import Mapping
from random import Random
from statistics import fmean

import pytest

from mas.config.options import ScenarioOptions
from mas.core.environment import Task
from mas.scenarios import build_scenario
from mas.scenarios.propose import (
    GATES,
    PROPOSER,
    QUESTIONS,
    SOLVERS,
    ProposeCase,
    ProposeEnvironment,
    answers,
    failed_gate,
    good_questions,
    make,
)
from mas.testing.environment import EnvironmentContract

CASE = ProposeCase(own=("a4", "c7", "f7"), noise=("b1", "d2", "e9", "g6"), answer="7", asked=("c+0",), fixed="d+3")


class TestProposed(EnvironmentContract):
    privacy: Mapping[str, frozenset[str]] = {view: frozenset({"told"}) for view in (PROPOSER, *SOLVERS)}

    def make_environment(self) -> ProposeEnvironment:
        return ProposeEnvironment("proposer", 1)

    def task(self, number: int) -> Task:
        return Task(id=f"t-{number}", seed=number, split="eval" if number % 2 else "train")


class TestAskedByTheWorld(TestProposed):
    def make_environment(self) -> ProposeEnvironment:
        return ProposeEnvironment("world", 1)


def begun(seed: int = 0, split: str = "train", source: str = "proposer") -> ProposeEnvironment:
    environment = ProposeEnvironment(source, 1)
    environment.reset(Task(id="t", seed=seed, split=split))
    return environment


@pytest.mark.parametrize(
    ("question", "gate"),
    [
        ("f+0", None),
        ("a+3", None),  # 4 + 3
        ("g+1", None),  # of the noise, which the proposer does not see: the documents together have the answer
        ("", "format"),
        ("f", "format"),
        ("f-0", "format"),
        ("f+9", "format"),
        ("f+00", "format"),
        ("z+0", "format"),
        ("f+1", "validity"),
        ("e-1", "validity"),
        ("*+0", "determinism"),  # something is worth 7, and others are worth other numbers
        ("c+0", "novelty"),
    ],
)
def test_the_first_gate_that_a_proposal_does_not_pass(question: str, gate: str | None) -> None:
    assert failed_gate(CASE, question) == gate


def test_answers_are_counted_modulo_ten() -> None:
    assert answers("e+3", CASE.documents) == {"2"}
    assert answers("b-3", CASE.documents) == {"8"}
    assert answers("*+1", CASE.documents) == {"5", "8", "2", "3", "0", "7"}


def test_every_task_has_a_good_question_about_the_proposers_documents() -> None:
    for seed in range(300):
        case = make(Random(seed), 2)
        assert good_questions(case)
        assert all(failed_gate(case, question) is None for question in good_questions(case))
        assert len(case.own) == 3
        assert len(case.noise) == 4
        assert {failed_gate(case, question) for question in case.asked} <= {"novelty"}


def test_what_blind_and_constant_proposers_are_accepted_for_and_how_little_choice_of_difficulty_there_is() -> None:
    """The numbers that the README compares with; more tasks than here make them exact to 0.01."""
    cases = [make(Random(seed), 1) for seed in range(2000)]
    one_thing = [question for question in QUESTIONS if question[0] != "*"]
    blind = fmean(failed_gate(case, question) is None for case in cases[:500] for question in one_thing)
    constant = fmean(failed_gate(case, f"{case.own[0][0]}+0") is None for case in cases)
    sizes = [[abs(int(question[1:])) for question in good_questions(case)] for case in cases]
    assert blind == pytest.approx(0.09, abs=0.01)
    assert constant == pytest.approx(0.40, abs=0.03)
    assert fmean(len(own) == 1 for own in sizes) == pytest.approx(0.51, abs=0.03)
    assert fmean(max(own) for own in sizes) == pytest.approx(1.64, abs=0.06)
    assert fmean(min(own) for own in sizes) == pytest.approx(0.99, abs=0.06)


@pytest.mark.parametrize(("said", "gate"), [("", "format"), ("nonsense", "format"), ("*", "determinism")])
def test_a_proposal_that_is_not_accepted_is_seen_by_no_solver(said: str, gate: str) -> None:
    environment = begun()
    if said == "*":
        said += good_questions(environment.state.case)[0][1:]
    step = environment.step({PROPOSER: said})
    assert step.rewards == {PROPOSER: {"accepted": 0.0}}
    assert environment.to_move() == ()
    assert not environment.success()
    measured = environment.measures()
    assert measured["valid"] == 0
    assert {one: measured[one] for one in GATES} == {one: float(one == gate) for one in GATES}
    assert "solve_rate" not in measured


def test_a_question_that_is_accepted_is_attempted_by_all_at_once_and_by_nobody_else() -> None:
    environment = begun()
    question = good_questions(environment.state.case)[0]
    assert environment.step({PROPOSER: question}).rewards == {PROPOSER: {"accepted": 1.0}}
    assert environment.to_move() == SOLVERS
    assert all(environment.observe(seat).fields["told"].endswith(f";{question}") for seat in SOLVERS)
    right = environment.state.case.answer
    wrong = str((int(right) + 1) % 10)
    said = dict(zip(SOLVERS, (right, wrong, "", right, "no such action"), strict=True))
    step = environment.step(said)
    assert [step.rewards[seat]["right"] for seat in SOLVERS] == [1, 0, 0, 1, 0]
    assert step.illegal == (SOLVERS[4],)
    assert environment.to_move() == ()
    measured = environment.measures()
    assert (measured["valid"], measured["solve_rate"], measured["in_band"]) == (1, 0.4, 1)
    assert environment.success()


@pytest.mark.parametrize("is_accepted", [True, False])
def test_a_held_out_task_ends_with_the_worlds_question_whatever_was_proposed(is_accepted: bool) -> None:
    environment = begun(3, "eval")
    case = environment.state.case
    environment.step({PROPOSER: good_questions(case)[0] if is_accepted else ""})
    if is_accepted:
        environment.step(dict.fromkeys(SOLVERS, case.answer))
        assert not environment.success()
    assert environment.to_move() == SOLVERS[:1]
    assert environment.observe(SOLVERS[0]).fields["told"].endswith(f";{case.fixed}")
    assert case.fixed not in environment.observe(PROPOSER).fields["told"]
    (right,) = answers(case.fixed, case.documents)
    environment.step({SOLVERS[0]: right})
    assert environment.success()


def test_the_world_asks_its_own_question_in_training_and_nobody_proposes() -> None:
    environment = begun(source="world")
    assert environment.to_move() == SOLVERS
    assert environment.observe(SOLVERS[2]).fields["told"].endswith(f";{environment.state.case.fixed}")
    held_out = begun(source="world", split="eval")
    assert held_out.to_move() == SOLVERS[:1]
    assert "valid" not in held_out.measures()


def test_both_sources_of_questions_have_the_same_tasks_and_the_same_base() -> None:
    made = [build_scenario(ScenarioOptions(name="propose", options={"source": one})) for one in ("proposer", "world")]
    assert made[0].fingerprint() == made[1].fingerprint()
    assert made[0].task("eval", 3) == made[1].task("eval", 3)


def test_the_proposer_sees_its_own_documents_and_nothing_of_the_noise() -> None:
    environment = begun(5)
    case = environment.state.case
    told = environment.observe(PROPOSER).fields["told"]
    shown = told.removeprefix("P").partition(";")[0]
    assert shown == "".join(case.own)
