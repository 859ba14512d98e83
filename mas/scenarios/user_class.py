"""A user's class of environments as a scenario, named `path/file.py:CLASS` or `package.module:CLASS`.

The class satisfies `mas.core.environment.Environment`, or is one of TRL's (`mas.scenarios.tool_class`), or has these
methods; a task of it is one seat, `team`:

    def reset(self, random: Random) -> None                        # draw a task, from nothing but this generator
    def observe(self, view: str) -> str | Mapping[str, str]        # what a view sees: a text, or named fields; pure
    def step(self, action: str) -> float                           # act; returns what the team is paid

It may have the methods of `POSSIBLE`: `is_over()`, without which a task is one step; `success()`, without which what
was paid must add up to 1; `legal()`, all legal actions as text; `answer()`, the right action now, from which the tiny
base is taught; `content()`, a text that is equal for equal tasks whatever the options, without which it is what all
views see at the start; `render()`, everything as text. Class attributes: `views`, `max_turns`, `teams`, name ->
TeamSpec, and `tools`, names of methods that agents call with JSON, `{"name": ..., "arguments": ...}`: they may change
the instance, views see the tools and what came of each call, and whatever is no call goes to `step`, behind which a
class without `is_over()` is over. The constructor takes `scenario.options` by name.
"""

import inspect
import itertools
import sys
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from functools import cache, partial
from math import isfinite, nan
from random import Random
from typing import Any, get_type_hints

from pydantic import PydanticUserError, TypeAdapter, create_model

from mas.core.environment import Environment, EnvironmentSpec, Script, Step, Task
from mas.core.errors import ConfigError, EnvironmentFault
from mas.core.naming import did_you_mean, local_name
from mas.core.options import Options
from mas.core.role import Message, View
from mas.core.scenario import Split
from mas.core.seeds import derive_seed, digest
from mas.core.team import TeamSpec
from mas.core.user_code import load_module
from mas.protocols import plan_execute, solo
from mas.roles import build_roles
from mas.roles.chat import written_call
from mas.scenarios.replay import ReplayEnvironment, ReplayToolEnvironment
from mas.scenarios.tool_methods import GameTools, tool_teams
from mas.scenarios.world import NoOwnTerms, is_held_out

NEEDED = ("reset", "observe", "step")
POSSIBLE = ("is_over", "success", "legal", "answer", "content", "render")
VIEWS = ("planner", "executor", "verifier", "feedback", "worker", "judge", "solo")
"""Where the class has no `views`: those of ready-made teams."""
EXAMPLE = "path/file.py:CLASS"
TEAM = "team"
_SKILL, _END = 0.3, "<eos>"
"""Share of right answers that the tiny base learns from last, and the end of an answer for it."""
LONGEST_CALL = 10_000
"""Characters of an action of a class with tools."""
CALL_TOKENS = 512
"""The most tokens of an action of such a class."""
_ATTEMPTS = 2000
"""Draws for a task of a split."""


class UserWorld:
    """One episode of a class with the short list of methods. Satisfies `mas.scenarios.replay.ReplayedWorld`."""

    def __init__(self, make: Callable[[], Any], seed: int) -> None:
        self.made, self.paid, self.steps = _called("the constructor", make), 0.0, 0
        self.ask("reset", None, Random(seed))
        self.tools = GameTools(self.made, tool_names_of(type(self.made)))

    def ask(self, method: str, otherwise: Any, *arguments: Any) -> Any:
        """What a method returns; `otherwise` where the class does not have it.

        Raises:
            EnvironmentFault: it raised.
        """
        kind = type(self.made)
        found = _has(kind, method)
        return _called(f"{kind.__name__}.{method}", getattr(self.made, method), *arguments) if found else otherwise

    def to_move(self) -> str | None:
        return None if self.ask("is_over", self.steps > 0) else TEAM

    def act(self, action: str) -> Step:
        call = written_call(action) if tool_names_of(type(self.made)) else None
        if call is not None:
            return self._unpaid(is_legal=self.tools.perform(call))
        legal = self.legal()
        is_legal = not action or legal is None or action in legal
        paid = _amount(self.ask("step", None, action)) if action and is_legal else 0.0
        self.paid, self.steps = self.paid + paid, self.steps + 1
        return Step(rewards={TEAM: {"reward": paid}}, illegal=() if is_legal else (TEAM,))

    def deny(self, action: str, answer: str) -> Step:
        self.tools.note(written_call(action) or action, answer)
        return self._unpaid(is_legal=False)

    def _unpaid(self, *, is_legal: bool) -> Step:
        return Step(rewards={TEAM: {"reward": 0.0}}, illegal=() if is_legal else (TEAM,))

    def fields(self, view: str) -> Mapping[str, str]:
        seen = self.ask("observe", None, view)
        if not isinstance(seen, str | Mapping):
            raise EnvironmentFault(
                f"observe({view!r}) returned {seen!r}: return a text, or a mapping of names to texts"
            )
        shown = {"text": seen} if isinstance(seen, str) else {str(name): str(value) for name, value in seen.items()}
        return {**self.tools.fields(), **shown} if tool_names_of(type(self.made)) else shown

    def legal(self) -> tuple[str, ...] | None:
        found = self.ask("legal", None)
        return None if found is None else tuple(map(str, found))

    def success(self) -> bool:
        return bool(self.ask("success", self.paid >= 1 - 1e-9))

    def render(self) -> str:
        return str(self.ask("render", "\n".join(str(value) for value in self.fields("solo").values())))


class UserEnvironment(ReplayEnvironment):
    """A class with the short list of methods as an environment: its state is the seed and the actions so far."""

    def __init__(self, kind: type, make: Callable[[], Any]) -> None:
        super().__init__(_spec_of(kind), partial(UserWorld, make))

    def asked(self, method: str) -> Any:
        """What a method of the class returns, None where it has none.

        Raises:
            EnvironmentFault: it raised.
        """
        world = self._running()
        assert isinstance(world, UserWorld)
        return world.ask(method, None)


class UserToolEnvironment(UserEnvironment, ReplayToolEnvironment):
    """The same of a class with tools."""

    def __init__(self, kind: type, make: Callable[[], Any]) -> None:
        begin = partial(UserWorld, make)
        ReplayToolEnvironment.__init__(
            self, _spec_of(kind), begin, tool_names=tool_names_of(kind), longest=LONGEST_CALL
        )


def _spec_of(kind: type) -> EnvironmentSpec:
    views: Sequence[str] = getattr(kind, "views", VIEWS)
    turns = getattr(kind, "max_turns", 20 if _has(kind, "is_over") or tool_names_of(kind) else 1)
    return EnvironmentSpec(name=kind.__name__, seats=(TEAM,), views=tuple(views), max_turns=turns, terms=("reward",))


def tool_names_of(kind: type) -> tuple[str, ...]:
    """The methods of a class that agents may call: its attribute `tools`."""
    return tuple(getattr(kind, "tools", ()))


class UserScenario:
    """Satisfies `mas.core.scenario.Scenario`, and `mas.core.scenario.SplitByContent`.

    A task belongs to a split by its content alone. Without `content()` that is what the views show with these options,
    so that other options of the class, or a class derived from it, may hold out what was trained on: `why_not_apart`.

    Raises:
        ConfigError: the class cannot be made, has no team for its seats, or draws from more than its generator.
    """

    def __init__(self, kind: type, options: Mapping[str, Any]) -> None:
        self.kind, self.name, self.reward = kind, kind.__name__, NoOwnTerms()
        self._options = dict(options)
        self._seed_of = cache(self._search)
        try:
            seats = self.environment().spec.seats
            same = [self.content_of(Task(id="content", seed=0)) for _ in "12"]
        except Exception as error:  # a user's code
            raise ConfigError(f"{self.name} cannot be made: {type(error).__name__}: {error}") from error
        if same[0] != same[1]:
            raise ConfigError(f"{self.name} shows two tasks of one seed: draw from the generator that reset() is given")
        usual = tool_teams(kind, CALL_TOKENS) if tool_names_of(kind) else {"team": plan_execute(), "solo": solo()}
        self.teams: Mapping[str, TeamSpec] = getattr(kind, "teams", usual)
        self.expert: Script | None = _expert if _has(kind, "answer") else None
        if TEAM not in seats and not hasattr(kind, "teams"):
            raise ConfigError(f"{self.name} has the seats {', '.join(seats)}: give it `teams`, name -> TeamSpec")

    def environment(self) -> Environment:
        make = partial(self.kind, **self._options)
        if tool_names_of(self.kind) and not _is_whole(self.kind):
            return UserToolEnvironment(self.kind, make)
        return make() if _is_whole(self.kind) else UserEnvironment(self.kind, make)

    def task(self, split: Split, index: int) -> Task:
        return Task(id=f"{split}-{index}", seed=self._seed_of(split, index), split=split)

    def content_of(self, task: Task) -> str:
        environment = self.environment()
        environment.reset(task)
        source = _asked(environment, "content")
        seen = [sorted(environment.observe(view).fields.items()) for view in environment.spec.views]
        return repr(seen) if source is None else str(source)

    def holds_out(self, content: str) -> bool:
        return is_held_out("a user's class", content)

    def why_not_apart(self, other: object) -> str | None:
        """Why one of two scenarios may hold out what the other has for training; None: content() or nothing in common
        keeps them apart."""
        other = getattr(other, "scenario", other)  # its attempts
        if not isinstance(other, UserScenario) or (self.kind, self._options) == (other.kind, other._options):
            return None
        base, derived = (self.kind, other.kind) if issubclass(other.kind, self.kind) else (other.kind, self.kind)
        if not issubclass(derived, base) or _has(base, "content"):
            return None
        return (
            f"{base.__name__} has no content(), a text that is equal for equal tasks whatever the options, so that "
            "what is trained on may be evaluated with other options: write it, and train anew"
        )

    def demonstrations(self, seed: int, *, expert: bool) -> Iterator[tuple[str, str]]:
        """Every agent says the right action, or one of the legal ones; verifiers accept what is right.

        Raises:
            ConfigError: the class has neither `answer` nor `legal`, or several seats.
        """
        random = Random(seed)
        names = list(self.teams)
        for number in itertools.count():
            environment = self.environment()
            environment.reset(self.task("train", random.randrange(512)))
            while environment.to_move():
                action = yield from self._shown(environment, self.teams[names[number % len(names)]], random, expert)
                environment.step({environment.to_move()[0]: action})

    def fingerprint(self) -> str:
        sample = [self.content_of(self.task("train", index)) for index in range(32)]
        return digest(self.name, source_of(self.kind), repr(self._options), *sample)

    def _shown(
        self, environment: Environment, team: TeamSpec, random: Random, expert: bool
    ) -> Generator[tuple[str, str], None, str]:
        """One turn of a team, agent by agent. Returns its action."""
        seat = environment.to_move()[0]
        answer, has_several = _asked(environment, "answer"), len(environment.spec.seats) > 1
        right = None if answer is None else str(answer)
        possible = environment.legal(seat) or (() if right is None else (right,))
        if has_several or not possible:
            raise ConfigError(
                f"{self.name} has {'several seats' if has_several else 'neither answer() nor legal()'}, so that the "
                "tiny base cannot be taught: name a model that reads words, such as model=smollm2"
            )
        roles, said = build_roles(team), dict[str, Message]()
        action = right if right is not None and (expert or random.random() < _SKILL) else random.choice(possible)
        for agent, name in team.members().items():
            role = roles[name]
            seen = environment.observe(role.spec.view or local_name(agent))
            heard = (said[edge.source] for edge in team.edges if edge.target == agent and edge.source in said)
            text = action
            if role.emits == "verdict":
                text = role.spec.accept_text if action == right else role.spec.reject_text
            yield role.prompt(View(observation=seen, messages=tuple(heard))), text + _END
            said[agent] = Message(agent, role.parse(text))
        return action

    def _search(self, split: Split, index: int) -> int:
        for attempt in range(_ATTEMPTS):
            seed = derive_seed("task", self.name, split, index, attempt)
            if self.holds_out(self.content_of(Task(id="content", seed=seed))) == (split == "eval"):
                return seed
        raise ConfigError(
            f"{self.name} has no task for the split {split!r}: {_ATTEMPTS} draws made none, as its tasks look too much "
            "alike at the start. Let views show more, or write content(), a text that is equal for equal tasks"
        )


def load_class(name: str) -> type:
    """The class of a name.

    Raises:
        ConfigError: it cannot be imported, there is no such class, or it lacks methods.
    """
    place, _, attribute = name.rpartition(":")
    what = f"scenario {name!r}"
    if not place or not attribute.isidentifier():
        raise ConfigError(f"{what}: write {EXAMPLE} or package.module:CLASS")
    if place == "__main__" and not hasattr(sys.modules[place], attribute):
        raise ConfigError(
            f"{what}: the class stood in a notebook or a prompt, and this process does not have it. Run its cell "
            f"first, or write the class into a file and add scenario.name={EXAMPLE}"
        )
    members = vars(load_module(what, place, EXAMPLE))
    kind = members.get(attribute)
    if not isinstance(kind, type):
        classes = [key for key, value in members.items() if isinstance(value, type) and not key.startswith("_")]
        written = [key for key in classes if members[key].__module__ == members["__name__"]]
        raise ConfigError(f"{what}: {place} has no class {attribute!r}. {did_you_mean(attribute, written or classes)}")
    check_class(what, kind)
    return kind


def check_class(what: str, kind: type) -> None:
    """Refuse a class that lacks methods.

    Args:
        what: what names it, for errors.

    Raises:
        ConfigError: says which.
    """
    if _is_whole(kind) or is_tool_class(kind):
        return
    if lacking := [method for method in NEEDED if not _has(kind, method)]:
        raise ConfigError(
            f"{what}: {kind.__name__} has no {', '.join(lacking)}; an environment needs {', '.join(NEEDED)} and may "
            f"have {', '.join(POSSIBLE)}: see docs/scenarios.md"
        )


def options_of(kind: type) -> type[Options]:
    """The arguments of a class's constructor as options, with their types and defaults.

    Raises:
        ConfigError: one cannot be given by name.
    """
    try:
        hints = get_type_hints(kind.__init__)  # type: ignore[misc]
    except (NameError, TypeError, AttributeError):  # names that only type checkers know
        hints = {}
    fields: dict[str, Any] = {}
    for one in inspect.signature(kind).parameters.values():
        if one.kind not in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY):
            raise ConfigError(f"{kind.__name__}({one}): its options are arguments with names; write each one")
        if one.name.startswith("_") or hasattr(Options, one.name):
            raise ConfigError(f"{kind.__name__}({one}): an option cannot have this name; choose another one")
        fields[one.name] = (_checkable(hints.get(one.name, Any)), ... if one.default is one.empty else one.default)
    return create_model(f"{kind.__name__}Options", __base__=Options, **fields)


def build(kind: type, options: Options) -> UserScenario:
    """The scenario of a class with these options. ConfigError: as `UserScenario`."""
    return UserScenario(kind, {name: getattr(options, name) for name in type(options).model_fields})


def _checkable(annotation: Any) -> Any:
    """The type of an option; `Any` where pydantic cannot check the annotation."""
    try:
        TypeAdapter(annotation)
    except PydanticUserError:
        return Any
    return annotation


def _asked(environment: Environment, method: str) -> Any:
    if isinstance(environment, UserEnvironment):
        return environment.asked(method)
    return getattr(environment, method)() if _has(type(environment), method) else None


def _has(kind: type, method: str) -> bool:
    """Whether a class has a method; an attribute of that name that is none does not count."""
    return callable(getattr(kind, method, None))


def _called(name: str, function: Callable[..., Any], *arguments: Any) -> Any:
    try:
        return function(*arguments)
    except Exception as error:  # a user's code
        raise EnvironmentFault(f"{name} raised {type(error).__name__}: {error}") from error


def _amount(paid: Any) -> float:
    """What a step pays, also as a number of NumPy."""
    try:
        amount = nan if isinstance(paid, str | bytes) else float(paid)
    except (TypeError, ValueError):
        amount = nan
    if not isfinite(amount):
        raise EnvironmentFault(f"step returned {paid!r}: return what the team is paid, a finite number")
    return amount


def _expert(environment: Environment, random: Random) -> Mapping[str, str]:
    return {seat: str(_asked(environment, "answer")) for seat in environment.to_move()}


def is_tool_class(kind: type) -> bool:
    """Whether a class is written for TRL's `environment_factory`: see `mas.scenarios.tool_class`."""
    is_ours = _is_whole(kind) or _has(kind, "observe")
    return not is_ours and _has(kind, "reset") and _has(kind, "get_reward")


def _is_whole(kind: type) -> bool:
    """Whether the class means to satisfy `Environment`: it can be copied by itself."""
    return all(hasattr(kind, method) for method in ("clone", "snapshot", "restore"))


def source_of(kind: type) -> str:
    """The text of the file that the class stands in, of a notebook's the class alone; empty where there is none."""
    for one in (sys.modules.get(kind.__module__), kind):
        try:
            return inspect.getsource(one) if one is not None else ""
        except (OSError, TypeError):
            continue
    return ""
