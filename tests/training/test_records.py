"""Records of sampling: a group is what it says and not its text, and facts survive a checkpoint."""

from typing import Any

import msgspec
import pytest
from parts import make_turn

from mas.algorithms.parts.advantages.entropy_trees import TreeEnds
from mas.algorithms.parts.advantages.steps import Anchor
from mas.algorithms.parts.rewards.transforms import EntityRate
from mas.algorithms.parts.sampling.selection import ToolUse
from mas.core.records import Episode, Group, Turn, facts_of


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        (
            {"kind": "decision", "episode": "t#0f", "turn": 2, "visit": 1, "state": "5e", "path": ".0.1"},
            "t/t#0f.0.1/2/planner/1/5e",
        ),
        ({"kind": "task"}, "t/planner"),
        ({"kind": "task", "attempt": 1, "step": 7}, "t/planner/1@7"),
        ({"kind": "tree", "episode": "0f"}, "t/0f/planner"),
    ],
)
def test_the_text_of_a_group_names_all_that_it_is(fields: dict[str, Any], text: str) -> None:
    assert str(Group(task="t", agent="planner", **fields)) == text


def test_groups_with_one_text_are_two_groups() -> None:
    one, other = Group(kind="task", task="a/b", agent="c"), Group(kind="task", task="a", agent="b/c")
    assert str(one) == str(other)
    assert one != other


def test_facts_are_typed_and_come_back_from_json() -> None:
    ends = ({"solo": {"team.won": 1.0}},)
    turn = make_turn(facts=facts_of(Anchor(state="s"), TreeEnds(ends=ends), ToolUse()))
    assert set(turn.facts) == {"Anchor", "TreeEnds"}
    for record in (turn, msgspec.json.decode(msgspec.json.encode(turn), type=Turn)):
        assert (Anchor.of(record).state, TreeEnds.of(record).ends, ToolUse.of(record)) == ("s", ends, ToolUse())


def test_an_episode_that_nobody_asked_has_no_share() -> None:
    episode = Episode(
        id="e", task="t", success=True, turns=(), lines=(), rewards={}, prompt_tokens=0, completion_tokens=0, calls=0
    )
    assert EntityRate.of(episode).share is None
    assert EntityRate.of(msgspec.structs.replace(episode, facts=facts_of(EntityRate(share=0.0)))).share == 0.0
