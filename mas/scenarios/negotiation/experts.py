"""Scripted members of the team, who know what the other side wants. They teach the tiny base."""

from collections.abc import Callable, Iterator
from random import Random

from mas.core.environment import Task
from mas.scenarios.negotiation import others
from mas.scenarios.negotiation.deals import Package, ladder
from mas.scenarios.negotiation.environment import TalkEnvironment
from mas.scenarios.negotiation.wording import ACCEPT, code, spell
from mas.scenarios.noisy_teacher import NoisyTeacher


def best_ask(environment: TalkEnvironment) -> Package | None:
    """The package of the best course from here, None to accept what stands."""
    state = environment.state
    turns, standing = environment.spec.max_turns, state.offers[-1]
    return others.best_reply(state.problem, state.script, state.turn, turns, state.given, standing)[1]


def expert(environment: TalkEnvironment, random: Random) -> dict[str, str]:
    """The best course, found by search with the other side's values and script in sight."""
    package = best_ask(environment)
    return {"team": ACCEPT[environment.style] if package is None else spell(environment.style, package)}


def demonstrations(random: Random, skill: float, *, make: Callable[[], TalkEnvironment]) -> Iterator[tuple[str, str]]:
    """Each member's task in turn, in letters: right with `skill`, by habit else (see `NoisyTeacher`).

    Talks go on for some turns with packages that would not be agreed to. The habits: the analyst names what it was
    offered, whoever speaks accepts.
    """
    environment = make()
    teacher, accept = NoisyTeacher(random, skill), ACCEPT["letters"]
    while True:
        _talk(random, environment)
        analyst, best = environment.observe("analyst").fields, best_ask(environment)
        standing = environment.observe("speaker").fields["offer"]
        aim = standing if best is None else code(best)
        seen = f"{analyst['values']};{analyst['ladder']};{analyst['asks']};{analyst['offers']};{analyst['left']}>"
        yield f"A{seen}", teacher.answer(aim, standing, "01234567")
        yield f"N{seen}", teacher.answer(accept if best is None else aim, accept, f"01234567{accept}")
        said = random.choice((aim, random.choice(analyst["ladder"])))
        right = said_by_speaker(analyst["ladder"], standing, said)
        yield f"S{analyst['ladder']};{standing};{said}>", teacher.answer(right, accept, f"01234567{accept}")


def said_by_speaker(rungs: str, standing: str, aim: str) -> str:
    """Accepts what stands if it is as far up the ladder as the analyst's aim, else asks for the aim."""
    return ACCEPT["letters"] if rungs.index(standing) <= rungs.index(aim) else aim


def _talk(random: Random, environment: TalkEnvironment) -> None:
    """Some turns of a new negotiation, short of an agreement; the team asks for what is in the upper half for it."""
    environment.reset(Task(id="demonstration", seed=random.getrandbits(32)))
    rungs = ladder(environment.state.problem)
    for _ in range(random.randrange(environment.spec.max_turns)):
        before = environment.snapshot()
        environment.step({"team": code(random.choice(rungs[: len(rungs) // 2]))})
        if not environment.to_move():
            environment.restore(before)
            return
