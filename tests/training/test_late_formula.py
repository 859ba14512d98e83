"""Advantages of turns that a judge pays later, against the formula in numpy: of trajectories and of turns."""

import asyncio
from collections.abc import AsyncGenerator, Sequence

import numpy as np
import pytest
from parts import make_turn
from virtual_time import play

from mas.algorithms.parts.advantages.pipeline import AdvantageOptions, turn_advantages
from mas.algorithms.parts.rewards.late import LateOptions
from mas.algorithms.parts.rewards.terms import RewardOptions
from mas.core.records import Answer, Episode, Turn
from mas.training.late_terms import LateTerms

LATE = LateOptions(judge="j", terms={"polite": -0.5, "brief": 0.25}, wait_s=10.0, steps=1)
WEIGHTS = {"polite": 2.0, "won": 0.5}
TURNS = (3, 1, 2, 4, 1)
"""Of five trajectories: the first three are of one group, the fourth and the fifth are alone in theirs."""


def played(won: np.ndarray) -> list[Episode]:
    """One trajectory each; the team's term was paid on the last turn."""
    episodes = []
    for number, count in enumerate(TURNS):
        group = f"g{max(number, 2)}"
        turns = [
            make_turn(
                id=f"{number}/{place}", episode=str(number), group=group, trajectory=str(number), turn=place,
                rewards={"team.won": float(won[number])},
                paid={"team.won": float(won[number])} if place == count - 1 else {},
            )
            for place in range(count)
        ]  # fmt: skip
        episodes.append(
            Episode(
                id=str(number),
                task="t",
                success=True,
                turns=tuple(turns),
                lines=(),
                rewards={},
                prompt_tokens=0,
                completion_tokens=0,
                calls=0,
            )
        )
    return episodes


def z(values: Sequence[float]) -> np.ndarray:
    x = np.array(values)
    return (x - x.mean()) / (x.std(ddof=1) + 1e-6) if len(x) > 1 else np.zeros(1)


@pytest.mark.parametrize("seed", range(8))
def test_what_came_and_what_did_not_is_compared_as_the_formula_says(seed: int) -> None:
    random = np.random.default_rng(seed)
    won = random.integers(0, 2, len(TURNS)).astype(float)
    said = {
        (f"{number}/{place}", term): float(random.normal())
        for number, count in enumerate(TURNS)
        for place in range(count)
        for term in LATE.terms
        if random.random() < 0.7
    }

    async def judge(turns: Sequence[Turn]) -> AsyncGenerator[Answer]:
        for turn, term in random.permutation(sorted(said)):
            await asyncio.sleep(0.9)  # so that some come in the step after
            yield Answer(str(turn), str(term), said[turn, term])

    async def arrived() -> list[Turn]:
        late = LateTerms(LATE, judge)
        async with late.listening():
            first = await late.join([played(won)], 0)
            await late.join([[]], 1)
            return [turn for one in (*first[0], *late.arrived()) for turn in one.turns]

    turns = play(arrived())
    assert len(turns) == sum(TURNS)
    own = [
        [sum(WEIGHTS.get(name, 1.0) * said.get((f"{n}/{place}", name), usual) for name, usual in LATE.terms.items())
         for place in range(count)]
        for n, count in enumerate(TURNS)
    ]  # fmt: skip
    whole = [sum(paid) + 0.5 * won[n] for n, paid in enumerate(own)]
    compared = [*z(whole[:3]), 0.0, 0.0]
    found = turn_advantages(turns, RewardOptions(weights=WEIGHTS), AdvantageOptions())
    assert found == pytest.approx([compared[int(turn.episode)] for turn in turns])

    single = [[*paid[:-1], paid[-1] + 0.5 * won[n]] for n, paid in enumerate(own)]
    flat = {0: z([*single[0], *single[1], *single[2]]), 3: z(single[3]), 4: z(single[4])}
    expected = dict(zip([f"{n}/{p}" for n in range(3) for p in range(TURNS[n])], flat[0], strict=True))
    expected |= {f"{n}/{p}": flat[n][p] for n in (3, 4) for p in range(TURNS[n])}
    found = turn_advantages(turns, RewardOptions(weights=WEIGHTS, of="turn"), AdvantageOptions())
    assert found == pytest.approx([expected[turn.id] for turn in turns])
