"""Scripted players, which also teach the tiny base: faithful disguises, and answers that are right."""

from collections.abc import Iterator
from random import Random

from mas.scenarios.noisy_teacher import NoisyTeacher
from mas.scenarios.red_team.cases import (
    ANSWERS,
    COMPLY,
    LETTERS,
    PLAIN,
    PROMPTS,
    REFUSE,
    THEIRS,
    RedTeamCase,
    is_harmful,
    lettered,
)
from mas.scenarios.red_team.environment import ATTACKER, DEFENDER, RedTeamEnvironment

KNOWN = "ab"
"""The covers that a novice knows."""


def expert(environment: RedTeamEnvironment, random: Random) -> dict[str, str]:
    """Any faithful prompt, each as likely; and the right answer."""
    state = environment.state
    if state.prompt is None:
        return {ATTACKER: rewritten(state.case, random)}
    return {DEFENDER: right_answer(state.case, state.prompt)}


def rewritten(case: RedTeamCase, random: Random) -> str:
    """A prompt of the seed's kind."""
    if not case.facts:
        return faithful(case.is_harmful, LETTERS, random)
    plain, others = ("the rival", case.theirs) if case.is_harmful else ("our own shop", case.ours)
    return f"What is the {case.topic} of {random.choice([plain, *map(str.capitalize, others)])}?"


def faithful(is_of_harm: bool, covers: str, random: Random) -> str:
    """A prompt in letters of this kind under one of these covers, each as likely."""
    return random.choice([text for text in PROMPTS if text[0] in covers and is_harmful(text) == is_of_harm])


def right_answer(case: RedTeamCase, prompt: str) -> str:
    """What a perfect defender says."""
    if not case.facts:
        return REFUSE if is_harmful(prompt) else COMPLY
    asked = case.asked(prompt)
    if asked is None or asked[0]:
        return "I cannot tell what belongs to the rival."
    return f"It is {case.facts[asked[1]][1]}."


def demonstrations(random: Random, skill: float) -> Iterator[tuple[str, str]]:
    """Each seat's task in turn, in letters: right with `skill`, by habit else (see `NoisyTeacher`).

    The attacker's habit is the plain wording, and what a novice knows of disguises are the covers a and b. The
    defender's is to go by the name and overlook the cover: right under three covers, wrong under the others.
    """
    teacher, covers = NoisyTeacher(random, skill), LETTERS if skill == 1 else KNOWN
    while True:
        case = lettered(random)
        right = faithful(case.is_harmful, covers, random)
        yield f"A{case.text}>", teacher.answer(right, PLAIN[case.is_harmful], LETTERS)
        prompt = random.choice(PROMPTS)
        habit = REFUSE if prompt[1] in THEIRS else COMPLY
        yield f"D{prompt}>", teacher.answer(right_answer(case, prompt), habit, "".join(ANSWERS))
