import pytest

from mas.core.environment import Observation
from mas.core.errors import ConfigError
from mas.core.messages import Action, Failure, Feedback, Payload, Plan
from mas.core.role import Message, View
from mas.core.team import RoleSpec
from mas.roles import PromptedRole, build_role


def view(*messages: tuple[str, Payload], own: tuple[Payload, ...] = (), **fields: str) -> View:
    heard = tuple(Message(sender, payload) for sender, payload in messages)
    return View(observation=Observation(fields), messages=heard, own=own)


def prompt_of(template: str, seen: View, *, context: str = "inbox") -> str:
    return build_role("r", RoleSpec.model_validate({"template": template, "context": context})).prompt(seen)


def test_a_template_reads_fields_messages_and_its_own_last_output() -> None:
    seen = view(
        ("planner", Plan(text="old")), ("planner", Plan(text="new")), own=(Action(text="a"), Action(text="b")), x="1"
    )
    assert prompt_of("{x}|{from.planner}|{self}>", seen) == "1|new|b>"


def test_what_was_not_said_reads_as_nothing() -> None:
    assert prompt_of("[{from.planner}][{self}]", view()) == "[][]"


def test_doubled_braces_are_literal() -> None:
    assert prompt_of("{{x}} {x} }}{{", view(x="1")) == "{x} 1 }{"


def test_a_field_is_never_evaluated_or_filled_twice() -> None:
    assert prompt_of("{x}", view(x="{y} {self} {{", y="secret")) == "{y} {self} {{"


@pytest.mark.parametrize("template", ["{x!r}", "{x[0]}", "{x:>9}", "{}", "{ x }", "{x.}"])
def test_formatting_tricks_are_refused(template: str) -> None:
    with pytest.raises(ConfigError, match="which is no name"):
        prompt_of(template, view(x="1"))


@pytest.mark.parametrize(("template", "at"), [("a { b", 2), ("a}", 1), ("{{}", 2)])
def test_a_single_brace_is_refused_with_its_place(template: str, at: int) -> None:
    with pytest.raises(ConfigError, match=f"single .* at {at}"):
        prompt_of(template, view())


def test_a_dotted_name_is_a_field_and_no_attribute() -> None:
    with pytest.raises(ConfigError, match=r"reads \{x.__class__\}"):
        prompt_of("{x.__class__}", view(x="1"))


def test_an_unknown_field_names_the_possible_ones() -> None:
    with pytest.raises(
        ConfigError,
        match=r"\{gaol\}.*Did you mean 'goal'\? Possible: 'experiences', 'from.AGENT', 'goal', 'grid', 'self'",
    ):
        prompt_of("{gaol}", view(goal="B", grid="..."))


def test_a_failed_message_reads_as_a_question_mark() -> None:
    assert prompt_of("{from.planner}", view(("planner", Failure(text="rubbish", cause="empty")))) == "?"


def test_without_a_template_the_prompt_lists_all_that_is_seen() -> None:
    assert (
        build_role("solver", RoleSpec()).prompt(view(("planner", Plan(text="p")), x="1", y="2"))
        == "x: 1\ny: 2\nplanner: p\nsolver:"
    )


def test_the_inbox_shows_the_last_message_of_each_sender_in_order_of_arrival() -> None:
    seen = view(("a", Plan(text="1")), ("b", Plan(text="2")), ("a", Plan(text="3")))
    assert [m.payload.content for m in PromptedRole("r", RoleSpec(context="inbox")).visible(seen)] == ["2", "3"]
    assert [m.payload.content for m in PromptedRole("r", RoleSpec(context="turn")).visible(seen)] == ["1", "2", "3"]
    assert PromptedRole("r", RoleSpec(context="none")).visible(seen) == ()


def test_a_template_that_reads_messages_its_context_hides_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"from.planner.*context is 'none'"):
        prompt_of("{from.planner}", view(), context="none")


def test_the_chat_prompt_holds_duty_situation_messages_and_how_to_answer() -> None:
    role = build_role(
        "executor", RoleSpec(type="executor", instructions="Walk to B.", choices=("N", "S"), max_tokens=4)
    )
    seen = view(("planner", Plan(text="go\nnorth")), own=(Action(text="S"),), grid="A.\n.B", goal="B")
    system, user = role.chat(seen)
    assert system == (
        "You are the executor in a team of language-model agents.\n\nWalk to B.\n\n"
        "Answer with these characters only, one or more in a row: N S"
    )
    assert user == (
        "Situation:\ngrid:\nA.\n.B\ngoal: B\n\nMessages from your team:\nplanner (plan):\ngo\nnorth\n\n"
        "Your earlier answer:\nS\n\nYour answer:"
    )


def test_sections_without_content_are_left_out_of_the_chat_prompt() -> None:
    assert build_role("agent", RoleSpec()).chat(view())[1] == "Your answer:"


def test_context_none_hides_messages_and_own_outputs_from_the_chat_prompt() -> None:
    seen = view(("planner", Plan(text="p")), own=(Action(text="S"),), x="1")
    assert build_role("r", RoleSpec(context="none")).chat(seen)[1] == "Situation:\nx: 1\n\nYour answer:"


def test_context_turn_shows_all_own_outputs_and_inbox_the_last() -> None:
    seen = view(own=(Action(text="first"), Action(text="second")))
    assert "first" in build_role("r", RoleSpec(context="turn")).chat(seen)[1]
    assert "first" not in build_role("r", RoleSpec(context="inbox")).chat(seen)[1]


@pytest.mark.parametrize(
    ("spec", "rule"),
    [
        (RoleSpec(type="executor", choices=("N", "S"), max_tokens=1), "exactly one of these and nothing else:\nN\nS"),
        (
            RoleSpec(type="executor", choices=("up", "down"), max_tokens=9),
            "exactly one of these and nothing else:\nup\ndown",
        ),
        (RoleSpec(type="executor", pattern="[0-9]+"), "regular expression: [0-9]+"),
        (RoleSpec(type="planner"), "the plan only"),
        (
            RoleSpec(type="verifier", accept_text="y", reject_text="n"),
            "Answer 'y' if it is right and 'n' if it is not.",
        ),
    ],
)
def test_the_chat_prompt_says_which_answers_are_legal(spec: RoleSpec, rule: str) -> None:
    assert rule in build_role("r", spec).chat(view())[0]


def test_a_role_without_instructions_is_told_the_duty_of_its_type() -> None:
    for kind, word in (("planner", "plan"), ("executor", "Carry out"), ("verifier", "Check"), ("feedback", "wrong")):
        assert word in build_role("r", RoleSpec(type=kind)).chat(view(("f", Feedback(text="x"))))[0]


ASKS = {
    "instructions": "You sell things.",
    "ask": "Prices: {prices}. What is the price of {from.customer}?",
    "prefill": "The {thing} costs",
}
ASKED = view(("customer", Plan(text="milk")), prices="milk 3, tea 4", thing="milk")


def test_with_ask_the_user_message_is_that_question_and_the_system_message_the_instructions_alone() -> None:
    role = build_role("seller", RoleSpec.model_validate(ASKS))
    assert role.chat(ASKED) == ("You sell things.", "Prices: milk 3, tea 4. What is the price of milk?")
    assert role.prefill(ASKED) == "The milk costs"
    silent = build_role("seller", RoleSpec.model_validate(ASKS | {"instructions": ""}))
    assert silent.chat(ASKED)[0] == ""


def test_without_prefill_an_answer_begins_with_nothing() -> None:
    assert build_role("seller", RoleSpec()).prefill(ASKED) == ""


@pytest.mark.parametrize(
    ("ask", "system", "user"),
    [
        (
            "{thing}?",
            "You sell things.\n\nWhat earlier attempts at such tasks have taught you:\n[G0] Be kind.",
            "milk?",
        ),
        ("{experiences}{thing}?", "You sell things.", "Be kind.\nmilk?"),
    ],
)
def test_experiences_stand_where_ask_has_them_or_behind_the_instructions(ask: str, system: str, user: str) -> None:
    spec = RoleSpec.model_validate({"instructions": "You sell things.", "ask": ask, "experiences": ["Be kind."]})
    assert build_role("seller", spec).chat(ASKED) == (system, user)


@pytest.mark.parametrize("field", ["ask", "prefill"])
def test_ask_and_prefill_are_checked_like_templates(field: str) -> None:
    role = build_role("seller", RoleSpec.model_validate({field: "{pice}"}))
    with pytest.raises(ConfigError, match=r"reads \{pice\}"):
        role.chat(ASKED) if field == "ask" else role.prefill(ASKED)
    with pytest.raises(ConfigError, match=rf"reads \{{from\.customer\}} in its {field}, but its context is 'none'"):
        build_role("seller", RoleSpec.model_validate({field: "{from.customer}", "context": "none"}))
