"""Full trees: every candidate is carried on, and its terms are means over what lies below it."""

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
from mixed import mixed
from parts import groups_of, runtime_of, sample, turns_of

from mas.algorithms.parts.advantages.tree import Node, node_values
from mas.algorithms.parts.losses.preference import PreferenceOptions
from mas.algorithms.parts.rewards.terms import RewardOptions
from mas.algorithms.parts.sampling.options import SamplerOptions
from mas.config.load import load_config
from mas.config.options import ScenarioOptions
from mas.core.environment import Move
from mas.core.errors import ConfigError, EngineError
from mas.core.records import Episode, Turn
from mas.core.scenario import Scenario
from mas.core.team import TeamSpec
from mas.graph.load import load_team
from mas.runs.resolve import resolve
from mas.scenarios import build_scenario
from mas.testing.scripted import ScriptedEngine
from mas.training.check_setup import check_trainable
from mas.training.sampling.full_tree import FullTreeSampler
from mas.training.updates.preference import preferred, turn_values

MALT: dict[str, Any] = json.loads((Path(__file__).parents[1] / "data" / "oracles.json").read_text())["07_malt"]
Script = Callable[[str, int], str]
"""(prompt, number of the candidate) -> what is said."""


def tree_options(candidates: int = 2, **options: Any) -> SamplerOptions:
    return SamplerOptions.model_validate({"mode": "full_tree", "candidates": candidates} | options)


def scripted(script: Script) -> ScriptedEngine:
    """Candidates are numbered as they are drawn from one prompt."""
    drawn: Counter[str] = Counter()

    def answer(prompt: str, adapter: str | None, seed: int) -> str:
        drawn[prompt] += 1
        return script(prompt, drawn[prompt] - 1)

    return ScriptedEngine(answer)


@pytest.fixture
def scenario() -> Scenario:
    return build_scenario(ScenarioOptions(name="refine"))


def right_answer(scenario: Scenario) -> str:
    world = scenario.environment()
    world.reset(scenario.task("train", 0))
    return str(world.state.question.answer)


def golden(scenario: Scenario) -> Script:
    """The tree of MALT's example: g0 {[1, 1], [1, 0]}, g1 {[0, 0], [1, 0]}."""
    right = right_answer(scenario)
    wrong = str((int(right) + 1) % 10)
    wins = {"0y": (1, 1), "0n": (1, 0), "1y": (0, 0), "1n": (1, 0)}

    def script(prompt: str, number: int) -> str:
        if prompt[0] != "R":
            return ("01" if prompt[0] == "G" else "yn")[number % 2]
        return right if wins[prompt[-3:-1]][number % 2] else wrong

    return script


async def sampled(
    team: TeamSpec, engine: ScriptedEngine, scenario: Scenario, options: SamplerOptions, seed: int = 0
) -> Episode:
    async with runtime_of(team, engine) as runtime:
        (episode,) = await sample(runtime, scenario, [0], options, seed)
    return episode


async def test_values_are_backed_up_through_the_sampler(scenario: Scenario) -> None:
    episode = await sampled(scenario.teams["team"], scripted(golden(scenario)), scenario, tree_options())
    assert episode.cause is None
    by_name = {name_of(turn, episode): turn.rewards for turn in episode.turns if turn.role != "refiner"}
    assert {name: terms["outcome"] for name, terms in by_name.items()} == MALT["value"]
    # What the environment pays is backed up in the same way.
    assert {name: terms["team.right"] for name, terms in by_name.items()} == MALT["value"]
    values = turn_values(episode.turns, PreferenceOptions(), RewardOptions())
    found = preferred(episode.turns, values, PreferenceOptions(sft_only=("generator",)))
    assert [(n, m) for n, m in pairs_of("verifier", episode, found.pairs)] == [("v00", "v01")]
    refined = [episode.turns[winner] for winner, _ in found.pairs if episode.turns[winner].role == "refiner"]
    assert [prompt_of(turn)[-3:-1] for turn in refined] == ["0n", "1n"]
    assert not pairs_of("generator", episode, found.pairs)
    every = preferred(episode.turns, values, PreferenceOptions())
    assert pairs_of("generator", episode, every.pairs) == [("g0", "g1")]
    positive = {name_of(episode.turns[n], episode) for n in found.positives if episode.turns[n].role != "refiner"}
    assert positive == {name for name, label in MALT["label"].items() if label}


def prompt_of(turn: Turn) -> str:
    return ScriptedEngine(lambda *_: "").tokenizer.decode(turn.prompt_ids)


def name_of(turn: Turn, episode: Episode) -> str:
    if turn.parent is None:
        return f"g{turn.candidate}"
    above = next(other for other in episode.turns if other.id == turn.parent)
    return f"v{above.candidate}{turn.candidate}"


def pairs_of(role: str, episode: Episode, pairs: Any) -> list[tuple[str, str]]:
    turns = episode.turns
    return [(name_of(turns[w], episode), name_of(turns[x], episode)) for w, x in pairs if turns[w].role == role]


def numbered(prompt: str, number: int) -> str:
    """Three different outputs everywhere; the last is right or wrong by chance of the prompt."""
    return "yn?"[number % 3] if prompt[0] == "V" else str((number % 3 + 3 * len(prompt)) % 10)


async def test_a_tree_is_complete_and_its_records_say_how_it_hangs_together(scenario: Scenario) -> None:
    engine = scripted(numbered)
    episode = await sampled(scenario.teams["team"], engine, scenario, tree_options(3))
    assert Counter(turn.role for turn in episode.turns) == {"generator": 3, "verifier": 9, "refiner": 27}
    assert len({turn.id for turn in episode.turns}) == len(episode.turns)
    leaves = {turn.id: turn.rewards["outcome"] for turn in episode.turns if turn.role == "refiner"}
    assert len(leaves) == MALT["leaves_for_branching_3"]
    nodes = [Node(id=turn.id, parent=turn.parent, reward=leaves.get(turn.id)) for turn in episode.turns]
    assert {turn.id: turn.rewards["outcome"] for turn in episode.turns} == pytest.approx(
        node_values(nodes, "child_mean")
    )
    for members in groups_of(episode.turns).values():
        assert [member.candidate for member in members] == [0, 1, 2]
        for name in ("prompt_ids", "parent", "agent", "turn", "visit"):
            assert len({getattr(member, name) for member in members}) == 1, name
        assert len({member.seed for member in members}) == 3
    assert [request.prompt_ids for request in engine.requests].count(episode.turns[0].prompt_ids) == 1
    assert episode.calls == 3 + 9 + 27
    read = [len(request.prompt_ids) for request in engine.requests]
    assert (episode.prompt_tokens, sum(episode.prompts.values())) == (3 * sum(read), sum(read))


async def test_committed_is_the_path_of_first_candidates(scenario: Scenario) -> None:
    episode = await sampled(scenario.teams["team"], scripted(numbered), scenario, tree_options(3))
    committed = [turn for turn in episode.turns if turn.chosen]
    assert [turn.candidate for turn in committed] == [0, 0, 0]
    assert [turn.parent for turn in committed] == [None, committed[0].id, committed[1].id]
    assert [line.text for line in episode.lines] == [turn.text for turn in committed]
    assert episode.success == bool(committed[-1].rewards["outcome"])
    assert episode.rewards["right"] == committed[-1].rewards["team.right"]
    assert episode.length == 1


async def test_equal_siblings_share_what_comes_after_them_and_stay_records(scenario: Scenario) -> None:
    def script(prompt: str, number: int) -> str:
        return "y" if prompt[0] == "V" else str((0, 0, 1)[number % 3])

    episode = await sampled(scenario.teams["team"], scripted(script), scenario, tree_options(3))
    assert Counter(turn.role for turn in episode.turns) == {"generator": 3, "verifier": 6, "refiner": 6}
    first, twin, _ = (turn for turn in episode.turns if turn.role == "generator")
    assert (first.text, first.rewards) == (twin.text, twin.rewards)
    assert first.seed != twin.seed
    assert twin.id not in {turn.parent for turn in episode.turns}
    by_group = [fmean(turn.rewards["outcome"] for turn in members) for members in groups_of(episode.turns).values()]
    assert episode.turns[0].rewards["outcome"] == pytest.approx(by_group[2])


class Counting:
    """Pays every role what the refiner said last in this turn, and the refiner also what it says itself."""

    terms = ("generator", "verifier", "refiner", "said")

    def own(self, move: Move) -> Mapping[str, float]:
        said = {"said": float(move.output.content)} if move.role == "refiner" else {}
        return {move.role: float(move.after["refiner"].content), **said}


async def test_own_terms_are_means_over_what_became_of_an_output_and_stay_its_own(scenario: Scenario) -> None:
    object.__setattr__(scenario, "reward", Counting())
    episode = await sampled(scenario.teams["team"], scripted(numbered), scenario, tree_options(3))
    below: dict[str, list[float]] = defaultdict(list)
    by_id = {turn.id: turn for turn in episode.turns}
    for turn in episode.turns:
        own = {name for name in turn.rewards if name.startswith("own.") and name != "own.failure"}
        assert own == {f"own.{turn.role}", *(["own.said"] if turn.role == "refiner" else [])}
        if turn.role == "refiner":
            assert turn.rewards["own.said"] == turn.rewards["own.refiner"] == float(turn.text)
            verifier = by_id[str(turn.parent)]
            below[verifier.id].append(float(turn.text))
            below[str(verifier.parent)].append(float(turn.text))
    for identity, said in below.items():
        assert by_id[identity].rewards[f"own.{by_id[identity].role}"] == pytest.approx(fmean(said))


BOTH = {
    "name": "both",
    "roles": {
        "left": {"template": "L>", "view": "executor", "max_tokens": 4},
        "right": {"template": "R>", "view": "executor", "max_tokens": 4},
        "executor": {"type": "executor", "template": "E{from.left}{from.right}>", "max_tokens": 4},
    },
    "edges": [
        *("start -> left", "start -> right"),
        *("left -> executor", "right -> executor", "executor -> done"),
    ],
    "output": "executor",
}


async def test_members_of_a_wave_do_not_know_of_each_other() -> None:
    scenario = build_scenario(ScenarioOptions(name="relay"))
    episode = await sampled(
        load_team(BOTH), scripted(lambda _, number: "ab"[number % 2]), scenario, tree_options(max_leaves=10**4)
    )
    assert episode.cause is None
    first = [turn for turn in episode.turns if turn.turn == 0]
    assert Counter(turn.agent for turn in first) == {"left": 2, "right": 4, "executor": 8}
    assert {prompt_of(turn) for turn in first if turn.agent == "right"} == {"R>"}
    assert {prompt_of(turn) for turn in first if turn.agent == "executor"} == {"Eaa>", "Eab>", "Eba>", "Ebb>"}


TWO_TURNS = ScenarioOptions(name="plan_path", options={"size": 3, "walls": 1, "max_turns": 2})
PASSING = {
    "name": "solo",
    "roles": {"solo": {"type": "executor", "view": "solo", "template": "S>", "max_tokens": 4}},
    "edges": ["start -> solo", "solo -> done"],
    "output": "solo",
}


async def test_more_turns_make_a_deeper_tree_whose_terms_are_sums_over_turns() -> None:
    scenario = build_scenario(TWO_TURNS)
    world = scenario.environment()
    world.reset(scenario.task("train", 0))
    moves = [move for move in world.legal("team") or () if move][:2]
    episode = await sampled(load_team(PASSING), scripted(lambda _, n: moves[n % 2]), scenario, tree_options())
    assert episode.cause is None
    assert Counter(turn.turn for turn in episode.turns) == {0: 2, 1: 4}
    below: dict[str | None, list[Turn]] = defaultdict(list)
    for turn in episode.turns:
        below[turn.parent].append(turn)
    for turn in below[None]:
        for name in ("outcome", *(term for term in turn.rewards if term.startswith("team."))):
            assert turn.rewards[name] == pytest.approx(fmean(one.rewards.get(name, 0.0) for one in below[turn.id]))
    end = [turn for turn in episode.turns if turn.chosen][-1]
    paid = {name.removeprefix("team."): value for name, value in end.rewards.items() if name.startswith("team.")}
    assert paid == pytest.approx(dict(episode.rewards))


async def test_a_horizon_ends_every_branch() -> None:
    scenario = build_scenario(TWO_TURNS)
    async with runtime_of(load_team(PASSING), scripted(lambda _, n: "ab"[n % 2])) as runtime:
        sampler = FullTreeSampler(runtime, scenario.reward, tree_options(), RewardOptions(), turns=1)
        (episode,) = await sampler.sample(scenario.task("train", 0), scenario.environment(), seed=0)
    assert Counter(turn.turn for turn in episode.turns) == {0: 2}
    assert episode.length == 1


def test_a_horizon_bounds_the_tree() -> None:
    words = ["scenario=plan_path", "algorithm=malt", "algorithm.preference.sft_only=[]"]
    config = load_config(mixed(*words, "algorithm.sampler.horizon.turns=[1]"))
    check_trainable(resolve(config))


async def test_the_same_seed_gives_the_same_tree_and_another_one_another() -> None:
    scenario = build_scenario(ScenarioOptions(name="refine"))
    engine = ScriptedEngine(lambda prompt, _, seed: "yn"[seed % 2] if prompt[0] == "V" else str(seed % 10))
    async with runtime_of(scenario.teams["team"], engine) as runtime:
        one = await sample(runtime, scenario, [0, 1], tree_options(3))
        assert await sample(runtime, scenario, [0, 1], tree_options(3)) == one
        assert await sample(runtime, scenario, [0, 1], tree_options(3), seed=1) != one
    seeds = [turn.seed for turn in turns_of(one)]
    assert len(set(seeds)) == len(seeds)


async def test_a_tree_that_outgrows_the_bound_is_a_recorded_failure(scenario: Scenario) -> None:
    episode = await sampled(scenario.teams["team"], scripted(numbered), scenario, tree_options(3, max_leaves=26))
    assert (episode.status, episode.turns) == ("failed", ())
    assert "more than max_leaves = 26 leaves" in str(episode.cause)


def test_a_tree_that_cannot_fit_is_refused_before_anything_is_played() -> None:
    config = load_config(["scenario=refine", "algorithm=malt", "algorithm.options.max_leaves=26"])
    with pytest.raises(
        ConfigError, match=r"3 candidates at each of 3 decisions .* has 27 leaves, and max_leaves is 26"
    ):
        check_trainable(resolve(config))
    config = load_config(["scenario=refine", "algorithm=malt", "algorithm.options.max_leaves=27"])
    check_trainable(resolve(config))
    long = load_config(["scenario=plan_path", "algorithm=malt", "algorithm.options.sft_only=[]"])
    with pytest.raises(ConfigError, match=r"or use sampler\.mode=tree$"):
        check_trainable(resolve(long))


@pytest.mark.parametrize("on_failure", ["cancel", "isolate"])
async def test_an_agent_that_fails_ends_the_tree_unless_its_failures_are_isolated(on_failure: str) -> None:
    scenario = build_scenario(ScenarioOptions(name="refine"))
    spec = scenario.teams["team"].model_dump(mode="json", exclude_defaults=True)
    spec["policies"] = {"verifier": {"on_failure": on_failure}}

    def script(prompt: str, number: int) -> str:
        if prompt[0] == "V":
            raise EngineError("out of order")
        return str(number % 3)

    episode = await sampled(load_team(spec), scripted(script), scenario, tree_options(3))
    if on_failure == "cancel":
        assert "out of order" in str(episode.cause)
        return
    assert episode.cause is None
    assert [(attempt.agent, attempt.purpose) for attempt in episode.attempts] == [("verifier", "answer")] * 3
    assert Counter(turn.role for turn in episode.turns) == {"generator": 3, "refiner": 9}
    generators = {turn.id for turn in episode.turns if turn.role == "generator"}
    assert {turn.parent for turn in episode.turns if turn.role == "refiner"} == generators
