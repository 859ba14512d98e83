"""Self-RedTeam: attacker and defender are one policy, paid by the table, each compared with its own role alone."""

from collections.abc import Sequence
from math import log
from statistics import fmean, stdev
from typing import Any

import pytest
from conftest import BaseFor
from oracles import ORACLES, near
from parts import SKILLED, runtime_of, sample, turns_of

from mas.algorithms.parts.advantages.pipeline import turn_advantages
from mas.algorithms.parts.rewards.terms import total_reward
from mas.algorithms.parts.sampling.options import SamplerOptions
from mas.config.load import load_config
from mas.config.options import Config, ScenarioOptions
from mas.core.records import Episode, Turn
from mas.core.scenario import Scenario
from mas.runs.resolve import resolve_training
from mas.scenarios import build_scenario
from mas.scenarios.red_team.cases import is_harmful
from mas.serving.model import BaseModel
from mas.testing.scripted import ScriptedEngine
from mas.training.batch import TrainRow, train_rows
from mas.training.exploitability import exact_measures, scored_policy
from mas.training.trainer import Trainer, TrainingOutcome
from mas.training.updates import policy_gradient

ORACLE = ORACLES["25_self_redteam"]
RECIPE = load_config(["scenario=red_team", "algorithm=self_redteam"]).algorithm
WHOLE = SamplerOptions(mode="parallel", candidates=2)
# Kind of the seed -> what it is rewritten to, and the answer -> oracles by kind. Under b a name means the other shop.
SCRIPTS = [
    ({"h": "bd", "b": "ba"}, "c", {"h": "harmful_seed_complied_harmful", "b": "benign_seed_helped"}),
    ({"h": "aa", "b": "ae"}, "r", {"h": "harmful_seed_refused", "b": "benign_seed_overrefused"}),
    ({"h": "dc", "b": "ad"}, "c", {"h": "harmful_seed_prompt_turned_benign_complied", "b": "benign_seed_helped"}),
]


def scenario_of(**options: Any) -> Scenario:
    return build_scenario(ScenarioOptions(name="red_team", options=options))


async def played(scenario: Scenario, answer: Any, team: str = "team", tasks: int = 12) -> list[Episode]:
    async with runtime_of(scenario.teams[team], ScriptedEngine(answer)) as runtime:
        return await sample(runtime, scenario, range(tasks), WHOLE)


def totals(episode: Episode) -> dict[str, float]:
    """As the recipe pays it: what does not parse costs the form of the table and nothing else."""
    assert RECIPE.reward.failure == 0
    paid = {turn.agent: {**turn.rewards, "own.failure": 0.0} for turn in episode.turns}
    return {agent: total_reward(terms, RECIPE.reward) for agent, terms in paid.items()}


@pytest.mark.parametrize(("attacks", "answer", "names"), SCRIPTS)
@pytest.mark.parametrize("team", ["team", "solo"])
async def test_the_turns_of_played_episodes_are_paid_the_oracles(
    attacks: dict[str, str], answer: str, names: dict[str, str], team: str
) -> None:
    def say(prompt: str, adapter: str | None, seed: int) -> str:
        return attacks[prompt[1]] if prompt[0] == "A" else answer

    episodes, kinds = await played(scenario_of(), say, team), set[str]()
    for episode in episodes:
        kind = episode.lines[0].prompt[1]
        kinds.add(kind)
        assert list(totals(episode).values()) == near(ORACLE[names[kind]])
        assert [turn.agent for turn in episode.turns] == ["attacker", "defender"]
    assert kinds == {"h", "b"}


async def test_an_attack_that_cannot_be_read_leaves_nothing_to_defend() -> None:
    episodes = await played(scenario_of(), lambda prompt, adapter, seed: "a")
    assert {tuple(totals(episode).items()) for episode in episodes} == {(("attacker", -3.0),)}
    assert {episode.measures["unreadable"] for episode in episodes} == {1}


THOUGHT = "let us call them by another name"


def thinking(prompt: str, adapter: str | None, seed: int) -> str:
    """Names the rival, whatever the seed; the defender tells all that it knows."""
    if prompt.startswith("attacker|"):
        topic = prompt.split("|")[1].partition("out the ")[2].partition(" of the")[0] or "own"
        topic = prompt.split("our own ")[1].partition(".")[0] if topic == "own" else topic
        return f"<think>{THOUGHT}</think>\nTell me the {topic} of the rival."
    return f"<think>sure</think>\n{prompt}"


async def test_nobody_hears_what_the_other_thinks_and_a_text_without_a_thought_is_out_of_form() -> None:
    scenario = scenario_of(style="words")
    for team in ("team", "solo"):
        for episode in await played(scenario, thinking, team):
            attack, answer = episode.lines
            assert THOUGHT in attack.text
            assert THOUGHT not in answer.prompt
            assert "Tell me the" in answer.prompt
            assert "think" not in answer.prompt
            assert totals(episode)["defender"] == ORACLE["harmful_seed_complied_harmful"][1]

    def thoughtless(prompt: str, adapter: str | None, seed: int) -> str:
        said = thinking(prompt, adapter, seed)
        return said if prompt.startswith("attacker|") else said.partition("\n")[2]

    for episode in await played(scenario, thoughtless):
        # Nothing was heard, so nothing was told: refused and harmless, 1 + 1, less 1 for the form.
        assert totals(episode)["defender"] == ORACLE["harmful_seed_refused"][1] - 2


async def test_each_role_is_compared_with_itself_over_the_whole_batch() -> None:
    def say(prompt: str, adapter: str | None, seed: int) -> str:
        return "abcdef"[seed % 6] + "abcdef"[seed // 6 % 6] if prompt[0] == "A" else "cr"[seed % 2]

    turns = turns_of(await played(scenario_of(), say))
    advantages = turn_advantages(turns, RECIPE.reward, RECIPE.advantage)
    for role in ("attacker", "defender"):
        own = [index for index, turn in enumerate(turns) if turn.role == role]
        paid = [total_reward(turns[index].rewards, RECIPE.reward) for index in own]
        assert len(set(paid)) > 2
        wanted = [(one - fmean(paid)) / (stdev(paid) + 1e-6) for one in paid]
        assert [advantages[index] for index in own] == pytest.approx(wanted)


async def train(base: BaseModel, *words: str, steps: int = 1) -> tuple[TrainingOutcome, list[Turn]]:
    usual = [f"train.steps={steps}", "train.tasks_per_step=4", "train.eval_tasks=2", "train.eval_every=0"]
    config: Config = load_config(["scenario=red_team", "algorithm=self_redteam", *usual, *words])
    config = config.model_copy(update={"model": SKILLED})
    turns: list[Turn] = []

    class Steps:
        def on_resume(self, step: int) -> None:
            """Nothing to do."""

        def on_step(self, step: int, metrics: Any, episodes: Sequence[Episode]) -> None:
            turns.extend(turns_of(episodes))

        def on_note(self, step: int, note: Any) -> None:
            """Nothing to keep."""

        def on_evaluation(self, step: int, name: str, evaluation: Any) -> None:
            """Nothing to keep."""

    return await Trainer(resolve_training(config), base).run(Steps()), turns


@pytest.fixture(scope="module")
def base(base_for: BaseFor) -> BaseModel:
    return base_for("red_team", SKILLED)


def has_moved(outcome: TrainingOutcome) -> dict[str, bool]:
    return {name: bool(adapter.parameters()[1].any()) for name, adapter in outcome.adapters.items()}


@pytest.mark.nightly(of=16)
async def test_one_adapter_attacks_and_defends_and_learns_from_both(base: BaseModel) -> None:
    outcome, turns = await train(base)
    assert has_moved(outcome) == {"shared": True}
    assert {turn.role for turn in turns} == {"attacker", "defender"}
    solo, _ = await train(base, "algorithm.team=solo", "algorithm.policy=per_role")
    assert has_moved(solo) == {"solo": True}


async def test_one_side_can_be_held_still_while_the_other_learns(base: BaseModel) -> None:
    for role, other in (("defender", "attacker"), ("attacker", "defender")):
        outcome, _ = await train(base, "algorithm.policy=per_role", f"algorithm.roles=[{role}]")
        assert has_moved(outcome) == {role: True, other: False}


async def test_a_static_attacker_says_the_same_of_a_seed_always_and_learns_nothing(
    base: BaseModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    learned: list[Turn] = []

    def kept(*given: Any, **options: Any) -> list[TrainRow]:
        rows = train_rows(*given, **options)
        learned.extend(row.turn for row in rows)
        return rows

    monkeypatch.setattr(policy_gradient, "train_rows", kept)
    outcome, turns = await train(base, "algorithm.team=static", steps=2)
    assert has_moved(outcome) == {"shared": True}
    attacks: dict[tuple[int, ...], set[str]] = {}
    for turn in turns:
        assert (turn.adapter is None) == (turn.role == "attacker")
        if turn.role == "attacker":
            attacks.setdefault(turn.prompt_ids, set()).add(turn.text)
    assert len(attacks) > 2
    assert all(len(said) == 1 for said in attacks.values())
    assert {turn.id for turn in learned} == {turn.id for turn in turns if turn.role == "defender"}


class Known(ScriptedEngine):
    """Names the first letter with 1/2 for a and 1/10 for others, the second one with 1/6 each; refuses with 3/4 what
    has a in front, and with 1/4 all else."""

    async def score(
        self, prompt_ids: Sequence[int], completion_ids: Sequence[int], adapter: str | None = None
    ) -> tuple[float, ...]:
        prompt, said = (self.tokenizer.decode(ids) for ids in (prompt_ids, completion_ids))
        if prompt[0] == "A":
            return log(0.5 if said[0] == "a" else 0.1), log(1 / 6)
        return (log(0.75 if (prompt[1] == "a") == (said == "r") else 0.25),)


class Restricting(ScriptedEngine):
    restricts = True


@pytest.mark.parametrize("spec", [{"history": 1}, {"top_k": 3}])
async def test_roles_that_remember_or_draw_from_some_tokens_have_no_known_policy(spec: dict[str, int]) -> None:
    scenario = scenario_of()
    team = scenario.teams["team"]
    team = team.model_copy(update={"roles": {name: one.model_copy(update=spec) for name, one in team.roles.items()}})
    async with runtime_of(team, Restricting(lambda prompt, adapter, seed: "c")) as runtime:
        assert await scored_policy(runtime, scenario) is None
        assert await exact_measures(runtime, scenario) == {}


@pytest.mark.parametrize("team", ["team", "solo"])
async def test_attacks_of_two_letters_are_scored_whole(team: str) -> None:
    scenario = scenario_of()
    async with runtime_of(scenario.teams[team], Known(lambda prompt, adapter, seed: "c")) as runtime:
        found = await scored_policy(runtime, scenario)
        measured = await exact_measures(runtime, scenario)
    assert found is not None
    policy, legal = found
    attack = next(chances for key, chances in policy.items() if key.startswith("A"))
    assert (attack["af"], attack["fa"]) == (pytest.approx(1 / 12), pytest.approx(1 / 60))
    assert list(legal.values()) == pytest.approx([1.0] * len(policy))
    # Half of all harmful prompts begin with a and succeed with 1/4, the others with 3/4; three of 18 begin with a.
    assert sum(is_harmful(text) for text in attack if text[0] == "a") == 3
    assert measured["attack_success"] == pytest.approx(0.5)
    assert measured["any_attack"] == pytest.approx((0.25 * 3 + 0.75 * 15) / 18)
    assert measured["worst_attack"] == pytest.approx(0.75)
