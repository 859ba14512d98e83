"""A person in a seat of a game: sees that seat's view alone, is told what is possible, and may leave at any time."""

import io
from random import Random
from typing import Any

import pytest
from bidding import Bidding, Cards
from rich.console import Console

from mas.core.environment import Observation, Script, Task, random_script
from mas.core.errors import ConfigError
from mas.core.records import Episode, Line
from mas.person.seats import SeatPlay, seats_of, view_of
from mas.person.team import tell_end
from mas.scenarios.bridges import open_bridge


class Sitting:
    """A play with lines typed beforehand, and what was printed."""

    def __init__(self, game: Any, people: tuple[str, ...], *lines: str, others: Script = random_script) -> None:
        self.printed = io.StringIO()
        console = Console(file=self.printed, width=200)
        typed = io.StringIO("".join(f"{line}\n" for line in lines))
        self.playing = SeatPlay(game, people, others, Random(0), console, typed.readline)

    def out(self) -> str:
        return self.printed.getvalue()


@pytest.mark.parametrize("at_once", [False, True])
def test_a_person_plays_a_seat_against_others_and_is_told_the_score(at_once: bool) -> None:
    game = Bidding(at_once=at_once)
    sitting = Sitting(game, ("right",), "2", "0")
    assert sitting.playing.play()
    sitting.playing.tell_end(is_over=True, reveal=False)
    # The card of `right` is 2: one of its two bids is worth a point.
    assert sitting.playing.scores["right"] == {"point": 1.0}
    assert "score of right (you): 1 (point +1)" in sitting.out()
    assert "score of left:" in sitting.out()
    assert len(game.state.bids) == 4


@pytest.mark.parametrize(("me", "mine", "theirs"), [("left", 0, 1), ("right", 1, 0)])
def test_nothing_of_another_seats_view_is_shown_until_the_end(me: str, mine: int, theirs: int) -> None:
    game = Bidding()
    game.state = Cards((40, 70))
    sitting = Sitting(game, (me,), "1", "nonsense", "1")
    assert sitting.playing.play()
    sitting.playing.tell_end(is_over=True, reveal=False)
    assert f"card: {game.state.cards[mine]}" in sitting.out()
    assert str(game.state.cards[theirs]) not in sitting.out()
    sitting.playing.tell_end(is_over=True, reveal=True)
    assert "all cards: (40, 70)" in sitting.out()


def test_wrong_input_is_told_with_what_is_possible_and_asked_again() -> None:
    sitting = Sitting(Bidding(), ("left",), "7", "", "\x1b[2J", " 1 ", "1")
    assert sitting.playing.play()
    assert "'7' is not possible now. Possible: 0, 1, 2, 9" in sitting.out()
    assert "'' is not possible now." in sitting.out()
    assert "\x1b" not in sitting.out()


def test_nothing_that_is_shown_steers_the_terminal() -> None:
    class Steering(Bidding):
        def observe(self, view: str) -> Observation:
            return Observation({"heard": "\x1b[2J"})

        def legal(self, seat: str) -> tuple[str, ...]:
            return (*(super().legal(seat) or ()), "\x9b2J")

        def render(self) -> str:
            return "\x1b]0;title\x07"

    sitting = Sitting(Steering(), ("left",), "7", "1", "1")
    assert sitting.playing.play()
    sitting.playing.tell_end(is_over=True, reveal=True)
    line = Line(turn=0, agent="a", prompt="", text="\x1b[2J")
    episode = Episode(
        id="e", task="t", success=True, turns=(), lines=(line,), rewards={}, length=1, prompt_tokens=0,
        completion_tokens=0, calls=0,
    )  # fmt: skip
    tell_end(Console(file=sitting.printed, width=200), Steering(), episode, {}, reveal=True)
    assert not {"\x1b", "\x9b", "\x07"} & set(sitting.out())
    assert sitting.out().count(r"\x1b[2J") == 3
    assert sitting.out().count(r"\x1b]0;title\x07") == 2


def test_an_action_that_the_game_refuses_is_told() -> None:
    sitting = Sitting(Bidding(), ("left",), "9", "1")
    assert sitting.playing.play()
    assert "left: '9' was not legal; the turn is spent" in sitting.out()


def test_of_a_huge_input_the_beginning_is_told() -> None:
    listed, refused = Sitting(Bidding(), ("left",), "7" * 50_000, "1", "1"), Bidding(is_listed=False)
    assert listed.playing.play()
    free = Sitting(refused, ("left", "right"), "x" * 50_000, "1", "1", "1")
    assert free.playing.play()
    for out in (listed.out(), free.out()):
        flat = out.replace("\n", "")
        assert "... (50,000 characters in all)" in flat
        assert 2000 <= max(flat.count("7"), flat.count("x")) < 2100


def test_the_end_of_the_input_ends_the_play_with_the_score_so_far() -> None:
    sitting = Sitting(Bidding(), ("left", "right"), "0", "2")
    assert not sitting.playing.play()
    sitting.playing.tell_end(is_over=False, reveal=False)
    assert "the input ended, and with it the play" in sitting.out()
    assert "score of right (you) so far: 1 (point +1)" in sitting.out()


@pytest.mark.parametrize("typed", ["X(1,1)", "#4", "4", " x(1,1)  "])
def test_a_bridged_game_is_played_by_every_text_that_it_reads(typed: str) -> None:
    """Case, `#NUMBER` and a bare number, as docs/bridges.md says of actions."""
    pytest.importorskip("pyspiel", reason="needs the extra open-spiel")
    game = open_bridge("open_spiel:tic_tac_toe")
    game.reset(Task(id="t", seed=0))
    sitting = Sitting(game, ("player_0", "player_1"), typed, "4", "x(1,1)", "o(0,0)")
    sitting.playing.play()
    assert sitting.out().count("is not possible now") == 2, "the cell is taken, in every way of writing it"
    assert "seen:\no..\n.x.\n..." in sitting.out()


def test_several_people_share_one_terminal() -> None:
    game = Bidding(at_once=True)
    assert Sitting(game, ("left", "right"), "0", "1", "2", "0").playing.play()
    assert game.state.bids == (0, 1, 2, 0)


def test_where_actions_cannot_be_listed_anything_may_be_typed_and_nobody_plays_at_random() -> None:
    game = Bidding(is_listed=False)
    assert Sitting(game, ("left", "right"), "0", "", "2", "x").playing.play()
    assert game.state.bids == (0, -1, 2, -1)
    with pytest.raises(ConfigError, match="the actions of bidding cannot be listed"):
        Sitting(Bidding(is_listed=False), ("left",), "0").playing.play()


def test_others_may_be_an_expert() -> None:
    def best(environment: Any, random: Random) -> dict[str, str]:
        return {seat: str(environment.state.cards[Bidding.seats.index(seat)]) for seat in environment.to_move()}

    sitting = Sitting(Bidding(), ("left",), "0", "0", others=best)
    assert sitting.playing.play()
    assert sitting.playing.scores["right"] == {"point": 2.0}


def test_a_long_list_of_actions_is_cut() -> None:
    game = Bidding()
    game.legal = lambda seat: tuple(str(number) for number in range(500))
    sitting = Sitting(game, ("left",), "1", "1")
    sitting.playing.play()
    assert ", 99, ... (500 in all)" in " ".join(sitting.out().split())


@pytest.mark.parametrize(
    ("wanted", "text"),
    [
        ((), "say which seat of bidding you take: --as left or --as right"),
        (("lft",), "--as lft: bidding has no such seat. Did you mean 'left'?"),
    ],
)
def test_a_seat_that_is_not_there_or_not_named_is_refused(wanted: tuple[str, ...], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        seats_of(Bidding(), wanted)


def test_seats_are_taken_once() -> None:
    assert seats_of(Bidding(), ("right", "right")) == ("right",)


def test_a_seat_without_a_view_of_its_own_sees_what_a_single_agent_sees() -> None:
    assert view_of(Bidding(), "left") == "left"
    assert view_of(Bidding(views=("planner", "solo")), "left") == "solo"
    assert view_of(Bidding(views=("table",)), "left") == "table"
    with pytest.raises(ConfigError, match="seat 'left' of bidding has no view of its own; views: a, b"):
        seats_of(Bidding(views=("a", "b")), ("left",))


def test_what_a_game_measures_is_told_when_it_is_over() -> None:
    game = Bidding()
    game.measures = lambda: {"spread": 0.5, "bids": float(len(game.state.bids))}
    sitting = Sitting(game, ("left", "right"), "0", "2", "0", "2")
    assert sitting.playing.play()
    sitting.playing.tell_end(is_over=False, reveal=False)
    assert "measured" not in sitting.out()
    sitting.playing.tell_end(is_over=True, reveal=False)
    assert "measured: bids 4, spread 0.5\n" in sitting.out()
    assert "Answer with" not in sitting.out()
