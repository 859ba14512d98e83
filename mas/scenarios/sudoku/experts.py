"""Scripted members of the team: the best that each can do from its own view. They teach the tiny base."""

from collections.abc import Iterator
from random import Random

import msgspec

from mas.scenarios.noisy_teacher import NoisyTeacher
from mas.scenarios.sudoku.environment import NAMES, WIPE, SudokuEnvironment, SudokuState, look
from mas.scenarios.sudoku.puzzle import BLANK, make_puzzle, size_of

RETRIES = 3
"""How often the team's verifier can send a proposal back."""
WRONG = 0.15
"""Share of demonstrated grids with a wrong digit."""


def expert(environment: SudokuEnvironment, random: Random) -> dict[str, str]:
    """What is wrong is wiped first; then a right digit is written into any blank."""
    state = environment.state
    pairs = list(zip(NAMES, state.written, state.answers, strict=False))
    wrong = [name + WIPE for name, now, right in pairs if now not in (BLANK, right)]
    missing = [name + right for name, now, right in pairs if now == BLANK]
    return {"team": random.choice(wrong or missing)}


def proposal(state: SudokuState, plan: str, tried: str, random: Random) -> str:
    """The executor's digit for the planned blank: one that its row leaves and that was not tried."""
    if state.written[NAMES.index(plan)] != BLANK:
        return plan + WIPE
    digits = [digit for digit in state.row_digits()[plan] if digit not in tried]
    return plan + random.choice(digits or state.row_digits()[plan] or "1")


def team_move(state: SudokuState, random: Random) -> str:
    """What the perfect team does in one turn; empty if every proposal is sent back."""
    plan, tried = random.choice(state.sensible_blanks()), ""
    for _ in range(1 + RETRIES):
        move = proposal(state, plan, tried, random)
        if move[1] == WIPE or move[1] in state.around_digits()[plan]:
            return move
        tried += move[1]
    return ""


def demonstrations(random: Random, skill: float, *, size: int, blanks: int, forced: bool) -> Iterator[tuple[str, str]]:
    """Each member's task in turn: right with `skill`, by habit else (see `NoisyTeacher`)."""
    teacher = NoisyTeacher(random, skill)
    while True:
        puzzle, solution = make_puzzle(random, size, blanks, forced=forced)
        for filled in random.sample(range(blanks), min(3, blanks)):
            state = _partly(SudokuState(puzzle, solution, BLANK * blanks), filled, random)
            yield from _at(state, random, teacher)


def _partly(state: SudokuState, filled: int, random: Random) -> SudokuState:
    """So many blanks filled, now and then one of them with a wrong digit."""
    right = set(random.sample(range(len(state.written)), filled))
    written = "".join([digit if place in right else BLANK for place, digit in enumerate(state.answers)])
    state = msgspec.structs.replace(state, written=written)
    wrong = [action for action in state.actions() if action[1] not in (WIPE, state.answers[NAMES.index(action[0])])]
    if wrong and random.random() < WRONG:
        action = random.choice(wrong)
        place = NAMES.index(action[0])
        state = msgspec.structs.replace(state, written=written[:place] + action[1] + written[place + 1 :])
    return state


def _at(state: SudokuState, random: Random, teacher: NoisyTeacher) -> Iterator[tuple[str, str]]:
    size, names = size_of(state.puzzle), NAMES[: len(state.written)]
    digits = "123456789"[:size]
    counts, rows, around = (look(state, "solo")[field] for field in ("counts", "rows", "around"))
    plan = random.choice(state.sensible_blanks() or names)
    first = proposal(state, plan, "", random)
    second = proposal(state, plan, first[1], random)
    judged = random.choice(names) + random.choice(digits)
    fits = judged[1] in state.around_digits()[judged[0]]
    yield f"P{counts}>", teacher.answer(plan, names[0], names)
    yield f"E{rows};{plan}>", teacher.answer(first, plan + "1", names + digits)
    if second != first:
        yield f"E{rows};{plan}{first}>", teacher.answer(second, first, names + digits)
    yield f"V{around};{judged}>", teacher.answer("y" if fits else "n", "y", "yn")
    alone = next((move for move in state.actions() if move[0] == plan and move[1] != WIPE), plan + WIPE)
    yield f"S{counts};{rows};{around}>", teacher.answer(alone, names[0] + "1", names + digits)
