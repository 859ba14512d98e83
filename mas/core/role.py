"""A role, as data and as a contract: a view becomes a prompt, a text becomes a typed payload.

And the templates of prompts: text with `{field}`, `{from.AGENT}`, `{self}`, `{experiences}`; nothing that could be
evaluated. The graph checks what a template reads against who sends, so they are below the roles' classes.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Protocol, Self, runtime_checkable

import msgspec
from pydantic import Field, model_validator

from mas.core.engine import Grammar
from mas.core.environment import Observation
from mas.core.errors import ConfigError
from mas.core.messages import PAYLOADS, Payload
from mas.core.naming import did_you_mean
from mas.core.options import Options
from mas.core.policy import Price
from mas.core.privilege import Privilege
from mas.core.remote_agent import RemoteAgent

USUAL_ITEMS = 8
"""The most items of a list where the role does not say."""
Context = Literal["inbox", "turn", "none"]
ALL_CALLS = 1_000_000
"""The `history` of a role that tools play: more calls than an episode has."""
CALL, ANSWER = "call", "answer"
"""The routes of a role with tools of servers: its output is a call of one, or anything else."""
ENVIRONMENT = "environment"
"""In place of a server's name: tools that the environment offers, which acts on calls of them."""
_NOT_SENT = (
    *("template", "prefill", "adapter", "peer", "temperature", "top_k", "top_p", "min_p", "constraint", "max_tokens"),
    "stop",
)
"""What an agent elsewhere (`a2a`) is not told of."""


class Constraint(Options):
    """The texts that a role's output may be; decoding draws no token that leads out of them. One of the three.

    Attributes:
        one_of: a list of texts; or one text with names as in a template, split at line ends and at commas
            before a space when it is filled, such as `"{names}"`.
        regex: what the whole output matches, without look-around and back references.
        json_schema: a JSON Schema, as a mapping.
    """

    one_of: tuple[str, ...] | str | None = None
    regex: str | None = None
    json_schema: dict[str, Any] | None = None

    @model_validator(mode="after")
    def _one(self) -> Self:
        named = [key for key in type(self).model_fields if getattr(self, key) is not None]
        if len(named) != 1:
            raise ValueError(f"a constraint has one of one_of, regex and json_schema; this has {named or 'none'}")
        if self.one_of is not None and not all([self.one_of, *self.one_of]):
            raise ValueError(f"one_of is {self.one_of!r}; it needs at least one text, and none of them empty")
        return self


class RoleSpec(Options):
    """One role: what it is told, what its output means, which adapter speaks, and how it is sampled.

    Attributes:
        type: a built-in role (`planner`, `executor`, `verifier`, `feedback`, `agent`), `file.py:Class` or
            `package.module:Class`.
        view: the environment view that it sees; None: the view named like the agent, within its own team.
        instructions: what the role is told, for models that follow instructions.
        template: a compact prompt in which `{name}` is an observation field, `{from.AGENT}` the last message of an
            agent, `{self}` the role's own last output (empty where there is none), and `{experiences}` its experiences,
            a line each (in front, where it does not say). Used with base models.
        ask: the user message for models that follow instructions, with names as in `template`; the system message is
            then `instructions` alone. None: all fields and messages, line by line.
        format: what an answer looks like, a sentence or an example, for models that follow instructions: the end of the
            user message. Empty: without `ask` the choices, a verifier's two answers or the form of a list, if any.
        prefill: how its answer begins in a chat, with names as in `template`: part of the prompt, and the output is
            what follows it.
        emits: kind of its output; accepts: kinds that it can read.
        max_items: the most items of a list that it emits; None: 8.
        pattern: regular expression that the whole output must match.
        experiences: what earlier attempts have taught the role, one line of text each, for its own prompts alone.
        choices: the legal outputs or, with `max_tokens` above 1, the legal tokens; shown in instructions.
        accept_text, reject_text: a verifier's two answers.
        failure_route: the route that output which does not parse takes, for roles that choose one.
        constraint: the texts that its output may be, for engines that can hold it to them; None: any.
        top_k, top_p, min_p: which tokens are drawn, see `mas.core.engine.Sampling`; as they are, any.
        context: messages shown: the last of each sender in this turn (`inbox`), all of this turn (`turn`), or none.
        history: how many of its own earlier calls in the episode a model that follows instructions is shown, as the
            beginning of the conversation: what it was asked as the user's messages, its answers as its own. None: with
            `ask` none; else those of this team turn, as `context` says: the last one (`inbox`), all, or none.
        adapter: name of its adapter; None: named like the role. `trainable` False freezes it.
        peer: name of a model from elsewhere that plays the role, described in the configuration; never trained.
        tools: `SERVER.TOOL` -> what models are told of it, of the tools that the role may call; or a list of names.
            Such a role has the routes `call` and `answer`. `environment.TOOL`: of the tools that the environment
            offers the role may call these alone; without any, all of them.
        privileges: `SERVER.TOOL` of its tools -> how often and with which arguments the role may call it; a tool that
            is not named may be called freely.
        a2a: the agent elsewhere that plays the role (Agent2Agent protocol); never trained. None: none does.
        voice: whether the engine speaks, a person is asked, the team's servers of tools do what they are called for, or
            the agent of `a2a` is asked. The role of any but the engine has no adapter and is never trained.
        price: of its tokens, for budgets in `cost`; None: it has none.
    """

    type: str = "agent"
    view: str | None = None
    instructions: str = ""
    template: str | None = None
    ask: str | None = None
    format: str = ""
    prefill: str = ""
    experiences: tuple[str, ...] = ()
    emits: str | None = None
    accepts: tuple[str, ...] | None = None
    max_items: Annotated[int, Field(ge=1)] | None = None
    pattern: str | None = None
    choices: tuple[str, ...] = ()
    accept_text: str = "accept"
    reject_text: str = "reject"
    failure_route: str | None = None
    context: Context = "inbox"
    history: Annotated[int, Field(ge=0)] | None = None
    adapter: str | None = None
    trainable: bool = True
    peer: str | None = None
    temperature: Annotated[float, Field(ge=0)] = 1.0
    top_k: Annotated[int, Field(ge=0)] = 0
    top_p: Annotated[float, Field(gt=0, le=1)] = 1.0
    min_p: Annotated[float, Field(ge=0, le=1)] = 0.0
    constraint: Constraint | None = None
    max_tokens: Annotated[int, Field(ge=1)] = 64
    stop: tuple[str, ...] = ()
    price: Price | None = None
    tools: dict[str, str] = Field(default_factory=dict)
    privileges: dict[str, Privilege] = Field(default_factory=dict)
    a2a: RemoteAgent | None = None
    voice: Literal["engine", "human", "tools", "a2a"] = "engine"

    @property
    def server_tools(self) -> dict[str, str]:
        """Those of its tools that the team's servers have."""
        return {name: text for name, text in self.tools.items() if not name.startswith(f"{ENVIRONMENT}.")}

    @property
    def environment_tools(self) -> tuple[str, ...]:
        """The tools of the environment that it may call, as the environment names them; empty: all that there are."""
        begin = f"{ENVIRONMENT}."
        return tuple(name.removeprefix(begin) for name in self.tools if name.startswith(begin))

    @property
    def shows_past(self) -> bool:
        """Whether a conversation may show the role its own earlier answers."""
        return self.ask is None and self.context != "none" if self.history is None else self.history > 0

    @property
    def templates(self) -> Mapping[str, str]:
        """Its texts with names in braces, by field."""
        listed = None if self.constraint is None else self.constraint.one_of
        one_of = listed if isinstance(listed, str) else None
        texts = {"template": self.template, "ask": self.ask, "prefill": self.prefill, "constraint.one_of": one_of}
        return {field: text for field, text in texts.items() if text}

    @model_validator(mode="before")
    @classmethod
    def _written(cls, content: Any) -> Any:
        """Tools may be a list; a role that tools play is frozen, and sees all its earlier calls, to count them; a role
        that an agent elsewhere plays is frozen."""
        if not isinstance(content, Mapping):
            return content
        if isinstance(content.get("tools"), list | tuple):
            content = {**content, "tools": dict.fromkeys(content["tools"], "")}
        if content.get("voice") == "tools":
            content = {"trainable": False, "history": ALL_CALLS, **content}
        if content.get("a2a") is not None:
            content = {"voice": "a2a", "trainable": False, **content}
        return content

    @model_validator(mode="after")
    def _tools_fit(self) -> Self:
        for name in self.tools:
            server, dot, tool = name.partition(".")
            if not (server and dot and tool):
                raise ValueError(f"tool {name!r} is not of the form SERVER.TOOL, with a server of the team's 'tools'")
            if server == ENVIRONMENT and self.tools[name]:
                raise ValueError(f"tool {name!r} has a description, which the environment gives: list its name alone")
        if other := [name for name in self.privileges if name not in self.tools]:
            hint = did_you_mean(other[0], self.tools)
            raise ValueError(f"privileges name {other[0]!r}, which is none of the role's tools. {hint}")
        if self.voice == "tools":
            usual = {"type", "view", "voice", "accepts", "price", "trainable", "history"}
            plain = RoleSpec.model_construct()
            odd = [
                key for key in RoleSpec.model_fields if key not in usual and getattr(self, key) != getattr(plain, key)
            ]
            if odd:
                raise ValueError(f"tools play this role (voice: tools), so that {odd[0]} has no effect: leave it out")
            if self.trainable or self.history != ALL_CALLS:
                raise ValueError("tools play this role (voice: tools): leave trainable and history out")
        return self

    @model_validator(mode="after")
    def _agent_fits(self) -> Self:
        if (self.voice == "a2a") != (self.a2a is not None):
            raise ValueError("voice: a2a and a2a go together: name the agent's card with a2a: {url: ADDRESS}")
        if self.a2a is None:
            return self
        plain = RoleSpec.model_construct()
        odd = [key for key in _NOT_SENT if getattr(self, key) != getattr(plain, key)]
        if odd:
            raise ValueError(f"an agent elsewhere plays this role (a2a), so that {odd[0]} has no effect: leave it out")
        if self.trainable:
            raise ValueError("an agent elsewhere plays this role (a2a): leave trainable out")
        return self

    @model_validator(mode="after")
    def _known(self) -> Self:
        kinds = [*([self.emits] if self.emits else []), *(self.accepts or ())]
        for kind in kinds:
            if kind not in PAYLOADS:
                raise ValueError(f"message kind {kind!r} does not exist; possible: {sorted(PAYLOADS)}")
        if self.pattern is not None:
            try:
                re.compile(self.pattern)
            except re.error as error:
                raise ValueError(f"pattern {self.pattern!r} is not a regular expression: {error}") from error
        for text in self.experiences:
            if len(text.splitlines()) != 1 or text != text.strip() or not text:
                raise ValueError(f"experience {text!r} is not one line of text without white space around it")
        if self.peer is not None and (self.trainable or self.adapter is not None):
            raise ValueError(f"peer {self.peer!r} plays this role: set trainable: false, and name no adapter")
        if self.voice == "human" and (self.trainable or self.adapter is not None or self.peer is not None):
            raise ValueError(
                "a person plays this role (voice: human): set trainable: false, and name no adapter, no peer"
            )
        return self


class Message(msgspec.Struct, frozen=True):
    """A payload with its sender, as a role's context policy sees it."""

    sender: str
    payload: Payload


class View(msgspec.Struct, frozen=True, kw_only=True):
    """All that one agent may know at its decision point.

    Attributes:
        messages: payloads addressed to it in this team turn, oldest first.
        own: its own earlier outputs in this team turn, oldest first.
        past: its earlier calls, oldest first, this team turn's last: as many as its role's `history` asks for.
    """

    observation: Observation
    messages: tuple[Message, ...] = ()
    own: tuple[Payload, ...] = ()
    past: tuple["EarlierCall", ...] = ()


class EarlierCall(msgspec.Struct, frozen=True):
    """What an agent was asked before, as a view without a `past`, and what it answered."""

    view: View
    answer: Payload


@runtime_checkable
class Role(Protocol):
    """Who says what. Stateless: the same view gives the same prompt."""

    name: str
    spec: RoleSpec
    emits: str
    accepts: frozenset[str]
    routes: tuple[str, ...]

    def prompt(self, view: View) -> str:
        """The compact prompt, for base models."""

    def chat(self, view: View) -> tuple[str, str]:
        """System and user message, for models that follow instructions; an empty system message is left out."""

    def earlier(self, view: View) -> tuple[tuple[str, str], ...]:
        """What stands between the two in a conversation: (user message, answer) of earlier calls, oldest first."""

    def prefill(self, view: View) -> str:
        """How the answer begins in a chat, often with nothing: part of the prompt, not of the answer."""

    def parse(self, text: str) -> Payload:
        """The typed result, or a `Failure` with its cause; never raises."""


@runtime_checkable
class ConstrainedRole(Protocol):
    """A role that says which texts its answer may be."""

    def grammar(self, view: View) -> Grammar | None:
        """Of the text behind the prompt (and behind `prefill`); None: any text.

        Raises:
            ConfigError: it reads a field that the observation does not have.
        """


Roles = Mapping[str, Role]


SELF = "self"
EXPERIENCES = "experiences"
_FROM = "from."
_PIECE = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]|[^{}]+")
_NAME = re.compile(r"[\w-]+(\.[\w-]+)*")


@dataclass(frozen=True, slots=True)
class Template:
    """A parsed template.

    Attributes:
        pieces: (is a name, literal text or the name), in order.
    """

    pieces: tuple[tuple[bool, str], ...]

    @property
    def names(self) -> tuple[str, ...]:
        """Every name that it reads, in order, repeated where it repeats."""
        return tuple(text for is_name, text in self.pieces if is_name)

    @property
    def senders(self) -> tuple[str, ...]:
        """Agents whose messages it reads."""
        return tuple(name.removeprefix(_FROM) for name in self.names if name.startswith(_FROM))

    @property
    def fields(self) -> tuple[str, ...]:
        """Observation fields that it reads."""
        return tuple(name for name in self.names if name not in (SELF, EXPERIENCES) and not name.startswith(_FROM))

    def fill(
        self, fields: Mapping[str, str], messages: Mapping[str, str], own: str, experiences: Sequence[str] = ()
    ) -> str:
        """The text with every name replaced.

        Args:
            messages: last content by sender; a sender without one reads as the empty text.
            own: what `{self}` stands for.
            experiences: a line each where `{experiences}` stands, and in front of a template that does not say where.

        Raises:
            ConfigError: a field that the observation does not have.
        """
        lines = "".join(f"{text}\n" for text in experiences)
        special = {SELF: own, EXPERIENCES: lines}
        filled = "".join(_read(text, fields, messages, special) if is_name else text for is_name, text in self.pieces)
        return filled if EXPERIENCES in self.names else lines + filled


def parse_template(text: str) -> Template:
    """Split a template at its names; `{{` and `}}` are literal braces.

    Raises:
        ConfigError: a single brace, or braces around something that is no name.
    """
    pieces: list[tuple[bool, str]] = []
    for match in _PIECE.finditer(text):
        piece, name = match.group(), match.group(1)
        if name is not None:
            if not _NAME.fullmatch(name):
                raise ConfigError(
                    f"template {text!r} has {piece!r}, which is no name; write {{field}}, {{from.AGENT}}, {{self}} "
                    "or {{experiences}}, and double the braces that are meant literally"
                )
            pieces.append((True, name))
        elif piece in ("{", "}"):
            raise ConfigError(f"template {text!r} has a single {piece!r} at {match.start()}; a literal one is doubled")
        else:
            pieces.append((False, {"{{": "{", "}}": "}"}.get(piece, piece)))
    return Template(tuple(pieces))


def _read(name: str, fields: Mapping[str, str], messages: Mapping[str, str], special: Mapping[str, str]) -> str:
    if name in special:
        return special[name]
    if name.startswith(_FROM):
        return messages.get(name.removeprefix(_FROM), "")
    if name not in fields:
        options = (*fields, *special, "from.AGENT")
        raise ConfigError(
            f"template reads {{{name}}}, which the observation does not have. {did_you_mean(name, options)}"
        )
    return fields[name]
