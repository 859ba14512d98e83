"""Somebody who knows how an answer must look and nothing else: always legal, and all that is possible is said."""

from random import Random

import pytest

from mas.core.messages import Failure
from mas.core.role import RoleSpec
from mas.roles import build_role
from mas.roles.build import random_answer

CASES = [
    (RoleSpec(type="executor", choices=("L", "R"), max_tokens=1), (), {"L", "R"}),
    (RoleSpec(type="executor"), ("up", "down"), {"up", "down"}),
    (RoleSpec(type="executor", choices=("L", "R"), pattern="L"), (), {"L"}),
    (RoleSpec(type="planner", choices=("0", "1"), max_tokens=2), (), {"0", "1", "00", "01", "10", "11"}),
    (RoleSpec(type="verifier"), (), {"accept", "reject"}),
    (RoleSpec(type="verifier", choices=("y", "n"), accept_text="y", reject_text="n", max_tokens=3), (), {"y", "n"}),
    (RoleSpec(emits="items", choices=("a", "b"), max_items=2), (), {"a", "b", "a\na", "a\nb", "b\na", "b\nb"}),
    (RoleSpec(type="planner"), ("up", "down"), {None}),
    (RoleSpec(type="executor"), (), {None}),
    (RoleSpec(type="executor", choices=("L", "R"), pattern="X"), (), {None}),
]


@pytest.mark.parametrize(("spec", "legal", "wanted"), CASES)
def test_all_that_can_be_read_is_said_and_nothing_else(
    spec: RoleSpec, legal: tuple[str, ...], wanted: set[str | None]
) -> None:
    role, random = build_role("it", spec), Random(0)
    heard = {random_answer(role, random, legal) for _ in range(300)}
    assert heard == wanted
    assert not any(isinstance(role.parse(text), Failure) for text in heard if text is not None)
