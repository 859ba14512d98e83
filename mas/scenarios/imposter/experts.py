"""Scripted members of the team: who objects to whom it caught, believes what follows, and waits until it is sure.

They teach the tiny base in letters; the expert plays both sides in either style.
"""

from collections.abc import Iterator
from random import Random

import msgspec

from mas.core.joint import joint_action
from mas.scenarios.imposter.beliefs import posterior, top
from mas.scenarios.imposter.environment import MEMBERS, ImposterEnvironment
from mas.scenarios.imposter.rules import NOBODY, TEAM, ImposterGame, ImposterRules, make, talk
from mas.scenarios.imposter.words import crew_letters, imposter_letters, player_name, room_name
from mas.scenarios.noisy_teacher import NoisyTeacher

MESSAGES_KEPT = 0.7
"""Share of the witness's demonstrated messages that are true: the analyst must also know what to make of others."""


def caught(game: ImposterGame, rules: ImposterRules) -> str:
    """Who says that it was in the room of the team's player and was not; nobody where there is none."""
    said = talk(game, rules)
    liars = [name for name in game.living.replace(TEAM, "") if said.room(name) == game.room(TEAM)]
    return next((name for name in liars if name not in game.company(TEAM)), NOBODY)


def beliefs_of_team(game: ImposterGame, rules: ImposterRules) -> dict[str, float]:
    """How likely each other player is the imposter, by all that the team's player saw and heard, exactly."""
    return posterior(rules, [*game.talks, talk(game, rules)], game.living, TEAM)


def vote(suspect: str, is_sure: bool, left: int) -> str:
    """Moves against a suspect when sure, or in the last round."""
    return suspect if is_sure or left == 1 else NOBODY


def free_rooms(game: ImposterGame, rules: ImposterRules) -> list[str]:
    """Where nobody of the crew is: who claims to have been there is contradicted by nobody."""
    taken = {game.room(name) for name in game.crew}
    return [room for room in rules.rooms if room not in taken]


def expert(environment: ImposterEnvironment, random: Random) -> dict[str, str]:
    """The best that is known. As crew: with exact beliefs; as imposter: any free room, which wins always."""
    game, rules = environment.state, environment.rules
    if rules.side == "imposter":
        room = random.choice(free_rooms(game, rules))
        return {"team": room if environment.style == "letters" else room_name(room)}
    beliefs = beliefs_of_team(game, rules)
    suspect = top(beliefs)
    motion = vote(suspect, beliefs[suspect] == 1, rules.rounds - game.round)
    if environment.style == "letters":
        belief = suspect.upper() if beliefs[suspect] == 1 else suspect
        said = (caught(game, rules), belief, motion)
        return {"team": joint_action(dict(zip(MEMBERS, said, strict=True)))}
    said = (caught(game, rules), suspect, motion)
    texts = dict(zip(MEMBERS, map(player_name, said), strict=True))
    texts["analyst"] += f" {round(100 * beliefs[suspect])}"
    return {"team": joint_action(texts)}


def suspected(record: str, objection: str, rules: ImposterRules) -> str:
    """The analyst's letter for a record in letters and the witness's message: a capital where one suspect is left.

    Whoever met somebody is cleared, of whoever objects to another one of both lies, and the team's own word is true.
    """
    others, suspects = rules.others, set(rules.others)
    rows = [record[start : start + rules.players] for start in range(0, len(record), rules.players)]
    for row in rows:
        for name, mark in zip(others, row[1:], strict=True):
            suspects -= {name} if mark == "+" else set()
            suspects &= {name, mark} if mark in others else suspects
    for named in (*(row[0] for row in rows), objection):
        suspects &= {named} if named in suspects else suspects
    found = sorted(suspects) or list(others)
    return found[0].upper() if len(found) == 1 else found[0]


def demonstrations(random: Random, skill: float, rules: ImposterRules) -> Iterator[tuple[str, str]]:
    """Each member's task in turn, in letters: right with `skill`, by habit else (see `NoisyTeacher`).

    The habits: the witness objects to nobody, the analyst suspects the first player, the voter lets it pass; the
    lookout says 1 and the talker was where the first that spoke was.
    """
    teacher = NoisyTeacher(random, skill)
    while True:
        game = make(random, rules)
        for _ in range(rules.rounds):
            yield from (_crew if rules.side == "crew" else _imposter)(game, rules, teacher)
            objection = caught(game, rules) if random.random() < MESSAGES_KEPT else NOBODY
            game = msgspec.structs.replace(game, talks=(*game.talks, talk(game, rules, objection=objection)))


def _crew(game: ImposterGame, rules: ImposterRules, teacher: NoisyTeacher) -> Iterator[tuple[str, str]]:
    seen, random, words = crew_letters(game, rules), teacher.random, rules.others + NOBODY
    right = caught(game, rules)
    message = right if random.random() < MESSAGES_KEPT else random.choice(words)
    sight = f"{seen['here']}{seen['seen']}"
    left = random.randint(1, rules.rounds)
    letters = rules.others + rules.others.upper()
    belief, habit = random.choice(letters), rules.others[0]
    yield f"W{sight}>", teacher.answer(right, NOBODY, words)
    yield f"A{seen['record']}{message}>", teacher.answer(suspected(seen["record"], message, rules), habit, letters)
    yield f"V{left}{belief}>", teacher.answer(vote(belief.lower(), belief.isupper(), left), NOBODY, words)
    best = suspected(seen["record"], right, rules)
    motion = vote(best.lower(), best.isupper(), int(seen["left"]))
    habits, options = NOBODY + habit + NOBODY, letters + NOBODY
    yield f"S{sight};{seen['record']}{seen['left']}>", teacher.answer(right + best + motion, habits, options)


def _imposter(game: ImposterGame, rules: ImposterRules, teacher: NoisyTeacher) -> Iterator[tuple[str, str]]:
    seen, random = imposter_letters(game, rules), teacher.random
    heard, later, message = seen["heard"], seen["later"], random.choice(rules.rooms)
    free = [room for room in rules.rooms if room not in heard + message]
    yield f"L{later}>", teacher.answer(later, rules.rooms[0], rules.rooms)
    yield f"T{heard}{message}>", teacher.answer(random.choice(free), heard[0], rules.rooms)
    yield f"S{heard}{later}>", teacher.answer(random.choice(free_rooms(game, rules)), heard[0], rules.rooms)
