"""Libraries of experiences: what operations do to them, what is refused, and which groups have something to tell."""

import json
import re
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mas.algorithms.parts.experience.editor import is_telling, telling
from mas.algorithms.parts.experience.library import (
    Library,
    Limits,
    Operation,
    apply_operations,
    library_of,
    one_line,
    read_library,
)
from mas.core.errors import CheckpointError
from mas.training.language_editor import MOST_CHARACTERS, MOST_ENTRIES, read_experiences, read_operations

ORACLES: dict[str, Any] = json.loads((Path(__file__).parents[1] / "data" / "oracles.json").read_text())
GOLDEN = ORACLES["27_training_free"]
XY = Library(("x", "y"), 4)

names = st.sampled_from(["G0", "G1", "G2", "G3", "G9", "", "x"])
texts = st.text(max_size=8)
operations = st.one_of(
    st.builds(Operation, st.just("ADD"), st.none(), texts),
    st.builds(Operation, st.just("UPDATE"), names, texts),
    st.builds(Operation, st.just("DELETE"), names),
)


def test_groups_in_which_all_succeed_or_all_fail_are_not_kept() -> None:
    assert telling({"a": [1, 1, 1], "b": [0, 0, 0], "c": [1, 0, 1]}) == GOLDEN["groups_kept"]


@given(st.lists(st.sampled_from([0.0, 1.0])))
def test_for_scores_of_0_and_1_a_telling_group_has_a_mean_between_them(scores: list[float]) -> None:
    assert is_telling(scores) == (bool(scores) and 0 < fmean(scores) < 1)


def test_operations_as_published() -> None:
    wanted = (Operation("ADD", None, "n"), Operation("UPDATE", "G1", "y2"), Operation("DELETE", "G0"))
    edited = apply_operations(XY, wanted)
    assert edited.library.named() == GOLDEN["experiences"]
    assert edited.library.version == 5
    assert (edited.done, edited.refused) == (wanted, ())


def test_a_delete_needs_no_content_in_an_answer_either() -> None:
    read, refused = read_operations('[{"operation": "DELETE", "id": "G0"}]')
    assert apply_operations(XY, read).library == Library(("y",), 5)
    assert refused == ()


@pytest.mark.parametrize(
    ("operation", "cause"),
    [
        (Operation("UPDATE", "G2", "new"), "no experience 'G2'.*G0 to G1"),
        (Operation("DELETE", "G2"), "no experience 'G2'"),
        (Operation("DELETE", None), "no experience None"),
        (Operation("ADD", None, " \n "), "no text"),
        (Operation("UPDATE", "G0", ""), "no text"),
        (Operation("ADD", None, " y\n"), "says the same"),
        (Operation("UPDATE", "G0", "y"), "says the same"),
        (Operation("ADD", None, "123456"), "6 characters, at most 5"),
        (Operation("ADD", None, "three"), "full: 2"),
    ],
)
def test_what_cannot_be_done_is_recorded_and_changes_nothing(operation: Operation, cause: str) -> None:
    edited = apply_operations(XY, [operation], Limits(most=2, characters=5))
    assert edited.library is XY
    assert edited.done == ()
    assert [refusal.what.split()[0] for refusal in edited.refused] == [operation.kind]
    assert re.search(cause, edited.refused[0].cause)


def test_what_was_deleted_is_known_no_more_and_makes_room() -> None:
    wanted = (Operation("DELETE", "G0"), Operation("UPDATE", "G0", "z"), Operation("ADD", None, "z"))
    edited = apply_operations(XY, wanted, Limits(most=2))
    assert edited.library == Library(("y", "z"), 5)
    assert [refusal.what for refusal in edited.refused] == ["UPDATE G0 z"]


def test_an_update_that_says_what_was_said_is_refused_as_saying_the_same() -> None:
    assert apply_operations(XY, [Operation("UPDATE", "G0", "x")]).library is XY


@given(st.lists(operations, max_size=12))
def test_every_operation_is_done_or_refused_and_the_library_stays_one(wanted: list[Operation]) -> None:
    limits = Limits(most=3, characters=4)
    edited = apply_operations(XY, wanted, limits)
    assert len(edited.done) + len(edited.refused) == len(wanted)
    held = edited.library.experiences
    assert len(set(held)) == len(held) <= limits.most
    assert all(text and text == one_line(text) for text in held)
    assert list(edited.library.named()) == [f"G{number}" for number in range(len(held))]
    assert edited.library.version == XY.version + (held != XY.experiences)
    assert read_library(edited.library.to_text(), "it") == edited.library


@pytest.mark.parametrize(
    "content",
    [
        [],
        {"version": 1},
        {"version": "1", "experiences": {}},
        {"version": -1, "experiences": {}},
        {"version": 1, "experiences": {"G1": "x"}},
        {"version": 1, "experiences": {"G0": "two\nlines"}},
        {"version": 1, "experiences": {"G0": 3}},
        {"version": 1, "experiences": {}, "more": 1},
    ],
)
def test_a_file_that_holds_no_library_is_refused_with_its_name(content: object) -> None:
    with pytest.raises(CheckpointError, match=r"^a\.json is no library"):
        library_of(content, "a.json")


def test_a_file_that_is_no_json_is_refused_with_its_name() -> None:
    with pytest.raises(CheckpointError, match=r"^a\.json is no library"):
        read_library("{", "a.json")


def test_an_answer_may_be_fenced_and_each_bad_entry_is_refused_alone() -> None:
    entries = [
        {"operation": "ADD", "content": "one"},
        {"operation": "UPDATE", "id": "G0", "content": "two"},
        {"operation": "MERGE", "id": "G0"},
        {"operation": "ADD", "id": "G0", "content": "three"},
        {"operation": "ADD", "content": 3},
        {"operation": "ADD", "content": "four", "command": "rm"},
        "ADD five",
    ]
    read, refused = read_operations(f"These:\n```json\n{json.dumps(entries)}\n```\nDone.")
    assert read == (Operation("ADD", None, "one"), Operation("UPDATE", "G0", "two"))
    assert [refusal.cause.split(";")[0] for refusal in refused] == [
        "its operation is 'MERGE'",
        "an ADD has no id",
        "its id or its content is no text",
        "it has the key 'command'",
        "it is no JSON object",
    ]


@pytest.mark.parametrize(
    ("answer", "cause"),
    [
        ("I would add nothing.", "no JSON"),
        ('{"operation": "ADD", "content": "x"}', "no JSON list"),
        ("[NaN]", "no JSON"),
        ('[{"id": "G0", "id": "G1"}]', "stands twice"),
        (r'["\ud800"]', "no JSON"),
        ("[" * 20_000, "no JSON"),
        ('["' + "x" * MOST_CHARACTERS + '"]', "characters, at most"),
        ("```\n[]\n```\n```\n[]\n```", "2 fenced blocks, one was asked for"),
        ("__import__('os').getcwd()", "no JSON"),
    ],
)
def test_an_answer_that_is_no_list_is_refused_whole(answer: str, cause: str) -> None:
    for read, refused in (read_operations(answer), read_experiences(answer, 2)):
        assert read == ()
        (refusal,) = refused
        assert cause in refusal.cause
        assert len(refusal.what) <= 120


def test_a_list_is_read_only_so_far() -> None:
    read, refused = read_operations(json.dumps([{"operation": "DELETE", "id": "G0"}] * (MOST_ENTRIES + 2)))
    assert (len(read), len(refused)) == (MOST_ENTRIES, 2)
    texts, refused = read_experiences('["a  b", "", "c", "d"]', 2)
    assert texts == ("a b", "c")
    assert [refusal.cause for refusal in refused] == ["it is no text", "only 2 experiences were asked for"]


@given(st.text())
def test_no_answer_is_a_crash(answer: str) -> None:
    read_operations(answer)
    read_experiences(answer, 2)
