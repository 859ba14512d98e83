"""Scripted members of the team, who go by what the team may know. They teach the tiny base.

The clerk is never idle while there is something to ask the coworker or to fill in, the agent asks for each slot once
and sends the order as soon as it is complete: no play that does not guess takes fewer turns, see the tests.
"""

from collections.abc import Iterator
from random import Random

import msgspec

from mas.core.environment import Task
from mas.core.joint import joint_action
from mas.scenarios.help_desk.desk import DeskRules, DeskState
from mas.scenarios.help_desk.environment import AGENT, CLERK, USER, DeskEnvironment
from mas.scenarios.help_desk.wording import NOTHING, SEND, SILENCE, AgentQuestion, ClerkAction, DeskLetters
from mas.scenarios.noisy_teacher import NoisyTeacher
from mas.scenarios.simulated_users import UNSURE, Facts, respond, value_of, with_fact

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


def demonstrations(random: Random, skill: float, *, rules: DeskRules) -> Iterator[tuple[str, str]]:
    """Each member's task in turn, in letters: right with `skill`, by habit else (see `NoisyTeacher`).

    The habits: the agent asks for the first slot again, and waits once all slots were told; the clerk fills in the
    first slot as it is known. The user is always honest: nobody trains him.
    """
    teacher = NoisyTeacher(random, skill)
    rules = msgspec.structs.replace(rules, slots=min(rules.slots, len(DeskLetters.topics)), is_talking=True)
    wording = DeskLetters(rules.slots)
    world = DeskEnvironment(rules, wording)
    while True:
        world.reset(Task(id="demonstration", seed=random.randrange(2**60)))
        while world.to_move():
            state = world.state
            entry, question = best_entry(state), best_question(state, best_entry(state))
            if random.random() > CLEAN_SHARE:
                entry = random.choice((NOTHING, ClerkAction(random.choice(state.topics), random.choice("0123456789"))))
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
