"""`imposter`: exact beliefs, a lie that nobody sees through, and no way to win but by finding out."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from itertools import permutations, product
from random import Random
from typing import Any

import msgspec
import pytest

from mas.config.options import ScenarioOptions
from mas.core.environment import Environment, Move, Reward, Task
from mas.core.errors import ConfigError
from mas.core.messages import Action, Failure, Payload, joint_action
from mas.core.scenario import Scenario
from mas.scenarios import SCENARIOS, build_scenario
from mas.scenarios.imposter import (
    BeliefReward,
    ImposterEnvironment,
    beliefs_of_team,
    caught,
    expert,
    free_rooms,
    suspected,
    vote,
)
from mas.scenarios.imposter.beliefs import is_carried, listeners, posterior, top
from mas.scenarios.imposter.rules import ImposterGame, ImposterOptions, make, read_player, read_room, record, talk
from mas.testing.environment import EnvironmentContract
from mas.testing.reward import RewardContract

Policy = Callable[[ImposterEnvironment, Random], str]
IMPOSTER = {"side": "imposter"}
RULES = ImposterOptions(rounds=2)
# a and b meet in 1, c is in 2, and the imposter d claims 1: both know better.
MET = ImposterGame(imposter="d", rooms=("1120", "1230"), wishes=("1234", "4321"), is_cunning=(False, False))
# Nobody meets anybody, and d claims the free room 4.
ALONE = ImposterGame(imposter="d", rooms=("1230", "1230"), wishes=("4321", "4321"), is_cunning=(False, False))


@cache
def scenario_of(**options: Any) -> Scenario:
    return build_scenario(ScenarioOptions(name="imposter", options=options))


def begun(task: Task, **options: Any) -> ImposterEnvironment:
    environment = scenario_of(**options).environment()
    assert isinstance(environment, ImposterEnvironment)
    environment.reset(task)
    return environment


def world(game: ImposterGame) -> ImposterEnvironment:
    environment = ImposterEnvironment(RULES)
    environment._state = game
    return environment


def best(environment: ImposterEnvironment, random: Random) -> str:
    return expert(environment, random)["team"]


def share(policy: Policy, tasks: int = 100, **options: Any) -> tuple[float, float]:
    """Share of games that are won, and mean of all rewards."""
    won = paid = 0.0
    for index in range(tasks):
        environment, random = begun(scenario_of(**options).task("eval", index), **options), Random(index)
        while environment.to_move():
            paid += sum(environment.step({"team": policy(environment, random)}).rewards["team"].values())
        won += environment.success()
    return won / tasks, paid / tasks


CREW_SEES = {"witness": frozenset({"here", "seen"}), "analyst": frozenset({"record"}), "voter": frozenset({"left"})}


class TestCrew(EnvironmentContract):
    privacy: Mapping[str, frozenset[str]] = CREW_SEES
    options: Mapping[str, Any] = {}

    def make_environment(self) -> Environment:
        return scenario_of(**self.options).environment()

    def task(self, number: int) -> Task:
        return scenario_of(**self.options).task("train", number)


class TestCrewInWords(TestCrew):
    privacy: Mapping[str, frozenset[str]] = {}
    options: Mapping[str, Any] = SCENARIOS["imposter"].sizes["medium"]


class TestImposter(TestCrew):
    privacy: Mapping[str, frozenset[str]] = {"lookout": frozenset({"later"}), "talker": frozenset({"heard"})}
    options: Mapping[str, Any] = IMPOSTER


class TestImposterInWords(TestCrew):
    privacy: Mapping[str, frozenset[str]] = {"lookout": frozenset({"later"}), "talker": frozenset({"rooms", "heard"})}
    options: Mapping[str, Any] = {**IMPOSTER, "style": "words", "players": 6}


class TestBeliefReward(RewardContract):
    def make_reward(self) -> Reward:
        return BeliefReward()

    def moves(self) -> Iterable[Move]:
        said: tuple[Payload, ...] = (*(Action(text=text) for text in ("b", "D", "bDd")), Failure(text="", cause="x"))
        for role, output, game in product(("analyst", "solo", "voter"), said, (MET, ALONE)):
            yield Move(agent=role, role=role, environment=world(game), output=output, before={}, after={})


def worlds(rules: ImposterOptions, own: str) -> Iterable[tuple[float, ImposterGame]]:
    """Every world of one round in which `a` is in its own room, with its probability up to a factor."""
    rooms, wishes = tuple(product(rules.rooms, repeat=2)), tuple(permutations(rules.rooms))
    for liar, (one, two), wish, cunning in product(rules.others, rooms, wishes, (False, True)):
        places = dict(zip("a" + rules.others.replace(liar, "") + liar, own + one + two + "0", strict=True))
        row, weight = "".join(places[name] for name in rules.names), rules.cunning if cunning else 1 - rules.cunning
        yield weight, ImposterGame(imposter=liar, rooms=(row,), wishes=("".join(wish),), is_cunning=(cunning,))


@pytest.mark.parametrize("cunning", [0.0, 0.7])
def test_beliefs_are_those_of_counting_all_worlds(cunning: float) -> None:
    rules = ImposterOptions(rounds=2, cunning=cunning)
    tables: dict[str, dict[Any, dict[str, float]]] = {own: {} for own in rules.rooms}
    for own in rules.rooms:
        for weight, game in worlds(rules, own):
            tables[own].setdefault(talk(game, rules), dict.fromkeys(rules.others, 0.0))[game.imposter] += weight
    for seed in range(150):
        game, likely = make(Random(seed), rules), dict.fromkeys(rules.others, 1.0)
        for _ in range(2):
            heard = talk(game, rules)
            likely = {name: likely[name] * tables[game.room("a")][heard][name] for name in likely}
            game = msgspec.structs.replace(game, talks=(*game.talks, heard))
        exact = {name: weight / sum(likely.values()) for name, weight in likely.items()}
        assert posterior(rules, game.talks, "abcd", "a") == pytest.approx(exact)


def test_the_letters_of_the_record_say_as_much_as_all_that_was_seen_and_heard() -> None:
    games, sure = [make(Random(seed), RULES) for seed in range(300)], 0
    for game in games:
        for _ in range(RULES.rounds):
            beliefs = beliefs_of_team(game, RULES)
            letter = suspected(record(game, RULES), caught(game, RULES), RULES)
            assert beliefs[letter.lower()] == max(beliefs.values())
            assert letter.isupper() == (max(beliefs.values()) == 1)
            sure += letter.isupper()
            game = msgspec.structs.replace(game, talks=(*game.talks, talk(game, RULES, objection=caught(game, RULES))))
    assert 200 < sure < 500


def test_what_the_members_see_of_a_round() -> None:
    environment = world(MET)
    assert environment.observe("witness").fields == {"here": "b-d", "seen": "b--"}
    # b objects to d, c met nobody, d objects to b; what a says is not known yet, and the second round is to come.
    assert environment.observe("analyst").fields == {"record": ".d-b...."}
    assert environment.observe("voter").fields == {"left": "2"}
    environment.step({"team": "db-"})
    assert environment.observe("analyst").fields == {"record": "dd-b.---"}


def test_a_true_word_convinces_the_others_and_silence_leaves_them_in_doubt() -> None:
    silent, spoken = talk(MET, RULES), talk(MET, RULES, objection="d")
    # c hears b and d call each other liars; a, who was with b, settles it.
    assert posterior(RULES, [silent], "abcd", "c") == {"a": 0.0, "b": 0.5, "d": 0.5}
    assert posterior(RULES, [spoken], "abcd", "c") == {"a": 0.0, "b": 0.0, "d": 1.0}


def test_who_objects_without_reason_is_suspected_alone_and_nobody_joins_its_motion() -> None:
    false = talk(ALONE, RULES, objection="b")
    assert posterior(RULES, [talk(ALONE, RULES)], "abcd", "c") == pytest.approx({"a": 1 / 3, "b": 1 / 3, "d": 1 / 3})
    assert posterior(RULES, [false], "abcd", "c") == {"a": 1.0, "b": 0.0, "d": 0.0}
    assert not is_carried(ALONE, RULES, [false], "d")


LEAVING = {"dDd": ("d", 1.0), "-Dd": ("d", 1.0), "dD-": ("", 0.0), "bBb": ("", 0.0), "cCc": ("", 0.0)}


@pytest.mark.parametrize("said", LEAVING)
def test_a_player_leaves_if_more_than_half_want_it(said: str) -> None:
    environment = world(MET)
    paid = environment.step({"team": said}).rewards["team"]
    assert (environment.state.gone, paid["win"], environment.success()) == (*LEAVING[said], bool(paid["win"]))


def test_an_innocent_that_leaves_loses_the_game_of_four() -> None:
    # b and d call each other liars. a joins the wrong one, c finds both as likely, and d is glad: three of four.
    environment = world(msgspec.structs.replace(MET, rooms=("3120", "1230")))
    environment.step({"team": "-bb"})
    assert (environment.state.gone, environment.to_move(), environment.success()) == ("b", (), False)


@pytest.mark.parametrize("options", [{}, {"players": 6, "style": "words", "cunning": 0.5, "rounds": 4}, IMPOSTER])
def test_beliefs_are_paid_as_they_change_and_winning_once(options: dict[str, Any]) -> None:
    for index in range(30):
        environment, random = begun(scenario_of(**options).task("train", index), **options), Random(index)
        before, paid = listeners(environment.state, environment.rules), Counter[str]()
        while environment.to_move():
            paid.update(environment.step({"team": random.choice(environment.legal("team") or ())}).rewards["team"])
        change = listeners(environment.state, environment.rules) - before
        assert paid["beliefs"] == pytest.approx(-change if options == IMPOSTER else change)
        assert paid["win"] == float(environment.success())


def test_no_view_tells_two_games_apart_that_differ_in_the_imposter_alone() -> None:
    other = msgspec.structs.replace(ALONE, imposter="c", rooms=("1204", "1204"), wishes=("3421", "3421"))
    views: dict[str, list[Any]] = {"c": [], "d": []}
    for game in (ALONE, other):
        environment = world(game)
        for _ in range(2):
            views[game.imposter].append([environment.observe(view) for view in environment.spec.views])
            environment.step({"team": ""})
    assert views["c"] == views["d"]


def hasty(environment: ImposterEnvironment, random: Random) -> str:
    suspect = top(beliefs_of_team(environment.state, environment.rules))
    return caught(environment.state, environment.rules) + suspect + suspect


def guess(environment: ImposterEnvironment, random: Random) -> str:
    return random.choice(environment.legal("team") or ())


def idle(environment: ImposterEnvironment, random: Random) -> str:
    return ""


def heard_only(environment: ImposterEnvironment, random: Random) -> str:
    heard = environment.observe("talker").fields["heard"]
    return random.choice([room for room in environment.rules.rooms if room not in heard])


CREW_TRICKS: list[tuple[Policy, dict[str, Any]]] = [(idle, {}), (guess, {}), (hasty, {})]


@pytest.mark.parametrize(("trick", "options"), [*CREW_TRICKS, *((one, IMPOSTER) for one in (idle, guess, heard_only))])
def test_no_trick_reaches_the_expert(trick: Policy, options: dict[str, Any]) -> None:
    pairs = zip(share(trick, **options), share(best, **options), strict=True)
    assert all(tricked <= honest - 0.1 for tricked, honest in pairs)


@pytest.mark.parametrize("size", SCENARIOS["imposter"].sizes)
def test_the_expert_wins_almost_always(size: str) -> None:
    assert share(best, 60 if size == "small" else 20, **SCENARIOS["imposter"].sizes[size])[0] >= 0.85


def test_an_imposter_in_a_free_room_is_never_found_and_one_in_another_s_room_at_once() -> None:
    assert share(best, 60, **IMPOSTER)[0] == 1.0
    for index in range(30):
        environment = begun(scenario_of(**IMPOSTER).task("train", index), **IMPOSTER)
        taken = sorted(set(environment.rules.rooms) - set(free_rooms(environment.state, environment.rules)))
        environment.step({"team": taken[0]})
        assert environment.state.gone == "a"


JUNK = ["x", "bb", "aBb", "bab", "b-b", "bBB ", "{}x", '{"voter": "nobody knows"', "b" * 5000]


@pytest.mark.parametrize("action", JUNK)
def test_what_is_no_action_says_nothing_and_spends_the_round(action: str) -> None:
    environment, silent = world(MET), world(MET)
    silent.step({"team": ""})
    assert environment.step({"team": action}).illegal == ("team",)
    assert environment.state == silent.state


def test_members_that_did_not_speak_are_left_out_and_names_are_as_good_as_letters() -> None:
    environment = world(MET)
    action = joint_action({"witness": "It cannot be Ben: I object to Dan!", "analyst": "Cleo 10, so Dan: 80 %"})
    assert environment.step({"team": action}).illegal == ()
    assert (environment.state.talks[0].objection("a"), environment.state.motions) == ("d", ("-",))
    assert environment.state.beliefs[0] == pytest.approx({"b": 0.1, "c": 0.1, "d": 0.8})
    # (1 - 0.8)² + 2 x 0.1²; b and c are sure of d.
    measured = {"belief_accuracy": 1.0, "belief_brier": 0.06, "listener_belief": 1.0}
    assert environment.measures() == pytest.approx(measured)


READ = {"b": ("b", 0.5), "B": ("b", 1.0), "-": ("-", 1.0), "Ben": ("b", 1.0), "ben 40": ("b", 0.4)}
UNREAD = {"Dan (300%)": ("d", 1), "Not Ben. Nobody": ("-", 1.0), "Benjamin": None, "Ben" * 2000: None, "": None}


def test_the_last_name_counts_and_what_is_said_of_it_and_so_does_the_last_room() -> None:
    assert {text: read_player(text) for text in READ | UNREAD} == READ | UNREAD
    assert [read_room(text) for text in ("3", "In the hall, no: the ATTIC", "9", "", "halls")] == [
        "3",
        "5",
        *[None] * 3,
    ]


@pytest.mark.parametrize(("said", "penalty"), [("D", 0.0), ("d", 0.09375), ("B", 0.5), ("b", 0.21875), ("?", 0.25)])
def test_a_wrong_belief_costs_half_its_brier_score_shared_over_the_rounds(said: str, penalty: float) -> None:
    # Of b, c, d: (0.5² + 2 x 0.25²) / 2 / 2 for d; (0.5² + 0.25² + 0.75²) / 4 for b; nobody: 1² / 4.
    move = Move(agent="analyst", role="analyst", environment=world(MET), output=Action(text=said), before={}, after={})
    assert BeliefReward().own(move) == {"wrong_belief": pytest.approx(-penalty)}


def test_the_voter_waits_until_it_is_sure_and_letters_are_for_four_players() -> None:
    assert [vote("b", sure, left) for sure in (True, False) for left in (1, 2)] == ["b", "b", "b", "-"]
    with pytest.raises(ConfigError, match="players=5: letters are for 4"):
        scenario_of(players=5)
