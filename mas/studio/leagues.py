"""The leagues that a studio shows: SQLite files below its folders. They are only read.

What needs scipy or SQLAlchemy is imported when somebody looks at a league: most studios show none.
"""

import threading
import time
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from mas.core.errors import MasError
from mas.observe.durations import rough_time
from mas.studio.runs import folders_below, key_of

if TYPE_CHECKING:
    from mas.league.match import PlayedGame
    from mas.league.standings import Order, Standings
    from mas.league.store import LeagueStore

SUFFIX = ".db"
_HEAD = b"SQLite format 3\0"
_MOST = 200
"""Leagues that are found."""
_TABLES = 4
"""Tables of tournaments that are kept: each holds its games."""
_ASIDE = ("gate: ", "forgetting: ")
"""How tournaments begin that are tests of members."""


class LeagueFile:
    """One league.

    Attributes:
        path: its file. name: the path below the folder that was searched; any text.
        key: names it in addresses, see `key_of`.
    """

    def __init__(self, path: Path, name: str) -> None:
        self.path, self.name, self.key = path, name, key_of(path, name, "league")

    @contextmanager
    def opened(self) -> Iterator["LeagueStore"]:
        """The league while the block runs, for reading.

        Raises:
            ConfigError: the file holds no league, or cannot be read.
        """
        from mas.league.store import LeagueStore

        with closing(LeagueStore.read_only(self.path)) as store:
            yield store

    @property
    def state(self) -> tuple[object, ...]:
        """Differs when something was written into the league."""
        return tuple(_stamp(Path(f"{self.path}{end}")) for end in ("", "-wal"))

    @property
    def changed_s(self) -> float:
        """When the league was last written, in seconds since 1970; 0: the file is gone."""
        times = (_stamp(Path(f"{self.path}{end}")) for end in ("", "-wal"))
        return max(time_s for time_s, _ in times)


@dataclass(frozen=True, slots=True, kw_only=True)
class TournamentRow:
    """What the list says of a tournament; `games`: that were played. `is_aside`: it tests a member."""

    name: str
    game: str
    players: int
    games: int

    @property
    def is_aside(self) -> bool:
        return self.name.startswith(_ASIDE)


@dataclass(frozen=True, slots=True, kw_only=True)
class LeagueRow:
    """One league in the list. `changed`: in words. `problem`: why it cannot be read; else empty."""

    league: LeagueFile
    tournaments: Sequence[TournamentRow]
    members: int
    changed: str
    problem: str


@dataclass(frozen=True, slots=True)
class TournamentTable:
    """The table of a tournament with its games. `left_out`: games that are damaged, or of players that it lacks."""

    standings: "Standings"
    games: "Sequence[PlayedGame]"
    left_out: int


class Leagues:
    """All leagues below some folders, looked for again whenever they are asked for.

    Args:
        places: folders, run directories, or the files of leagues.
    """

    def __init__(self, places: Sequence[Path]) -> None:
        self._places = places
        self._lock = threading.Lock()
        self._rows: dict[str, tuple[object, LeagueRow]] = {}
        self._tables: OrderedDict[tuple[str, str, str | None], tuple[object, TournamentTable]] = OrderedDict()

    def all(self) -> list[LeagueFile]:
        """Every league that is there now, by name."""
        files = {place: str(place) for place in self._places if place.is_file()}
        for folder, name in folders_below(self._places):
            for path in _files(folder):
                files.setdefault(path, f"{name}/{path.name}".strip("/"))
        return sorted((LeagueFile(path, name) for path, name in files.items()), key=lambda one: one.name)[:_MOST]

    def find(self, key: str) -> LeagueFile | None:
        """The league with this key; None: there is none."""
        return next((league for league in self.all() if league.key == key), None)

    def rows(self) -> list[LeagueRow]:
        """What the list says of each; files of other programs are left out."""
        rows = [self._row(league) for league in self.all()]
        return [row for row in rows if row.tournaments or row.members or row.problem]

    def _row(self, league: LeagueFile) -> LeagueRow:
        state = league.state
        with self._lock:
            kept = self._rows.get(league.key)
        if kept is None or kept[0] != state:
            kept = (state, _row_of(league))
            with self._lock:
                self._rows[league.key] = kept
        ago = rough_time(max(time.time() - league.changed_s, 0))
        return replace(kept[1], league=league, changed=f"{ago} ago")

    def table(
        self, league: LeagueFile, store: "LeagueStore", tournament: str, order: str | None = None
    ) -> TournamentTable:
        """The table of a tournament, computed once as long as the league stays as it is.

        Args:
            order: of the ladder; anything but `rating` and `payoff`: what suits the game, see `order_for`.

        Raises:
            ConfigError: there is no such tournament, or it cannot be read.
        """
        from mas.league.standings import standings

        wanted: Order | None = "rating" if order == "rating" else "payoff" if order == "payoff" else None
        key, state = (league.key, tournament, wanted), league.state
        with self._lock:
            if key not in self._tables or self._tables[key][0] != state:
                players = list(store.terms(tournament)["players"])
                games = [game for game in store.games(tournament) if {*game.players} <= {*players}]
                left_out = store.counts().get(tournament, 0) - len(games)
                table = standings(players, games, order=wanted or order_for(games))
                self._tables[key] = (state, TournamentTable(table, games, left_out))
            self._tables.move_to_end(key)
            while len(self._tables) > _TABLES:
                self._tables.popitem(last=False)
            return self._tables[key][1]


def order_for(games: "Sequence[PlayedGame]") -> "Order":
    """By payoff where more can be won in one game than in another, as in poker: ratings only know who won."""
    return "payoff" if len({abs(paid) for game in games for paid in game.returns if paid}) > 1 else "rating"


def _row_of(league: LeagueFile) -> LeagueRow:
    from mas.league.store import NoLeagueError

    tournaments, members, problem = list[TournamentRow](), 0, ""
    try:
        with league.opened() as store:
            tournaments, members = tournaments_of(store), len(store.members())
    except NoLeagueError:
        pass
    except (OSError, MasError) as error:
        problem = str(error)
    return LeagueRow(league=league, tournaments=tournaments, members=members, changed="", problem=problem)


def tournaments_of(store: "LeagueStore") -> list[TournamentRow]:
    """All tournaments of a league, those that test a member last."""
    counts = store.counts()
    found = [
        TournamentRow(name=name, game=terms["game"], players=len(terms["players"]), games=counts.get(name, 0))
        for name, terms in store.tournaments().items()
    ]
    return sorted(found, key=lambda one: one.is_aside)


def _files(folder: Path) -> list[Path]:
    """Files of a folder that SQLite made, links left out."""
    try:
        paths = [path for path in folder.glob(f"*{SUFFIX}") if path.is_file() and not path.is_symlink()]
        return sorted(path for path in paths if _head(path) == _HEAD)
    except OSError:
        return []


def _head(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(len(_HEAD))
    except OSError:
        return b""


def _stamp(path: Path) -> tuple[float, int]:
    """When a file was written, and how long it is; zeros where there is none."""
    try:
        found = path.stat()
    except OSError:
        return 0.0, 0
    return found.st_mtime_ns / 1e9, found.st_size
