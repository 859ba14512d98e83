"""The games, and how each reads in single characters, which the tiny base can learn."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from mas.core.naming import did_you_mean
from mas.scenarios.bridges.simple_negotiation import OFFERS

SEVERAL = "+"
"""What stands between names where several games are meant."""
OFFER_LETTERS = {str(offer): letter for offer, letter in zip(OFFERS, "abcd", strict=True)}
"""Offers of simple negotiation by their text."""
_LEDUC = re.compile(r"\[Private: (\d)\].*?(?:\[Public: (\d)\])?\[Round1: ([\d ]*)\]\[Round2: ([\d ]*)\]")


@dataclass(frozen=True, slots=True, kw_only=True)
class TwoPlayerGame:
    """A two-player zero-sum game of OpenSpiel's.

    Attributes:
        name: OpenSpiel's, with its parameters.
        mark: the character that stands for the game.
        rules: in words, for models that read them.
        letter: the character that stands for an action's text; letters: all of them.
        short: what a seat sees in few characters; nothing is lost that matters.
        tell: the same in words; by default as OpenSpiel writes it.
        is_small: whether information states are few enough for all of them to be scored in every evaluation.
        is_simultaneous: whether both seats move at once.
    """

    name: str
    mark: str
    rules: str
    letter: Callable[[str], str]
    letters: tuple[str, ...]
    short: Callable[[str], str]
    tell: Callable[[str], str] = str
    is_small: bool = True
    is_simultaneous: bool = False


def initial(text: str) -> str:
    """An action by its first letter, in lower case."""
    return text[:1].lower()


def cell(text: str) -> str:
    """`x(1,2)` as the number of the cell, 5: row by row from 0."""
    row, column = re.findall(r"\d", text)
    return str(3 * int(row) + int(column))


def kuhn(seen: str) -> str:
    """`2pb` as: Your card is 2, the highest. Moves so far: Pass, Bet."""
    moves = ", ".join({"p": "Pass", "b": "Bet"}[move] for move in seen[1:]) or "none"
    return f"Your card is {seen[0]}, the {('lowest', 'middle one', 'highest')[int(seen[0])]}. Moves so far: {moves}."


def leduc(seen: str) -> str:
    """OpenSpiel's information state as own card, public card (- before it is shown), bets of round 1, of round 2."""
    found = _LEDUC.search(seen)
    if found is None:
        return "?"
    card, public, first, second = found.groups()
    return f"{card}{public or '-'}{_bets(first)}/{_bets(second)}"


def _bets(numbers: str) -> str:
    return "".join("fcr"[int(number)] for number in numbers.split())


def board(seen: str) -> str:
    """The nine cells in one line."""
    return seen.replace("\n", "")


def bargain_letter(text: str) -> str:
    """An action of simple negotiation: y accepts, n denies or offers nothing, a to d are the offers."""
    return OFFER_LETTERS.get(text) or ("y" if text == "Accept" else "n")


def bargain(seen: str) -> str:
    """The own values of wheat and ore, then what was said so far, by letters."""
    own, _, said = seen.partition(" So far: ")
    values: list[str] = re.findall(r"(?:wheat|ore) (\d)", own)
    return "".join(values) + "".join(bargain_letter(one.partition(": ")[2]) for one in said.split("; ") if one != "-")


GAMES: Mapping[str, TwoPlayerGame] = {
    "kuhn_poker": TwoPlayerGame(
        name="kuhn_poker",
        mark="K",
        rules=(
            "Kuhn poker: three cards, 0 < 1 < 2; each player puts 1 into the pot and is dealt one, player_0 moves "
            "first. Pass or Bet 1 more. After a bet, Pass gives up the pot and Bet calls; after two passes, or a call, "
            "the higher card wins."
        ),
        letter=initial,
        letters=("p", "b"),
        short=lambda seen: seen,
        tell=kuhn,
    ),
    "leduc_poker": TwoPlayerGame(
        name="leduc_poker",
        mark="L",
        rules=(
            "Leduc poker: six cards, two each of ranks 0/1, 2/3 and 4/5; each player puts in 1 and is dealt one. Two "
            "rounds of betting with raises of 2 and 4, two raises a round at most; before the second a public card is "
            "shown. Who has the public card's rank wins, else the higher rank. Moves: Fold, Call, Raise."
        ),
        letter=initial,
        letters=("f", "c", "r"),
        short=leduc,
    ),
    "tic_tac_toe": TwoPlayerGame(
        name="tic_tac_toe",
        mark="T",
        rules="Tic-tac-toe on three rows and columns from 0: player_0 sets x, player_1 sets o; three in a line win.",
        letter=cell,
        letters=tuple("012345678"),
        short=board,
        is_small=False,
    ),
    "rock_paper_scissors": TwoPlayerGame(
        name="matrix_rps",
        mark="R",
        rules="Rock, paper, scissors: both choose at the same time. Paper beats Rock, Scissors Paper, Rock Scissors.",
        letter=initial,
        letters=("r", "p", "s"),
        short=lambda seen: "",
        is_simultaneous=True,
    ),
    "simple_negotiation": TwoPlayerGame(
        name="simple_negotiation",
        mark="N",
        rules=(
            "Simple negotiation: each player has 2 wheat and 2 ore. A wheat is worth 1 or 2 to a player, an ore 3 or 4;"
            " you see your own values only. Four turns, player_0 first: offer a trade, or answer the other's offer by "
            "Accept, Deny, or an offer of your own, which denies it; the last turn can only answer. Whose units have "
            "gained more, each player's in its own values, wins; as much: a draw."
        ),
        letter=bargain_letter,
        letters=("n", "y", *OFFER_LETTERS.values()),
        short=bargain,
    ),
}


def games_of(names: str) -> tuple[TwoPlayerGame, ...]:
    """One game by its name, or several joined by `+`.

    Raises:
        ValueError: no such game, one twice, or some of several move at once and others in turn.
    """
    parts = names.split(SEVERAL)
    for part in parts:
        if part not in GAMES:
            raise ValueError(f"no game {part!r} in {names!r}. {did_you_mean(part, GAMES)}".rstrip("."))
    if len(set(parts)) < len(parts):
        raise ValueError(f"{names!r} has a game twice: name each once")
    games = tuple(GAMES[part] for part in parts)
    if len({game.is_simultaneous for game in games}) > 1:
        raise ValueError(
            f"{names!r}: in rock_paper_scissors both seats move at once, in the others in turn; not together"
        )
    return games
