"""Entropy trees: branches begin where entropies say, siblings are left alone, and values come from the ends."""

from collections import Counter
from statistics import fmean
from typing import Any

import msgspec
import pytest
from oracles import ORACLES, near
from parts import runtime_of
from words import SOLO, WAVE, Free, Letters, Script, UncertainEngine, WordWorld

from mas.algorithms.parts.advantages.entropy_trees import TreeEnds
from mas.algorithms.parts.advantages.pipeline import AdvantageOptions, turn_advantages
from mas.algorithms.parts.advantages.tree import Node, TreeOptions, node_values
from mas.algorithms.parts.rewards.terms import RewardOptions, total_reward
from mas.algorithms.parts.sampling.branching import whole_rollouts
from mas.algorithms.parts.sampling.options import SamplerOptions
from mas.core.environment import Task
from mas.core.errors import EngineError
from mas.core.policy import Policy
from mas.core.records import Episode, Turn
from mas.core.seeds import Part, derive_seed
from mas.core.team import TeamSpec
from mas.training.sampling.entropy_tree import EntropyTreeSampler

AEPO, AT2PO = ORACLES["20_aepo"], ORACLES["21_at2po"]


async def grown(
    script: Script, entropies: Any, *, team: TeamSpec = SOLO, candidates: int = 3, later: float | None = None,
    world: WordWorld | None = None, turns: int | None = None, reward: Any = None, seed: int = 0, **branch: Any,
) -> tuple[Episode, ...]:  # fmt: skip
    options = SamplerOptions.model_validate({"mode": "entropy_tree", "candidates": candidates, "branch": branch})
    async with runtime_of(team, UncertainEngine(script, entropies, later)) as runtime:
        sampler = EntropyTreeSampler(runtime, reward or Free(), options, RewardOptions(), turns)
        return await sampler.sample(Task(id="t", seed=0), world or WordWorld(), seed)


def draw_at_branches(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """Every draw of whether a turn branches is this number; the seeds of episodes stay."""

    def drawn(*parts: Part) -> int:
        return number if parts[0] == "branch" else derive_seed(*parts)

    monkeypatch.setattr("mas.training.sampling.entropy_tree.derive_seed", drawn)


def turns_of(episodes: tuple[Episode, ...]) -> list[Turn]:
    return [turn for episode in episodes for turn in episode.turns]


def path_of(turn: Turn, turns: list[Turn]) -> list[str]:
    by_id, words, here = {one.id: one for one in turns}, [turn.text], turn
    while here.parent is not None:
        here = by_id[here.parent]
        words.insert(0, here.text)
    return words


def compared(turns: list[Turn], **tree: Any) -> dict[str, float]:
    found = turn_advantages(turns, RewardOptions(), AdvantageOptions(tree=TreeOptions(**tree)))
    return {turn.text: value for turn, value in zip(turns, found, strict=True)}


GOLDEN: dict[str, list[str]] = {"S>": ["n", "m."], "Sn>": ["a", "b."], "Sna>": ["w!"]}
UNCERTAIN = {"n": 1.0, "m.": 0.0, "a": 0.5, "b.": 0.5, "w!": 0.3}


async def golden() -> tuple[Episode, ...]:
    """Section 21: n1 = `n` with the leaves a (won) and b, and the leaf n2 = `m.`. `a` scores 0.5, `n` 1 - 1, the root
    0 - 1: `a` is drawn again."""
    return await grown(GOLDEN, UNCERTAIN, chains=2, expand=1, penalty=1.0)


async def test_values_and_advantages_come_from_the_ends_through_the_sampler() -> None:
    turns = turns_of(await golden())
    assert [path_of(turn, turns) for turn in turns] == [["n"], ["n", "a"], ["n", "a", "w!"], ["m."], ["n", "b."]]
    names = {"n": "n1", "m.": "n2", "a": "leaf_a", "b.": "leaf_b"}
    for form in ("node_value", "diff_parent", "diff_global", "diff_localglobal"):
        found = compared(turns, form=form)
        assert {name: found[word] for word, name in names.items()} == near(
            {name: value for name, value in AT2PO[form].items() if name != "root"}
        ), form
    # What is played on from a leaf of the example has its value, and gains nothing over it.
    assert compared(turns)["w!"] == near(AT2PO["node_value"]["leaf_a"])
    assert compared(turns, form="diff_parent")["w!"] == 0
    # The mean of the leaves below: (1.414211 - 0.707105) / 2, as the children are equally uncertain.
    assert compared(turns, backup="leaf_mean")["n"] == near(AT2PO["node_value"]["n1"])


async def test_softmax_weights_children_by_their_entropies() -> None:
    turns = turns_of(await grown(GOLDEN, UNCERTAIN | {"a": 0.9}, chains=2, expand=1, penalty=1.0))
    leaves = {"w!": 2**0.5, "m.": -(2**-0.5), "b.": -(2**-0.5)}
    nodes = [Node(id="")]
    for turn in turns:
        reward = leaves.get(turn.text)
        nodes.append(Node(id=turn.id, parent=turn.parent or "", reward=reward, entropy=-fmean(turn.logprobs)))
    values = node_values(nodes)
    assert compared(turns) == pytest.approx({turn.text: values[turn.id] for turn in turns}, abs=1e-5)
    assert compared(turns)["n"] > AT2PO["node_value"]["n1"] + 0.1


async def test_a_shared_turn_is_one_record_with_the_mean_of_its_ends() -> None:
    episodes = await golden()
    assert [episode.status for episode in episodes] == ["done"] * 3
    assert [[turn.text for turn in episode.turns] for episode in episodes] == [["n", "a", "w!"], ["m."], ["b."]]
    turns = {turn.text: turn for turn in turns_of(episodes)}
    assert turns["n"].rewards == {"team.won": 0.5}
    assert [len(TreeEnds.of(turn).ends) for turn in turns.values()] == [0, 0, 1, 1, 1]
    assert TreeEnds.of(turns["w!"]).ends[0]["solo"] == turns["w!"].rewards == {"team.won": 1.0}
    assert len({turn.id for turn in turns.values()}) == 5
    # The branch is an episode of its own: all of its conversation, and the cost of what was drawn in it alone.
    branch = episodes[2]
    assert [line.text for line in branch.lines] == ["n", "b."]
    assert (branch.length, branch.calls, branch.success) == (2, 1, False)
    assert [episode.success for episode in episodes] == [True, False, False]


async def test_a_branch_does_not_touch_its_sibling() -> None:
    world = WordWorld()
    turns = {turn.text: turn for turn in turns_of(await grown(
        GOLDEN, UNCERTAIN, chains=2, expand=1, penalty=1.0, world=world
    ))}  # fmt: skip
    assert world.state.words == ()
    assert turns["a"].prompt_ids == turns["b."].prompt_ids != turns["n"].prompt_ids == turns["m."].prompt_ids
    assert (turns["a"].prompt_ids, turns["a"].parent) == (turns["b."].prompt_ids, turns["b."].parent)
    alone = turns_of(await grown(GOLDEN, UNCERTAIN, candidates=2, chains=2, expand=1))
    for turn in alone:
        assert turns[turn.text].facts == turn.facts


@pytest.mark.parametrize("candidates", [4, 7, 9])
async def test_the_budget_of_ends_is_exact_and_rounds_take_the_most_uncertain(candidates: int) -> None:
    # Every episode says three words; those after `a` are the most uncertain, then those after `b`.
    def script(prompt: str, number: int) -> str:
        return "abcdefgh"[number] if prompt == "S>" else "xyzuvw"[number % 6] + ("." if len(prompt) == 4 else "")

    def entropy(prompt: str, word: str) -> float:
        return {"Sa>": 3.0, "Sb>": 2.0}.get(prompt, 0.5)

    episodes = await grown(script, entropy, candidates=candidates, chains=3, expand=2, penalty=0.05)
    assert len(episodes) == candidates
    turns = turns_of(episodes)
    assert sum(len(TreeEnds.of(turn).ends) for turn in turns) == candidates
    drawn = Counter("".join(path_of(turn, turns)[:-1]) for turn in turns if turn.turn == 1)
    branches = candidates - 3
    # The first round takes one turn after `a` and one after `b`; later ones take those after `a` alone.
    first = min(branches, 2)
    wanted = {"a": 1 + (first > 0), "b": 1 + (first > 1), "c": 1}
    left = branches - first
    while left:
        taken = min(left, 2, wanted["a"])
        wanted["a"] += taken
        left -= taken
    assert drawn == wanted


async def test_where_nothing_can_branch_the_rest_are_whole_episodes() -> None:
    episodes = await grown({"S>": ["a.", "b!"]}, {}, candidates=5, chains=2, expand=3)
    assert [[turn.text for turn in episode.turns] for episode in episodes] == [["a."], ["b!"], ["a."], ["b!"], ["a."]]
    assert all(turn.parent is None for turn in turns_of(episodes))


async def test_a_turn_that_its_episode_ended_with_is_not_drawn_again_however_uncertain() -> None:
    # `m.` and `w!` end their episodes; of the others `n` scores 1 - 1 and `a` 0.5.
    uncertain = UNCERTAIN | {"m.": 9.0, "w!": 9.0}
    turns = turns_of(await grown(GOLDEN, uncertain, chains=2, expand=1, penalty=1.0))
    assert [path_of(turn, turns) for turn in turns] == [["n"], ["n", "a"], ["n", "a", "w!"], ["m."], ["n", "b."]]


async def test_no_more_turns_are_played_than_the_horizon_has() -> None:
    def script(prompt: str, number: int) -> str:
        return "abc"[number % 3]

    episodes = await grown(script, {"a": 1.0}, candidates=6, chains=2, turns=3)
    assert {episode.length for episode in episodes} == {3}


@pytest.mark.parametrize(
    ("root", "tool", "name"), [(0.4, 0.2, "root.4_tool.2"), (0.0, 2.0, "root0_tool2")], ids=["9", "5"]
)
async def test_aepo_splits_its_budget_by_the_first_episode(
    monkeypatch: pytest.MonkeyPatch, root: float, tool: float, name: str
) -> None:
    draw_at_branches(monkeypatch, 2**63 - 1)  # u is 1: every turn that is asked branches

    def script(prompt: str, number: int) -> str:
        return "abcdefghijklmnop"[number % 16] + ("." if len(prompt) == 5 else "")

    def entropy(prompt: str, word: str) -> float:
        return root if prompt == "S>" else tool

    episodes = await grown(script, entropy, candidates=16, by="chance", tokens=1, later=9.0)
    assert len(episodes) == 16
    whole = [turn for turn in turns_of(episodes) if turn.parent is None]
    assert len(whole) == AEPO["global_rollouts"][name] == whole_rollouts(16, root_entropy=root, tool_entropy=tool)
    # Branches begin at the second turn of every whole episode, earlier chains first, before any third turn does.
    second = Counter(turn.parent for turn in turns_of(episodes) if turn.turn == 1)
    assert min(second.values()) == (1 if len(whole) == 9 else 2)


@pytest.mark.parametrize(("u", "branches"), [(0.5, [1, 2, 3, 5]), (0.44, [1, 3, 5, 7]), (0.4, [])])
async def test_aepo_branches_less_where_it_just_has(
    monkeypatch: pytest.MonkeyPatch, u: float, branches: list[int]
) -> None:
    # u + 0.02 x (3 - 0) = .56 at first, then x .95, .9, .85: .56, .532, .504, .476, as section 20 has it for l 0 and 3.
    # With u .44 it is .5 and .475: every other turn.
    draw_at_branches(monkeypatch, int(u * 2**63) + 2**10)

    def script(prompt: str, number: int) -> str:
        return "abcdefgh"[number % 8]

    def entropy(prompt: str, word: str) -> float:
        return 0.0 if prompt == "S>" else 3.0

    episodes = await grown(script, entropy, candidates=5, by="chance", weight=0.02)
    assert len(episodes) == 5
    if not branches:
        assert all(turn.parent is None for episode in episodes for turn in episode.turns[:1])
        return
    scores = AEPO["branch_score"]
    assert (scores["u.5_dH.3_l0"] >= 0.5, scores["u.5_dH.3_l3"] >= 0.5) == (True, False)
    assert [episode.turns[0].turn for episode in episodes[1:]] == branches


async def test_in_a_team_what_was_decided_before_the_branch_stays() -> None:
    # In the first turn `right` is uncertain: it is drawn again, `left` before it is not, `solo` after it is.
    script: dict[str, list[str]] = {
        "L>": ["l"],
        "R>": ["q", "r"],
        **{f"S;l{word}>": [f"{word}."] for word in "qr"},
    }
    episodes = await grown(
        script, {"q": 2.0}, team=WAVE, candidates=2, chains=1, expand=1, reward=Letters(), world=WordWorld(2)
    )
    assert [[(turn.agent, turn.text) for turn in episode.turns] for episode in episodes] == [
        [("left", "l"), ("right", "q"), ("solo", "q.")],
        [("right", "r"), ("solo", "r.")],
    ]
    left, first, _, second, end = turns_of(episodes)
    assert (first.parent, second.parent, end.parent) == (left.id, left.id, second.id)
    assert [line.text for line in episodes[1].lines] == ["l", "r", "r."]
    # Each agent's own terms: the mean over both episodes, or of its own.
    assert left.rewards == {"team.won": 0.0, "own.letters": 2.0}
    assert (first.rewards["own.begins"], second.rewards["own.begins"]) == (0.0, 1.0)
    assert TreeEnds.of(end).ends[0]["right"] == second.rewards
    assert {turn.group for turn in (first, second)} == {msgspec.structs.replace(left.group, agent="right")}
    # To `right` its second end is worth more, to the others both are worth the same.
    found = turn_advantages(turns_of(episodes), RewardOptions(), AdvantageOptions(tree=TreeOptions()))
    assert found == pytest.approx([0, -1, 0, 1, 0], abs=1e-5)


async def test_ends_that_come_at_different_turns_all_count_for_everybody() -> None:
    # `solo` is drawn again: one end is won at once, without `left` and `right` speaking again.
    script: dict[str, list[str]] = {
        "L>": ["l"], "R>": ["r"], "S;lr>": ["a", "b!"], "La>": ["l"], "Ra>": ["r"], "Sa;lr>": ["c."],
    }  # fmt: skip
    episodes = await grown(script, {"a": 2.0}, team=WAVE, candidates=2, chains=1, expand=1)
    left, right = episodes[0].turns[:2]
    assert left.rewards == right.rewards == {"team.won": 0.5}
    rewards = [total_reward(turn.rewards, RewardOptions()) for turn in episodes[1].turns]
    assert ([turn.text for turn in episodes[1].turns], rewards) == (["b!"], [1.0])
    tree = TreeOptions(backup="leaf_mean")
    found = turn_advantages(turns_of(episodes), RewardOptions(), AdvantageOptions(tree=tree))
    assert found == pytest.approx([0, 0, -1, -1, -1, -1, 1], abs=1e-5)


@pytest.mark.parametrize("failing", ["Sn>", "S>"])
async def test_an_episode_that_fails_is_recorded_counted_and_never_branched_from(failing: str) -> None:
    def script(prompt: str, number: int) -> str:
        if prompt == failing and number == 1:
            raise EngineError("out of order")
        return GOLDEN[prompt][number % 2 if prompt != "Sna>" else 0]

    episodes = await grown(script, UNCERTAIN, candidates=5, chains=2, expand=1)
    assert len(episodes) == 5
    failed = [episode for episode in episodes if episode.status == "failed"]
    assert [(episode.turns, "out of order" in str(episode.cause)) for episode in failed] == [((), True)]
    assert sum(len(TreeEnds.of(turn).ends) for turn in turns_of(episodes)) == 4


@pytest.mark.parametrize(("by", "branch"), [("rank", {"chains": 1, "expand": 1}), ("chance", {})])
async def test_a_branch_whose_own_draws_all_fail_is_an_episode_with_nothing_to_train(
    monkeypatch: pytest.MonkeyPatch, by: str, branch: dict[str, int]
) -> None:
    """Nobody can answer a second time to a prompt but the first one, and failures are isolated."""
    draw_at_branches(monkeypatch, 2**63 - 1)  # by chance every turn branches

    def script(prompt: str, number: int) -> str:
        if prompt != "S>" and number:
            raise EngineError("out of order")
        return "abcdefgh"[number]

    def entropy(prompt: str, word: str) -> float:
        return 0.0 if prompt == "S>" else 9.0

    team = SOLO.model_copy(update={"policies": {"solo": Policy(on_failure="isolate")}})
    episodes = await grown(script, entropy, team=team, candidates=5, turns=3, by=by, **branch)
    assert [(episode.status, episode.length) for episode in episodes] == [("done", 3)] * 5
    failed = [episode for episode in episodes if not episode.turns]
    assert len(failed) >= 2
    for episode in failed:
        texts = [line.text for line in episode.lines]
        assert texts == [turn.text for turn in episodes[0].turns][: len(texts)]
        assert 0 < len(texts) < 3


async def test_two_trees_are_compared_apart_and_equal_seeds_are_equal() -> None:
    one, other = await golden(), await grown(GOLDEN, UNCERTAIN, chains=2, expand=1, penalty=1.0, seed=1)
    assert one == await golden()
    assert not {turn.id for turn in turns_of(one)} & {turn.id for turn in turns_of(other)}
    both = turn_advantages([*turns_of(one), *turns_of(other)], RewardOptions(), AdvantageOptions(tree=TreeOptions()))
    assert both == near(list(compared(turns_of(one)).values()) * 2)
