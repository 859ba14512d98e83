"""The game of `imposter`: who was where, who says what, who objects, and who leaves.

Players are letters, `a` is the team's. In every round each member of the crew is in a room, and the imposter in none:
it has to make one up. All say in turn where they were and with whom, then they object: *X was not there*. Then one of
the crew may move that somebody leave, and all vote. The crew's words are true, all but the team's own.
"""

import re
from collections.abc import Mapping
from random import Random
from typing import Annotated, Literal, Self

import msgspec
from pydantic import Field, model_validator

from mas.core.options import Options

PLAYERS = "abcdefgh"
TEAM = PLAYERS[0]
NOBODY, GONE, NOWHERE = "-", "x", "0"
FEWEST = 3
"""With so few left the imposter has won."""


class ImposterOptions(Options):
    """`side`: whom the team plays, one of the crew or the imposter. The dial is `players`; letters are for four.

    `rounds`: after which the imposter has won. `cunning`: how often the scripted imposter claims a room that nobody
    claimed before it. `style`: letters, which the tiny base can learn, or words, for real models. `skill`: share of
    right answers of the noisy teacher that the tiny base learns from last.
    """

    side: Literal["crew", "imposter"] = "crew"
    style: Literal["letters", "words"] = "letters"
    players: Annotated[int, Field(ge=4, le=8)] = 4
    rounds: Annotated[int, Field(ge=1, le=9)] = 2
    cunning: Annotated[float, Field(ge=0, le=1)] = 0.0
    skill: Annotated[float, Field(ge=0, le=0.9)] = 0.4

    @model_validator(mode="after")
    def _letters_are_for_four(self) -> Self:
        if self.style == "letters" and self.players != 4:
            raise ValueError(f"players={self.players}: letters are for 4, set style=words")
        return self

    @property
    def names(self) -> str:
        return PLAYERS[: self.players]

    @property
    def others(self) -> str:
        return self.names[1:]

    @property
    def rooms(self) -> str:
        """As many as players: one more than the crew has members, so that one is free in every round."""
        return "12345678"[: self.players]

    @property
    def is_last(self) -> bool:
        """Whether the team's player speaks after all others have spoken and objected: the crew's does."""
        return self.side == "crew"

    @property
    def order(self) -> str:
        """Who says in turn where it was. The team's imposter speaks in the middle."""
        first = self.others if self.is_last else self.others[: self.players // 2]
        return first + TEAM + self.others[len(first) :]


class Talk(msgspec.Struct, frozen=True, kw_only=True):
    """One round, each player at its place in `names`.

    Attributes:
        rooms: where they say they were; `x` for those who have left.
        company: with whom.
        objections: of whom they say that it was not where it says; `-` of nobody.
        is_heard: whether the team's player said anything; a silent one's room, company and objection nobody knows.
    """

    rooms: str
    company: tuple[str, ...]
    objections: str
    is_heard: bool = True

    def room(self, player: str) -> str:
        """Where a player says it was."""
        return self.rooms[PLAYERS.index(player)]

    def objection(self, player: str) -> str:
        """Of whom a player says that it was not there."""
        return self.objections[PLAYERS.index(player)]

    def friends(self, player: str) -> str:
        """With whom a player says it was."""
        return self.company[PLAYERS.index(player)]


class ImposterGame(msgspec.Struct, frozen=True, kw_only=True):
    """The whole state.

    Attributes:
        rooms: where all are, round by round; `0` for the imposter.
        wishes: rooms in the order in which the scripted imposter likes to claim them, round by round; is_cunning:
            whether it listens first.
        talks: of the rounds played; motions: who was to leave in each of them, `-` nobody.
        gone: who has left, in order.
        beliefs: how likely the team called each player to be the imposter, round by round; empty where it did not say.
    """

    imposter: str
    rooms: tuple[str, ...]
    wishes: tuple[str, ...]
    is_cunning: tuple[bool, ...]
    talks: tuple[Talk, ...] = ()
    motions: tuple[str, ...] = ()
    gone: str = ""
    beliefs: tuple[dict[str, float], ...] = ()

    @property
    def round(self) -> int:
        """Rounds played; after the last one it stays at that."""
        return min(len(self.talks), len(self.rooms) - 1)

    @property
    def living(self) -> str:
        """Who has not left."""
        return "".join(name for name in PLAYERS[: len(self.rooms[0])] if name not in self.gone)

    @property
    def crew(self) -> str:
        """Who has not left and is not the imposter."""
        return self.living.replace(self.imposter, "")

    def room(self, player: str) -> str:
        """Where a player is in this round."""
        return self.rooms[self.round][PLAYERS.index(player)]

    def company(self, player: str) -> str:
        """Whom a player meets in this round; the imposter meets nobody."""
        if player == self.imposter:
            return ""
        return "".join(name for name in self.crew if name != player and self.room(name) == self.room(player))


def make(random: Random, rules: ImposterOptions) -> ImposterGame:
    """A game before its first round."""
    imposter = TEAM if rules.side == "imposter" else random.choice(rules.others)
    crew, rounds = rules.names.replace(imposter, ""), range(rules.rounds)
    drawn = [{imposter: NOWHERE} | {name: random.choice(rules.rooms) for name in crew} for _ in rounds]
    rooms = ["".join(places[name] for name in rules.names) for places in drawn]
    wishes = ["".join(random.sample(rules.rooms, len(rules.rooms))) for _ in rounds]
    is_cunning = [random.random() < rules.cunning for _ in rounds]
    return ImposterGame(imposter=imposter, rooms=tuple(rooms), wishes=tuple(wishes), is_cunning=tuple(is_cunning))


def claims(game: ImposterGame, rules: ImposterOptions, claim: str = GONE) -> dict[str, str]:
    """Where everybody says it was in this round, in the order of speaking; `claim`: what the team's imposter says."""
    said: dict[str, str] = {}
    for player in rules.order:
        if player in game.crew:
            said[player] = game.room(player)
        elif player in game.living:
            said[player] = claim if player == TEAM else _made_up(game, set(said.values()))
    return said


def _made_up(game: ImposterGame, heard: set[str]) -> str:
    wishes = game.wishes[game.round]
    free = [room for room in wishes if room not in heard] if game.is_cunning[game.round] else []
    return (free or wishes)[0]


def talk(game: ImposterGame, rules: ImposterOptions, claim: str = GONE, objection: str = NOBODY) -> Talk:
    """This round's talk; `claim` and `objection` are the team's, the one as imposter and the other as crew."""
    said = claims(game, rules, claim)
    objections = {player: _objection(game, rules, said, player) for player in said}
    if rules.is_last:
        objections[TEAM] = objection
    return Talk(
        rooms="".join(said.get(player, GONE) for player in rules.names),
        company=tuple(game.company(player) if player in said else "" for player in rules.names),
        objections="".join(objections.get(player, NOBODY) for player in rules.names),
        is_heard=not rules.is_last or objection != NOBODY,
    )


def _objection(game: ImposterGame, rules: ImposterOptions, said: dict[str, str], player: str) -> str:
    """A member of the crew objects to the imposter in its room, the imposter to the first that spoke of its room."""
    heard = [name for name in said if not (name == TEAM and rules.is_last)]
    same = [name for name in heard if name != player and said[name] == said[player]]
    if player == game.imposter:
        return same[0] if same else NOBODY
    return game.imposter if game.imposter in same else NOBODY


NAMES = ("Ada", "Ben", "Cleo", "Dan", "Eve", "Finn", "Gus", "Hana")
ROOMS = ("kitchen", "library", "garden", "cellar", "attic", "garage", "hall", "study")
_BY_NAME = {name.casefold(): letter for name, letter in zip(NAMES, PLAYERS, strict=True)}
_BY_ROOM = {room: str(number) for number, room in enumerate(ROOMS, 1)}
_PLAYER = re.compile(r"\b(?:" + "|".join((*_BY_NAME, "nobody")) + r")\b", re.IGNORECASE)
_ROOM = re.compile(r"\b(?:" + "|".join(ROOMS) + r")\b", re.IGNORECASE)
_PERCENT = re.compile(r"\D{0,20}?(\d{1,3})\b")
LONGEST = 2000
"""Characters of an answer in words; a longer one is not legal."""


def seen(game: ImposterGame) -> str:
    """The other players in order, each as its letter if the team's player meets it, `-` if not."""
    met = game.company(TEAM)
    return "".join(name if name in met else NOBODY for name in _others(game))


def here(game: ImposterGame, rules: ImposterOptions) -> str:
    """The other players in order, each as its letter if it says that it was in the room of the team's player."""
    said = claims(game, rules)
    return "".join(name if said.get(name) == game.room(TEAM) else NOBODY for name in rules.others)


def marks(game: ImposterGame, said: Talk) -> str:
    """What each other player says, as one character: whom it objects to, `+` that it met somebody, `-` nobody."""
    return "".join(_mark(said, name) for name in _others(game))


def _mark(said: Talk, name: str) -> str:
    if said.room(name) == GONE:
        return GONE
    objection = said.objection(name)
    return objection if objection != NOBODY else "+" if said.friends(name) else NOBODY


def record(game: ImposterGame, rules: ImposterOptions) -> str:
    """A row for each round: whom the team's player objected to, then the marks; dots for what was not said yet."""
    rows = [said.objection(TEAM) + marks(game, said) for said in game.talks]
    if len(game.talks) < rules.rounds:
        rows.append("." + marks(game, talk(game, rules)))
    return "".join(rows).ljust(rules.rounds * rules.players, ".")


def crew_letters(game: ImposterGame, rules: ImposterOptions) -> dict[str, str]:
    """All fields of the team's member of the crew."""
    left = str(rules.rounds - game.round)
    return {"here": here(game, rules), "seen": seen(game), "record": record(game, rules), "left": left}


def imposter_letters(game: ImposterGame, rules: ImposterOptions) -> dict[str, str]:
    """All fields of the team's imposter: rooms heard, and rooms of those that will speak later."""
    middle = rules.order.index(TEAM)
    rooms = [GONE if name in game.gone else game.room(name) for name in rules.order]
    return {"heard": "".join(rooms[:middle]), "later": "".join(rooms[middle + 1 :])}


def crew_words(game: ImposterGame, rules: ImposterOptions) -> dict[str, str]:
    """The same in words; the witness sees all rooms, and the record has all that was said."""
    said = claims(game, rules)
    lines = [_sentences(number, past, rules) for number, past in enumerate(game.talks, 1)]
    if len(game.talks) < rules.rounds:
        lines.append(_sentences(game.round + 1, talk(game, rules), rules))
    return {
        "players": _list(game.living.replace(TEAM, "")),
        "room": room_name(game.room(TEAM)),
        "seen": _list(game.company(TEAM)),
        "claims": ", ".join(f"{NAMES[PLAYERS.index(name)]}: {room_name(said[name])}" for name in said if name != TEAM),
        "record": "\n".join(lines),
        "left": str(rules.rounds - game.round),
    }


def imposter_words(game: ImposterGame, rules: ImposterOptions) -> dict[str, str]:
    """The same in words, and which rooms there are."""
    middle = rules.order.index(TEAM)
    said = [f"{NAMES[PLAYERS.index(name)]}: {room_name(game.room(name))}" for name in game.crew]
    first = sum(name in game.crew for name in rules.order[:middle])
    rooms = ", ".join(room_name(room) for room in rules.rooms)
    return {"rooms": rooms, "heard": ", ".join(said[:first]), "later": ", ".join(said[first:])}


def room_name(room: str) -> str:
    """A room's name."""
    return ROOMS[int(room) - 1]


def player_name(letter: str) -> str:
    """A player's name; `nobody` for `-`."""
    return "nobody" if letter == NOBODY else NAMES[PLAYERS.index(letter)]


def read_player(text: str) -> tuple[str, float] | None:
    """The letter of the player that is named last and the share that is said of it, 1 where none is; None: nobody is
    named. `b` and `Ben` are the same; of letters a small one is half sure and a capital quite."""
    if len(text) == 1 and text.lower() in (*PLAYERS, NOBODY):
        return text.lower(), 0.5 if text.islower() else 1.0
    found = list(_PLAYER.finditer(text)) if len(text) <= LONGEST else []
    if not found:
        return None
    percent = _PERCENT.match(text, found[-1].end())
    return _BY_NAME.get(found[-1][0].casefold(), NOBODY), min(int(percent[1]), 100) / 100 if percent else 1.0


def read_room(text: str) -> str | None:
    """The number of the room that is named last; None: none is."""
    if len(text) == 1 and text in _BY_ROOM.values():
        return text
    found = _ROOM.findall(text) if len(text) <= LONGEST else []
    return _BY_ROOM[found[-1].casefold()] if found else None


def shared(beliefs: tuple[str, float], suspects: str) -> Mapping[str, float]:
    """A share for one suspect, and what remains in equal parts for the others."""
    name, share = beliefs
    rest = (1 - share) / (len(suspects) - 1) if len(suspects) > 1 else 0.0
    return {suspect: share if suspect == name else rest for suspect in suspects}


def _others(game: ImposterGame) -> str:
    return PLAYERS[1 : len(game.rooms[0])]


def _list(letters: str) -> str:
    return ", ".join(player_name(letter) for letter in letters) or "nobody"


def _sentences(number: int, said: Talk, rules: ImposterOptions) -> str:
    players = [name for name in rules.order if said.room(name) != GONE]
    lines = [_sentence(said, name) for name in players if name != TEAM or said.is_heard]
    return f"Round {number}. " + " ".join(lines)


def _sentence(said: Talk, name: str) -> str:
    words = f"{player_name(name)}: I was in the {room_name(said.room(name))} with {_list(said.friends(name))}."
    objection = said.objection(name)
    return words if objection == NOBODY else f"{words} {player_name(objection)} was not there."
