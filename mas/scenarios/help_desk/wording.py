"""How the people of `help_desk` talk: in letters, which the tiny base can learn, or in words, for real models."""

import re
from collections.abc import Mapping
from random import Random
from typing import Annotated, ClassVar, Literal, Self

import msgspec
from pydantic import Field, model_validator

from mas.core.options import Options
from mas.scenarios.simulated_users import (
    UNSURE,
    Coworker,
    CoworkerAnswer,
    CoworkerProfile,
    Facts,
    User,
    about_to_speak,
    briefing,
    draw_user,
    mentioned,
    value_of,
)
from mas.scenarios.world import Style


class DeskOptions(Options):
    """The dial is `slots` of an order, and how difficult people are: `changes`, `delay`, `refusals`, `patience`.

    `style`: people talk in letters, which the tiny base can learn, or in words, for real models. `user`: speaks by
    script, or is the member `user` of the team, a frozen model (`talking`). `changes`: most changes of the user's mind;
    `patience`: bad turns after which he leaves. `delay`, `refusals`: most turns that the coworker lets one wait, and
    most requests that he refuses at first. `skill`: share of right answers of the noisy teacher that the tiny base
    learns from last.
    """

    style: Style = "letters"
    user: Literal["script", "talking"] = "script"
    slots: Annotated[int, Field(ge=2, le=6)] = 3
    changes: Annotated[int, Field(ge=0, le=3)] = 1
    delay: Annotated[int, Field(ge=0, le=3)] = 0
    refusals: Annotated[int, Field(ge=0, le=3)] = 0
    patience: Annotated[int, Field(ge=1, le=9)] = 3
    skill: Annotated[float, Field(ge=0, le=0.9)] = 0.5

    @model_validator(mode="after")
    def _letters(self) -> Self:
        most = len(DeskLetters.topics)
        if self.style == "letters" and self.slots > most:
            raise ValueError(f"slots={self.slots} is too many for letters: at most {most}, or style=words")
        return self

    @property
    def is_talking(self) -> bool:
        """Whether the team's member `user` speaks for the user."""
        return self.user == "talking"

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


def make(random: Random, rules: DeskOptions, values: Mapping[str, tuple[str, ...]]) -> DeskState:
    """People with what they know; up to half of the slots only the coworker can tell."""
    unsure = random.randint(0, rules.slots // 2)
    user = draw_user(random, values, patience=rules.patience, unsure=unsure, changes=rules.changes)
    profile = CoworkerProfile(delay=random.randint(0, rules.delay), refusals=random.randint(0, rules.refusals))
    knows = tuple((topic, value) for topic, value in user.goal if topic in user.profile.unsure)
    return DeskState(user=user, coworker=Coworker(profile=profile, knows=knows))


LONGEST = 500
"""Characters of what is said to the user; more is not legal, nor are control characters."""


class ClerkAction(msgspec.Struct, frozen=True):
    """What the clerk does: fill in a slot, ask the coworker about one (value `?`), or nothing (no topic)."""

    topic: str = ""
    value: str = ""

    @property
    def is_request(self) -> bool:
        """Whether the coworker is asked."""
        return self.value == UNSURE


class AgentQuestion(msgspec.Struct, frozen=True):
    """What the agent does: ask about topics, send the order off, or neither."""

    topics: tuple[str, ...] = ()
    sends: bool = False


NOTHING, SILENCE, SEND = ClerkAction(), AgentQuestion(), AgentQuestion(sends=True)


class DeskLetters:
    """Slots are letters, values digits. The clerk says `a5`, `a?` or `--`, the agent `a`, `o` (send the order) or `-`,
    the user `a5`, `a?` or `--`. `read_` functions give None for what is not legal; an empty text does nothing."""

    topics: ClassVar[str] = "abc"
    """All slots that an order can have."""

    def __init__(self, slots: int) -> None:
        self.values: Mapping[str, tuple[str, ...]] = {topic: tuple("0123456789") for topic in self.topics[:slots]}
        self._pair = re.compile(f"([{self.topics[:slots]}])([0-9?])")

    def read_entry(self, text: str) -> ClerkAction | None:
        if text in ("", "--"):
            return NOTHING
        pair = self._pair.fullmatch(text)
        return ClerkAction(pair[1], pair[2]) if pair else None

    def read_question(self, text: str) -> AgentQuestion | None:
        if text in ("", "-"):
            return SILENCE
        if text == "o":
            return SEND
        return AgentQuestion((text,)) if text in self.values else None

    def read_both(self, text: str) -> tuple[str, str] | None:
        """What one agent alone says: the clerk's part, and the agent's."""
        return (text[:2], text[2]) if len(text) == 3 else None

    def read_facts(self, text: str) -> Facts:
        """What the user's words tell."""
        pair = self._pair.fullmatch(text)
        return ((pair[1], pair[2]),) if pair else ()

    def entry(self, entry: ClerkAction) -> str:
        return entry.topic + entry.value or "--"

    def question(self, question: AgentQuestion) -> str:
        return "o" if question.sends else "".join(question.topics) or "-"

    def both(self, entry: str, question: str) -> str:
        return entry + question

    def reply(self, facts: Facts) -> str:
        return "".join(topic + value for topic, value in facts) or "--"

    def answer(self, answer: CoworkerAnswer) -> str:
        return answer.topic + (answer.value or {"later": "_", "refused": "!"}.get(answer.kind, UNSURE))

    def fields(self, state: DeskState, view: str) -> Mapping[str, str]:
        order = "".join(value_of(state.order, topic) or "." for topic in state.topics)
        notes = "".join(value_of(state.user.told, topic) or "." for topic in state.topics)
        if view == "user":
            speaker = about_to_speak(state.user)
            wish = "".join(speaker.tells(topic) for topic in state.topics)
            return {"goal": wish, "news": "".join(topic for topic, _ in speaker.news[:1]), "mood": speaker.mood}
        seen = {"notes": notes, "mood": state.user.mood} if view != "clerk" else {}
        if view != "agent":
            seen["known"] = "".join(self._known(state, topic) for topic in state.topics)
        return seen | {"order": order}

    def _known(self, state: DeskState, topic: str) -> str:
        known, answer = state.known(topic), state.coworker.answer(topic)
        if known in (None, UNSURE) and answer is not None and answer.kind in ("later", "refused"):
            return self.answer(answer)[1]
        return known or "."


_TOPICS: Mapping[str, tuple[str, ...]] = {
    "device": ("printer", "laptop", "phone", "scanner", "camera", "projector"),
    "room": ("attic", "cellar", "lobby", "kitchen", "library", "studio"),
    "day": ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday"),
    "colour": ("red", "green", "blue", "black", "white", "yellow"),
    "carrier": ("bicycle", "van", "train", "ship", "drone", "tram"),
    "contract": ("bronze", "silver", "gold", "platinum", "copper", "steel"),
}
_ANSWERS = {
    "told": "The {topic} is {value}.",
    "later": "I have to look the {topic} up, one moment.",
    "refused": "I am busy. Ask me about the {topic} once more.",
    "unknown": "I know nothing about the {topic}.",
}


class Words:
    """Slots and values are words. The clerk says `SLOT: VALUE`, `ask SLOT` or `nothing`, the agent `SEND` or what he
    tells the user: he asks about the slots that he names. One agent alone says both, in two lines, or one of them."""

    def __init__(self, slots: int) -> None:
        self.values: Mapping[str, tuple[str, ...]] = dict(list(_TOPICS.items())[:slots])

    def read_entry(self, text: str) -> ClerkAction | None:
        words = re.fullmatch(r"ask (\w+)|(\w+): ?(\w+)|(nothing|)\.?", text.strip().casefold())
        if words is None or words[4] is not None:
            return None if words is None else NOTHING
        topic, value = words[1] or words[2], words[3] or UNSURE
        return (
            ClerkAction(topic, value)
            if value in (UNSURE, *self.values.get(topic, ())) and topic in self.values
            else None
        )

    def read_question(self, text: str) -> AgentQuestion | None:
        if text.strip().rstrip(".") == "SEND":
            return SEND
        if len(text) > LONGEST or not all(character.isprintable() or character == "\n" for character in text):
            return None
        return AgentQuestion(mentioned(text, self.values))

    def read_both(self, text: str) -> tuple[str, str] | None:
        first, line, rest = text.strip().partition("\n")
        is_entry = bool(line) or self.read_entry(first) is not None
        return (first, rest) if is_entry else ("", first)

    def read_facts(self, text: str) -> Facts:
        told = [(topic, found[-1]) for topic, values in self.values.items() if (found := mentioned(text, values))]
        named = mentioned(text, self.values) if "know" in text else ()
        return (*told, *((topic, UNSURE) for topic in named if topic not in dict(told)))

    def entry(self, entry: ClerkAction) -> str:
        return (
            f"ask {entry.topic}" if entry.is_request else f"{entry.topic}: {entry.value}" if entry.topic else "nothing"
        )

    def question(self, question: AgentQuestion) -> str:
        return (
            "SEND" if question.sends else f"Which {question.topics[0]}?" if question.topics else "One moment, please."
        )

    def both(self, entry: str, question: str) -> str:
        return f"{entry}\n{question}"

    def reply(self, facts: Facts) -> str:
        said = [
            f"The {topic} is {value}." if value != UNSURE else f"I do not know the {topic}." for topic, value in facts
        ]
        return " ".join(said) or "I am still here."

    def answer(self, answer: CoworkerAnswer) -> str:
        return _ANSWERS[answer.kind].format(topic=answer.topic, value=answer.value)

    def fields(self, state: DeskState, view: str) -> Mapping[str, str]:
        dialogue = (
            "\n".join(f"{speaker}: {text}" for speaker, text in state.dialogue) or "user: Hello, I need something."
        )
        if view == "user":
            return briefing(state.user) | {"dialogue": dialogue}
        order = "\n".join(f"{topic}: {value_of(state.order, topic) or '-'}" for topic in state.topics)
        seen = {"dialogue": dialogue, "order": order}
        if view != "clerk":
            seen["mood"] = state.user.mood
        if view != "agent":
            seen["coworker"] = (
                "\n".join(f"{speaker}: {text}" for speaker, text in state.requests) or "nothing was asked"
            )
        return seen


DeskWording = DeskLetters | Words
"""A language of the desk."""
