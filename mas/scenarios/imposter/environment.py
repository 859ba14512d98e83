"""`imposter`: find out who lies, or lie so that nobody does. A small game of hidden roles, one round a turn.

After games such as Werewolf and Among Us, in which beliefs are learned from what others say (Training Language Models
for Social Deduction with Multi-Agent Reinforcement Learning, arXiv 2502.06060). The other players are scripted.
"""

from collections.abc import Mapping
from itertools import product
from random import Random
from statistics import fmean
from typing import ClassVar, Literal

import msgspec

from mas.core.environment import EnvironmentSpec, Task
from mas.core.joint import joint_action, read_joint
from mas.scenarios.imposter.beliefs import brier, is_carried, listeners, posterior, scripted_motion, top
from mas.scenarios.imposter.rules import FEWEST, NOBODY, NOWHERE, TEAM, ImposterGame, ImposterRules, Talk, make, talk
from mas.scenarios.imposter.words import (
    crew_letters,
    crew_words,
    imposter_letters,
    imposter_words,
    player_name,
    read_player,
    read_room,
    shared,
)
from mas.scenarios.world import RecordEnvironment

Style = Literal["letters", "words"]

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

    state_type: ClassVar[type[msgspec.Struct]] = ImposterGame

    def __init__(self, rules: ImposterRules, style: Style) -> None:
        members = MEMBERS if rules.side == "crew" else ("lookout", "talker")
        super().__init__(
            EnvironmentSpec(
                name="imposter",
                seats=("team",),
                views=(*members, "solo"),
                max_turns=rules.rounds,
                terms=("win", "beliefs"),
            )
        )
        self.rules, self.style = rules, style

    def initial(self, task: Task) -> ImposterGame:
        return make(Random(task.seed), self.rules)

    def fields(self, state: ImposterGame, view: str) -> Mapping[str, str]:
        letters, words = {"crew": (crew_letters, crew_words), "imposter": (imposter_letters, imposter_words)}[
            self.rules.side
        ]
        fields = (letters if self.style == "letters" else words)(state, self.rules)
        return fields if view == "solo" else {name: fields[name] for name in _FIELDS[view] if name in fields}

    def legal(self, seat: str) -> tuple[str, ...] | None:
        """In words one wording of each action, with beliefs that are sure."""
        if self.rules.side == "imposter":
            return tuple(self.rules.rooms)
        others = self.state.living.replace(TEAM, "")
        if self.style == "letters":
            spelled = product(others + NOBODY, others + others.upper(), others + NOBODY)
            return tuple("".join(letters) for letters in spelled)
        named = product(others + NOBODY, others, others + NOBODY)
        return tuple(joint_action(dict(zip(MEMBERS, map(player_name, names), strict=True))) for names in named)

    def act(self, state: ImposterGame, action: str) -> tuple[ImposterGame, dict[str, float], bool]:
        if self.rules.side == "imposter":
            claim = read_room(action)
            legal = action == "" or (claim is not None and claim in self.rules.rooms)
            said = CrewAction()
            spoken = talk(state, self.rules, claim=claim if claim and legal else _echo(state, self.rules))
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
        if len(action) == len(MEMBERS) and self.style == "letters":
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
            objection=witness[0] if witness else None,
            belief=found.get("analyst"),
            vote=voter[0] if voter else None,
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


def shown(random: Random, rules: ImposterRules, style: Style) -> str:
    """What the team sees in all fields, round by round, of a game in which it does no harm.

    As crew it says nothing, and what counts ends with the first round in which it can be sure who lies: a team that
    moves then may see no more. What it objects to adds nothing, for that follows from what it saw. So no whole game of
    one split, played by a team that moves against nobody before it is sure, shows what a game of the other one shows; a
    first round that leaves doubt may be in both. As imposter the team is never found out, and sees where all are.
    """
    game, environment, sights = make(random, rules), ImposterEnvironment(rules, style), []
    for _ in range(rules.rounds):
        sights.append(f"{environment.fields(game, 'solo')}")
        spoken = talk(game, rules, claim=NOWHERE)
        game = msgspec.structs.replace(game, talks=(*game.talks, spoken))
        if rules.side == "crew" and max(posterior(rules, game.talks, game.living, TEAM).values()) == 1:
            break
    return "\n".join(sights)


def _echo(state: ImposterGame, rules: ImposterRules) -> str:
    """What an imposter claims that has nothing to say: the room of the first that spoke."""
    return state.room(next(name for name in rules.order if name in state.crew))
