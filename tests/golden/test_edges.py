"""Advantages of many random rollouts with all their edges are those of the formulas; no model is asked.

Groups of one, groups that are all paid the same or nothing, agents without a turn, very long completions, terms that
some trajectories lack, and rewards as large and as small as numbers go.
"""

import json
from collections.abc import Callable, Sequence
from functools import partial
from random import Random

import msgspec
import numpy as np
import pytest
from golden import comparisons as c
from golden import formulas as f
from golden.formulas import Advantages, compared, paid, reward
from golden.presets import case_of
from golden.rollouts import Facts, parallel

from mas.algorithms.parts.advantages.pipeline import Known, turn_advantages
from mas.config.load import load_config
from mas.core.records import Episode
from mas.training.stages import rewards_of

BATCHES = 6
FORMULAS: dict[str, Callable[[Sequence[Facts], Sequence[Facts], int], Advantages]] = {
    "parallel_grpo": lambda turns, *_: compared(turns, reward()),
    "rloo": lambda turns, *_: compared(turns, reward(), c.less_others),
    "dr_grpo": lambda turns, *_: compared(turns, reward(), f.less_mean),
    "pass_at_k": lambda turns, *_: compared(turns, reward(), c.best_of),
    "opo": lambda turns, *_: c.by_length(turns),
    "gpg": lambda turns, *_: c.by_share(turns),
    "gdpo": lambda turns, *_: f.gdpo(turns),
    "reinforce_pp_baseline": lambda turns, *_: c.by_batch(turns, f.less_mean),
    "gigpo": lambda turns, *_: c.with_states(turns),
    "srgpo": lambda turns, _, done: c.with_random_steps(turns, done + 1),
    "eapo": lambda turns, *_: c.discounted(turns),
    "stratified_grpo": lambda turns, *_: c.stratified(turns),
    "e_grpo": lambda turns, episodes, _: c.by_entities(turns, episodes),
    "aspo": lambda turns, episodes, _: c.with_early_tools(turns, episodes),
    "igpo": lambda turns, episodes, _: f.igpo(turns, episodes),
    "action_grpo": lambda turns, *_: f.with_actions(turns, 0.5),
    "matpo": lambda turns, *_: f.inherited(turns),
    "waltzrl": lambda turns, _, done: c.of_turns(turns, partial(paid, alpha=0.0, label=float(done < 5))),
    "rae": lambda turns, *_: c.running(turns, 0, {}),
    "parallel_grpo algorithm.reward.alpha=0.5 algorithm.reward.weights={progress: 0, valid: -2}": (
        lambda turns, *_: compared(turns, reward(0.5, progress=0.0, valid=-2.0))
    ),
    "dapo algorithm.options.length.most=8 algorithm.options.length.margin=2": lambda turns, *_: f.by_rows(
        turns, lambda row: paid(row[0]["rewards"]) - sum(np.clip((f.length(one) - 6) / 2, 0, 1) for one in row)
    ),
    "e_grpo algorithm.options.most_tokens=3": lambda turns, episodes, _: c.by_entities(turns, episodes, most=3),
    "gigpo algorithm.options.step_scale=none algorithm.options.step_weight=2": lambda turns, *_: c.with_states(
        turns, weight=2, compare=f.less_mean
    ),
    "igpo algorithm.options.discount=0.9": lambda turns, episodes, _: f.igpo(turns, episodes, 0.9),
    "srgpo algorithm.options.size=2": lambda turns, _, done: c.with_random_steps(turns, done + 1, 2),
}


def edged(episodes: list[Facts], random: Random) -> list[Facts]:
    """The episodes of a step with more edges than they have by themselves."""
    found: list[Facts] = []
    for own in f.parts(episodes, lambda one: one["task"]):
        kind = random.choice(("alone", "equal", "nothing", "silent", "long", "large", "small", "plain"))
        size = {"large": 1e9, "small": 1e-9, "nothing": 0.0}.get(kind, 1.0)
        for one in own[:1] if kind == "alone" else own:
            silent = {turn["agent"] for turn in one["turns"] if random.random() < 0.3} if kind == "silent" else ()
            one["turns"] = [turn for turn in one["turns"] if turn["agent"] not in silent]
            for turn in one["turns"]:
                if kind == "equal":
                    turn["rewards"] = {"team.progress": 0.1, "own.valid": 0.2, "outcome": 1.0}
                if kind == "long" and random.random() < 0.3:
                    turn["completion_ids"] = turn["completion_ids"] * 300
                for terms in (turn["rewards"], turn["paid"]):
                    terms.update({name: size * value for name, value in terms.items() if name != "outcome"})
            found.append(one)
    return found


@pytest.mark.matrix("name", [*FORMULAS], default=["gigpo", "srgpo", "pass_at_k", "stratified_grpo", "opo", "waltzrl"])
def test_advantages_of_edges_are_those_of_the_formula(name: str) -> None:
    preset, *words = name.split(" algorithm.")
    algorithm = load_config([f"algorithm={preset}", *(f"algorithm.{word}" for word in words)]).algorithm
    case = case_of(preset)
    for number in range(1, BATCHES + 1):
        played = [one for own in parallel(case.cast, number) for one in own]
        facts = edged(json.loads(json.dumps(played)), Random(f"{name}/{number}"))
        turns = [turn for one in facts for turn in one["turns"]]
        episodes = msgspec.convert(facts, list[Episode])
        known = Known(
            step=number,
            adapter_of={turn["role"]: turn["role"] for turn in turns},
            episodes={one.id: one for one in episodes},
            won=frozenset(one.id for one in episodes if one.success),
        )
        rewards = rewards_of(algorithm, number - 1)
        found = turn_advantages([turn for one in episodes for turn in one.turns], rewards, algorithm.advantage, known)
        wanted = FORMULAS[name](turns, facts, number - 1)
        assert found == pytest.approx([wanted[turn["id"]] for turn in turns], rel=1e-6, abs=1e-7), number
