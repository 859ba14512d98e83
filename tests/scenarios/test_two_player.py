"""Two-player games: rules that keep them zero-sum, what each seat sees, and how good a policy is exactly."""

from functools import cache
from itertools import islice
from random import Random
from statistics import fmean
from typing import Any

import pytest

from mas.config.options import ScenarioOptions
from mas.core.environment import Task
from mas.core.errors import ConfigError
from mas.core.scenario import Decision, Solvable
from mas.core.team import TeamSpec
from mas.scenarios import build_scenario
from mas.scenarios.bridges.open_spiel_players import minimax
from mas.scenarios.two_player import TwoPlayerScenario
from mas.scenarios.two_player.environment import TwoPlayerEnvironment
from mas.scenarios.two_player.games import GAMES
from mas.scenarios.two_player.solve import all_decisions, measures
from mas.testing.environment import EnvironmentContract

pytest.importorskip("pyspiel")
STYLES = ("letters", "words")


def scenario_of(game: str, **options: Any) -> TwoPlayerScenario:
    built = build_scenario(ScenarioOptions(name="two_player", options={"game": game, **options}))
    assert isinstance(built, TwoPlayerScenario)
    return built


def begun(game: str, seed: int = 0, **options: Any) -> TwoPlayerEnvironment:
    environment = scenario_of(game, **options).environment()
    assert isinstance(environment, TwoPlayerEnvironment)
    environment.reset(Task(id="t", seed=seed))
    return environment


class TestLetters(EnvironmentContract):
    def make_environment(self) -> TwoPlayerEnvironment:
        return TwoPlayerEnvironment((GAMES["leduc_poker"],), "letters", 1)

    def task(self, number: int) -> Task:
        return Task(id=f"train-{number}", seed=number)


class TestAtOnce(EnvironmentContract):
    def make_environment(self) -> TwoPlayerEnvironment:
        return TwoPlayerEnvironment((GAMES["rock_paper_scissors"],), "letters", 2)

    def task(self, number: int) -> Task:
        return Task(id=f"train-{number}", seed=number)


@pytest.mark.parametrize("game", GAMES)
@pytest.mark.parametrize("style", STYLES)
def test_whatever_is_said_the_two_seats_earn_nothing_together(game: str, style: str) -> None:
    """Legal moves, illegal ones, and none: 60 games of each."""
    random = Random(game)
    for seed in range(60):
        environment, earned = begun(game, seed, style=style, tries=1 + seed % 2), [0.0, 0.0]
        while seats := environment.to_move():
            legal = {seat: environment.legal(seat) for seat in seats}
            said = {seat: random.choice([*legal[seat], *legal[seat], "nonsense", ""]) for seat in seats}
            step = environment.step(said)
            paid = [step.rewards[seat]["payoff"] for seat in environment.spec.seats]
            earned = [old + new for old, new in zip(earned, paid, strict=True)]
        assert sum(earned) == pytest.approx(0)


def test_an_illegal_move_loses_for_the_mover_what_the_other_wins() -> None:
    environment = begun("kuhn_poker")
    step = environment.step({"player_0": "x"})
    # The least that Kuhn poker can pay is -2.
    assert (step.rewards["player_0"]["payoff"], step.rewards["player_1"]["payoff"]) == (-2, 2)
    assert step.illegal == ("player_0",)
    assert not environment.to_move()
    assert environment.measures() == {"draw": 0, "forfeit": 1, "illegal": 1}


def test_a_draw_pays_nobody() -> None:
    environment = begun("tic_tac_toe")
    for number in "021354678":  # x x o / o o x / x o x
        (seat,) = environment.to_move()
        step = environment.step({seat: number})
    assert {seat: paid["payoff"] for seat, paid in step.rewards.items()} == {"player_0": 0, "player_1": 0}
    assert environment.measures() == {"draw": 1, "forfeit": 0, "illegal": 0}


@pytest.mark.parametrize("game", ["kuhn_poker", "leduc_poker", "simple_negotiation"])
def test_no_seat_sees_the_others_card(game: str) -> None:
    """What a seat sees is the same whatever the other one holds: deals that differ in that card alone look alike."""
    shown: dict[str, set[str]] = {}
    for seed in range(300):
        environment = begun(game, seed)
        seen = environment.observe("player_0").fields["seen"]
        shown.setdefault(seen, set()).add(environment.observe("player_1").fields["seen"])
    # Three (six) cards of one's own, and every one of the others is seen across the table; four pairs of values, and
    # the other one may have the same.
    own, others = {"kuhn_poker": (3, 2), "leduc_poker": (6, 5), "simple_negotiation": (4, 4)}[game]
    assert len(shown) == own
    assert {len(seen) for seen in shown.values()} == {others}


@pytest.mark.parametrize("game", GAMES)
def test_letters_lose_nothing_and_every_decision_is_there_once(game: str) -> None:
    letters, words = (all_decisions(GAMES[game], style) for style in ("letters", "words"))
    told = {(one.seat, one.observation.fields["seat"], one.observation.fields["seen"]) for one in letters}
    assert len(told) == len(letters) == len({one.key for one in words})
    assert all(set(one.legal) <= set(GAMES[game].letters) and len(set(one.legal)) == len(one.legal) for one in letters)
    # Kuhn: 3 cards x 2 decisions of each seat. Leduc: OpenSpiel's 936. Tic-tac-toe: 5478 boards less 958 final ones.
    # Simple negotiation: 4 pairs of values x 148 public histories, counted by hand in test_simple_negotiation.py.
    count = {"kuhn_poker": 12, "leduc_poker": 936, "tic_tac_toe": 4520, "rock_paper_scissors": 2}
    assert len(letters) == (count | {"simple_negotiation": 592})[game]


@pytest.mark.parametrize("game", GAMES)
def test_what_the_environment_shows_is_the_decision_that_is_solved(game: str) -> None:
    scenario = scenario_of(game)
    by_view = {
        (one.seat, tuple(sorted(one.observation.fields.items()))): one for one in all_decisions(GAMES[game], "letters")
    }
    random = Random(0)
    for index in range(20):
        environment = scenario.environment()
        environment.reset(scenario.task("train", index))
        while seats := environment.to_move():
            for seat in seats:
                found = by_view[seat, tuple(sorted(environment.observe(seat).fields.items()))]
                assert found.legal == environment.legal(seat)
            environment.step({seat: random.choice(environment.legal(seat) or ("",)) for seat in seats})


def uniform(decisions: tuple[Decision, ...]) -> dict[str, dict[str, float]]:
    return {one.key: dict.fromkeys(one.legal, 1 / len(one.legal)) for one in decisions}


# Kuhn 11/12; Leduc 4.747, as published with OpenSpiel; of rock, paper, scissors uniform play is the equilibrium.
@pytest.mark.parametrize(
    ("game", "gain"), [("kuhn_poker", 11 / 12), ("leduc_poker", 4.747222), ("rock_paper_scissors", 0.0)]
)
@pytest.mark.parametrize("style", STYLES)
def test_the_nash_conv_of_uniform_play(game: str, gain: float, style: Any) -> None:
    scenario = scenario_of(game, style=style)
    assert isinstance(scenario, Solvable)
    found = scenario.solve(uniform(tuple(scenario.decisions())))
    assert found == {"nash_conv": pytest.approx(gain, abs=1e-6)}


def test_perfect_play_of_tic_tac_toe_cannot_be_beaten_and_uniform_play_can() -> None:
    pyspiel = pytest.importorskip("pyspiel")
    game = GAMES["tic_tac_toe"]
    decisions = all_decisions(game, "letters")
    best: dict[str, float] = {}

    def worth(state: Any) -> float:
        """Of the board to the first seat, both playing as well as can be."""
        if str(state) not in best:
            values = [worth(state.child(action)) for action in state.legal_actions()]
            best[str(state)] = state.returns()[0] if not values else (max, min)[state.current_player()](values)
        return best[str(state)]

    policy: dict[str, dict[str, float]] = {}

    def visit(state: Any) -> None:
        if state.is_terminal() or str(state) in policy:
            return
        good = [action for action in state.legal_actions() if worth(state.child(action)) == worth(state)]
        policy[str(state)] = {str(action): float(action == good[0]) for action in state.legal_actions()}
        for action in state.legal_actions():
            visit(state.child(action))

    visit(pyspiel.load_game("tic_tac_toe").new_initial_state())
    assert measures(game, "letters", policy) == {"nash_conv": 0}
    assert measures(game, "letters", uniform(decisions))["nash_conv"] > 1.9


def test_too_many_decisions_are_not_asked_for() -> None:
    usual, exact = scenario_of("tic_tac_toe"), scenario_of("tic_tac_toe", exact=True)
    assert usual.decisions() == ()
    assert len(exact.decisions()) == 4520
    assert exact.fingerprint() == usual.fingerprint()
    assert exact.task("eval", 3) == usual.task("eval", 3)
    # A board does not say in which order its squares were taken: no reach probabilities, no mixing.
    with pytest.raises(ConfigError, match=r"tic_tac_toe cannot be mixed exactly.*leave scenario.options.exact out"):
        exact.mixed("player_0", [{}], [1.0])


def test_every_member_has_the_games_own_moves_to_choose_from() -> None:
    for game, of in GAMES.items():
        teams: list[TeamSpec] = list(scenario_of(game).teams.values())
        assert all(role.choices == of.letters for team in teams for role in team.roles.values())


def taught(best: float, count: int = 400) -> list[tuple[str, str]]:
    """(board with the seat before it, move) of who teaches the tiny base tic-tac-toe."""
    return list(islice(scenario_of("tic_tac_toe", best=best, skill=0.5).demonstrations(3, expert=False), count))


def test_who_teaches_the_base_makes_as_many_of_the_best_moves_as_was_asked() -> None:
    none, half, all_of_them = (
        fmean(move in best_moves(prompt) for prompt, move in taught(best)) for best in (0.0, 0.5, 1.0)
    )
    assert all_of_them == 1
    assert none < 0.75
    assert half == pytest.approx((1 + none) / 2, abs=0.1)


@cache
def best_moves(prompt: str) -> set[str]:
    """All that perfect play draws among on the board of a prompt, which is set up move by move."""
    world, perfect = TwoPlayerEnvironment((GAMES["tic_tac_toe"],), "letters", tries=1), minimax("tic_tac_toe")
    world.reset(Task(id="t", seed=0))
    cells = prompt[1:10]
    marks = [[str(place) for place, mark in enumerate(cells) if mark == own] for own in "xo"]
    for number in range(sum(map(len, marks))):
        world.step({world.to_move()[0]: marks[number % 2][number // 2]})
    assert world.observe(world.to_move()[0]).fields["seen"] == cells
    return {GAMES["tic_tac_toe"].letter(perfect(world, world.to_move()[0], Random(seed))) for seed in range(60)}


def test_without_best_moves_the_demonstrations_are_what_they_were() -> None:
    random, world = Random(3), TwoPlayerEnvironment((GAMES["tic_tac_toe"],), "letters", tries=1)
    world.reset(Task(id="shown", seed=random.getrandbits(48)))
    legal = world.legal("player_0")
    first = random.choice(legal) if random.random() < 0.5 else legal[0]
    assert taught(0.0, 1) == [("A.........>", first)]


def test_best_moves_are_known_where_nothing_is_hidden_only() -> None:
    with pytest.raises(ConfigError, match=r"best=0.5: nobody knows the best moves of kuhn_poker; only of tic_tac_toe"):
        scenario_of("kuhn_poker", best=0.5)
