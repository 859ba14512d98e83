"""All decisions of a game, and how far a policy for them is from unbeatable.

Games played out exactly, and policies mixed, by walking through the whole tree.

Of games with hidden information or moves at once, in which a seat remembers all that it saw and did (perfect recall):
what it sees at a decision says which of its own decisions came before, and what it did there.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from itertools import product
from math import prod
from typing import Any

from mas.core.environment import Observation
from mas.core.errors import ConfigError
from mas.core.scenario import Decision
from mas.scenarios.bridges.open_spiel import is_open, legal_actions, load_game
from mas.scenarios.bridges.open_spiel_solvers import Policy, nash_conv
from mas.scenarios.two_player.environment import in_letters
from mas.scenarios.two_player.games import TwoPlayerGame
from mas.scenarios.world import Style

SEATS = ("player_0", "player_1")


@cache
def decisions(name: str) -> tuple[tuple[int, str, tuple[str, ...]], ...]:
    """(seat, what it sees, its legal actions) of every information state that the game can reach; where all is open
    the board is the state, however it came about. In these games no two seats ever see the same."""
    game = load_game(name)
    found: dict[tuple[int, str], tuple[str, ...]] = {}
    waiting, boards = [game.new_initial_state()], set[str]()
    has_boards = is_open(game)
    while waiting:
        state = waiting.pop()
        if state.is_terminal():
            continue
        if has_boards:
            board = state.observation_string(state.current_player())
            if board in boards:
                continue
            boards.add(board)
        for seat in _seats(state):
            seen = state.observation_string(seat) if has_boards else state.information_state_string(seat)
            found.setdefault((seat, str(seen)), tuple(legal_actions(state, seat)))
        if not state.is_simultaneous_node():
            waiting += [state.child(action) for action in state.legal_actions()]
    return tuple((seat, seen, legal) for (seat, seen), legal in sorted(found.items()))


def conv(name: str, policy: Policy) -> float:
    """NashConv = sum over seats of (best response against the policy - the policy against itself); 0: a Nash
    equilibrium. In these games half of it is the exploitability."""
    game = load_game(name)
    return _open_conv(game, policy) if is_open(game) else nash_conv(name, policy)


def _open_conv(game: Any, policy: Policy) -> float:
    """Of a game without chance in which all is open: a zero-sum game, so that the values of the policy against itself
    cancel out."""

    @cache
    def value(board: str, seat: int) -> float:
        state = states[board]
        if state.is_terminal():
            return float(state.returns()[seat])
        mover, legal = state.current_player(), legal_actions(state, state.current_player())
        after = {}
        for text, action in legal.items():
            child = state.child(action)
            states.setdefault(str(child), child)
            after[text] = value(str(child), seat)
        if mover == seat:
            return max(after.values())
        chances = policy(board, tuple(legal))
        return sum(chances.get(text, 0.0) * worth for text, worth in after.items())

    root = game.new_initial_state()
    states = {str(root): root}
    return sum(value(str(root), seat) for seat in range(2))


def _seats(state: Any) -> tuple[int, ...]:
    if state.is_simultaneous_node():
        return tuple(range(state.num_players()))
    return () if state.is_chance_node() else (state.current_player(),)


def all_decisions(game: TwoPlayerGame, style: Style, *, is_marked: bool = False) -> tuple[Decision, ...]:
    """The same as the seats' views show them."""
    found = []
    for seat, seen, legal in decisions(game.name):
        fields = {"rules": game.rules, "seat": SEATS[seat], "seen": seen, "legal": "\n".join(legal), "note": ""}
        if style == "letters":
            legal = tuple(game.letter(text) for text in legal)
            fields |= in_letters(game, seat, seen, legal, is_marked=is_marked)
        else:
            fields["seen"] = game.tell(seen)
        found.append(Decision(key=seen, seat=SEATS[seat], observation=Observation(fields), legal=legal))
    return tuple(found)


def measures(game: TwoPlayerGame, style: Style, policy: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    """`nash_conv` of a policy, by the keys and actions of `all_decisions`."""
    return {"nash_conv": conv(game.name, in_words(game, style, policy))}


def in_words(game: TwoPlayerGame, style: Style, policy: Mapping[str, Mapping[str, float]]) -> Policy:
    """A policy by the keys and actions of `all_decisions` as one by what is seen and the game's own actions."""

    def chances(seen: str, legal: tuple[str, ...]) -> dict[str, float]:
        said = policy[seen]
        return {text: said[text if style == "words" else game.letter(text)] for text in legal}

    return chances


Table = Mapping[str, Mapping[str, float]]
"""Key of the decision -> action -> probability."""
Path = tuple[tuple[str, str], ...]
"""A seat's own decisions before one, with what it did: (seen, action)."""


def outcomes(game: TwoPlayerGame, style: Style, policy: Table) -> list[tuple[tuple[float, ...], float]]:
    """What both seats can get, and how likely that is, each result once; probabilities add up to 1."""
    chances = in_words(game, style, policy)
    found: dict[tuple[float, ...], float] = {}
    waiting = [(load_game(game.name).new_initial_state(), 1.0)]
    while waiting:
        state, likely = waiting.pop()
        if not likely:
            continue
        if state.is_terminal():
            got = tuple(float(paid) for paid in state.returns())
            found[got] = found.get(got, 0.0) + likely
        elif state.is_chance_node():
            waiting += [(state.child(action), likely * chance) for action, chance in state.chance_outcomes()]
        else:
            after = list(_after(state))
            by_seat = {
                seat: chances(state.information_state_string(seat), tuple(legal_actions(state, seat)))
                for seat, _ in after[0][1]
            }
            for child, said in after:
                waiting.append((child, likely * prod(by_seat[seat][text] for seat, text in said)))
    return sorted(found.items())


def mixed(game: TwoPlayerGame, style: Style, seat: str, policies: Sequence[Table], shares: Sequence[float]) -> Table:
    """The behaviour strategy of a seat that is as good as drawing one of its policies for each game (Kuhn 1953).

    p(a | I) = sum_k s_k r_k(I) p_k(a | I) / sum_k s_k r_k(I), r_k(I): how likely policy k alone makes the moves that
    lead to I. Where no policy ever comes, shares alone weigh.

    Raises:
        ConfigError: shares that do not fit the policies, or add up to nothing.
    """
    if len(shares) != len(policies) or not sum(shares) > 0 or min(shares) < 0:
        raise ConfigError(f"{len(policies)} policies with shares {list(shares)}: one of each is needed, not all 0")
    found = {}
    for seen, path in own_paths(game.name, SEATS.index(seat)).items():
        taken = [(at, text if style == "words" else game.letter(text)) for at, text in path]
        reach = [prod((policy[at][text] for at, text in taken), start=1.0) for policy in policies]
        weights = [share * likely for share, likely in zip(shares, reach, strict=True)]
        if not sum(weights):
            weights = list(shares)
        found[seen] = {
            action: sum(weight * policy[seen][action] for weight, policy in zip(weights, policies, strict=True))
            / sum(weights)
            for action in policies[0][seen]
        }
    return found


@cache
def own_paths(name: str, seat: int) -> Mapping[str, Path]:
    """What a seat sees at each of its decisions -> its own decisions before it."""
    found: dict[str, Path] = {}
    waiting: list[tuple[Any, Path]] = [(load_game(name).new_initial_state(), ())]
    while waiting:
        state, path = waiting.pop()
        if state.is_terminal():
            continue
        if state.is_chance_node():
            waiting += [(state.child(action), path) for action in state.legal_actions()]
            continue
        for child, said in _after(state):
            own = dict(said).get(seat)
            if own is None:
                waiting.append((child, path))
                continue
            seen = str(state.information_state_string(seat))
            if found.setdefault(seen, path) != path:
                raise ConfigError(f"{name}: at {seen!r} a seat has forgotten what it did, so policies cannot be mixed")
            waiting.append((child, (*path, (seen, own))))
    return found


def _after(state: Any) -> Iterator[tuple[Any, tuple[tuple[int, str], ...]]]:
    """Every next state with who did what."""
    if not state.is_simultaneous_node():
        mover = state.current_player()
        for text, action in legal_actions(state, mover).items():
            yield state.child(action), ((mover, text),)
        return
    seats = range(state.num_players())
    for joint in product(*(legal_actions(state, seat).items() for seat in seats)):
        child = state.clone()
        child.apply_actions([action for _, action in joint])
        yield child, tuple((seat, text) for seat, (text, _) in zip(seats, joint, strict=True))
