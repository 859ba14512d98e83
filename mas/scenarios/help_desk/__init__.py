"""`help_desk`: find out what a user wants, and order it.

Each turn the clerk fills in a slot of the order or asks the coworker, and the agent asks the user or sends the order
off, both at once. The user answers by script, or in the words of the member `user`.

Scripted members of the team, who go by what the team may know. They teach the tiny base. The clerk is never idle while
there is something to ask the coworker or to fill in, the agent asks for each slot once and sends the order as soon as
it is complete: no play that does not guess takes fewer turns, see the tests.
"""

from collections.abc import Iterator, Mapping
from functools import partial
from random import Random
from typing import ClassVar

import msgspec

from mas.core.environment import Task
from mas.core.messages import joint_action, read_joint
from mas.scenarios.help_desk.wording import (
    NOTHING,
    SEND,
    SILENCE,
    AgentQuestion,
    ClerkAction,
    DeskLetters,
    DeskOptions,
    DeskState,
    DeskWording,
    Words,
    make,
)
from mas.scenarios.noisy_teacher import DIGITS, NoisyTeacher
from mas.scenarios.registry import ScenarioEntry
from mas.scenarios.simulated_users import UNSURE, Facts, consult, respond, value_of, with_fact
from mas.scenarios.world import FolderScenario, RecordEnvironment, kept_text, one_seat

AGENT, CLERK, SOLO, USER = "agent", "clerk", "solo", "user"


class DeskAction(msgspec.Struct, frozen=True, kw_only=True):
    """A team's action, read. `words` are the user's: None where nobody spoke for the user."""

    entry: ClerkAction = NOTHING
    question: AgentQuestion = SILENCE
    text: str = ""
    words: str | None = None


class DeskEnvironment(RecordEnvironment[DeskState]):
    """Pays `fulfilled`, 1 for an order that is right when it is sent, else `partly`, the share of its slots that are,
    and `patience`, -0.1 for each bad turn: a question that was answered before, or a turn in which nobody does
    anything."""

    impatience: ClassVar[float] = -0.1

    def __init__(self, rules: DeskOptions, wording: DeskWording) -> None:
        views = (AGENT, CLERK, SOLO, *((USER,) if rules.is_talking else ()))
        super().__init__(one_seat("help_desk", views, rules.max_turns, ("fulfilled", "partly", "patience")))
        self.rules, self.wording = rules, wording

    def initial(self, task: Task) -> DeskState:
        return make(Random(task.seed), self.rules, self.wording.values)

    def content_of(self, state: DeskState) -> str:
        """What every conversation shows: what is wanted at first, and what the user cannot tell."""
        return msgspec.json.encode((state.user.goal, state.user.profile.unsure)).decode()

    def fields(self, state: DeskState, view: str) -> Mapping[str, str]:
        return self.wording.fields(state, view)

    def legal(self, seat: str) -> tuple[str, ...] | None:
        if self.rules.is_talking or not isinstance(self.wording, DeskLetters):
            return None
        values = self.wording.values
        entries = [f"{topic}{value}" for topic, digits in values.items() for value in (*digits, "?")]
        return tuple(self.wording.both(entry, said) for entry in (*entries, "--") for said in (*values, "o", "-"))

    def act(self, state: DeskState, action: str) -> tuple[DeskState, dict[str, float], bool]:
        said = self.read(action)
        legal, said = said is not None, said or DeskAction(words="" if self.rules.is_talking else None)
        after = self._filled_in(msgspec.structs.replace(state, turn=state.turn + 1), said.entry)
        if said.question.sends:
            after = msgspec.structs.replace(after, is_sent=True)
            return after, {"fulfilled": 1.0} if after.share_right == 1 else {"partly": after.share_right}, legal
        is_busy = after.order != state.order or said.entry.is_request or bool(state.coworker.waiting)
        is_idle = not said.question.topics and not is_busy
        after, lost = self._answered(after, said, bad=is_idle or not legal)
        return after, {"patience": self.impatience * lost}, legal

    def _answered(self, state: DeskState, said: DeskAction, *, bad: bool) -> tuple[DeskState, int]:
        """What the user says to it, and the patience that it cost."""
        asked = said.question.topics
        words = None if said.words is None else self.wording.read_facts(said.words)
        user, reply = respond(state.user, asked, words=words, bad=bad)
        is_off = words is not None and set(words) != set(respond(state.user, asked)[1].facts)
        heard = self.wording.reply(reply.facts) if said.words is None else _one_line(said.words)
        lines = [(AGENT, _one_line(said.text)), (USER, heard)]
        dialogue = (*state.dialogue, *(line for line in lines if line[1]))
        after = msgspec.structs.replace(state, user=user, dialogue=dialogue, off_script=state.off_script + is_off)
        return after, reply.lost

    def read(self, action: str) -> DeskAction | None:
        """What a team does. None: it is not legal, and then nobody of it does anything."""
        parts = self._parts(action)
        if parts is None:
            return None
        entry = self.wording.read_entry(parts.get(CLERK, ""))
        question = self.wording.read_question(parts.get(AGENT, ""))
        if entry is None or question is None:
            return None
        words = parts.get(USER, "") if self.rules.is_talking else None
        return DeskAction(entry=entry, question=question, text=parts.get(AGENT, ""), words=words)

    def _parts(self, action: str) -> Mapping[str, str] | None:
        """Member -> what it says. The user's words come from a joint action alone, so that nobody else says them."""
        if not action:
            return {}
        speakers = (USER,) if self.rules.is_talking else ()
        parts = read_joint(action, (AGENT, CLERK, *speakers))
        if parts is not None:
            return parts
        alone = read_joint(action, (SOLO, *speakers)) if self.rules.is_talking else {SOLO: action}
        if alone is None:
            return None
        user = {USER: alone[USER]} if USER in alone else {}
        if not alone.get(SOLO):
            return user
        both = self.wording.read_both(alone[SOLO])
        return None if both is None else {CLERK: both[0], AGENT: both[1]} | user

    def _filled_in(self, state: DeskState, entry: ClerkAction) -> DeskState:
        coworker, answers = consult(state.coworker, entry.topic if entry.is_request else "")
        asked = ((CLERK, self.wording.entry(entry)),) if entry.is_request else ()
        requests = (*state.requests, *asked, *(("coworker", self.wording.answer(answer)) for answer in answers))
        filled = entry.topic and not entry.is_request
        order = with_fact(state.order, entry.topic, entry.value) if filled else state.order
        return msgspec.structs.replace(state, coworker=coworker, requests=requests, order=order)

    def is_over(self, state: DeskState) -> bool:
        return state.is_sent or state.user.has_left or state.turn >= self.rules.max_turns

    def is_solved(self, state: DeskState) -> bool:
        return state.is_sent and state.share_right == 1

    def measures(self) -> Mapping[str, float]:
        """`turns_to_resolve`: all turns that there are where the task was not solved. `questions_repeated`: those whose
        answer had been told and still held. `user_off_script`, where a model plays him: see `DeskState`."""
        state = self.state
        turns = state.turn if self.is_solved(state) else self.rules.max_turns
        found = {"turns_to_resolve": float(turns), "questions_repeated": float(state.user.repeated)}
        return found | ({"user_off_script": float(state.off_script)} if self.rules.is_talking else {})

    def render(self) -> str:
        state = self.state
        speaker = state.user
        goal = ", ".join(f"{topic} {value} ({speaker.tells(topic)})" for topic, value in speaker.goal)
        lines = [f"{who}: {text}" for who, text in (*state.dialogue, *state.requests)]
        order = ", ".join(f"{topic} {value}" for topic, value in state.order)
        return "\n".join([f"wants {goal}; {speaker.mood}", *lines, f"order: {order or '-'}"])


def _one_line(text: str) -> str:
    """As it stands in a dialogue, where nobody can write a line of somebody else's."""
    return kept_text(" ".join(text.split()))


CLEAN_SHARE = 0.6
"""Share of demonstrated turns in which the clerk does the best; else it fills in anything, so that orders go wrong."""


def best_entry(state: DeskState) -> ClerkAction:
    """Ask the coworker what the user could not tell; else fill in the first slot that is known and not right yet."""
    for topic in state.topics:
        answer = state.coworker.answer(topic)
        if value_of(state.user.told, topic) == UNSURE and (answer is None or answer.kind == "refused"):
            return ClerkAction(topic, UNSURE)
    for topic in state.topics:
        known = state.known(topic)
        if known not in (None, UNSURE, value_of(state.order, topic)):
            return ClerkAction(topic, known or "")
    return NOTHING


def best_question(state: DeskState, entry: ClerkAction) -> AgentQuestion:
    """The first slot that was not told; else send the order if it is complete once the clerk's entry is made."""
    told, order = state.user.told, state.order
    for topic in state.topics:
        if value_of(told, topic) is None:
            return AgentQuestion((topic,))
    if entry.topic and not entry.is_request:
        order = with_fact(order, entry.topic, entry.value)
    wrong = [
        topic
        for topic, value in told
        if value_of(order, topic) is None or value not in (UNSURE, value_of(order, topic))
    ]
    return SILENCE if wrong else SEND


def honest_facts(state: DeskState, question: AgentQuestion) -> Facts:
    """What the script would tell: what is no longer so, else what was asked."""
    return respond(state.user, question.topics)[1].facts


def expert(environment: DeskEnvironment, random: Random) -> dict[str, str]:
    """The best clerk and the best agent at once, and an honest user where the team speaks for him."""
    state, wording = environment.state, environment.wording
    entry = best_entry(state)
    question = best_question(state, entry)
    parts = {CLERK: wording.entry(entry), AGENT: wording.question(question)}
    if environment.rules.is_talking:
        parts[USER] = wording.reply(honest_facts(state, question))
    return {"team": joint_action(parts)}


def demonstrations(random: Random, skill: float, *, rules: DeskOptions) -> Iterator[tuple[str, str]]:
    """Each member's task in turn, in letters: right with `skill`, by habit else (see `NoisyTeacher`).

    The habits: the agent asks for the first slot again, and waits once all slots were told; the clerk fills in the
    first slot as it is known. The user is always honest: nobody trains him.
    """
    teacher = NoisyTeacher(random, skill)
    rules = rules.model_copy(update={"slots": min(rules.slots, len(DeskLetters.topics)), "user": "talking"})
    wording = DeskLetters(rules.slots)
    world = DeskEnvironment(rules, wording)
    while True:
        world.reset(Task(id="demonstration", seed=random.randrange(2**60)))
        while world.to_move():
            state = world.state
            entry, question = best_entry(state), best_question(state, best_entry(state))
            if random.random() > CLEAN_SHARE:
                entry = random.choice((NOTHING, ClerkAction(random.choice(state.topics), random.choice(DIGITS))))
                question = best_question(state, entry)
            yield from _turn(world, entry, question, teacher)
            said = {CLERK: wording.entry(entry), AGENT: wording.question(question)}
            world.step({"team": joint_action(said | {USER: wording.reply(honest_facts(state, question))})})


def _turn(
    world: DeskEnvironment, entry: ClerkAction, question: AgentQuestion, teacher: NoisyTeacher
) -> Iterator[tuple[str, str]]:
    state, wording = world.state, world.wording
    letters = "".join(state.topics)
    seen = {view: world.observe(view).fields for view in (AGENT, CLERK, USER)}
    notes, known, order = seen[AGENT]["notes"], seen[CLERK]["known"], seen[AGENT]["order"]
    made, best = wording.entry(entry), wording.entry(best_entry(state))
    habit = f"{letters[0]}{known[0]}" if known[0].isdigit() else "--"
    filled = teacher.answer(best, habit, letters + "0123456789?-")
    then = wording.question(best_question(state, wording.read_entry(filled) or NOTHING))
    yield f"C{known};{order}>", filled
    stall = letters[0] if "." in notes else "-"
    yield f"A{notes};{order};{made}>", teacher.answer(wording.question(question), stall, letters + "o-")
    yield f"S{known};{order}>", filled + teacher.answer(then, stall, letters + "o-")
    asked = teacher.random.choice((wording.question(question), *letters))
    heard = AgentQuestion((asked,)) if asked in letters else SILENCE
    before = teacher.random.choice(("", made))
    yield f"U{seen[USER]['goal']};{seen[USER]['news']};{before}{asked}>", wording.reply(honest_facts(state, heard))


def build(options: DeskOptions) -> FolderScenario:
    """The scenario with these options. Tasks and the tiny base are the same whoever speaks for the user."""
    wording: DeskWording = DeskLetters(options.slots) if options.style == "letters" else Words(options.slots)
    return FolderScenario(
        __file__,
        options,
        partial(DeskEnvironment, options, wording),
        demonstrate=partial(demonstrations, rules=options),
        inner=f"{options.style}/talking" if options.is_talking else options.style,
        unkeyed=("skill", "user"),
        expert=expert,
    )


ENTRY = ScenarioEntry(
    DeskOptions,
    build,
    "conversation and feedback",
    {
        "small": {},
        "medium": {"style": "words", "slots": 4, "delay": 1, "refusals": 1},
        "large": {"style": "words", "slots": 6, "changes": 2, "delay": 2, "refusals": 2},
    },
)
