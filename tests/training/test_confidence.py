"""EMPG on sampled episodes: a turn earns by the confidence of the turn that its agent has after it."""

import math
from collections import defaultdict

import pytest
from conftest import BaseFor
from parts import SKILLED, crew_of, sample, turns_of

from mas.algorithms.parts.advantages.pipeline import Known, turn_advantages
from mas.algorithms.parts.sampling.options import SamplerOptions
from mas.config.load import load_config
from mas.config.options import ScenarioOptions
from mas.core.errors import ConfigError
from mas.core.records import Turn
from mas.scenarios import build_scenario
from mas.training.check_team_options import refuse, turn_refusals

PATH = {"name": "plan_path", "options": {"size": 3, "walls": 1, "max_turns": 4}}


async def test_a_turn_gets_a_bonus_by_its_agents_next_one_and_the_last_gets_none(base_for: BaseFor) -> None:
    scenario = build_scenario(ScenarioOptions(**PATH))
    chosen = load_config(["algorithm=empg", "scenario=plan_path"]).algorithm
    assert chosen.advantage.uncertainty is not None
    async with crew_of(scenario, base_for(PATH, SKILLED)) as crew:
        episodes = await sample(crew.runtime, scenario, range(3), SamplerOptions(mode="parallel", candidates=6))
    turns = turns_of(episodes)
    entropies = [-math.fsum(turn.logprobs) / len(turn.logprobs) for turn in turns]
    known = Known(entropies=entropies)
    without = chosen.advantage.model_copy(
        update={"uncertainty": chosen.advantage.uncertainty.model_copy(update={"clarity": 0.0})}
    )
    found = turn_advantages(turns, chosen.reward, chosen.advantage, known)
    plain = turn_advantages(turns, chosen.reward, without, known)
    gained = {turn.id: one - other for turn, one, other in zip(turns, found, plain, strict=True)}
    by_role: dict[str, dict[tuple[str, str], list[Turn]]] = defaultdict(lambda: defaultdict(list))
    for turn in turns:
        by_role[turn.role][turn.group, turn.trajectory].append(turn)
    surprise = {turn.id: value for turn, value in zip(turns, entropies, strict=True)}
    fired = 0
    for trajectories in by_role.values():
        own = [surprise[turn.id] for said in trajectories.values() for turn in said]
        least, most = min(own), max(own)
        bonus = {}
        for said in trajectories.values():
            said.sort(key=lambda turn: (turn.turn, turn.visit))
            for turn, after in zip(said, [*said[1:], None], strict=True):
                height = 0.0 if after is None else (surprise[after.id] - least) / (most - least)
                bonus[turn.id] = 0.0 if after is None else 0.05 * math.exp(-height)
        mean = math.fsum(bonus.values()) / len(bonus)
        for name, value in bonus.items():
            assert gained[name] == pytest.approx(value - mean, abs=1e-9)
            fired += value > 0
    assert fired > len(turns) / 3, "most turns have one after them"


def test_a_bonus_that_no_turn_could_get_is_refused() -> None:
    config = load_config(["algorithm=empg", "scenario=relay"])
    scenario = build_scenario(config.scenario)
    with pytest.raises(ConfigError, match=r"speaks once in an episode of 'relay': write algorithm\.advantage"):
        refuse(turn_refusals(config.algorithm, scenario, scenario.teams["team"]))
    plain = load_config(["algorithm=empg", "scenario=relay", "algorithm.options.clarity=0"])
    refuse(turn_refusals(plain.algorithm, scenario, scenario.teams["team"]))
