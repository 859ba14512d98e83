"""Simulated people for any scenario: a user with a hidden goal, and coworkers who know what others do not.

Everything is a function from frozen record to frozen record, so that people live in an environment's state: a clone
shares them, a snapshot is their encoding, and the seed that drew them decides all that they do.
Leaves out on purpose: words. A scenario says how facts are worded and which questions it understands; here is decided
what somebody knows, tells, delays, refuses, and how long he bears with the team.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from random import Random
from typing import Literal

import msgspec

Facts = tuple[tuple[str, str], ...]
"""(topic, value) pairs, each topic once."""
UNSURE = "?"
"""What somebody says about a topic that he knows nothing of."""
Mood = Literal["calm", "annoyed", "gone"]


def value_of(facts: Facts, topic: str) -> str | None:
    """The value of a topic, None where there is none."""
    return next((value for name, value in facts if name == topic), None)


def with_fact(facts: Facts, topic: str, value: str) -> Facts:
    """The facts with another value of one topic; a new topic comes last."""
    if value_of(facts, topic) is None:
        return (*facts, (topic, value))
    return tuple((name, value if name == topic else old) for name, old in facts)


def mentioned(text: str, names: Iterable[str]) -> tuple[str, ...]:
    """The names that a text has as whole words, in any case, in the order in which they first come."""
    words = re.findall(r"\w+", text.casefold())
    found = {name: words.index(name.casefold()) for name in names if name.casefold() in words}
    return tuple(sorted(found, key=found.__getitem__))


class Change(msgspec.Struct, frozen=True):
    """From this turn of his on (0 is the first) the user wants another value of a topic, if he has told it."""

    turn: int
    topic: str
    value: str


class UserProfile(msgspec.Struct, frozen=True, kw_only=True):
    """What a user is like.

    Attributes:
        patience: bad turns after which he leaves.
        answers: questions that he answers in one turn, the first that were asked.
        unsure: topics of his goal that he cannot tell; a coworker may.
        changes: when he changes his mind, by turn; only about what he has told by then.
    """

    patience: int = 3
    answers: int = 1
    unsure: tuple[str, ...] = ()
    changes: tuple[Change, ...] = ()


class User(msgspec.Struct, frozen=True, kw_only=True):
    """A user in the middle of a conversation.

    Attributes:
        goal: what he wants now, hidden from the team, with the topics that he is unsure of.
        told: what he last said about each topic.
        turns: how often he spoke; lost: bad turns; repeated: questions that he had answered before.
    """

    profile: UserProfile
    goal: Facts
    told: Facts = ()
    turns: int = 0
    lost: int = 0
    repeated: int = 0

    @property
    def has_left(self) -> bool:
        """Whether his patience is at an end."""
        return self.lost >= self.profile.patience

    @property
    def mood(self) -> Mood:
        """How he sounds: all that others know of his patience."""
        return "gone" if self.has_left else "annoyed" if self.lost else "calm"

    def tells(self, topic: str) -> str:
        """What he honestly says about a topic."""
        return UNSURE if topic in self.profile.unsure else value_of(self.goal, topic) or UNSURE

    @property
    def news(self) -> Facts:
        """What he told otherwise before, as it is now."""
        return tuple((topic, self.tells(topic)) for topic, value in self.told if value != self.tells(topic))


class UserReply(msgspec.Struct, frozen=True, kw_only=True):
    """What came of one turn of the user's: the facts that he told, and the points of patience that it cost (0 or 1)."""

    facts: Facts
    lost: int


def about_to_speak(user: User) -> User:
    """The user as he is when he speaks next: changes of mind that are due are made."""
    goal = user.goal
    for change in user.profile.changes:
        if change.turn == user.turns and value_of(user.told, change.topic) is not None:
            goal = with_fact(goal, change.topic, change.value)
    return msgspec.structs.replace(user, goal=goal)


def respond(
    user: User, asked: Sequence[str], *, words: Facts | None = None, bad: bool = False
) -> tuple[User, UserReply]:
    """One turn of the user's.

    The script corrects first what is no longer so, one turn's worth, and else answers what was asked. A question whose
    answer was told and still holds is a bad turn.

    Args:
        asked: topics that he was asked about, in order.
        words: what somebody else says in his place, as facts; None: the script speaks.
        bad: whether the turn is a bad one for another reason, as a wait for nothing.
    """
    user = about_to_speak(user)
    heard = tuple(asked)[: user.profile.answers]
    repeated = [topic for topic in heard if value_of(user.told, topic) == user.tells(topic)]
    if words is None:
        words = user.news[: user.profile.answers] or tuple((topic, user.tells(topic)) for topic in heard)
    told = user.told
    for topic, value in words:
        told = with_fact(told, topic, value)
    lost = int(bad or bool(repeated))
    after = msgspec.structs.replace(
        user, told=told, turns=user.turns + 1, lost=user.lost + lost, repeated=user.repeated + len(repeated)
    )
    return after, UserReply(facts=words, lost=lost)


def briefing(user: User) -> dict[str, str]:
    """All that a model needs to speak for the user, as fields of a view: `goal`, `news` and `mood`."""
    speaker = about_to_speak(user)
    lines = [f"{topic}: {speaker.tells(topic).replace(UNSURE, 'you do not know')}" for topic, _ in speaker.goal]
    news = [f"{topic} is now {value}" for topic, value in speaker.news]
    return {"goal": "\n".join(lines), "news": "\n".join(news) or "nothing", "mood": speaker.mood}


def draw_user(random: Random, values: Mapping[str, Sequence[str]], *, patience: int, unsure: int, changes: int) -> User:
    """A user who wants one of the values of each topic.

    `unsure` topics he cannot tell. Each of `changes` possible changes of mind comes with probability 1/2, each of
    another topic that he can tell, in one of his turns after the first, as many as there are topics.
    """
    goal = tuple((topic, random.choice(options)) for topic, options in values.items())
    topics = random.sample(list(values), len(values))
    hidden, sure = topics[:unsure], topics[unsure:]
    minds = []
    for topic in sure[:changes]:
        others = [value for value in values[topic] if value != value_of(goal, topic)]
        change = Change(random.randint(1, len(values)), topic, random.choice(others))
        if random.random() < 0.5:
            minds.append(change)
    profile = UserProfile(patience=patience, unsure=tuple(sorted(hidden)), changes=tuple(minds))
    return User(profile=profile, goal=goal)


class CoworkerProfile(msgspec.Struct, frozen=True, kw_only=True):
    """What a coworker is like: an answer takes `delay` turns (0: it comes at once), the first `refusals` requests are
    refused."""

    delay: int = 0
    refusals: int = 0


class CoworkerAnswer(msgspec.Struct, frozen=True):
    """A coworker's word on a topic. `value` is empty unless it was told."""

    topic: str
    kind: Literal["told", "later", "refused", "unknown"]
    value: str = ""


class Coworker(msgspec.Struct, frozen=True, kw_only=True):
    """A coworker who knows certain facts.

    Attributes:
        waiting: (topic, turns until it is answered). answers: the last word on each topic. refused: requests so far.
    """

    profile: CoworkerProfile
    knows: Facts
    waiting: tuple[tuple[str, int], ...] = ()
    answers: tuple[CoworkerAnswer, ...] = ()
    refused: int = 0

    def answer(self, topic: str) -> CoworkerAnswer | None:
        """The last word on a topic, None before any."""
        return next((answer for answer in self.answers if answer.topic == topic), None)


def consult(coworker: Coworker, topic: str = "") -> tuple[Coworker, tuple[CoworkerAnswer, ...]]:
    """One turn of a coworker who is asked about a topic, or about nothing: what he says now, old requests first."""
    due = [
        CoworkerAnswer(name, "told", value_of(coworker.knows, name) or "")
        for name, left in coworker.waiting
        if left <= 1
    ]
    waiting = tuple((name, left - 1) for name, left in coworker.waiting if left > 1)
    refused = coworker.refused
    if topic and not any(answer.topic == topic for answer in due):
        answer = _first_word(coworker, topic)
        due.append(answer)
        refused += answer.kind == "refused"
        if answer.kind == "later" and topic not in dict(waiting):
            waiting += ((topic, coworker.profile.delay),)
    latest = {answer.topic: answer for answer in (*coworker.answers, *due)}
    after = msgspec.structs.replace(coworker, waiting=waiting, answers=tuple(latest.values()), refused=refused)
    return after, tuple(due)


def _first_word(coworker: Coworker, topic: str) -> CoworkerAnswer:
    """What he says to a request in the turn in which it comes."""
    known = value_of(coworker.knows, topic)
    if topic in dict(coworker.waiting):
        return CoworkerAnswer(topic, "later")
    if coworker.refused < coworker.profile.refusals:
        return CoworkerAnswer(topic, "refused")
    if known is None:
        return CoworkerAnswer(topic, "unknown")
    return CoworkerAnswer(topic, "later") if coworker.profile.delay else CoworkerAnswer(topic, "told", known)
