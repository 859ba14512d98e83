"""A role that is a prompt and a parser: all built-in roles, and the base of users' own."""

import json
import re
from collections.abc import Sequence
from typing import ClassVar

import msgspec

from mas.core.engine import Grammar, why_invalid_grammar
from mas.core.environment import Observation
from mas.core.errors import ConfigError
from mas.core.messages import PAYLOADS, Failure, Items, Payload, RoutedText, Text
from mas.core.naming import did_you_mean
from mas.core.role import (
    ANSWER,
    CALL,
    EXPERIENCES,
    USUAL_ITEMS,
    EarlierCall,
    Message,
    RoleSpec,
    Template,
    View,
    parse_template,
)
from mas.roles.chat import (
    NOTHING_SEEN,
    choices_rule,
    kind_rule,
    learned,
    list_rule,
    seen_text,
    tools_section,
    written_call,
)

_MARK = re.compile(r"\s*(?:[-*•]|\d+[.)])\s+")
NOTHING = "none"
"""The answer that is an empty list."""


def listed(text: str) -> tuple[str, ...]:
    """The items of a text: one per line, without the mark or number that it may begin with; `none` alone has none."""
    lines = (_MARK.sub("", line, count=1).strip() for line in text.splitlines() if line.strip())
    items = tuple(line for line in lines if line)
    return () if [item.strip(".").casefold() for item in items] == [NOTHING] else items


_THOUGHT = re.compile(r"\s*<think>.*?</think>", re.DOTALL)


def answer_text(begun: str, answer: Payload) -> str:
    """An earlier answer of a role as its own message in a conversation, without a `<think>` block; empty where nothing
    was said.

    Args:
        begun: how the answer was begun for it.
    """
    said = answer.text if isinstance(answer, Failure) else answer.content
    text = without_thought(said if answer.raw is None else answer.raw)
    return f"{begun}{text}".strip() if text.strip() else ""


def without_thought(text: str) -> str:
    """The text without a closed `<think>` block that it begins with."""
    thought = _THOUGHT.match(text)
    return text[thought.end() if thought else 0 :]


class PromptedRole:
    """Turns a view into a prompt and a text into a payload, as its `RoleSpec` says.

    A subclass changes the class attributes, and `answer` where its payload is not one plain text.

    Attributes:
        default_emits, default_accepts, default_routes: where the spec does not say.
        emittable: kinds that `answer` can build.
        duty: instructions where the spec has none.
        default_failure_route: route of output that does not parse, where the spec does not say.
    """

    default_emits: ClassVar[str] = "note"
    default_accepts: ClassVar[frozenset[str]] = frozenset(PAYLOADS)
    default_routes: ClassVar[tuple[str, ...]] = ()
    default_failure_route: ClassVar[str | None] = None
    emittable: ClassVar[frozenset[str]] = frozenset({"note", "plan", "action", "feedback", "items"})
    duty: ClassVar[str] = "Do your part of the task."

    def __init__(self, name: str, spec: RoleSpec) -> None:
        """Check what the spec asks of this role.

        Raises:
            ConfigError: it cannot be honoured.
        """
        self.name = name
        self.spec = spec
        self.emits: str = spec.emits or self.default_emits
        self.accepts: frozenset[str] = frozenset(spec.accepts or self.default_accepts) | {Failure.kind}
        self._calls = bool(spec.server_tools) and self.emits != Items.kind  # each item of a list may be a call
        self.routes: tuple[str, ...] = self.default_routes or ((CALL, ANSWER) if self._calls else ())
        usual = ANSWER if self._calls else None
        self.failure_route: str | None = spec.failure_route or self.default_failure_route or usual
        self._template: Template | None = None if spec.template is None else parse_template(spec.template)
        self._ask: Template | None = None if spec.ask is None else parse_template(spec.ask)
        self._prefill: Template = parse_template(spec.prefill)
        self._pattern = None if spec.pattern is None else re.compile(spec.pattern)
        self._asks_thought = "<think>" in (spec.pattern or "")
        self._check()

    @property
    def choices(self) -> tuple[str, ...]:
        """The legal outputs (or tokens, where one output has several); empty where any text may be legal."""
        return self.spec.choices

    @property
    def max_items(self) -> int:
        """The most items of a list that it emits."""
        return self.spec.max_items or USUAL_ITEMS

    @property
    def is_spelled(self) -> bool:
        """Whether an output may be several choices in a row: all are single characters and there is room for more."""
        return self.spec.max_tokens > 1 and all(len(choice) == 1 for choice in self.choices)

    def visible(self, view: View) -> tuple[Message, ...]:
        """The messages that the role's context policy shows, oldest first."""
        if self.spec.context == "none":
            return ()
        if self.spec.context == "turn":
            return view.messages
        last = {message.sender: index for index, message in enumerate(view.messages)}
        return tuple(view.messages[index] for index in sorted(last.values()))

    def prompt(self, view: View) -> str:
        """The compact prompt: the template filled, or one line per experience, field and message.

        Raises:
            ConfigError: the template reads a field that the observation does not have.
        """
        messages = self.visible(view)
        fields = view.observation.fields
        if self._template is None:
            lines = [f"{name}: {value}" for name, value in fields.items()]
            lines += [f"{message.sender}: {message.payload.content}" for message in messages]
            return "\n".join([*self.spec.experiences, *tools_section(self.spec.server_tools), *lines, f"{self.name}:"])
        return self._filled(self._template, view, self.spec.experiences)

    def chat(self, view: View) -> tuple[str, str]:
        """System and user message.

        The system message, which may be empty, is `instructions`, what it has learned and its tools; without
        instructions who it is and its duty. The user message is `ask`, filled, or what it sees, and then how an answer
        must look: with `ask` what `format` says. Behind an earlier call of the same team turn that `earlier` shows, a
        user message without `ask` has only what is new.

        Raises:
            ConfigError: `ask` reads a field that the observation does not have.
        """
        instructions, experiences = self.spec.instructions.strip(), self.spec.experiences
        if self._ask is not None:
            system = [instructions, *(() if EXPERIENCES in self._ask.names else learned(experiences))]
        else:
            system = [instructions or f"You are the {self.name}. {self.duty}", *learned(experiences)]
        earlier, is_placed = self._shown_past(view), self._ask is not None and EXPERIENCES in self._ask.names
        user = self._asked(view, earlier[-1] if earlier else None, experiences if is_placed else ())
        return "\n\n".join(text for text in (*system, *tools_section(self.spec.server_tools)) if text), user

    def earlier(self, view: View) -> tuple[tuple[str, str], ...]:
        """The user message of each earlier call that the spec shows, and the answer as it was said, oldest first.

        An answer begins with its `prefill` and has no `<think>` block; a call that has no answer is left out, and
        experiences stand in the last user message alone. Who overrides `chat` overrides this, too.

        Raises:
            ConfigError: as `chat` and `prefill`.
        """
        calls, said = self._shown_past(view), []
        for before, call in zip((None, *calls), calls, strict=False):
            said.append((self._asked(call.view, before, ()), answer_text(self.prefill(call.view), call.answer)))
        return tuple(said)

    def _shown_past(self, view: View) -> tuple[EarlierCall, ...]:
        """The earlier calls that stand in the conversation."""
        history, past = self.spec.history, view.past
        if not self.spec.shows_past:
            return ()
        if history is not None:
            past = past[-history:]
        else:
            in_turn = past[-len(view.own) :] if view.own else ()
            past = in_turn if self.spec.context == "turn" else in_turn[-1:]
        return tuple(call for call in past if answer_text("", call.answer))

    def _asked(self, view: View, before: EarlierCall | None, experiences: Sequence[str]) -> str:
        """The user message of a call. Without `ask`, one that is shown right behind the call before it, of the same
        team turn, has only what is new.

        Args:
            before: what is shown right before it.
        """
        if self._ask is not None:
            user = [self._filled(self._ask, view, experiences), self.spec.format]
        else:
            answered, fields = None if before is None else before.answer, view.observation.fields
            seen = seen_text(fields, self.visible(view), answered)
            if before is not None and view.own and (*before.view.own, before.answer) == view.own:
                new = msgspec.structs.replace(view, messages=view.messages[len(before.view.messages) :])
                seen = seen_text({}, self.visible(new), answered) or seen
            user = [seen, self.rule()]
        return "\n\n".join(text for text in user if text) or NOTHING_SEEN

    def prefill(self, view: View) -> str:
        """How the answer begins in a chat; empty where the spec does not say.

        Raises:
            ConfigError: it reads a field that the observation does not have.
        """
        return self._filled(self._prefill, view, ())

    def grammar(self, view: View) -> Grammar | None:
        """The texts that the output may be; behind a `prefill` one space may stand before them.

        Raises:
            ConfigError: `one_of` reads a field that the observation does not have, or lists nothing there.
        """
        constraint = self.spec.constraint
        if constraint is None:
            return None
        if constraint.json_schema is not None:
            return Grammar("schema", json.dumps(constraint.json_schema))
        regex = constraint.regex or "|".join(re.escape(text) for text in self._possible(constraint.one_of or (), view))
        if not regex:  # what a member of the team said lists nothing: any answer, which is then parsed as usual
            return None
        return Grammar("regex", f"( )?({regex})" if self.spec.prefill else regex)

    def _possible(self, one_of: str | tuple[str, ...], view: View) -> Sequence[str]:
        if not isinstance(one_of, str):
            return one_of
        template = parse_template(one_of)
        filled = self._filled(template, view, ())
        texts = [text.strip() for text in re.split(r",\s|\n", filled) if text.strip()]
        if not texts and not template.senders:
            raise ConfigError(f"role {self.name!r}: constraint.one_of {one_of!r} lists nothing where it is asked now")
        return texts

    def _filled(self, template: Template, view: View, experiences: Sequence[str]) -> str:
        contents = {message.sender: message.payload.content for message in self.visible(view)}
        own = view.own[-1].content if view.own else ""
        return template.fill(view.observation.fields, contents, own, experiences)

    def rule(self) -> str:
        """How an answer must look, as a sentence for the model: `format`, else what follows from the spec; empty where
        the instructions alone say it."""
        if self.spec.format:
            return self.spec.format
        if self.emits == Items.kind:
            return list_rule(self.max_items, self.choices)
        if self.choices:
            return choices_rule(self.choices, self.is_spelled)
        return "" if self.spec.instructions.strip() or self._pattern else kind_rule(self.emits)

    def parse(self, text: str) -> Payload:
        """The typed result of a model's text; a `Failure` where it is not legal.

        White space around it does not count, nor does a closed `<think>` block that it begins with, unless the
        `pattern` asks for one. A call of a tool is none of the answers that `pattern` and `choices` limit.
        """
        call = written_call(without_thought(text)) if self._calls else None
        if call is not None:
            return PAYLOADS[self.emits].model_validate({"text": call, "chosen_route": CALL})
        payload = self._parsed(text)
        if self._calls and isinstance(payload, RoutedText):
            return payload.model_copy(update={"chosen_route": ANSWER})
        return payload

    def _parsed(self, text: str) -> Payload:
        answer = (text if self._asks_thought else without_thought(text)).strip()
        if self._pattern is not None:
            match = self._pattern.fullmatch(answer)
            if match is None:
                return self.failure(text, f"does not match the pattern {self.spec.pattern!r}")
            answer = match.groupdict(answer).get("answer", answer)
        elif not answer:
            return self.failure(text, "empty")
        cause = self._wrong_list(answer) if self.emits == Items.kind else self._illegal(answer)
        if cause:
            return self.failure(text, cause)
        payload = self.answer(answer)
        return payload.model_copy(update={"text": text}) if isinstance(payload, Failure) else payload

    def answer(self, text: str) -> Payload:
        """The payload of a legal text, or a failure. Roles that decide more than a text override it; never raises."""
        if self.emits == Items.kind:
            return Items(items=listed(text))
        kind = PAYLOADS[self.emits]
        assert issubclass(kind, Text)
        return kind(text=text)

    def failure(self, text: str, cause: str) -> Failure:
        """The record of a text that is not legal, on the role's failure route."""
        return Failure(text=text, cause=cause, chosen_route=self.failure_route)

    def _illegal(self, answer: str) -> str | None:
        choices = self.choices
        if not choices or answer in choices:
            return None
        if not self.is_spelled:
            return f"is none of the choices {list(choices)}"
        wrong = next((character for character in answer if character not in choices), None)
        if wrong is None and answer:
            return None
        return f"has {wrong!r}, which is none of the choices {list(choices)}" if wrong else "empty"

    def _wrong_list(self, answer: str) -> str | None:
        items = listed(answer)
        if len(items) > self.max_items:
            return f"has {len(items)} items, at most {self.max_items} are allowed"
        return next((cause for cause in map(self._illegal, items) if cause), None)

    def _check(self) -> None:
        where = f"role {self.name!r} of type {self.spec.type!r}"
        if self._calls and (self.default_routes or not issubclass(PAYLOADS[self.emits], RoutedText)):
            raise ConfigError(
                f"{where} has tools, and emits {self.emits!r} by rules of its own: give another role tools"
            )
        if self.spec.max_items is not None and self.emits != Items.kind:
            raise ConfigError(f"{where} has max_items, but emits {self.emits!r}; only 'items' has any")
        if self.emits not in self.emittable:
            raise ConfigError(f"{where} cannot emit {self.emits!r}. {did_you_mean(self.emits, self.emittable)}")
        if self.failure_route is not None and self.failure_route not in self.routes:
            raise ConfigError(
                f"{where} has no route {self.failure_route!r} that a failure could take. "
                f"{did_you_mean(self.failure_route, self.routes)}"
            )
        for field, text in self.spec.templates.items():
            senders = parse_template(text).senders
            if senders and self.spec.context == "none":
                raise ConfigError(
                    f"{where} reads {{from.{senders[0]}}} in its {field}, but its context is 'none', "
                    "which shows no messages; use 'inbox' or 'turn'"
                )
        constraint = self.spec.constraint
        if constraint is not None and not isinstance(constraint.one_of, str):
            grammar = self.grammar(View(observation=Observation({})))
            if grammar is not None and (cause := why_invalid_grammar(grammar)):
                raise ConfigError(
                    f"{where} has constraint {grammar.kind} {grammar.text!r}, which cannot be used: {cause}"
                )
        if "" in self.spec.choices:
            raise ConfigError(f"{where} lists an empty choice; every choice needs at least one character")
