"""The contract suite of roles: derive from `RoleContract` in a test module and say how to make the role.

    class TestMyRole(RoleContract):
        def make_role(self) -> Role: ...

Needs pytest and hypothesis, which `pip install 'mas[test]'` brings.
"""

from collections.abc import Iterable

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mas.core.environment import Observation
from mas.core.messages import PAYLOADS, Action, Failure, Feedback, Note, Payload, Plan, Verdict
from mas.core.role import EarlierCall, Message, Role, RoleSpec, View

_SHARED = settings(suppress_health_check=[HealthCheck.differing_executors], deadline=None, max_examples=60)
_HEARD: tuple[Payload, ...] = (
    Note(text="note"),
    Plan(text="plan"),
    Action(text="action"),
    Verdict(text="accept", accept=True),
    Feedback(text="feedback"),
    Failure(text="raw output of a model", cause="empty"),
)


class RoleContract:
    """What every role must hold. Override `make_role`, and the other three where the defaults do not fit."""

    def make_role(self) -> Role:
        """A fresh role, equal each time."""
        raise NotImplementedError("return the role under test from make_role")

    def fields(self) -> dict[str, str]:
        """An observation that has every field the template reads."""
        return {"task": "Two plus two?", "board": "A.B\n..C"}

    def legal(self) -> Iterable[str]:
        """Texts that must parse."""
        return ()

    def illegal(self) -> Iterable[str]:
        """Texts that must not parse."""
        return ()

    def views(self) -> tuple[View, ...]:
        """Views with nothing heard, with one message of every accepted kind, and with two rounds of them."""
        role = self.make_role()
        observation = Observation(self.fields())
        heard = tuple(Message(f"a_{p.kind}", p) for p in _HEARD if p.kind in role.accepts)
        said = Note(text="first"), Note(text="second")
        first = View(observation=observation, messages=heard)
        second = View(observation=observation, messages=heard, own=said[:1])
        return (
            View(observation=observation),
            first,
            View(
                observation=observation,
                messages=heard * 2,
                own=said,
                past=(EarlierCall(first, said[0]), EarlierCall(second, said[1])),
            ),
        )

    def test_a_role_satisfies_the_protocol(self) -> None:
        role = self.make_role()
        assert isinstance(role, Role)
        assert role.name
        assert isinstance(role.spec, RoleSpec)

    def test_kinds_exist_and_a_failure_is_always_accepted(self) -> None:
        role = self.make_role()
        assert role.emits in PAYLOADS
        assert role.accepts <= PAYLOADS.keys()
        assert Failure.kind in role.accepts

    def test_routes_are_distinct_names(self) -> None:
        routes = self.make_role().routes
        assert len(set(routes)) == len(routes)
        assert all(routes)

    def test_equal_views_give_equal_prompts(self) -> None:
        role = self.make_role()
        for view, again in zip(self.views(), self.views(), strict=True):
            first = _texts(role, view)
            for other in reversed(self.views()):
                _texts(role, other)
                role.parse("something else")
            assert _texts(role, again) == first
            assert _texts(self.make_role(), view) == first

    def test_an_earlier_call_is_shown_as_it_was_asked(self) -> None:
        role = self.make_role()
        if role.spec.experiences:
            return  # which may stand in the last message alone
        for view in self.views():
            if earlier := role.earlier(view):
                assert earlier[0][0] in [role.chat(call.view)[1] for call in view.past]

    def test_prompting_changes_no_view(self) -> None:
        role = self.make_role()
        for view, untouched in zip(self.views(), self.views(), strict=True):
            role.prompt(view)
            role.chat(view)
            assert view == untouched

    def test_prompts_are_text(self) -> None:
        role = self.make_role()
        for view in self.views():
            system, user = role.chat(view)
            assert all(asked and isinstance(answer, str) for asked, answer in role.earlier(view))
            assert role.prompt(view)
            assert isinstance(system, str)
            assert user
            assert isinstance(role.prefill(view), str)

    def test_the_raw_output_of_a_failed_sender_stays_out_of_prompts(self) -> None:
        role = self.make_role()
        for view in self.views():
            assert "raw output of a model" not in "\n".join(_texts(role, view))

    @_SHARED
    @given(text=st.text())
    def test_parsing_any_text_never_raises_and_keeps_what_was_said(self, text: str) -> None:
        self.check_parsed(self.make_role(), text)

    @_SHARED
    @given(text=st.text(alphabet="aAcCeEpPtTrRjJyYnN019 .:,+-\n", max_size=24))
    def test_parsing_near_answers_never_raises_either(self, text: str) -> None:
        self.check_parsed(self.make_role(), text)

    def test_legal_texts_parse_to_the_emitted_kind(self) -> None:
        role = self.make_role()
        for text in self.legal():
            payload = role.parse(text)
            assert payload.kind == role.emits, (text, payload)
            self.check_parsed(role, text)

    def test_surrounding_white_space_changes_nothing(self) -> None:
        role = self.make_role()
        for text in self.legal():
            assert role.parse(f"\n  {text} \n") == role.parse(text)

    def test_illegal_texts_become_failures(self) -> None:
        role = self.make_role()
        for text in self.illegal():
            assert isinstance(role.parse(text), Failure), text

    def check_parsed(self, role: Role, text: str) -> None:
        """One parsed text: of the emitted kind or a failure with text and cause, on a route of the role, repeatable."""
        payload = role.parse(text)
        assert role.parse(text) == payload
        assert payload.kind in (role.emits, Failure.kind)
        if isinstance(payload, Failure):
            assert payload.text == text
            assert payload.cause
        assert payload.route is None or payload.route in role.routes
        if role.routes and not isinstance(payload, Failure):
            assert payload.route in role.routes


def _texts(role: Role, view: View) -> list[str]:
    """All that a model is asked."""
    said = [text for call in role.earlier(view) for text in call]
    return [role.prompt(view), *role.chat(view), *said, role.prefill(view)]
