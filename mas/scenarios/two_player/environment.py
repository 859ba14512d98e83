"""Games with both seats open, in words or in single characters: one, or one of several in each task."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from random import Random

from mas.core.environment import EnvironmentSpec, Observation, Task
from mas.core.seeds import derive_seed
from mas.scenarios.bridges.open_spiel import open_environment
from mas.scenarios.bridges.open_spiel_players import minimax
from mas.scenarios.game import GameEnvironment
from mas.scenarios.two_player.games import GAMES, SEVERAL, TwoPlayerGame
from mas.scenarios.world import Style
from mas.scenarios.wrappers import GameTotals, TranslatedGame

MARKS = "AB"
"""What stands for the first and the second seat in letters."""


class TwoPlayerEnvironment(TranslatedGame):
    """Both seats of a game. Who makes no legal move `tries` times at one decision forfeits: it ends with the least that
    the game can pay, and the other one with as much above zero, so that the game stays zero-sum.

    Fields of a view: `seat`, `seen`, `legal` and `note` as `GameEnvironment` has them, and `rules`; in letters the seat
    is A or B, `seen` is short, actions are single characters, and `game` is the game's own, or empty.

    Args:
        games: of several each task is of one, which its seed draws; the seats are the same in all.
        is_marked: whether views in letters say which game it is.
    """

    def __init__(self, games: Sequence[TwoPlayerGame], style: Style, tries: int, *, is_marked: bool = False) -> None:
        self.games, self.style, self.tries, self.is_marked = tuple(games), style, tries, is_marked
        self._opened = tuple(open_environment(game.name).game for game in games)
        specs = [GameEnvironment(opened, tries=tries).spec for opened in self._opened]
        spec = EnvironmentSpec(
            name=SEVERAL.join(game.name for game in games),
            seats=specs[0].seats,
            views=specs[0].views,
            max_turns=max(spec.max_turns for spec in specs),
            terms=specs[0].terms,
            dynamics=specs[0].dynamics,
        )
        super().__init__(spec, GameEnvironment(self._opened[0], tries=tries))

    @property
    def rules(self) -> TwoPlayerGame:
        return self.games[self._place(self.record)]

    def game_name(self) -> str:
        """The game of this task, by OpenSpiel's name."""
        return self.rules.name

    def game_for(self, record: GameTotals) -> GameEnvironment:
        return GameEnvironment(self._opened[self._place(record)], tries=self.tries)

    def observe(self, view: str) -> Observation:
        fields = {"rules": self.rules.rules} | dict(self.game.observe(view).fields)
        if self.style == "letters":
            seat = self.spec.seats.index(view)
            fields |= in_letters(self.rules, seat, fields["seen"], self.legal(view), is_marked=self.is_marked)
        else:
            fields["seen"] = self.rules.tell(fields["seen"])
        return Observation(fields)

    def legal(self, seat: str) -> tuple[str, ...]:
        legal = self.game.legal(seat) or ()
        return legal if self.style == "words" else tuple(self.rules.letter(text) for text in legal)

    def measures(self) -> Mapping[str, float]:
        """1 or 0 of the whole game: it was a `draw`, and a seat lost it by a `forfeit`; `illegal`: moves. Of several
        games the same once more behind the game's name, and `success`, so that means are those of each game."""
        forfeit = bool(self.game.forfeited())
        found = {"draw": float(self.record.paid == 0), "forfeit": float(forfeit), "illegal": float(self.record.illegal)}
        if len(self.games) == 1:
            return found
        each = {**found, "success": float(self.success())}
        return {**found, **{f"{self.rules.name}_{name}": value for name, value in each.items()}}

    def text_of(self, seat: str, action: str) -> str:
        if self.style == "words":
            return action
        legal = {self.rules.letter(text): text for text in self.game.legal(seat) or ()}
        return legal.get(action, f"no action {action[:20]!r}" if action else "")

    def _place(self, record: GameTotals) -> int:
        return derive_seed("game", record.seed) % len(self.games)


def in_letters(game: TwoPlayerGame, seat: int, seen: str, letters: Iterable[str], *, is_marked: bool) -> dict[str, str]:
    """The fields of a view that differ from those in words."""
    mark = game.mark if is_marked else ""
    return {"game": mark, "seat": MARKS[seat], "seen": game.short(seen), "legal": "".join(letters)}


TEMPLATE = "{game}{seat}{seen}>"


def demonstrations(
    random: Random, skill: float, games: Sequence[TwoPlayerGame], best: float = 0, *, is_marked: bool = False
) -> Iterator[tuple[str, str]]:
    """(prompt, move) of random games, of several games as many of each. With probability `best` a move of tic-tac-toe
    is one of the best, else any of the legal ones with probability `skill`, else the first: so a base that has learned
    it plays legally, and nearly uniformly at a `skill` near 1."""
    if len(games) == 1:
        yield from _shown(random, skill, games[0], best, is_marked)
    streams = [_shown(Random(random.getrandbits(48)), skill, game, best, is_marked) for game in games]
    while True:
        yield next(random.choice(streams))


def _shown(
    random: Random, skill: float, game: TwoPlayerGame, best: float, is_marked: bool
) -> Iterator[tuple[str, str]]:
    environment = TwoPlayerEnvironment((game,), "letters", tries=1, is_marked=is_marked)
    perfect = minimax(game.name) if best and game is GAMES["tic_tac_toe"] else None
    while True:
        environment.reset(Task(id="shown", seed=random.getrandbits(48)))
        while seats := environment.to_move():
            actions = {}
            for seat in seats:
                legal = environment.legal(seat)
                if perfect is not None and random.random() < best:
                    said = game.letter(perfect(environment, seat, random))
                else:
                    said = random.choice(legal) if random.random() < skill else legal[0]
                yield TEMPLATE.format(**environment.observe(seat).fields), said
                actions[seat] = random.choice(legal)
            environment.step(actions)
