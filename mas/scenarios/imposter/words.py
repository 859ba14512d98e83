"""How members of the team see the game and how they answer: letters and digits for the tiny base, words for others."""

import re
from collections.abc import Mapping

from mas.scenarios.imposter.rules import GONE, NOBODY, PLAYERS, TEAM, ImposterGame, ImposterRules, Talk, claims, talk

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


def here(game: ImposterGame, rules: ImposterRules) -> str:
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


def record(game: ImposterGame, rules: ImposterRules) -> str:
    """A row for each round: whom the team's player objected to, then the marks; dots for what was not said yet."""
    rows = [said.objection(TEAM) + marks(game, said) for said in game.talks]
    if len(game.talks) < rules.rounds:
        rows.append("." + marks(game, talk(game, rules)))
    return "".join(rows).ljust(rules.rounds * rules.players, ".")


def crew_letters(game: ImposterGame, rules: ImposterRules) -> dict[str, str]:
    """All fields of the team's member of the crew."""
    left = str(rules.rounds - game.round)
    return {"here": here(game, rules), "seen": seen(game), "record": record(game, rules), "left": left}


def imposter_letters(game: ImposterGame, rules: ImposterRules) -> dict[str, str]:
    """All fields of the team's imposter: rooms heard, and rooms of those that will speak later."""
    middle = rules.order.index(TEAM)
    rooms = [GONE if name in game.gone else game.room(name) for name in rules.order]
    return {"heard": "".join(rooms[:middle]), "later": "".join(rooms[middle + 1 :])}


def crew_words(game: ImposterGame, rules: ImposterRules) -> dict[str, str]:
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


def imposter_words(game: ImposterGame, rules: ImposterRules) -> dict[str, str]:
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


def _sentences(number: int, said: Talk, rules: ImposterRules) -> str:
    players = [name for name in rules.order if said.room(name) != GONE]
    lines = [_sentence(said, name) for name in players if name != TEAM or said.is_heard]
    return f"Round {number}. " + " ".join(lines)


def _sentence(said: Talk, name: str) -> str:
    words = f"{player_name(name)}: I was in the {room_name(said.room(name))} with {_list(said.friends(name))}."
    objection = said.objection(name)
    return words if objection == NOBODY else f"{words} {player_name(objection)} was not there."
