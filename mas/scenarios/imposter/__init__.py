"""`imposter`: find out who lies, or lie so that nobody does. A small game of hidden roles, one round a turn.

After games such as Werewolf and Among Us, in which beliefs are learned from what others say (Training Language Models
for Social Deduction with Multi-Agent Reinforcement Learning, arXiv 2502.06060). The other players are scripted.

Scripted members of the team object to whom they caught, believe what follows, and wait until they are sure. They teach
the tiny base in letters; the expert plays both sides in either style.
"""

from collections.abc import Iterator, Mapping
from functools import partial
from itertools import product
from random import Random
from statistics import fmean

import msgspec

from mas.core.environment import Move, Task
from mas.core.messages import Action, joint_action, read_joint
from mas.scenarios.imposter.beliefs import brier, is_carried, listeners, posterior, scripted_motion, top
from mas.scenarios.imposter.rules import (
    FEWEST,
    NOBODY,
    NOWHERE,
    TEAM,
    ImposterGame,
    ImposterOptions,
    Talk,
    crew_letters,
    crew_words,
    imposter_letters,
    imposter_words,
    make,
    player_name,
    read_player,
    read_room,
    room_name,
    shared,
    talk,
)
from mas.scenarios.noisy_teacher import NoisyTeacher
from mas.scenarios.registry import ScenarioEntry
from mas.scenarios.world import FolderScenario, RecordEnvironment, one_seat

MEMBERS = ("witness", "analyst", "voter")
"""Of the crew's team, in the order in which its solo agent spells what they do."""
_FIELDS: dict[str, tuple[str, ...]] = {
    "witness": ("players", "room", "here", "seen", "claims"),
    "analyst": ("players", "record"),
    "voter": ("players", "left"),
    "lookout": ("later",),
    "talker": ("rooms", "heard"),
}


class CrewAction(msgspec.Struct, frozen=True):
    """What the team's member of the crew does in a round; None: the member who decides it did not say."""

    objection: str | None = None
    belief: tuple[str, float] | None = None
    vote: str | None = None


class ImposterEnvironment(RecordEnvironment[ImposterGame]):
    """Pays 1 for winning, once, and the change of what the other members of the crew believe, which telescopes."""

    def __init__(self, rules: ImposterOptions) -> None:
        members = MEMBERS if rules.side == "crew" else ("lookout", "talker")
        super().__init__(one_seat("imposter", (*members, "solo"), rules.rounds, ("win", "beliefs")))
        self.rules = rules

    def initial(self, task: Task) -> ImposterGame:
        return make(Random(task.seed), self.rules)

    def fields(self, state: ImposterGame, view: str) -> Mapping[str, str]:
        letters, words = {"crew": (crew_letters, crew_words), "imposter": (imposter_letters, imposter_words)}[
            self.rules.side
        ]
        fields = (letters if self.rules.style == "letters" else words)(state, self.rules)
        return fields if view == "solo" else {name: fields[name] for name in _FIELDS[view] if name in fields}

    def legal(self, seat: str) -> tuple[str, ...] | None:
        """In words one wording of each action, with beliefs that are sure."""
        if self.rules.side == "imposter":
            return tuple(self.rules.rooms)
        others = self.state.living.replace(TEAM, "")
        if self.rules.style == "letters":
            spelled = product(others + NOBODY, others + others.upper(), others + NOBODY)
            return tuple("".join(letters) for letters in spelled)
        named = product(others + NOBODY, others, others + NOBODY)
        return tuple(joint_action(dict(zip(MEMBERS, map(player_name, names), strict=True))) for names in named)

    def act(self, state: ImposterGame, action: str) -> tuple[ImposterGame, dict[str, float], bool]:
        if self.rules.side == "imposter":
            claim = read_room(action)
            legal = action == "" or (claim is not None and claim in self.rules.rooms)
            said = CrewAction()
            # who has nothing to say claims the room of the first that spoke
            echo = state.room(next(name for name in self.rules.order if name in state.crew))
            spoken = talk(state, self.rules, claim=claim if claim and legal else echo)
        else:
            read = self.read(state, action)
            legal, said = read is not None, read or CrewAction()
            spoken = talk(state, self.rules, objection=said.objection or NOBODY)
        after = self._voted(state, spoken, said)
        change = listeners(after, self.rules) - listeners(state, self.rules)
        sign = 1.0 if self.rules.side == "crew" else -1.0
        return after, {"beliefs": sign * change, "win": float(self.is_solved(after))}, legal

    def read(self, state: ImposterGame, action: str) -> CrewAction | None:
        """What the team's member of the crew does, from three letters or a joint action; None: it is not legal."""
        if len(action) == len(MEMBERS) and self.rules.style == "letters":
            texts: Mapping[str, str] | None = dict(zip(MEMBERS, action, strict=True))
        else:
            texts = read_joint(action, MEMBERS) if action else {}
        if texts is None:
            return None
        found = {name: read_player(text) for name, text in texts.items()}
        others = state.living.replace(TEAM, "")
        for name, one in found.items():
            if one is None or one[0] not in (others if name == "analyst" else others + NOBODY):
                return None
        witness, voter = found.get("witness"), found.get("voter")
        return CrewAction(
            objection=witness[0] if witness else None, belief=found.get("analyst"), vote=voter[0] if voter else None
        )

    def beliefs(self, state: ImposterGame, belief: tuple[str, float] | None) -> dict[str, float]:
        """How likely each other player that has not left is called; empty where nobody, or nobody of them, is named."""
        others = state.living.replace(TEAM, "")
        return dict(shared(belief, others)) if belief and belief[0] in others else {}

    def _voted(self, state: ImposterGame, spoken: Talk, said: CrewAction) -> ImposterGame:
        talks = (*state.talks, spoken)
        motion = said.vote or NOBODY if self.rules.side == "crew" else scripted_motion(state, self.rules, talks)
        leaves = motion != NOBODY and is_carried(state, self.rules, talks, motion)
        return msgspec.structs.replace(
            state,
            talks=talks,
            motions=(*state.motions, motion),
            gone=state.gone + motion if leaves else state.gone,
            beliefs=(*state.beliefs, self.beliefs(state, said.belief)),
        )

    def is_over(self, state: ImposterGame) -> bool:
        return state.imposter in state.gone or len(state.living) <= FEWEST or len(state.talks) >= self.rules.rounds

    def is_solved(self, state: ImposterGame) -> bool:
        if self.rules.side == "crew":
            return state.imposter in state.gone
        return self.is_over(state) and TEAM not in state.gone

    def measures(self) -> Mapping[str, float]:
        """`listener_belief`: what the scripted crew that has not left gives the true imposter at the end, on average.

        Of the crew also: `belief_accuracy` (share of rounds in which the team's suspect was the imposter) and
        `belief_brier` of all rounds, and `vote_accuracy` of the votes that the team cast, where it cast any.
        """
        state = self.state
        found = {"listener_belief": listeners(state, self.rules)}
        if self.rules.side == "imposter" or not state.talks:
            return found
        found["belief_accuracy"] = fmean(bool(one) and top(one) == state.imposter for one in state.beliefs)
        found["belief_brier"] = fmean(brier(one, state.imposter) for one in state.beliefs)
        cast = [motion for motion in state.motions if motion != NOBODY]
        if cast:
            found["vote_accuracy"] = cast.count(state.imposter) / len(cast)
        return found

    def render(self) -> str:
        state = self.state
        lines = [
            f"{player_name(state.imposter)} is the imposter, {len(state.talks)} of {self.rules.rounds} rounds played"
        ]
        for number, (spoken, motion) in enumerate(zip(state.talks, state.motions, strict=True), 1):
            lines.append(f"{number}. rooms {spoken.rooms}, objections {spoken.objections}, motion {motion}")
        return "\n".join([*lines, f"gone: {state.gone or '-'}"])


def shown(random: Random, rules: ImposterOptions) -> str:
    """What the team sees in all fields, round by round, of a game in which it does no harm.

    As crew it says nothing, and what counts ends with the first round in which it can be sure who lies: a team that
    moves then may see no more. What it objects to adds nothing, for that follows from what it saw. So no whole game of
    one split, played by a team that moves against nobody before it is sure, shows what a game of the other one shows; a
    first round that leaves doubt may be in both. As imposter the team is never found out, and sees where all are.
    """
    game, environment, sights = make(random, rules), ImposterEnvironment(rules), []
    for _ in range(rules.rounds):
        sights.append(f"{environment.fields(game, 'solo')}")
        spoken = talk(game, rules, claim=NOWHERE)
        game = msgspec.structs.replace(game, talks=(*game.talks, spoken))
        if rules.side == "crew" and max(posterior(rules, game.talks, game.living, TEAM).values()) == 1:
            break
    return "\n".join(sights)


PROBED = ("analyst", "solo")


class BeliefReward:
    """`wrong_belief`: minus half the Brier score of the belief, shared over the rounds; words that say none are a
    belief in nobody.

    It has the place of the paper's listening loss, -log p(the imposter): the Brier score is proper, too, and bounded,
    so that a sure mistake costs no more than 1 in a whole episode.
    """

    terms: tuple[str, ...] = ("wrong_belief",)

    def own(self, move: Move) -> Mapping[str, float]:
        assert isinstance(move.environment, ImposterEnvironment)
        environment = move.environment
        if environment.rules.side != "crew" or move.role not in PROBED:
            return {}
        text = move.output.text if isinstance(move.output, Action) else ""
        state = environment.state
        if move.role == "analyst":
            belief = read_player(text)
        else:
            said = environment.read(state, text)
            belief = said.belief if said else None
        wrong = brier(environment.beliefs(state, belief), state.imposter) / 2
        return {"wrong_belief": -wrong / environment.rules.rounds}


MESSAGES_KEPT = 0.7
"""Share of the witness's demonstrated messages that are true: the analyst must also know what to make of others."""


def caught(game: ImposterGame, rules: ImposterOptions) -> str:
    """Who says that it was in the room of the team's player and was not; nobody where there is none."""
    said = talk(game, rules)
    liars = [name for name in game.living.replace(TEAM, "") if said.room(name) == game.room(TEAM)]
    return next((name for name in liars if name not in game.company(TEAM)), NOBODY)


def beliefs_of_team(game: ImposterGame, rules: ImposterOptions) -> dict[str, float]:
    """How likely each other player is the imposter, by all that the team's player saw and heard, exactly."""
    return posterior(rules, [*game.talks, talk(game, rules)], game.living, TEAM)


def vote(suspect: str, is_sure: bool, left: int) -> str:
    """Moves against a suspect when sure, or in the last round."""
    return suspect if is_sure or left == 1 else NOBODY


def free_rooms(game: ImposterGame, rules: ImposterOptions) -> list[str]:
    """Where nobody of the crew is: who claims to have been there is contradicted by nobody."""
    taken = {game.room(name) for name in game.crew}
    return [room for room in rules.rooms if room not in taken]


def expert(environment: ImposterEnvironment, random: Random) -> dict[str, str]:
    """The best that is known. As crew: with exact beliefs; as imposter: any free room, which wins always."""
    game, rules = environment.state, environment.rules
    if rules.side == "imposter":
        room = random.choice(free_rooms(game, rules))
        return {"team": room if environment.rules.style == "letters" else room_name(room)}
    beliefs = beliefs_of_team(game, rules)
    suspect = top(beliefs)
    motion = vote(suspect, beliefs[suspect] == 1, rules.rounds - game.round)
    if environment.rules.style == "letters":
        belief = suspect.upper() if beliefs[suspect] == 1 else suspect
        said = (caught(game, rules), belief, motion)
        return {"team": joint_action(dict(zip(MEMBERS, said, strict=True)))}
    said = (caught(game, rules), suspect, motion)
    texts = dict(zip(MEMBERS, map(player_name, said), strict=True))
    texts["analyst"] += f" {round(100 * beliefs[suspect])}"
    return {"team": joint_action(texts)}


def suspected(record: str, objection: str, rules: ImposterOptions) -> str:
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


def demonstrations(random: Random, skill: float, rules: ImposterOptions) -> Iterator[tuple[str, str]]:
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


def _crew(game: ImposterGame, rules: ImposterOptions, teacher: NoisyTeacher) -> Iterator[tuple[str, str]]:
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


def _imposter(game: ImposterGame, rules: ImposterOptions, teacher: NoisyTeacher) -> Iterator[tuple[str, str]]:
    seen, random = imposter_letters(game, rules), teacher.random
    heard, later, message = seen["heard"], seen["later"], random.choice(rules.rooms)
    free = [room for room in rules.rooms if room not in heard + message]
    yield f"L{later}>", teacher.answer(later, rules.rooms[0], rules.rooms)
    yield f"T{heard}{message}>", teacher.answer(random.choice(free), heard[0], rules.rooms)
    yield f"S{heard}{later}>", teacher.answer(random.choice(free_rooms(game, rules)), heard[0], rules.rooms)


def build(options: ImposterOptions) -> FolderScenario:
    """The scenario with these options."""
    return FolderScenario(
        __file__,
        options,
        partial(ImposterEnvironment, options),
        partial(shown, rules=options),
        partial(demonstrations, rules=ImposterOptions(side=options.side, rounds=options.rounds)),
        inner=f"{options.side}_{options.style}",
        reward=BeliefReward(),
        expert=expert,
    )


ENTRY = ScenarioEntry(
    ImposterOptions,
    build,
    "hidden roles",
    {
        "small": {},
        "medium": {"style": "words", "players": 5, "rounds": 3, "cunning": 0.5},
        "large": {"style": "words", "players": 8, "rounds": 5, "cunning": 0.9},
    },
)
