"""The state of `help_desk`: a user on the line, a coworker next door, and an order that is filled in."""

from collections.abc import Mapping
from random import Random

import msgspec

from mas.scenarios.simulated_users import (
    UNSURE,
    Coworker,
    CoworkerProfile,
    Facts,
    User,
    draw_user,
    value_of,
)


class DeskRules(msgspec.Struct, frozen=True, kw_only=True):
    """The dial: how many `slots` an order has, and how difficult people are: most `changes` of the user's mind,
    longest `delay` and most `refusals` of the coworker, the user's `patience`. `is_talking`: the team's member `user`
    speaks for the user."""

    slots: int = 3
    changes: int = 1
    delay: int = 0
    refusals: int = 0
    patience: int = 3
    is_talking: bool = False

    @property
    def max_turns(self) -> int:
        """Enough for the best play where all goes wrong, and some turns to spare."""
        return 2 * self.slots + self.changes + self.delay + self.refusals + 1


class DeskState(msgspec.Struct, frozen=True, kw_only=True):
    """`order`: what is filled in. `dialogue`: (speaker, text) with the user, `requests`: with the coworker.
    `off_script`: turns in which a model told for the user what the script would not have."""

    user: User
    coworker: Coworker
    order: Facts = ()
    dialogue: tuple[tuple[str, str], ...] = ()
    requests: tuple[tuple[str, str], ...] = ()
    turn: int = 0
    off_script: int = 0
    is_sent: bool = False

    @property
    def topics(self) -> tuple[str, ...]:
        """The slots of the order."""
        return tuple(topic for topic, _ in self.user.goal)

    def known(self, topic: str) -> str | None:
        """What the user or the coworker said about a slot: `?` while the user alone did, and could not tell."""
        told = value_of(self.user.told, topic)
        answer = self.coworker.answer(topic)
        if told in (None, UNSURE) and answer is not None and answer.kind == "told":
            return answer.value
        return told

    @property
    def share_right(self) -> float:
        """Share of slots that are filled in as the user wants it now."""
        right = sum(value_of(self.order, topic) == value for topic, value in self.user.goal)
        return right / len(self.user.goal)


def make(random: Random, rules: DeskRules, values: Mapping[str, tuple[str, ...]]) -> DeskState:
    """People with what they know; up to half of the slots only the coworker can tell."""
    unsure = random.randint(0, rules.slots // 2)
    user = draw_user(random, values, patience=rules.patience, unsure=unsure, changes=rules.changes)
    profile = CoworkerProfile(delay=random.randint(0, rules.delay), refusals=random.randint(0, rules.refusals))
    knows = tuple((topic, value) for topic, value in user.goal if topic in user.profile.unsure)
    return DeskState(user=user, coworker=Coworker(profile=profile, knows=knows))
