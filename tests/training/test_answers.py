"""Rewards that read a task's right answer: information gains (IGPO) and entities that were found (E-GRPO)."""

import asyncio
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import msgspec
import pytest
from conftest import BaseFor
from oracles import ORACLES, near
from parts import SKILLED, crew_of, make_turn, runtime_of, turns_of
from pydantic import ValidationError

import mas.serving.transformers_engine as served
from mas.algorithms.parts.advantages.pipeline import AdvantageOptions, Known, turn_advantages
from mas.algorithms.parts.advantages.steps import AnswerKnowledge, Wave
from mas.algorithms.parts.options import AlgorithmOptions
from mas.algorithms.parts.rewards.terms import RewardOptions
from mas.algorithms.parts.rewards.transforms import EntityRate, match_rate
from mas.algorithms.parts.sampling.options import SamplerOptions
from mas.config.load import load_config
from mas.config.options import ScenarioOptions
from mas.core.environment import Answered, Named
from mas.core.errors import ConfigError, EngineError
from mas.core.records import Episode, Turn, facts_of
from mas.core.scenario import Scenario
from mas.core.seeds import derive_seed
from mas.runs.resolve import resolve, resolve_training
from mas.runtime.team import TeamRuntime
from mas.scenarios import build_scenario
from mas.serving.model import BaseModel
from mas.testing.scripted import ScriptedEngine
from mas.training.check_setup import check_trainable
from mas.training.sampling.parallel import ParallelSampler
from mas.training.session import TeamSession
from mas.training.trainer import Trainer

IGPO, ENTITIES = ORACLES["14_igpo"], ORACLES["33_e_grpo"]
K = 4
PARALLEL = SamplerOptions(mode="parallel", candidates=K)
GAIN, PARTIAL = (
    RewardOptions.model_validate({"gain": {"of": "logprob"}}),
    RewardOptions.model_validate({"partial": {"alpha": 0.3}}),
)
RETRIEVAL = {"name": "retrieval"}


@pytest.fixture(scope="module")
def retrieval(base_for: BaseFor) -> BaseModel:
    return base_for(RETRIEVAL, SKILLED)


async def play(
    runtime: TeamRuntime, scenario: Scenario, rewards: RewardOptions, tasks: Sequence[int] = (0,)
) -> list[Episode]:
    sampler = ParallelSampler(runtime, scenario.reward, PARALLEL, rewards)
    plays = [sampler.sample(scenario.task("train", n), scenario.environment(), derive_seed("s", n)) for n in tasks]
    return [episode for group in await asyncio.gather(*plays) for episode in group]


def known(turns: Sequence[Turn], **facts: Sequence[Any]) -> Known:
    """Facts of the turns' episodes, in the order in which they appear."""
    names = dict.fromkeys(turn.episode for turn in turns)
    blank = Episode(
        id="", task="t", success=False, turns=(), lines=(), rewards={}, prompt_tokens=0, completion_tokens=0, calls=0
    )
    rows = [dict(zip(facts, row, strict=True)) for row in zip(*facts.values(), strict=True)]
    return Known(
        episodes={name: msgspec.structs.replace(blank, id=name, **row) for name, row in zip(names, rows, strict=True)}
    )


KNOWLEDGE = [facts_of(AnswerKnowledge(logprobs=own)) for own in ((-2.0, -1.5, -0.5), (-2.0, -2.2, -1.8))]


def knowledge(episode: Episode) -> tuple[float, ...]:
    return AnswerKnowledge.of(episode).logprobs


def walk(name: str, waves: Sequence[int], reward: float) -> list[Turn]:
    same = {"group": "q", "trajectory": name, "episode": name, "rewards": {"team.right": reward}}
    return [make_turn(**same, id=f"{name}{wave}", turn=wave, facts=facts_of(Wave(number=wave))) for wave in waves]


@pytest.mark.parametrize(("discount", "wanted"), [(1.0, "turn_adv_gamma1"), (0.9, "turn_adv_gamma09")])
def test_igpo_by_options(discount: float, wanted: str) -> None:
    turns = walk("a", [0, 1, 2], 1.0) + walk("b", [0, 1, 2], 0.0)
    facts = known(turns, facts=KNOWLEDGE)
    rewards = RewardOptions.model_validate({"gain": {"of": "logprob", "discount": discount}})
    found = turn_advantages(turns, rewards, AdvantageOptions(), facts)
    assert found == near([value for row in IGPO[wanted] for value in row])


def test_igpo_by_name_pays_what_was_added_to_the_probability() -> None:
    chosen = load_config(["algorithm=igpo", "scenario=retrieval"]).algorithm
    turns = [
        msgspec.structs.replace(
            turn, rewards={**turn.rewards, "team.found": 5.0, "outcome": turn.rewards["team.right"]}
        )
        for turn in walk("a", [0, 1, 2], 1.0) + walk("b", [0, 1, 2], 0.0)
    ]
    facts = known(turns, facts=KNOWLEDGE)
    gains = [gain for row in IGPO["info_gain_prob_v1"] for gain in row]
    z = [(gain - fmean(gains)) / (stdev(gains) + 1e-6) for gain in gains]
    first, second = IGPO["z_outcome"]
    wanted = [z[0] + z[1] + first, z[1] + first, first, z[2] + z[3] + second, z[3] + second, second]
    assert turn_advantages(turns, chosen.reward, chosen.advantage, facts) == pytest.approx(wanted, abs=1e-4)


def test_an_agent_that_rests_has_the_advantage_of_the_waves_in_which_it_speaks() -> None:
    turns = walk("a", [0, 2], 1.0) + walk("b", [1], 0.0)
    facts = known(turns, facts=KNOWLEDGE)
    first, second = IGPO["turn_adv_gamma1"]
    assert turn_advantages(turns, GAIN, AdvantageOptions(), facts) == near([first[0], first[2], second[1]])


def rows(most: int | None = None, tokens: Sequence[int] = (1, 1, 1, 1)) -> tuple[list[Turn], Known, RewardOptions]:
    """The oracle's four answers: correct, wrong, wrong, and one that does not parse."""
    turns = [
        make_turn(
            group="q",
            trajectory=f"{k}",
            episode=f"{k}",
            id=f"{k}",
            rewards={"team.right": float(k == 0)},
            failure="none of the choices" if k == 3 else None,
            completion_ids=(7,) * tokens[k],
        )
        for k in range(4)
    ]
    facts = known(
        turns,
        facts=[facts_of(EntityRate(share=share)) for share in ENTITIES["match_rate"]],
        success=[True, False, False, False],
    )
    return turns, facts, RewardOptions.model_validate({"failure": 0.0, "partial": {"alpha": 0.3, "most": most}})


def test_e_grpo_by_options() -> None:
    turns, facts, rewards = rows()
    assert turn_advantages(turns, rewards, AdvantageOptions(), facts) == near(ENTITIES["adv"])
    centred = [reward - fmean(ENTITIES["reward"]) for reward in ENTITIES["reward"]]
    assert turn_advantages(turns, rewards, AdvantageOptions(scale="none"), facts) == near(centred)


def test_who_says_too_much_counts_in_the_statistics_and_is_not_trained() -> None:
    turns, facts, rewards = rows(most=2, tokens=(1, 3, 2, 1))
    # The second earns 0 instead of 0.2; the greatest share of the group is still over all four.
    paid = [1.0, 0.0, 0.1, 0.0]
    found = turn_advantages(turns, rewards, AdvantageOptions(scale="none"), facts)
    assert found == near([paid[0] - 0.275, 0.0, paid[2] - 0.275, paid[3] - 0.275])


def test_a_right_answer_that_is_too_long_earns_nothing() -> None:
    turns, facts, rewards = rows(most=2, tokens=(3, 1, 1, 1))
    paid = [0.0, 0.2, 0.1, 0.0]
    found = turn_advantages(turns, rewards, AdvantageOptions(scale="none"), facts)
    assert found == near([0.0, *(one - 0.075 for one in paid[1:])])


def by_seed(prompt: str, adapter: str | None, seed: int) -> str:
    """The planner signals whatever; the executor says what is in no table."""
    return "abcd"[derive_seed(prompt, seed) % 4] if prompt.startswith("P") else "?"


class Weighing(ScriptedEngine):
    """Thinks the answer likelier after the signal `b`, and unlikely before any signal."""

    scored: list[tuple[str, str, str | None]]

    async def score(
        self, prompt_ids: Sequence[int], completion_ids: Sequence[int], adapter: str | None = None
    ) -> tuple[float, ...]:
        prompt = self.tokenizer.decode(prompt_ids)
        self.scored = [*getattr(self, "scored", []), (prompt, self.tokenizer.decode(completion_ids), adapter)]
        return (-0.5,) if prompt.endswith(";b>") else (-3.0,) if prompt.endswith(";>") else (-2.0,)


def relay() -> Scenario:
    return build_scenario(ScenarioOptions(name="relay"))


async def test_what_was_said_to_who_answers_is_paid_though_every_answer_is_wrong() -> None:
    scenario, engine = relay(), Weighing(by_seed, adapters=("planner", "executor"))
    async with runtime_of(scenario.teams["team"], engine) as runtime:
        episodes = await play(runtime, scenario, GAIN, range(4))
    assert not any(episode.success for episode in episodes)
    assert {adapter for _, _, adapter in engine.scored} == {"executor"}
    facts = Known(episodes={episode.id: episode for episode in episodes})
    turns = turns_of(episodes)
    found = turn_advantages(turns, GAIN, AdvantageOptions(), facts)
    best = set()
    for turn, advantage in zip(turns, found, strict=True):
        signals = [one.text for one in turns if one.group == turn.group]
        if turn.agent == "executor":
            assert (Wave.of(turn).number, advantage) == (1, 0.0)
        elif "b" in signals and len(set(signals)) > 1:
            best.add(turn.text)
            assert (Wave.of(turn).number, advantage > 0) == (0, turn.text == "b")
        gains = AnswerKnowledge.of(facts.episodes[turn.episode]).logprobs
        assert gains == (-3.0, -0.5 if "b" in [one.text for one in facts.episodes[turn.episode].turns] else -2.0)
    assert len(best) > 1


async def test_equal_prompts_of_a_tasks_episodes_are_scored_once_and_paid_for() -> None:
    scenario, engine = relay(), Weighing(by_seed, adapters=("planner", "executor"))
    async with runtime_of(scenario.teams["team"], engine) as runtime:
        episodes = await play(runtime, scenario, GAIN)
        plain = await play(runtime, scenario, RewardOptions())
    prompts = [prompt for prompt, _, _ in engine.scored]
    signals = {turn.text for turn in turns_of(episodes) if turn.agent == "planner"}
    assert len(prompts) == len(set(prompts)) == 1 + len(signals)
    assert sum(one.calls for one in episodes) - sum(one.calls for one in plain) == len(prompts)
    # Characters are tokens; the answer is one.
    cost = sum(map(len, prompts)) + len(prompts)
    assert sum(one.tokens for one in episodes) - sum(one.tokens for one in plain) == cost


class Silent(Weighing):
    """Cannot score."""

    async def score(
        self, prompt_ids: Sequence[int], completion_ids: Sequence[int], adapter: str | None = None
    ) -> tuple[float, ...]:
        raise EngineError("no scores today")


async def test_episodes_that_cannot_be_scored_are_recorded_failures() -> None:
    scenario = relay()
    async with runtime_of(scenario.teams["team"], Silent(by_seed, adapters=("planner", "executor"))) as runtime:
        episodes = await play(runtime, scenario, GAIN)
    assert [(one.status, one.turns, one.cause) for one in episodes] == [
        ("failed", (), "EngineError: no scores today")
    ] * K


async def test_nobody_hears_of_the_answer() -> None:
    scenario, asked, turns = relay(), [], []
    for rewards in (GAIN, RewardOptions()):
        engine = Weighing(by_seed, adapters=("planner", "executor"))
        async with runtime_of(scenario.teams["team"], engine) as runtime:
            episodes = await play(runtime, scenario, rewards, range(3))
        asked.append(sorted(engine.tokenizer.decode(request.prompt_ids) for request in engine.requests))
        turns.append([msgspec.structs.replace(turn, facts={}) for turn in turns_of(episodes)])
    assert asked[0] == asked[1]
    assert turns[0] == turns[1]
    planners = [prompt for prompt in asked[0] if prompt.startswith("P")]
    assert planners
    assert not any(character.isdigit() for prompt in planners for character in prompt)


async def mean_score(crew: TeamSession, turn: Turn, answer: str, adapter: str) -> float:
    ids = crew.engine.tokenizer.encode(answer)
    return fmean(await crew.engine.score(turn.prompt_ids, ids, adapter))


@pytest.mark.parametrize("team", ["solo", "team"])
async def test_gains_telescope_to_what_the_engine_says_at_the_end(team: str, retrieval: BaseModel) -> None:
    scenario = build_scenario(ScenarioOptions(**RETRIEVAL))
    async with crew_of(scenario, retrieval, team) as crew:
        episodes = await play(crew.runtime, scenario, GAIN, (0, 1))
        agent, checked = scenario.teams[team].output, 0
        for episode in episodes:
            environment = scenario.environment()
            environment.reset(scenario.task("train", int(episode.task.removeprefix("train-"))))
            assert isinstance(environment, Answered)
            logprobs, own = knowledge(episode), [turn for turn in episode.turns if turn.agent == agent]
            assert len(logprobs) == len(waves := {Wave.of(turn).number for turn in episode.turns}) == max(waves) + 1
            for turn in own:
                asked = await mean_score(crew, turn, environment.right_answer(), agent)
                assert logprobs[Wave.of(turn).number] == pytest.approx(asked, abs=1e-4)
            gains = [after - before for before, after in pairwise(logprobs)]
            if own and Wave.of(own[-1]).number == len(logprobs) - 1 and len(logprobs) > 1:
                last = await mean_score(crew, own[-1], environment.right_answer(), agent)
                assert sum(gains) == pytest.approx(last - logprobs[0], abs=1e-4)
                checked += 1
        assert checked
        other = await play(crew.runtime, scenario, RewardOptions(), (0, 1))
    # What the first episode of a task asked the others need not ask again.
    extra = [scored.tokens - episode.tokens for episode, scored in zip(other, episodes, strict=True)]
    assert extra[0] > 0
    assert extra[K] > 0
    assert min(extra) >= 0
    assert all(knowledge(episode) == () for episode in other)


async def test_prompts_of_an_episode_are_scored_in_one_pass(
    retrieval: BaseModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, passes = served.TransformersEngine(retrieval), []
    score = served.score_tokens

    def counted(base: BaseModel, rows: Sequence[Any]) -> list[Any]:
        passes.append(len(rows))
        return score(base, rows)

    monkeypatch.setattr(served, "score_tokens", counted)
    prompts = [tuple(range(5, 5 + length)) for length in (3, 9, 5, 7)]
    completions = [(8, 9), (8,), (8, 9, 7), (6,)]
    alone = [await engine.score(*pair) for pair in zip(prompts, completions, strict=True)]
    together = await asyncio.gather(*(engine.score(*pair) for pair in zip(prompts, completions, strict=True)))
    assert passes == [1, 1, 1, 1, 4]
    for one, other in zip(alone, together, strict=True):
        assert other == pytest.approx(one, abs=1e-5)
    await engine.close()


async def test_a_score_that_nobody_waits_for_leaves_the_others_theirs(retrieval: BaseModel) -> None:
    engine, completions = served.TransformersEngine(retrieval), [(8, 9), (9, 8), (10, 9)]
    tasks = [asyncio.create_task(engine.score((5, 6, 7), ids), name=f"score-{ids}") for ids in completions]
    await asyncio.sleep(0)
    tasks[1].cancel()
    first, second, third = await asyncio.gather(*tasks, return_exceptions=True)
    assert isinstance(second, asyncio.CancelledError)
    for score, ids in ((first, completions[0]), (third, completions[2])):
        assert score == pytest.approx(await engine.score((5, 6, 7), ids), abs=1e-5), "a batch of another size may round"
    await engine.close()


async def test_entities_are_looked_for_in_all_that_was_said(retrieval: BaseModel) -> None:
    scenario = build_scenario(ScenarioOptions(**RETRIEVAL))
    async with crew_of(scenario, retrieval) as crew:
        episodes = await play(crew.runtime, scenario, PARTIAL, range(6))
    rates = set()
    for episode in episodes:
        environment = scenario.environment()
        environment.reset(scenario.task("train", int(episode.task.removeprefix("train-"))))
        assert isinstance(environment, Named)
        wanted = match_rate("\n".join(line.text for line in episode.lines), environment.entities())
        assert EntityRate.of(episode).share == wanted
        rates.add(wanted)
    assert len(rates) > 1


class Steps:
    """Keeps what a run tells."""

    def __init__(self) -> None:
        self.episodes: list[Episode] = []

    def on_resume(self, step: int) -> None: ...

    def on_step(self, step: int, metrics: Any, episodes: Sequence[Episode]) -> None:
        self.episodes += episodes

    def on_note(self, step: int, note: Any) -> None: ...

    def on_evaluation(self, step: int, name: str, evaluation: Any) -> None: ...


@pytest.mark.parametrize("name", ["igpo", "e_grpo"])
async def test_the_presets_train(name: str, retrieval: BaseModel, tmp_path: Path) -> None:
    words = ["train.steps=1", "train.tasks_per_step=2", "train.eval_tasks=2", "algorithm.sampler.candidates=4"]
    config = load_config([f"algorithm={name}", "scenario=retrieval", *words])
    watcher = Steps()
    outcome = await Trainer(resolve_training(config), retrieval).run(watcher)
    assert outcome.progress.step == 1
    assert all(bool(knowledge(episode)) == (name == "igpo") for episode in watcher.episodes)
    assert all((EntityRate.of(episode).share is None) == (name == "igpo") for episode in watcher.episodes)


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["algorithm=igpo", "scenario=plan_path"], r"'plan_path' says none \(it has no method right_answer\)"),
        (["algorithm=igpo", "scenario=relay", "algorithm.team=solo"], "has one turn in an episode of 'relay'"),
        (["algorithm=e_grpo", "scenario=relay"], r"'relay' names none \(it has no method entities\)"),
    ],
)
def test_scenarios_without_an_answer_are_refused(words: list[str], reason: str) -> None:
    config = load_config(words)
    with pytest.raises(ConfigError, match=reason):
        check_trainable(resolve(config))


@pytest.mark.parametrize("name", ["gain", "partial"])
@pytest.mark.parametrize(
    ("algorithm", "reason"),
    [
        ({"sampler": {"mode": "tree"}}, "which sampler.mode=parallel plays"),
        ({"update": "training_free"}, "with update=training_free: that is of whole trajectories"),
        ({"reward": {"discount": 0.9}}, "of whole trajectories of one group"),
        ({"reward": {"of": "turn"}}, "of whole trajectories of one group"),
        ({"advantage": {"key": "batch"}}, "of whole trajectories of one group"),
        ({"advantage": {"baseline": "critic"}}, "of whole trajectories of one group"),
        ({"advantage": {"components": True}}, "of whole trajectories of one group"),
        ({"sampler": {"mode": "parallel", "refill": 1}}, "not only differences inside groups teach"),
    ],
)
def test_parts_that_do_not_read_the_answer_are_refused(name: str, algorithm: dict[str, Any], reason: str) -> None:
    reward = {**algorithm.get("reward", {}), name: {}}
    AlgorithmOptions.model_validate({"sampler": {"mode": "parallel"}, "reward": {name: {}}})
    with pytest.raises(ValidationError, match=reason):
        AlgorithmOptions.model_validate({"sampler": {"mode": "parallel"}, **algorithm, "reward": reward})


@pytest.mark.parametrize(
    "advantage", [{"scale": "none"}, {"baseline": "leave_one_out"}, {"strata": {}}, {"inherit": "planner"}], ids=str
)
def test_gains_are_compared_by_mean_and_spread(advantage: dict[str, Any]) -> None:
    base = {"sampler": {"mode": "parallel"}, "advantage": advantage}
    AlgorithmOptions.model_validate(base)
    with pytest.raises(ValidationError, match="gains and rewards are each compared by mean and spread"):
        AlgorithmOptions.model_validate({**base, "reward": {"gain": {}}})
