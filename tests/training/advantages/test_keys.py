"""Group keys: which differences between two turns keep them apart."""

from typing import Any, get_args

import msgspec
import pytest
from parts import make_turn

from mas.core.engine import AdapterRef
from mas.training.advantages.keys import GROUP_KEYS, GroupKey, keys_of

ONE = make_turn()
CHANGES: dict[str, Any] = {
    "group": "other",
    "task": "other",
    "agent": "other",
    "role": "other",
    "turn": 7,
    "visit": 7,
    "state": "other",
    "prompt_ids": (1, 2),
    "adapter": AdapterRef("other", 0),
}
APART: dict[str, set[str]] = {
    "sampled": {"group"},
    "task": {"task"},
    "agent": {"task", "agent"},
    "agent_turn": {"task", "agent", "turn"},
    "state": {"task", "agent", "state"},
    "step": {"task", "agent", "visit"},
    "shown_prompt": {"task", "agent", "prompt_ids"},
    "role": {"role"},
    "agent_buffer": {"agent"},
    "adapter": {"adapter"},
    "batch": set(),
}


@pytest.mark.parametrize("name", get_args(GroupKey))
def test_a_key_depends_on_what_it_says_and_on_nothing_else(name: Any) -> None:
    changed = [msgspec.structs.replace(ONE, **{field: value}) for field, value in CHANGES.items()]
    same = keys_of([ONE, make_turn(trajectory="another")], name)
    assert same[0] == same[1]
    different = {field for field, key in zip(CHANGES, keys_of(changed, name), strict=True) if key != same[0]}
    assert different == APART[name]
    assert len({*same}) == 1


def test_every_name_has_its_key() -> None:
    assert tuple(GROUP_KEYS) == get_args(GroupKey)


def test_versions_of_an_adapter_are_one_and_the_bare_base_another() -> None:
    turns = [msgspec.structs.replace(ONE, adapter=ref) for ref in (AdapterRef("a", 0), AdapterRef("a", 3), None)]
    assert keys_of(turns, "adapter") == ["a", "a", None]


def test_an_unknown_name_is_refused_with_those_there_are() -> None:
    with pytest.raises(ValueError, match="no group key 'episode': choose one of sampled, task, agent"):
        keys_of([ONE], "episode")  # type: ignore[arg-type]
