"""Scripted members of the team: one that knows everything, and one that goes by what it sees."""

from collections.abc import Callable, Iterator
from random import Random

from mas.core.environment import Task
from mas.core.joint import joint_action
from mas.scenarios.market.environment import CHOOSER, SEARCHER, MarketEnvironment, MarketState
from mas.scenarios.market.offers import TONES
from mas.scenarios.noisy_teacher import NoisyTeacher

_PLAIN = TONES["false_claim"]


def expert(environment: MarketEnvironment, random: Random) -> dict[str, str]:
    """Waits for the best proposal and buys it, unchecked: the most that there is, with the truth in sight."""
    state, wording = environment.state, environment.wording
    proposals = state.market.proposals
    best = max(range(len(proposals)), key=lambda place: proposals[place].gain)
    buys = best < state.come
    return {
        "team": joint_action(
            {SEARCHER: wording.next, CHOOSER: wording.buy(proposals[best].name) if buys else wording.wait}
        )
    }


def careful(environment: MarketEnvironment) -> str:
    """Hears everybody, then checks the highest claims until none that is left promises more than what is known.

    No proposal is worth more than it claims, so what is bought then is the best. This is the best that is sure.
    """
    state, wording = environment.state, environment.wording
    if state.come < len(state.market.proposals):
        return wording.next
    name = state.market.proposals[_promising(state)].name
    return wording.buy(name) if _promising(state) in state.checked else wording.check(name)


def demonstrations(random: Random, skill: float, *, make: Callable[[], MarketEnvironment]) -> Iterator[tuple[str, str]]:
    """Each member's task in turn, in letters: right with `skill`, by habit else (see `NoisyTeacher`).

    Right is what the careful one does; in half of the cases it has gone astray before. A chooser whose searcher asks
    what cannot be asked buys the best by what it knows and by plain words. The habits: the chooser buys the
    first proposal before it has heard another one, and once it has heard all the best by what it knows and by plain
    words; the searcher checks the first one, whatever the others promise.
    """
    environment = make()
    teacher, wording = NoisyTeacher(random, skill), environment.wording
    while True:
        _search(random, environment)
        table, proposals = environment.observe("solo").fields["table"], environment.state.market.proposals
        buys = [wording.buy(proposal.name) for proposal in proposals]
        questions = [wording.next, *(wording.check(proposal.name) for proposal in proposals)]
        right, habit = careful(environment), _hasty(environment)
        if right in questions:
            usual = wording.next if environment.state.come < len(proposals) else questions[1]
            yield f"S{table}>", teacher.answer(right, usual, "".join(questions))
        said = random.choice((right if right in questions else wording.next, random.choice(questions)))
        chosen = (
            right if right in buys else wording.wait if said in environment.legal("team") else _by_sight(environment)
        )
        hasty = habit if habit in buys else wording.wait
        yield f"C{table};{said}>", teacher.answer(chosen, hasty, "".join([wording.wait, *buys]))
        yield f"N{table}>", teacher.answer(right, habit, "".join([*questions, *buys]))


def _hasty(environment: MarketEnvironment) -> str:
    """Buys the first; if it has not, it hears all and buys by sight."""
    state = environment.state
    if 1 < state.come < len(state.market.proposals):
        return environment.wording.next
    return _by_sight(environment)


def _by_sight(environment: MarketEnvironment) -> str:
    """Buys the best by what is known and by plain words; where there are none, by any."""
    state, heard = environment.state, range(environment.state.come)
    proposals = state.market.proposals
    trusted = [place for place in heard if place in state.checked or proposals[place].text.endswith(_PLAIN)]
    return environment.wording.buy(proposals[max(trusted or heard, key=lambda place: _worth(state, place))].name)


def _worth(state: MarketState, place: int) -> int:
    """What a proposal is worth by what is known of it."""
    proposal = state.market.proposals[place]
    return proposal.gain if place in state.checked else proposal.claimed


def _promising(state: MarketState) -> int:
    """The proposal that is worth most by what is known of it; of equal ones one that was checked, then the first."""
    return max(range(state.come), key=lambda place: (_worth(state, place), place in state.checked))


def _search(random: Random, environment: MarketEnvironment) -> None:
    """Some turns of a new market, short of a purchase."""
    environment.reset(Task(id="demonstration", seed=random.getrandbits(32)))
    buys = {environment.wording.buy(proposal.name) for proposal in environment.state.market.proposals}
    is_careful = random.random() < 0.5
    for _ in range(random.randrange(environment.spec.max_turns)):
        questions = [action for action in environment.legal("team") if action not in buys]
        action = careful(environment) if is_careful else random.choice(questions or [""])
        if action in buys:
            return
        environment.step({"team": action})
