"""`discussion`: questions, CoMAS's rewards, and members that are held to the truth or to each other."""

import json
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from itertools import product
from pathlib import Path
from random import Random
from typing import Any

import pytest

from mas.algorithms.parts.rewards.names import FAILURE, OWN
from mas.algorithms.parts.rewards.terms import RewardOptions, total_reward
from mas.config.options import ScenarioOptions
from mas.core.environment import Environment, Move, Reward, Task
from mas.core.messages import Action, Failure, Feedback, Note, Payload, joint_action
from mas.core.scenario import Scenario
from mas.graph.plan import compile_team
from mas.roles import build_roles
from mas.runtime.flow import Flow
from mas.scenarios import SCENARIOS, build_scenario
from mas.scenarios.discussion import (
    VIEWS,
    DiscussionEnvironment,
    DiscussionQuestion,
    DiscussionReward,
    DiscussionState,
    Pay,
    demonstrations,
    expert,
    interaction_rewards,
    make,
    read_verdict,
    true_score,
)
from mas.testing.environment import EnvironmentContract
from mas.testing.reward import RewardContract

ORACLE: dict[str, Any] = json.loads((Path(__file__).parents[1] / "data" / "oracles.json").read_text())["08_comas"]
SIZES = SCENARIOS["discussion"].sizes
NONSENSE = Failure(text="??", cause="nonsense")
SEVEN = DiscussionQuestion("5+2", "7")


@cache
def scenario_of(**options: Any) -> Scenario:
    return build_scenario(ScenarioOptions(name="discussion", options=options))


def world(question: DiscussionQuestion = SEVEN, *, pays: bool = True, style: Any = "digits") -> DiscussionEnvironment:
    environment = DiscussionEnvironment(style, 1, pays=pays)
    environment._state = DiscussionState(question)
    return environment


class TestDigits(EnvironmentContract):
    privacy: Mapping[str, frozenset[str]] = dict.fromkeys(VIEWS, frozenset({"question"}))
    options: Mapping[str, Any] = {}

    def make_environment(self) -> Environment:
        return scenario_of(**self.options).environment()

    def task(self, number: int) -> Task:
        return scenario_of(**self.options).task("train", number)


class TestWords(TestDigits):
    options: Mapping[str, Any] = {**SIZES["large"], "pay": "truth"}


def moves_of(agent: str, solution: Payload, evaluation: Payload, score: Payload) -> Iterator[Move]:
    """One member's move in a round in which this was said, played out and not."""
    said = {"solver": solution, "evaluator": evaluation, "scorer": score}
    before = {name: said[name] for name in list(said)[: list(said).index(agent.rstrip("2"))]} if agent != "solo" else {}
    output = said.get(agent.rstrip("2"), solution)
    for after in (said, {}):
        names = {name + agent[len(agent.rstrip("2")) :]: payload for name, payload in after.items()}
        first = {name + agent[len(agent.rstrip("2")) :]: payload for name, payload in before.items()}
        role = agent
        yield Move(agent=agent, role=role, environment=world(), output=output, before=first, after=names)


class TestDiscussionReward(RewardContract):
    pay: Pay = "both"

    def make_reward(self) -> Reward:
        return DiscussionReward(self.pay)

    def moves(self) -> Iterable[Move]:
        solutions: tuple[Payload, ...] = (Action(text="7"), Action(text="x"), NONSENSE)
        evaluations: tuple[Payload, ...] = (Feedback(text="y"), Feedback(text="n"), NONSENSE)
        scores: tuple[Payload, ...] = (Note(text="1"), Note(text="3"), Note(text="x"), NONSENSE)
        for agent, *said in product(("solver", "evaluator2", "scorer", "solo"), solutions, evaluations, scores):
            yield from moves_of(agent, *said)


class TestScoresReward(TestDiscussionReward):
    pay = "scores"


class TestTruthReward(TestDiscussionReward):
    pay = "truth"


def own(pay: Pay, agent: str, solution: str, evaluation: str, score: str | None) -> Mapping[str, float]:
    scored = NONSENSE if score is None else Note(text=score)
    return DiscussionReward(pay).own(next(moves_of(agent, Action(text=solution), Feedback(text=evaluation), scored)))


@pytest.mark.parametrize("score", ["1", "2", "3"])
@pytest.mark.parametrize("of_round", ["", "2"])
def test_a_score_is_shared_by_solver_and_evaluator_as_the_paper_says(score: str, of_round: str) -> None:
    expected = ORACLE["reward_by_score"][score]
    paid = {name: own("scores", f"{name}{of_round}", "4", "y", score) for name in ("solver", "evaluator", "scorer")}
    assert paid["solver"] == {"score": expected["solution"]}
    assert paid["evaluator"] == {"score": expected["evaluation"]}
    assert sum(paid["scorer"].values()) == expected["scorer"]
    assert sum(interaction_rewards(int(score))) == 1


def test_a_score_that_cannot_be_read_costs_the_scorer_and_pays_nobody() -> None:
    assert own("scores", "solver", "7", "y", None) == own("scores", "evaluator", "7", "y", None) == {}
    terms = {f"{OWN}{name}": value for name, value in own("scores", "scorer", "7", "y", None).items()}
    terms[FAILURE] = RewardOptions().failure
    assert terms == {FAILURE: ORACLE["scorer_reward_when_unparsable"]}
    assert total_reward(terms, RewardOptions()) == -1.0


@pytest.mark.parametrize("agent", ["solver", "evaluator"])
def test_what_does_not_parse_has_no_share_in_a_score(agent: str) -> None:
    solution, evaluation = (NONSENSE, Feedback(text="n")) if agent == "solver" else (Action(text="7"), NONSENSE)
    assert DiscussionReward("scores").own(next(moves_of(agent, solution, evaluation, Note(text="2")))) == {}


@pytest.mark.parametrize(
    ("solution", "evaluation", "score", "evaluator", "scorer"),
    # 7 is right. Due are 3 where it was said, else 1 if the evaluator found it out, 2 if not; half of what it is off.
    [
        ("7", "y", "3", 0, 0),
        ("7", "n", "3", -1, 0),
        ("7", "n", "1", -1, -1),
        ("4", "n", "1", 0, 0),
        ("4", "y", "2", -1, 0),
        ("4", "y", "3", -1, -0.5),
        ("4", "n", None, 0, -1),
    ],
)
def test_with_truth_a_judgement_costs_what_it_is_off(
    solution: str, evaluation: str, score: str | None, evaluator: float, scorer: float
) -> None:
    assert own("truth", "evaluator", solution, evaluation, score) == {"honest": evaluator}
    assert own("truth", "scorer", solution, evaluation, score) == {"honest": scorer}
    assert own("truth", "solver", solution, evaluation, score) == {}


def test_under_the_score_that_is_due_no_solution_and_no_evaluation_does_better_than_an_honest_one() -> None:
    for is_right in (True, False):
        paid = {approved: interaction_rewards(true_score(is_right, approved)) for approved in (True, False)}
        assert paid[is_right][1] == max(evaluation for _, evaluation in paid.values())
    assert min(interaction_rewards(true_score(True, said))[0] for said in (True, False)) == 1.0
    assert max(interaction_rewards(true_score(False, said))[0] for said in (True, False, None)) == 0.5


@pytest.mark.parametrize(
    ("text", "verdict"),
    [
        ("y", True),
        ("n", False),
        ("Right: 3 and 4.", True),
        ("WRONG", False),
        ("rightly", None),
        ("", None),
        ("7", None),
    ],
)
def test_an_evaluation_is_read_by_its_first_word(text: str, verdict: bool | None) -> None:
    assert read_verdict(text) is verdict


def test_only_with_truth_is_the_team_paid_for_the_right_answer() -> None:
    assert world(pays=True).step({"team": "7"}).rewards["team"] == {"right": 1.0}
    assert world(pays=True).step({"team": "4"}).rewards["team"] == {"right": 0.0}
    environment = world(pays=False)
    assert environment.step({"team": "7"}).rewards["team"] == {}
    assert environment.success()
    assert scenario_of(pay="truth").task("eval", 3) == scenario_of(pay="scores").task("eval", 3)


def test_the_world_hears_the_members_and_measures_their_judgements() -> None:
    for solution, verdict, score, measured in (
        ("7", "n", "3", (0.0, 1.0)), ("4", "n", "1", (1.0, 1.0)), ("4", "y", "1", (0.0, 0.0))
    ):  # fmt: skip
        environment = world()
        environment.step({"team": joint_action({"solver": solution, "evaluator": verdict, "scorer": score})})
        assert environment.success() is (solution == "7")
        assert tuple(environment.measures().values()) == measured
    alone = world()
    alone.step({"team": "7"})
    assert (alone.success(), alone.measures()) == (True, {})


@pytest.mark.parametrize("action", ["x", "17", "7\n", "٧", "²", '{"solver": "x"}', '{"solver": 7}', '{"judge": "7"}'])
def test_what_is_no_digit_is_not_legal_and_not_paid(action: str) -> None:
    environment = world()
    step = environment.step({"team": action})
    assert (step.illegal, step.rewards["team"]) == (("team",), {"right": 0.0})
    assert environment.state.answer == ""


def test_digits_are_computed_modulo_ten_and_stories_event_by_event() -> None:
    answers = {(q := make(Random(seed), "digits", 1)).text: q.answer for seed in range(3000)}
    # ten first digits, two signs, 0 to 4
    assert answers == {
        f"{a}{sign}{b}": str((a + b if sign == "+" else a - b) % 10)
        for a, sign, b in product(range(10), "+-", range(5))
    }
    for seed in range(300):
        question = make(Random(seed), "words", 4)
        first, *events, _ = question.text.split(". ")
        value = int(first.split()[2])
        for event in events:
            number = next((int(word) for word in event.split() if word.isdigit()), None)
            more = any(word in event for word in ("finds", "buys", "given"))
            value = 2 * value if number is None else value + number if more else value - number
            assert value >= 0
        assert question.answer == str(value)


@pytest.mark.parametrize("options", SIZES.values())
def test_the_expert_reaches_the_most_that_any_answer_does_and_the_idle_nothing(options: dict[str, Any]) -> None:
    scenario = scenario_of(**options, pay="truth")
    for index in range(30):
        environment = scenario.environment()
        assert isinstance(environment, DiscussionEnvironment)
        environment.reset(scenario.task("eval", index))
        best = environment.clone().step(expert(environment, Random(0))).rewards["team"]["right"]
        others = [environment.clone().step({"team": text}).rewards["team"]["right"] for text in ("", "0007x", "-1")]
        digits = [environment.clone().step({"team": text}).rewards["team"]["right"] for text in "0123456789"]
        assert best == 1.0 == max(best, *digits)
        assert max(others) == 0.0


@pytest.mark.parametrize(
    ("role", "text", "content"),
    [
        ("solver", "12+3 = 15, so 15.", "15"),
        ("solver", "I do not know.", None),
        ("evaluator", "Wrong. 12+3 is 15.", "Wrong. 12+3 is 15."),
        ("evaluator", "It is right.", None),
        ("scorer", " 3 points, as 15 is right.", "3"),
        ("scorer", "13", None),
    ],
)
def test_words_of_members_are_read(role: str, text: str, content: str | None) -> None:
    payload = build_roles(scenario_of(style="words").teams["team"])[role].parse(text)
    assert isinstance(payload, Failure) if content is None else payload.content == content


@pytest.mark.parametrize(("team", "answer"), [("team", '{"solver":"3","evaluator":"n","scorer":"1"}'), ("rounds", "3")])
def test_each_member_speaks_once_a_round_and_the_last_solution_counts(team: str, answer: str) -> None:
    spec = scenario_of().teams[team]
    flow, spoke = Flow.start(compile_team(spec, build_roles(spec))), []
    said = {"solver": Action(text="3"), "evaluator": Feedback(text="n"), "scorer": Note(text="1")}
    while not flow.finished:
        (agent,) = flow.ready()
        spoke.append(agent)
        flow = flow.begin(agent).complete(agent, said[agent.rstrip("2")])
    members = ["solver", "evaluator", "scorer"]
    assert spoke == (members if team == "team" else members + [f"{name}2" for name in members])
    action = flow.action()
    assert action is not None
    assert action.content == answer


def test_an_expert_s_demonstrations_are_right_in_every_part() -> None:
    stream = demonstrations(Random(0), 1.0, steps=1)
    for _ in range(2000):
        prompt, answer = next(stream)
        text, _, said = prompt[1:-1].partition(";")
        value = str((int(text[0]) + int(text[1:])) % 10)
        if prompt[0] == "E":
            assert answer == ("y" if said == value else "n")
        elif prompt[0] == "T":
            assert answer == ("3" if said[0] == value else "1" if said[1] == "n" else "2")
        else:
            assert answer == value
