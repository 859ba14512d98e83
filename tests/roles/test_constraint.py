"""A role's constraint: what it may be, and the grammar that it becomes where the role is asked."""

import json
import re
from typing import Any

import pytest
from pydantic import ValidationError

from mas.core.engine import Grammar
from mas.core.environment import Observation
from mas.core.errors import ConfigError
from mas.core.messages import Plan
from mas.core.role import ConstrainedRole, Message, RoleSpec, View
from mas.roles import build_role

VIEW = View(
    observation=Observation({"names": "dog, key (old)\ncar", "legal": "x(0,1)\nx(2,2)"}),
    messages=(Message("planner", Plan(text="a, b")),),
)


def grammar_of(constraint: dict[str, Any], **spec: Any) -> Grammar | None:
    role = build_role("seller", RoleSpec.model_validate({"constraint": constraint} | spec))
    assert isinstance(role, ConstrainedRole)
    return role.grammar(VIEW)


def test_a_role_without_a_constraint_has_no_grammar() -> None:
    role = build_role("seller", RoleSpec())
    assert isinstance(role, ConstrainedRole)
    assert role.grammar(VIEW) is None


@pytest.mark.parametrize(
    ("one_of", "texts"),
    [
        (["buy", "sell (all)"], ["buy", "sell (all)"]),
        ("{names}", ["dog", "key (old)", "car"]),
        ("{from.planner}, none", ["a", "b", "none"]),
    ],
)
def test_one_of_is_exactly_these_texts(one_of: Any, texts: list[str]) -> None:
    grammar = grammar_of({"one_of": one_of})
    assert grammar is not None
    assert grammar.kind == "regex"
    assert all(re.fullmatch(grammar.text, text) for text in texts)
    assert not any(re.fullmatch(grammar.text, text) for text in ("", "do", " dog", "key old", "sell all", "dogcar"))


def test_a_comma_within_a_text_does_not_part_it() -> None:
    grammar = grammar_of({"one_of": "{legal}"})
    assert grammar is not None
    assert all(re.fullmatch(grammar.text, text) for text in ("x(0,1)", "x(2,2)"))
    assert not re.fullmatch(grammar.text, "x(0")


def test_behind_a_prefill_a_space_may_stand() -> None:
    grammar = grammar_of({"one_of": ["a", "b"]}, prefill="It is")
    assert grammar is not None
    assert all(re.fullmatch(grammar.text, text) for text in ("a", " a", "b", " b"))
    assert not re.fullmatch(grammar.text, "  a")


def test_a_schema_is_handed_on_as_json() -> None:
    schema = {"type": "object", "properties": {"move": {"enum": ["left", "right"]}}, "required": ["move"]}
    grammar = grammar_of({"json_schema": schema})
    assert grammar is not None
    assert (grammar.kind, json.loads(grammar.text)) == ("schema", schema)


@pytest.mark.parametrize(
    ("constraint", "cause"),
    [
        ({}, "has one of one_of, regex and json_schema"),
        ({"one_of": ["a"], "regex": "a"}, "has one of one_of, regex and json_schema"),
        ({"one_of": []}, "at least one text"),
        ({"one_of": ["a", ""]}, "none of them empty"),
        ({"choices": ["a"]}, "choices"),
    ],
)
def test_a_constraint_is_one_thing(constraint: dict[str, Any], cause: str) -> None:
    with pytest.raises(ValidationError, match=cause):
        RoleSpec.model_validate({"constraint": constraint})


@pytest.mark.parametrize(
    ("constraint", "cause"),
    [
        ({"regex": "a(b"}, "unclosed group"),
        ({"regex": "(?<!x)a"}, "look-around"),
        ({"json_schema": {"type": "strin"}}, "strin"),
    ],
)
def test_what_no_engine_could_follow_is_refused_when_the_role_is_made(constraint: dict[str, Any], cause: str) -> None:
    with pytest.raises(ConfigError, match=cause):
        grammar_of(constraint)


def test_a_field_that_is_not_there_or_lists_nothing_is_an_error() -> None:
    with pytest.raises(ConfigError, match="wares"):
        grammar_of({"one_of": "{wares}"})
    role = build_role("seller", RoleSpec.model_validate({"constraint": {"one_of": "{names}"}}))
    assert isinstance(role, ConstrainedRole)
    with pytest.raises(ConfigError, match="lists nothing"):
        role.grammar(View(observation=Observation({"names": " , "})))
