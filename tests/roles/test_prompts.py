import msgspec
import pytest

from mas.core.environment import Observation
from mas.core.errors import ConfigError
from mas.core.messages import Action, Failure, Feedback, Items, Payload, Plan
from mas.core.role import EarlierCall, Message, RoleSpec, View
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


def test_the_chat_prompt_holds_instructions_how_to_answer_and_what_is_seen() -> None:
    role = build_role(
        "executor", RoleSpec(type="executor", instructions="Walk to B.", choices=("N", "S"), max_tokens=4)
    )
    seen = view(("planner", Plan(text="go\nnorth")), grid="A.\n.B", goal="B")
    assert role.chat(seen) == (
        "Walk to B.",
        "grid:\nA.\n.B\ngoal: B\nplanner says:\ngo\nnorth\n\n"
        "Answer with these characters only, one or more in a row: N S",
    )
    assert role.earlier(seen) == ()


def test_what_is_empty_is_left_out_of_the_chat_prompt() -> None:
    seen = view(("planner", Plan(text=" ")), history="", x="1")
    assert build_role("agent", RoleSpec(instructions="Do it.")).chat(seen)[1] == "x: 1"
    assert build_role("agent", RoleSpec(instructions="Do it.")).chat(view(history=""))[1] == "What is your answer?"


def test_answers_that_did_not_parse_are_named_in_the_chat_prompt_without_their_text() -> None:
    failure = Failure(text="rubbish", cause="empty")
    assert build_role("agent", RoleSpec(instructions="Do it.")).chat(view(("planner", failure)))[1] == (
        "The answer of planner could not be read."
    )


def test_context_none_hides_messages_and_own_outputs_from_the_chat_prompt() -> None:
    seen = view(("planner", Plan(text="p")), own=(Action(text="S"),), x="1")
    assert build_role("r", RoleSpec(instructions="Do it.", context="none")).chat(seen)[1] == "x: 1"


def asked_thrice(*answers: Payload) -> View:
    """Before a third call in one team turn, each with a message more."""
    heard = [("critic", Feedback(text=text)) for text in ("warm", "warmer", "hot")]
    first, second, third = (view(*heard[: n + 1], own=answers[:n], x="1") for n in range(3))
    past = (EarlierCall(first, answers[0]), EarlierCall(second, answers[1]))
    return msgspec.structs.replace(third, past=past)


SAID = Action(text="first"), Action(text="second")


def conversation(seen: View, **spec: object) -> list[str]:
    """The user's and the model's messages, the user's without their last paragraph."""
    role = build_role("r", RoleSpec.model_validate({"instructions": "Do it."} | spec))
    said = [text for call in role.earlier(seen) for text in call]
    return [*said, role.chat(seen)[1]]


def test_earlier_calls_of_a_team_turn_are_messages_of_their_own_and_later_ones_say_what_is_new() -> None:
    seen = asked_thrice(*SAID)
    assert conversation(seen, context="turn") == [
        "x: 1\ncritic says: warm",
        "first",
        "critic says: warmer",
        "second",
        "critic says: hot",
    ]
    assert conversation(seen) == ["x: 1\ncritic says: warmer", "second", "critic says: hot"]
    assert conversation(seen, context="none") == ["x: 1"]
    assert conversation(seen, history=0) == ["x: 1\ncritic says: hot"]


def test_a_form_of_answers_is_repeated_in_every_message() -> None:
    assert conversation(asked_thrice(*SAID), format="One word.")[1:] == ["second", "critic says: hot\n\nOne word."]


def test_what_was_asked_in_earlier_team_turns_is_shown_whole() -> None:
    earlier = EarlierCall(view(("critic", Feedback(text="cold")), x="0"), Action(text="zero"))
    now = view(("critic", Feedback(text="cold")), x="1")
    assert conversation(msgspec.structs.replace(now, past=(earlier,)), history=3) == [
        "x: 0\ncritic says: cold",
        "zero",
        "x: 1\ncritic says: cold",
    ]
    assert conversation(msgspec.structs.replace(now, past=(earlier,)), context="turn") == ["x: 1\ncritic says: cold"]


def test_as_many_earlier_calls_are_shown_as_the_history_says() -> None:
    seen = asked_thrice(*SAID)
    ask = {"ask": "{x}, {from.critic}, {self}?", "format": "A word."}
    assert conversation(seen, **ask) == ["1, hot, second?\n\nA word."]
    assert conversation(seen, history=1, **ask) == [
        "1, warmer, first?\n\nA word.",
        "second",
        "1, hot, second?\n\nA word.",
    ]
    assert conversation(seen, history=9, **ask)[:2] == ["1, warm, ?\n\nA word.", "first"]
    assert len(conversation(seen, history=9, **ask)) == 5


def test_an_earlier_answer_begins_as_it_was_begun() -> None:
    spec = {"ask": "{from.critic}?", "prefill": "After {from.critic} I say", "history": 2}
    said = asked_thrice(Action(text="first", raw=" First!"), Action(text="second", raw=" second"))
    assert conversation(said, **spec)[1::2] == ["After warm I say First!", "After warmer I say second"]


@pytest.mark.parametrize(
    ("answer", "shown"),
    [
        (Items(items=("a", "b"), raw="a\nb"), "a\nb"),
        (Items(items=(), raw="none"), "none"),
        (Action(text="42", raw="<think>six</think>It is 6*7. #### 42"), "It is 6*7. #### 42"),
        (Action(text="42"), "42"),
    ],
)
def test_an_earlier_answer_is_what_the_model_said_without_its_thoughts(answer: Payload, shown: str) -> None:
    assert conversation(asked_thrice(SAID[0], answer))[1] == shown


def test_calls_without_an_answer_are_left_out_and_the_next_message_is_whole() -> None:
    nothing = Failure(text="", cause="EngineError: gone")
    assert conversation(asked_thrice(SAID[0], nothing), context="turn") == [
        "x: 1\ncritic says: warm",
        "first",
        "x: 1\ncritic says: warm\ncritic says: warmer\ncritic says: hot",
    ]


def test_a_message_without_anything_new_says_again_what_is_seen() -> None:
    assert conversation(asked_thrice(*SAID), context="none", history=1) == ["x: 1", "second", "x: 1"]


def test_experiences_that_are_placed_stand_in_the_last_message_alone() -> None:
    spec = {"ask": "{experiences}{x}?", "history": 2, "experiences": ("Look first.",)}
    assert conversation(asked_thrice(*SAID), **spec) == ["1?", "first", "1?", "second", "Look first.\n1?"]


def test_an_earlier_answer_that_could_not_be_read_is_shown_as_it_was_said_and_named() -> None:
    failure = Failure(text="<think>hm</think> rubbish ", cause="no")
    assert conversation(asked_thrice(SAID[0], failure)) == [
        "x: 1\ncritic says: warmer",
        "rubbish",
        "Your answer could not be read.\ncritic says: hot",
    ]


def test_a_history_below_zero_is_refused() -> None:
    with pytest.raises(ValueError, match="history"):
        RoleSpec.model_validate({"history": -1})


@pytest.mark.parametrize(
    ("spec", "rule"),
    [
        ({"choices": ("N", "S"), "max_tokens": 1}, "Answer with exactly one of these and nothing else:\nN\nS"),
        ({"choices": ("ab",), "pattern": "ab"}, "Answer with exactly one of these and nothing else:\nab"),
        ({"choices": ("a",), "format": "Example: a"}, "Example: a"),
        ({"pattern": "[0-9]+", "format": "Answer with a number."}, "Answer with a number."),
        ({"type": "planner", "emits": "items", "format": "A row of digits."}, "A row of digits."),
        ({"type": "verifier"}, "Begin your answer with 'accept' if it is right, or with 'reject' if it is not."),
        (
            {"type": "verifier", "choices": ("accept", "reject")},
            "Begin your answer with 'accept' if it is right, or with 'reject' if it is not.",
        ),
        ({"type": "verifier", "format": "Yes or no."}, "Yes or no."),
    ],
)
def test_the_user_message_ends_with_which_answers_are_legal(spec: dict[str, object], rule: str) -> None:
    role = build_role("r", RoleSpec.model_validate({"instructions": "Do it."} | spec))
    assert role.chat(view(x="1")) == ("Do it.", f"x: 1\n\n{rule}")


@pytest.mark.parametrize("spec", [{"instructions": "Think step by step."}, {"pattern": "(?s).*[0-9]+"}])
def test_where_instructions_or_a_pattern_say_the_form_nothing_contradicts_them(spec: dict[str, object]) -> None:
    system, user = build_role("r", RoleSpec.model_validate({"type": "executor"} | spec)).chat(view(x="1"))
    assert "only" not in system
    assert user == "x: 1"


def test_a_verifier_whose_instructions_name_both_words_is_told_them_once() -> None:
    spec = RoleSpec(type="verifier", instructions="Say y if it is open, else n.", accept_text="y", reject_text="n")
    assert build_role("r", spec).chat(view(x="1")) == ("Say y if it is open, else n.", "x: 1")
    half = spec.model_copy(update={"instructions": "Say y if it is open, else nothing."})
    assert "'n' if it is not" in build_role("r", half).chat(view())[1]


def test_without_instructions_the_model_is_told_its_name_duty_and_kind_of_answer() -> None:
    assert build_role("walker", RoleSpec(type="executor")).chat(view(x="1")) == (
        "You are the walker. Carry out the plan. If an earlier action of yours was criticised, correct it.",
        "x: 1\n\nAnswer with the action only.",
    )


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
    formal = build_role("seller", RoleSpec.model_validate(ASKS | {"format": "One digit.", "choices": ["1", "2"]}))
    assert formal.chat(ASKED)[1] == "Prices: milk 3, tea 4. What is the price of milk?\n\nOne digit."


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
