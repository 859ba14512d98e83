"""Where a league is kept: one SQLite file, or any database that SQLAlchemy reaches.

Every finished game is one transaction: whoever is killed has lost the games that were on, and no other. A game's
fixture is its key, so that no game is kept twice.
"""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from sqlite3 import Connection as FileConnection
from sqlite3 import OperationalError, connect
from typing import Any, Self
from urllib.parse import quote

import msgspec
from sqlalchemy import (
    Column,
    Engine,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    create_engine,
    event,
    func,
    insert,
    inspect,
    select,
    update,
)
from sqlalchemy.engine import URL, Connection, Row, RowMapping
from sqlalchemy.exc import IntegrityError, SQLAlchemyError
from sqlalchemy.pool import NullPool
from sqlalchemy.schema import CreateTable

from mas.core.environment import is_bounded
from mas.core.errors import ConfigError
from mas.core.naming import did_you_mean
from mas.league.match import LeagueMember, PlayedGame, PlayedMove

_TABLES = MetaData()
_TOURNAMENTS = Table(
    "tournaments", _TABLES, Column("name", String(200), primary_key=True), Column("terms", Text, nullable=False)
)
_GAMES = Table(
    "games",
    _TABLES,
    Column("tournament", String(200), primary_key=True),
    Column("id", String(400), primary_key=True),
    Column("round", Integer, nullable=False),
    Column("number", Integer, nullable=False),
    Column("seed", String(20), nullable=False),  # 63 bits do not fit every database's integers.
    Column("players", Text, nullable=False),
    Column("returns", Text, nullable=False),
    Column("moves", Text, nullable=False),
)
_MEMBERS = Table(
    "members",
    _TABLES,
    Column("name", String(200), primary_key=True),
    Column("place", Integer, nullable=False, unique=True),
    Column("source", Text, nullable=False),
    Column("parent", String(200)),
    Column("step", Integer, nullable=False),
    Column("notes", Text, nullable=False),
)

_UNREADABLE = (msgspec.DecodeError, ValueError, TypeError, RecursionError)
_PATIENCE_S = 10
"""How long another process may keep a league busy."""

PLAY_AGAIN = "the tournament's own `mas league run` command plays it again"
Terms = Mapping[str, Any]
"""What a tournament is played by: game, players, games of a pairing, seed; plain values."""


class NoLeagueError(ConfigError):
    """A file of another program."""


class LeagueStore:
    """Tournaments, their games and a league's members; for one process at a time to write."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    @classmethod
    def open(cls, place: str | Path) -> Self:
        """The league at a path, made where there is none, or at a database's URL (`postgresql://...`).

        Raises:
            ConfigError: it cannot be opened, or holds something else.
        """
        text = str(place)
        try:
            engine = create_engine(_address_of(text))
            if engine.dialect.name == "sqlite":
                if engine.url.database in (None, "", ":memory:"):
                    raise ConfigError(f"a league at {text!r} would be gone with this process: name a file")
                event.listen(engine, "connect", _survives_kills)
            with engine.begin() as connection:
                for table in _TABLES.sorted_tables:
                    # Another process may be making them just now.
                    connection.execute(CreateTable(table, if_not_exists=True))
        except (SQLAlchemyError, OSError, ImportError) as error:
            raise ConfigError(f"the league at {text} cannot be opened: {_first_line(error)}") from error
        return cls(engine)

    @classmethod
    def read_only(cls, path: Path) -> Self:
        """The league of a file, which stays as it is: nothing is written into it or made beside it.

        Raises:
            NoLeagueError: the file holds something else. ConfigError: it cannot be read.
        """
        # Without a log nobody writes, and SQLite needs none of the files that it would make beside the league.
        is_still = not Path(f"{path}-wal").exists()
        address = f"file:{quote(str(path.resolve()))}?mode=ro{'&immutable=1' if is_still else ''}"

        def connected() -> FileConnection:
            made = connect(address, uri=True, timeout=_PATIENCE_S)
            made.execute("PRAGMA trusted_schema=OFF")
            return made

        engine = create_engine("sqlite://", creator=connected, poolclass=NullPool)
        try:
            missing = _TABLES.tables.keys() - set(inspect(engine).get_table_names())
        except SQLAlchemyError as error:
            raise ConfigError(f"the league at {path} cannot be read: {_first_line(error)}") from error
        if missing:
            raise NoLeagueError(f"{path} is no league: it has no table {min(missing)!r}")
        return cls(engine)

    def begin(self, tournament: str, terms: Terms) -> None:
        """Begin a tournament, or go on with one of the same terms.

        Raises:
            ConfigError: there is one of that name with other terms.
        """
        try:
            with self._transaction() as to:
                if _stored_terms(to, tournament) is None:
                    to.execute(insert(_TOURNAMENTS).values(name=tournament, terms=_text(dict(terms))))
        except IntegrityError as error:  # another process may begin it just now
            with self._transaction() as of:
                if _stored_terms(of, tournament) is None:
                    raise _not_taken(f"tournament {tournament!r}", error) from error
        self.check_terms(tournament, terms)

    def check_terms(self, tournament: str, terms: Terms) -> None:
        """Refuse what `begin` would refuse."""
        with self._transaction() as of:
            found, said = _stored_terms(of, tournament), _text(dict(terms))
        if found is None:
            return
        if isinstance(why := _terms_of(found), str):
            raise _damaged(tournament, why)
        if found != said:
            raise ConfigError(
                f"tournament {tournament!r} has been begun with other terms ({_differing(found, said)}): "
                "choose another name, or the same terms to go on"
            )

    def tournaments(self) -> dict[str, dict[str, Any]]:
        """Terms of all tournaments, by name; those whose row is damaged are left out."""
        with self._transaction() as of:
            rows = of.execute(select(_TOURNAMENTS).order_by(_TOURNAMENTS.c.name)).all()
        return {str(name): terms for name, text in rows if isinstance(terms := _terms_of(text), dict)}

    def terms(self, tournament: str) -> dict[str, Any]:
        """What a tournament is played by.

        Raises:
            ConfigError: there is none of that name, or its row is damaged.
        """
        known = self.tournaments()
        if tournament not in known:
            with self._transaction() as of:
                text = _stored_terms(of, tournament)
            if text is not None:
                raise _damaged(tournament, str(_terms_of(text)))
            raise ConfigError(f"no tournament {tournament!r} in this league. {did_you_mean(tournament, known)}")
        return known[tournament]

    def add(self, tournament: str, game: PlayedGame) -> bool:
        """Keep a game; False: it was kept before, and the first one stays, unless its row is damaged."""
        values = {
            "tournament": tournament,
            "id": game.id,
            "round": game.round,
            "number": game.number,
            "seed": str(game.seed),
            "players": _text(game.players),
            "returns": _text(game.returns),
            "moves": _text(game.moves),
        }
        try:
            with self._transaction() as to:
                to.execute(insert(_GAMES).values(values))
        except IntegrityError as error:
            kept = self._read(tournament)
            if game.id not in kept:
                raise _not_taken(f"game {game.id!r}", error) from error
            if isinstance(kept[game.id], PlayedGame):
                return False
            with self._transaction() as to:
                key = (_GAMES.c.tournament == tournament, _GAMES.c.id == game.id)
                to.execute(update(_GAMES).where(*key).values(values))
        return True

    def games(self, tournament: str) -> list[PlayedGame]:
        """All games kept, by round, number and players: the same list whatever the order in which they ended. Without
        those that are `damaged`."""
        return [game for game in self._read(tournament).values() if isinstance(game, PlayedGame)]

    def damaged(self, tournament: str) -> dict[str, str]:
        """Game -> why its row cannot be read. Such a game counts as not played."""
        return {name: game for name, game in self._read(tournament).items() if isinstance(game, str)}

    def _read(self, tournament: str) -> dict[str, PlayedGame | str]:
        with self._transaction() as of:
            rows = of.execute(
                select(_GAMES)
                .where(_GAMES.c.tournament == tournament)
                .order_by(_GAMES.c.round, _GAMES.c.number, _GAMES.c.id)
            ).all()
        return {str(row.id): _game_of(row) for row in rows}

    def counts(self) -> dict[str, int]:
        """Tournament -> games kept, those that are damaged too."""
        with self._transaction() as of:
            grouped = select(_GAMES.c.tournament, func.count()).group_by(_GAMES.c.tournament)
            return {str(name): int(count) for name, count in of.execute(grouped).all()}

    def ids(self, tournament: str) -> set[str]:
        return {game.id for game in self.games(tournament)}

    def game(self, tournament: str, game: str) -> PlayedGame:
        """One game.

        Raises:
            ConfigError: none of that id, or its row is damaged.
        """
        with self._transaction() as of:
            row = of.execute(select(_GAMES).where(_GAMES.c.tournament == tournament, _GAMES.c.id == game)).one_or_none()
        if row is None:
            raise ConfigError(
                f"no game {game!r} in tournament {tournament!r}. {did_you_mean(game, sorted(self.ids(tournament)))}"
            )
        found = _game_of(row)
        if isinstance(found, str):
            raise ConfigError(f"game {game!r} of tournament {tournament!r} is damaged ({found}): {PLAY_AGAIN}")
        return found

    def enter(self, member: LeagueMember) -> None:
        """Let a player into the league.

        Raises:
            ConfigError: there is one of that name, or no member of its parent's name.
        """
        self.check_new(member)
        values = {
            "name": member.name,
            "place": select(func.coalesce(func.max(_MEMBERS.c.place) + 1, 0)).scalar_subquery(),
            "source": member.source,
            "parent": member.parent,
            "step": member.step,
            "notes": _text(member.notes),
        }
        try:
            with self._transaction() as to:
                to.execute(insert(_MEMBERS).values(values))
        except IntegrityError as error:
            self.check_new(member)  # another process may have let in one of that name just now
            raise _not_taken(f"member {member.name!r}", error) from error

    def check_new(self, member: LeagueMember) -> None:
        """Refuse what `enter` would refuse."""
        known = {one.name: one for one in self.members()}
        if member.parent is not None and member.parent not in known:
            raise ConfigError(f"no member {member.parent!r} to descend from. {did_you_mean(member.parent, known)}")
        if member.name in known:
            raise ConfigError(f"the league has a member {member.name!r} already: names are never used again")

    def members(self) -> list[LeagueMember]:
        """All members, in the order in which they came.

        Raises:
            ConfigError: a member's row is damaged.
        """
        with self._transaction() as of:
            rows = of.execute(select(_MEMBERS).order_by(_MEMBERS.c.place)).mappings().all()
        return [_member_of(row) for row in rows]

    def close(self) -> None:
        self._engine.dispose()

    @contextmanager
    def _transaction(self) -> Iterator[Connection]:
        try:
            with self._engine.begin() as connection:
                yield connection
        except IntegrityError:
            raise
        except SQLAlchemyError as error:
            raise ConfigError(
                f"the league's database failed: {_first_line(error)}. Games that had ended are kept: once that is put "
                "right, the same command goes on"
            ) from error


def _address_of(place: str) -> str | URL:
    """What SQLAlchemy opens: a URL as it is, a path whatever is in it; its folder is made.

    Raises:
        ConfigError: it is empty. OSError: the folder cannot be made.
    """
    if "://" in place:
        return place
    if not place:
        raise ConfigError("the place of the league is empty: name a file, such as league.db, or a database's URL")
    path = Path(place).absolute()
    path.parent.mkdir(parents=True, exist_ok=True)
    return URL.create("sqlite", database=str(path))


def _not_taken(what: str, error: IntegrityError) -> ConfigError:
    return ConfigError(
        f"the league's database does not take {what} ({_first_line(error)}): is it of another version "
        "of mas? Choose another place"
    )


def _survives_kills(connection: Any, _: Any) -> None:
    """A write-ahead log: a killed process leaves whole transactions and nothing else."""
    cursor = connection.cursor()
    cursor.execute(f"PRAGMA busy_timeout={1000 * _PATIENCE_S}")
    until = time.monotonic() + _PATIENCE_S
    while True:
        try:
            cursor.execute("PRAGMA journal_mode=WAL")
            break
        except OperationalError:  # Another process changes it or closes the league: SQLite waits for neither.
            if time.monotonic() > until:
                raise
            time.sleep(0.02)
    cursor.execute("PRAGMA synchronous=NORMAL")
    cursor.close()


def _stored_terms(connection: Connection, tournament: str) -> str | None:
    """Terms of a tournament as they are stored; None: there is none of that name."""
    return connection.execute(select(_TOURNAMENTS.c.terms).where(_TOURNAMENTS.c.name == tournament)).scalar()


def _damaged(tournament: str, why: str) -> ConfigError:
    return ConfigError(
        f"tournament {tournament!r} of this league is damaged ({why}): play it anew under another name; the other "
        "tournaments are as they were"
    )


def _text(value: Any) -> str:
    return msgspec.json.encode(value, order="deterministic").decode()


def _differing(had: str, said: str) -> str:
    one, other = msgspec.json.decode(had), msgspec.json.decode(said)
    names = [name for name in {**one, **other} if one.get(name) != other.get(name)]
    return ", ".join(f"{name}: {one.get(name)!r}, now {other.get(name)!r}" for name in names)


def _first_line(error: BaseException) -> str:
    return str(error).partition("\n")[0]


def _game_of(row: Row[Any]) -> PlayedGame | str:
    """The game, or why the row holds none."""
    try:
        game = PlayedGame(
            id=row.id,
            round=msgspec.convert(row.round, int),
            number=msgspec.convert(row.number, int),
            seed=int(row.seed),
            players=msgspec.json.decode(row.players, type=tuple[str, ...]),
            returns=msgspec.json.decode(row.returns, type=tuple[float, ...]),
            moves=msgspec.json.decode(row.moves, type=tuple[PlayedMove, ...]),
        )
    except _UNREADABLE as error:
        return str(error)
    if not len(game.players) == len(game.returns) > 0:
        return f"{len(game.players)} players and {len(game.returns)} returns"
    return game if all(map(is_bounded, game.returns)) else f"returns {game.returns}"


def _member_of(row: RowMapping) -> LeagueMember:
    """The member of a row."""
    try:
        notes = msgspec.json.decode(row["notes"], type=dict[str, float])
        # Names of columns are a subclass of str here, which msgspec refuses.
        return msgspec.convert({**{str(name): value for name, value in row.items()}, "notes": notes}, LeagueMember)
    except _UNREADABLE as error:
        raise ConfigError(
            f"member {row['name']!r} of this league is damaged ({error}): restore the file from a copy; its "
            "tournaments can be read, as by mas league table"
        ) from error


def _terms_of(text: Any) -> dict[str, Any] | str:
    """Terms of a tournament, or why the text holds none."""
    try:
        found = msgspec.json.decode(text, type=dict[str, Any])
    except _UNREADABLE as error:
        return str(error)
    players = found.get("players")
    is_whole = isinstance(players, dict) and players and isinstance(found.get("game"), str)
    return found if is_whole else "it names no game and players"
