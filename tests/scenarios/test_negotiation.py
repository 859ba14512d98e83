"""`negotiation`: an other side that keeps to its script, deals that are paid once, and values that nobody else sees."""

from collections.abc import Callable, Mapping
from functools import cache
from random import Random
from typing import Any

import pytest

from mas.config.options import ScenarioOptions
from mas.core.environment import Environment, Task
from mas.core.errors import ConfigError
from mas.core.messages import Action, Failure
from mas.core.scenario import Scenario
from mas.roles import build_roles
from mas.scenarios import SCENARIOS, build_scenario
from mas.scenarios.negotiation import TalkEnvironment, TalkState, demonstrations, expert, said_by_speaker
from mas.scenarios.negotiation.deals import (
    FLOOR,
    SCRIPTS,
    START,
    DealProblem,
    Script,
    Style,
    aspiration,
    code,
    decode,
    efficiency,
    ladder,
    make_problem,
    most,
    nash_share,
    offer,
    packages,
    phrase,
    read_offer,
)
from mas.testing.environment import EnvironmentContract

SIZES = SCENARIOS["negotiation"].sizes
# The first thing is worth most to the team, the last to the other side.
PROBLEM = DealProblem((1, 1, 1), (6, 3, 1), (1, 3, 6))


@cache
def scenario_of(**options: Any) -> Scenario:
    return build_scenario(ScenarioOptions(name="negotiation", options=options))


def world(
    script: Script = "conceder", problem: DealProblem = PROBLEM, turns: int = 4, style: Style = "letters"
) -> TalkEnvironment:
    opening = offer(problem, aspiration(script, 0, turns, 0))
    begun = TalkState(problem=problem, script=script, offers=(opening,))
    environment = TalkEnvironment(lambda random: begun, style, turns)
    environment.reset(Task(id="train-0", seed=0))
    return environment


class TestLetters(EnvironmentContract):
    privacy: Mapping[str, frozenset[str]] = {
        "analyst": frozenset({"values", "asks", "offers", "ladder", "things", "left"}),
        "speaker": frozenset({"offer", "ladder", "things", "left"}),
    }
    options: Mapping[str, Any] = {}

    def make_environment(self) -> Environment:
        return scenario_of(**self.options).environment()

    def task(self, number: int) -> Task:
        return scenario_of(**self.options).task("train", number)


class TestWords(TestLetters):
    options: Mapping[str, Any] = SIZES["medium"]


def test_time_lowers_what_two_scripts_ask_and_offers_lower_what_the_third_asks() -> None:
    # 3 + 6 (1 - x^(1/3)) at x = 1/4, 1/2, 3/4, 1: 5.22, 4.24, 3.55, 3; with x^3: 8.91, 8.25, 6.47, 3; rounded up.
    assert [aspiration("conceder", turn, 4, 0) for turn in range(5)] == [9, 6, 5, 4, 3]
    assert [aspiration("boulware", turn, 4, 0) for turn in range(5)] == [9, 9, 9, 7, 3]
    assert [aspiration("tit_for_tat", 4, 4, given) for given in (0, 2, 5, 9)] == [9, 7, 4, FLOOR]


@pytest.mark.parametrize("script", SCRIPTS)
def test_what_it_offers_leaves_it_what_it_wants_and_it_takes_no_less(script: Script) -> None:
    for seed in range(30):
        problem = make_problem(Random(seed), "words", 3)
        for package in packages(problem.counts):
            environment = world(script, problem, style="words")
            environment.step({"team": f"OFFER {phrase(package)}"})
            state, worth = environment.state, problem.for_other(package)
            least = aspiration(script, 1, 4, worth)
            assert (state.deal == package) == (worth >= least)
            if state.deal is None:
                assert problem.for_other(state.offers[-1]) >= least


def all_courses(environment: TalkEnvironment) -> float:
    """The most that any course pays, passes among them."""
    if not environment.to_move():
        return 0.0
    found = []
    for action in ("", *(environment.legal("team"))):
        after = environment.clone()
        found.append(after.step({"team": action}).rewards["team"].get("utility", 0.0) + all_courses(after))
    return max(found)


@pytest.mark.parametrize("script", SCRIPTS)
def test_the_expert_gets_the_most_that_any_course_gets(script: Script) -> None:
    for seed in range(6):
        environment = world(script, make_problem(Random(seed), "letters", 3), turns=3)
        best = all_courses(environment)
        assert 10 * best == pytest.approx(most(environment.state.problem, script, 3))
        assert earn(environment, lambda world: expert(world, Random(0))["team"]) == pytest.approx(best)


Hidden = tuple[DealProblem, Script, int]
"""What the team does not know, and what it has given at best by the other side's values."""


def best_by_sight(cases: list[Hidden], turn: int, turns: int, standing: tuple[int, ...]) -> int:
    """The most that one course of action, chosen by what is seen alone, gets from all these other sides together."""
    mine = cases[0][0]
    best = len(cases) * mine.for_team(standing)
    for package in packages(mine.counts):
        total, answers = 0, dict[tuple[int, ...], list[Hidden]]()
        for problem, script, given in cases:
            after = max(given, problem.for_other(package))
            least = aspiration(script, turn + 1, turns, after)
            if problem.for_other(package) >= least:
                total += problem.for_team(package)
            elif turn + 1 < turns:
                answers.setdefault(offer(problem, least), []).append((problem, script, after))
        total += sum(best_by_sight(same, turn + 1, turns, answer) for answer, same in answers.items())
        best = max(best, total)
    return best


def test_who_sees_what_the_team_sees_gets_less_than_the_expert_and_more_than_by_any_habit() -> None:
    others = sorted({make_problem(Random(seed), "letters", 3).theirs for seed in range(300)})
    openings: dict[tuple[int, ...], list[Hidden]] = {}
    for theirs in others:
        for script in SCRIPTS:
            problem = DealProblem((1, 1, 1), (6, 3, 1), theirs)
            openings.setdefault(offer(problem, START), []).append((problem, script, 0))
    by_sight = sum(best_by_sight(cases, 0, 3, opening) for opening, cases in openings.items())
    expert_s = sum(most(problem, script, 3) for cases in openings.values() for problem, script, _ in cases)
    accepted = sum(len(cases) * PROBLEM.for_team(opening) for opening, cases in openings.items())
    assert accepted < 0.6 * by_sight
    assert by_sight < expert_s


def earn(environment: TalkEnvironment, policy: Callable[[TalkEnvironment], str]) -> float:
    """All that a policy is paid to the end."""
    paid = 0.0
    while environment.to_move():
        paid += sum(environment.step({"team": policy(environment)}).rewards["team"].values())
    return paid


def idle(environment: TalkEnvironment) -> str:
    return ""


def bump(environment: TalkEnvironment) -> str:
    return "8"


def stubborn(environment: TalkEnvironment) -> str:
    return "7"


def accept_at_once(environment: TalkEnvironment) -> str:
    return "y"


@pytest.mark.parametrize("trick", [idle, bump, stubborn, accept_at_once])
def test_no_trick_earns_what_the_expert_earns(trick: Callable[[TalkEnvironment], str]) -> None:
    honest = tricked = 0.0
    for index in range(60):
        for policy in (trick, lambda world: expert(world, Random(0))["team"]):
            environment = scenario_of().environment()
            assert isinstance(environment, TalkEnvironment)
            environment.reset(scenario_of().task("train", index))
            paid = earn(environment, policy) / 60
            tricked, honest = (tricked + paid, honest) if policy is trick else (tricked, honest + paid)
    assert tricked < honest - 0.3


def test_a_deal_is_paid_once_and_ends_the_talk() -> None:
    environment = world()
    assert environment.step({"team": "7"}).rewards["team"] == {}
    # The second time it takes 5: leaving it the last thing (6) is enough, the first two are worth 9 to the team.
    assert environment.step({"team": "6"}).rewards["team"] == {"utility": 0.9}
    assert environment.to_move() == ()
    assert environment.success()


def test_without_a_deal_nothing_is_paid() -> None:
    environment = world("tit_for_tat")
    assert earn(environment, stubborn) == 0.0
    assert not environment.success()
    assert environment.measures() == {"agreement": 0.0, "pareto_efficiency": 0.0, "nash_product": 0.0}


def test_an_offer_that_is_not_legal_makes_no_transition_but_spends_the_turn() -> None:
    for action in ("8", "77", "Y", "y\n", "-1", "٣", "OFFER 1 book", "7" * 10_000, "\x00"):
        environment = world()
        before = environment.state
        step = environment.step({"team": action})
        assert step.illegal == ("team",)
        assert step.rewards["team"] == {}
        after = environment.state
        assert (after.turn, after.asks, after.offers, after.deal) == (1, before.asks, before.offers, None)


def test_no_view_shows_what_the_other_side_wants_or_how_it_plays() -> None:
    for size in SIZES.values():
        make = scenario_of(**size).environment
        for seed in range(20):
            environment = make()
            assert isinstance(environment, TalkEnvironment)
            environment.reset(Task(id="train-0", seed=seed))
            seen = {view: environment.observe(view) for view in environment.spec.views}
            counts, mine = environment.state.problem.counts, environment.state.problem.mine
            for script in SCRIPTS:
                other = DealProblem(counts, mine, (0,) * len(counts))
                environment._state = TalkState(problem=other, script=script, offers=environment.state.offers)
                assert {view: environment.observe(view) for view in environment.spec.views} == seen


def test_one_agent_sees_all_that_the_team_sees_together() -> None:
    for size in SIZES.values():
        environment = scenario_of(**size).environment()
        environment.reset(scenario_of(**size).task("train", 0))
        together = {**environment.observe("analyst").fields, **environment.observe("speaker").fields}
        assert dict(environment.observe("solo").fields) == together


def test_measures_tell_a_good_deal_for_both_from_a_bad_one() -> None:
    # Of the eight packages, (1, 0, 0) gives 6 and 9, (1, 1, 0) gives 9 and 6: products of 54, the most there is.
    assert (efficiency(PROBLEM, (1, 1, 0)), nash_share(PROBLEM, (1, 1, 0))) == (1.0, 1.0)
    # (0, 1, 1) gives 4 and 1: the best that is no worse for either is (1, 1, 0) or (1, 0, 0) with 15 in all.
    assert (efficiency(PROBLEM, (0, 1, 1)), nash_share(PROBLEM, (0, 1, 1))) == (5 / 15, 4 / 54)
    # Everything for one: on the frontier, and no product.
    assert (efficiency(PROBLEM, (1, 1, 1)), nash_share(PROBLEM, (1, 1, 1))) == (1.0, 0.0)
    environment = world()
    earn(environment, lambda world: expert(world, Random(0))["team"])
    assert environment.measures() == {"agreement": 1.0, "pareto_efficiency": 1.0, "nash_product": 1.0}


def test_packages_are_written_and_read_as_characters_and_in_words() -> None:
    assert {decode(code(package), 3) for package in packages((1, 1, 1))} == set(packages((1, 1, 1)))
    assert ladder(PROBLEM)[0] == (1, 1, 1)
    for package in packages((2, 1, 3)):
        assert read_offer(f"OFFER {phrase(package)}", (2, 1, 3)) == package
    assert read_offer("OFFER: 1 ball and 2 books.", (2, 1, 3)) == (2, 0, 1)
    for text in (
        "OFFER 3 books",
        "OFFER 1 lamp",
        "OFFER 1 book, 1 book",
        "OFFER all",
        "offer 1 book",
        "1 book",
        "OFFER ",
    ):
        assert read_offer(text, (2, 1, 3)) is None


@pytest.mark.parametrize(
    ("text", "action"),
    [
        ("So.\nOFFER 1 hat", "OFFER 1 hat"),
        ("ACCEPT", "ACCEPT"),
        ("I ACCEPT", None),
        ("OFFER 2 hats\nOFFER 1 hat\nif so", "OFFER 1 hat"),
    ],
)
@pytest.mark.parametrize("team", ["team", "solo"])
def test_the_last_line_that_begins_with_an_offer_counts(team: str, text: str, action: str | None) -> None:
    spec = scenario_of(style="words").teams[team]
    payload = build_roles(spec)[spec.output].parse(text)
    assert isinstance(payload, Failure) if action is None else payload == Action(text=action)


def test_an_expert_s_demonstrations_lead_to_the_best_deal_and_a_noisy_teacher_gives_in() -> None:
    make = scenario_of().environment
    stream = demonstrations(Random(0), 1.0, make=make)
    for _ in range(300):
        (analyst, aim), (solo, action), (speaker, said) = next(stream), next(stream), next(stream)
        assert (analyst[0], solo[0], speaker[0]) == ("A", "N", "S")
        offers = analyst[:-1].split(";")[3]
        assert action == ("y" if aim == offers[-1] else aim)
        rungs, standing, heard = speaker[1:-1].split(";")
        assert said == said_by_speaker(rungs, standing, heard)
    stream = demonstrations(Random(0), 0.0, make=make)
    said_by_noisy_teacher = [next(stream)[1] for _ in range(900)][1::3]
    # A skill of 0 guesses in one case in ten, among nine: accepts in 0.91; four standard deviations are 0.07.
    assert said_by_noisy_teacher.count("y") / 300 == pytest.approx(0.91, abs=0.07)


def test_the_opponent_of_an_option_is_the_only_one_there_is() -> None:
    for script in (*SCRIPTS, "mixed"):
        scenario, met = scenario_of(opponent=script), set()
        for index in range(30):
            environment = scenario.environment()
            assert isinstance(environment, TalkEnvironment)
            environment.reset(scenario.task("train", index))
            met.add(environment.state.script)
            assert environment.state.problem.for_other(environment.state.offers[0]) >= START
        assert met == (set(SCRIPTS) if script == "mixed" else {script})


def test_letters_have_three_kinds_of_things() -> None:
    with pytest.raises(ConfigError, match="for kinds=5 take style=words"):
        scenario_of(kinds=5)
