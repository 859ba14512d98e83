import pytest

from mas.core.messages import Action, Failure, Feedback, Note, Plan, Verdict
from mas.core.role import Role, RoleSpec
from mas.roles import build_role


def role(**spec: object) -> Role:
    return build_role("r", RoleSpec.model_validate({"type": "executor"} | spec))


@pytest.mark.parametrize(
    ("kind", "payload"),
    [("agent", Note), ("planner", Plan), ("executor", Action), ("feedback", Feedback)],
)
def test_every_type_emits_its_kind_with_the_stripped_text(kind: str, payload: type) -> None:
    assert role(type=kind).parse(" some text\n") == payload(text="some text")


def test_emits_changes_the_kind() -> None:
    assert role(type="agent", emits="action").parse("x") == Action(text="x")


def test_the_answer_group_of_a_pattern_is_the_parsed_text() -> None:
    assert role(pattern=r".*=(?P<answer>\d+)").parse("2+2=4") == Action(text="4")


def test_the_whole_text_must_match_the_pattern() -> None:
    failure = role(pattern=r"\d+").parse(" 4 apples ")
    assert isinstance(failure, Failure)
    assert failure.text == " 4 apples "
    assert "pattern" in failure.cause


def test_an_answer_group_that_took_no_part_is_a_failure_and_no_crash() -> None:
    assert isinstance(role(pattern=r"(?P<answer>\d+)?x?", choices=("1",)).parse("x"), Failure)


def test_choices_are_checked_after_the_pattern_took_the_answer() -> None:
    spelled = role(pattern=r"go (?P<answer>\w+)", choices=("N", "S"), max_tokens=5)
    assert spelled.parse("go NS") == Action(text="NS")
    assert "'E'" in str(getattr(spelled.parse("go NE"), "cause", None))


def test_one_token_answers_must_be_exactly_one_choice() -> None:
    assert role(choices=("N", "S"), max_tokens=1).parse("N") == Action(text="N")
    assert isinstance(role(choices=("N", "S"), max_tokens=1).parse("NS"), Failure)


def test_longer_choices_are_never_spelled() -> None:
    assert isinstance(role(choices=("left", "right"), max_tokens=9).parse("leftright"), Failure)


def test_mixed_choices_are_never_spelled() -> None:
    assert isinstance(role(choices=("a", "bc"), max_tokens=9).parse("aa"), Failure)


@pytest.mark.parametrize(
    ("spec", "said", "answer"),
    [
        ({"choices": ("N", "S"), "max_tokens": 64}, "N", "N"),
        ({"pattern": r"MOVE (?P<answer>\w+)"}, "MOVE up", "up"),
        ({}, "Go </think> up.", "Go </think> up."),
        ({"type": "verifier"}, "accept", "accept"),
    ],
)
def test_a_closed_block_of_thought_before_the_answer_is_no_part_of_it(
    spec: dict[str, object], said: str, answer: str
) -> None:
    assert role(**spec).parse(f"\n<think>\nThey said S.\n</think>\n\n{said}\n").content == answer
    assert role(**spec).parse(f"<think></think>{said}").content == answer


@pytest.mark.parametrize("text", ["<think>N</think>", "<think>N", "<think>so</think> no <think>so</think> N"])
def test_a_thought_alone_or_one_without_end_or_within_the_answer_is_read_as_it_stands(text: str) -> None:
    assert role(choices=("N", "S"), max_tokens=64).parse(text).content != "N"
    failure = role().parse("<think>N</think> ")
    assert failure == Failure(text="<think>N</think> ", cause="empty")


def test_a_pattern_that_asks_for_a_thought_reads_it() -> None:
    asking = role(pattern=r"<think>.+</think>\s*(?P<answer>.+)")
    assert asking.parse("<think>so</think> N") == Action(text="N")
    assert isinstance(asking.parse("N"), Failure)


def test_an_empty_text_is_a_failure() -> None:
    assert role().parse("  ") == Failure(text="  ", cause="empty")


@pytest.mark.parametrize(
    ("text", "accept"),
    [("ok", True), ("OK.", True), ("Ok, since", True), ('"ok"', True), ("not ok", False), ("Not OK: x", False)],
)
def test_a_verifier_reads_the_longest_answer_that_the_text_begins_with(text: str, accept: bool) -> None:
    verifier = role(type="verifier", accept_text="ok", reject_text="not ok")
    assert verifier.parse(text) == Verdict(text=text, accept=accept)
    assert role(type="verifier", accept_text="not", reject_text="not ok").parse("not ok") == Verdict(
        text="not ok", accept=False
    )


@pytest.mark.parametrize("text", ["okay", "is ok", "1"])
def test_a_verifier_fails_on_other_words_and_the_failure_is_a_rejection(text: str) -> None:
    failure = role(type="verifier", accept_text="ok", reject_text="no").parse(text)
    assert isinstance(failure, Failure)
    assert failure.route == "reject"


def test_answers_made_of_marks_can_be_told_apart() -> None:
    marks = role(type="verifier", accept_text="*", reject_text="**")
    assert marks.parse("*") == Verdict(text="*", accept=True)
    assert marks.parse("**") == Verdict(text="**", accept=False)


def test_the_failure_route_of_a_verifier_can_be_changed() -> None:
    assert role(type="verifier", failure_route="accept").parse("hm").route == "accept"


def test_roles_without_routes_fail_on_no_route() -> None:
    assert role().parse("").route is None
