"""What the scenarios share: an environment whose whole state is one frozen record, a split of tasks by content, and a
scenario kept in a folder, whose teams are its YAML files.

With the state in one immutable record, `clone` shares it, `snapshot` is its encoding, and nothing can leak.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from copy import copy
from dataclasses import dataclass, field
from functools import cache, lru_cache, partial
from pathlib import Path
from random import Random
from typing import Any, ClassVar, Generic, Literal, Self, TypeVar, get_args

import msgspec

from mas.core.environment import (
    Answered,
    Caller,
    CountedCall,
    Environment,
    EnvironmentSpec,
    Move,
    Observation,
    Reward,
    Script,
    Step,
    Task,
    denied_in,
)
from mas.core.errors import ConfigError, EnvironmentFault
from mas.core.naming import did_you_mean
from mas.core.scenario import Scenario, Split
from mas.core.seeds import derive_seed, digest
from mas.core.team import TeamSpec
from mas.core.tool_call import ToolCall
from mas.graph.load import load_team

State = TypeVar("State", bound=msgspec.Struct)
Content = TypeVar("Content")

Style = Literal["letters", "words"]
"""Letters, which the tiny base can learn, or words, for real models."""
EVAL_SHARE = 5
"""One task content in so many belongs to the evaluation split."""
_ATTEMPTS = 2000
"""Draws for a task of a split, of which one in five fits where tasks differ."""


def one_seat(name: str, views: tuple[str, ...], max_turns: int, terms: tuple[str, ...]) -> EnvironmentSpec:
    """Of an environment in which the seat `team` acts alone."""
    return EnvironmentSpec(name=name, seats=("team",), views=views, max_turns=max_turns, terms=terms)


class RecordWorld(ABC, Generic[State]):
    """What environments of one seat and of several have in common. `state_type` is the class's argument: `RelayState`
    of a `RecordEnvironment[RelayState]`."""

    state_type: ClassVar[type[msgspec.Struct]]
    history: ClassVar[tuple[str, ...]] = ()
    """Fields of the state that only tell when, or by which way, it was reached; they are not in the anchor."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        for base in cls.__dict__.get("__orig_bases__", ()):
            for kind in filter(lambda argument: isinstance(argument, type), get_args(base)):
                cls.state_type = kind

    def __init__(self, spec: EnvironmentSpec) -> None:
        self.spec = spec
        self._state: State | None = None

    @abstractmethod
    def initial(self, task: Task) -> State:
        """The state that a task starts in."""

    def content_of(self, state: State) -> str:
        """What tells a task from others, given the state that it starts in; for scenarios that do not say it.

        Raises:
            ConfigError: this world does not say it either.
        """
        raise ConfigError(
            f"{type(self).__name__} has no content_of(state), and its scenario no content: write one of them, a text "
            "that is equal for equal tasks, as it says which are held out"
        )

    @abstractmethod
    def fields(self, state: State, view: str) -> Mapping[str, str]:
        """The fields that a view sees."""

    @abstractmethod
    def moving(self, state: State) -> tuple[str, ...]:
        """Seats that must act; empty when nobody moves any more."""

    @abstractmethod
    def advance(self, state: State, actions: Mapping[str, str]) -> tuple[State, Step]:
        """New state, and what it paid; `actions` are those of the seats that must act."""

    @abstractmethod
    def is_solved(self, state: State) -> bool:
        """Whether the task is solved."""

    @property
    def state(self) -> State:
        """The current record.

        Raises:
            EnvironmentFault: before the first reset.
        """
        if self._state is None:
            raise EnvironmentFault(f"{self.spec.name} was not reset: call reset(task) first")
        return self._state

    def reset(self, task: Task) -> None:
        self._state = self.initial(task)

    def to_move(self) -> tuple[str, ...]:
        return self.moving(self.state)

    def observe(self, view: str) -> Observation:
        if view not in self.spec.views:
            raise EnvironmentFault(f"{self.spec.name} has no view {view!r}. {did_you_mean(view, self.spec.views)}")
        return Observation(self.fields(self.state, view))

    def step(self, actions: Mapping[str, str]) -> Step:
        self._check_moving(actions)
        self._state, step = self.advance(self.state, actions)
        return step

    def _check_moving(self, actions: Mapping[str, str]) -> None:
        moving = self.to_move()
        if not moving:
            raise EnvironmentFault(f"{self.spec.name}: the episode is over, call reset(task) to begin another")
        if set(actions) != set(moving):
            raise EnvironmentFault(f"{self.spec.name}: seats {sorted(actions)} acted, to move are {sorted(moving)}")

    def legal(self, seat: str) -> tuple[str, ...] | None:
        return None

    def success(self) -> bool:
        return self.is_solved(self.state)

    def clone(self) -> Self:
        return copy(self)

    def snapshot(self) -> bytes:
        return msgspec.json.encode(self.state)

    def restore(self, state: bytes) -> None:
        try:
            self._state = msgspec.json.decode(state, type=self.state_type)  # type: ignore[assignment]
        except msgspec.MsgspecError as error:
            raise EnvironmentFault(f"this is no snapshot of {self.spec.name}: {error}") from error

    def state_key(self) -> str:
        return digest(self.snapshot().decode())

    def anchor(self) -> str:
        return digest(msgspec.json.encode(self.standing(self.state)).decode())

    def standing(self, state: State) -> Mapping[str, object]:
        """What the anchor is made of: the state without its history."""
        return {name: value for name, value in msgspec.structs.asdict(state).items() if name not in self.history}


class RecordEnvironment(RecordWorld[State]):
    """An environment with one seat. Subclasses give the rules as functions from record to record.

    An episode is over when its answer is given, `turn`, where the state has it, reaches the most turns, or the task is
    solved.
    """

    answer_field: ClassVar[str] = "answer"
    """Of the state, where it has one: what ends the episode; None: not yet."""

    @abstractmethod
    def act(self, state: State, action: str) -> tuple[State, dict[str, float], bool]:
        """New state, rewards by term, and whether the action was legal."""

    def is_over(self, state: State) -> bool:
        """Whether nobody moves any more."""
        is_answered = getattr(state, self.answer_field, None) is not None
        return is_answered or getattr(state, "turn", 0) >= self.spec.max_turns or self.is_solved(state)

    def moving(self, state: State) -> tuple[str, ...]:
        return () if self.is_over(state) else self.spec.seats

    def advance(self, state: State, actions: Mapping[str, str]) -> tuple[State, Step]:
        (seat,) = actions
        after, terms, legal = self.act(state, actions[seat])
        return after, Step(rewards={seat: terms}, illegal=() if legal else (seat,))


class ToolRecordEnvironment(RecordEnvironment[State]):
    """One with tools that a call may change the record with: satisfies `mas.core.environment.ToolWorld`.

    The state has a field `calls`, the `CountedCall`s of the episode.
    """

    tool_names: tuple[str, ...]

    @abstractmethod
    def call_of(self, action: str) -> ToolCall | None:
        """See `mas.core.environment.ToolWorld`."""

    @abstractmethod
    def denied(self, state: State, action: str, answer: str) -> tuple[State, dict[str, float]]:
        """New state where a call is not made and its result is this answer, and rewards by term."""

    def counted_calls(self) -> tuple[CountedCall, ...]:
        calls: tuple[CountedCall, ...] = getattr(self.state, "calls", ())
        return calls

    def step_as(self, actions: Mapping[str, str], callers: Mapping[str, Caller]) -> Step:
        self._check_moving(actions)
        ((seat, action),) = actions.items()
        call, caller = self.call_of(action), callers.get(seat)
        if caller is None or call is None:
            return self.step(actions)
        if caller.denied is None:
            after, step = self.advance(self.state, actions)
        else:
            after, terms = self.denied(self.state, action, caller.denied)
            step = Step(rewards={seat: terms}, illegal=(seat,), denied=denied_in(callers))
        counted = (*self.counted_calls(), CountedCall(caller.agent, call.name, caller.denied is not None))
        self._state = msgspec.structs.replace(after, calls=counted)
        return step


class QuestionWorld(RecordEnvironment[State]):
    """One question and one team turn: the team's action is the answer, and the term `right` is 1 for the right one.

    The state has a field `answer`: None before the team's, empty for a pass and for what is no answer.
    """

    def __init__(self, name: str, views: tuple[str, ...], terms: tuple[str, ...] = ("right",)) -> None:
        super().__init__(one_seat(name, views, 1, terms))

    def is_answer(self, state: State, action: str) -> bool:
        """Whether an action is an answer, right or wrong: any text where answers cannot be listed."""
        listed = self.legal("team")
        return listed is None or action in listed

    def act(self, state: State, action: str) -> tuple[State, dict[str, float], bool]:
        legal = action == "" or self.is_answer(state, action)
        after = msgspec.structs.replace(state, answer=action if legal else "")
        return after, {"right": float(self.is_solved(after))}, legal

    def is_over(self, state: State) -> bool:
        return getattr(state, self.answer_field, None) is not None


def give_right_answer(environment: Answered, random: Random) -> dict[str, str]:
    """The expert of a team whose environment knows the right answer."""
    return {"team": environment.right_answer()}


def kept_text(text: str, most: int = 200) -> str:
    """A text of anybody's as a state can keep it: `most` characters, and `?` for what no encoding has."""
    return text[:most].encode(errors="replace").decode()


def is_held_out(name: str, content: str) -> bool:
    """Whether a content belongs to the evaluation split."""
    return derive_seed("split", name, content) % EVAL_SHARE == 0


@lru_cache(maxsize=200_000)
def _seed_in_split(name: str, split: Split, index: int, content: Callable[[int], str]) -> int:
    for attempt in range(_ATTEMPTS):
        seed = derive_seed("task", name, split, index, attempt)
        if is_held_out(name, content(seed)) == (split == "eval"):
            return seed
    raise ConfigError(
        f"scenario {name.partition('/')[0]!r} has no task for the split {split!r} with these options: {_ATTEMPTS} "
        "draws made none; its tasks are too much alike, so make them larger"
    )


def split_task(name: str, split: Split, index: int, content: Callable[[int], str]) -> Task:
    """The index-th task of a split. Which split a task belongs to depends on its content, so none is in both.

    Args:
        content: that of the task with a seed.

    Raises:
        ConfigError: no task was found that belongs to the split: there are too few different ones.
    """
    return Task(id=f"{split}-{index}", seed=_seed_in_split(name, split, index, content), split=split)


def _content_at(content: Callable[[Random], str] | None, make_environment: Callable[[], Any], seed: int) -> str:
    """What tells the task of a seed from others. The environment may be the same one each time: no task is begun."""
    if content is not None:
        return content(Random(seed))
    world = make_environment()
    return str(world.content_of(world.initial(Task(id="content", seed=seed))))


class NoOwnTerms:
    """The reward of scenarios in which only the team is paid."""

    terms: tuple[str, ...] = ()

    def own(self, move: Move) -> Mapping[str, float]:
        return {}


@dataclass(frozen=True, slots=True)
class FolderScenario:
    """The scenario of the folder in which a file lies, with the folder's name. Satisfies `mas.core.scenario.Scenario`,
    and `mas.core.scenario.SplitByContent`.

    Attributes:
        file: the module's `__file__`. options: without those that are unkeyed, part of the fingerprint.
        make_environment: a fresh environment. content: what tells two tasks apart, given the task's generator; None:
            what the environment says of their first states, see `RecordWorld.content_of`.
        demonstrate: endless (prompt, completion) pairs from a generator and a skill; None: the tiny base cannot read
            its words.
        inner: the folder of its teams, within that folder.
        unkeyed: options that make no other tasks, and no other tiny base.
        expert: the best play that is known, with the whole state in sight: what each seat that must move does, drawing
            from a generator among equals. None: nobody wrote one.
        advise: what the environment says of a wrong action (said, right), for demonstrations; None: nothing.
        options_key: its options as text, without those that are unkeyed.

    Raises:
        ConfigError: the folder holds no YAML file, as where a package was built without them.
    """

    file: str
    options: Any
    make_environment: Callable[[], Environment]
    content: Callable[[Random], str] | None = None
    demonstrate: Callable[[Random, float], Iterator[tuple[str, str]]] | None = None
    inner: str = field(default="", kw_only=True)
    unkeyed: tuple[str, ...] = field(default=("skill",), kw_only=True)
    reward: Reward = field(default_factory=NoOwnTerms, kw_only=True)
    expert: Callable[[Any, Random], Mapping[str, str]] | None = field(default=None, kw_only=True)
    advise: Callable[[str, str], str] | None = field(default=None, kw_only=True)
    teams: Mapping[str, TeamSpec] = field(init=False)
    options_key: str = field(init=False)
    _key: str = field(init=False, repr=False, compare=False)
    _content_at: Callable[[int], str] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "options_key", self.options.model_dump_json(exclude=set(self.unkeyed)))
        object.__setattr__(self, "_key", f"{self.name}/{self.options_key}")
        object.__setattr__(self, "_content_at", partial(_content_at, self.content, cache(self.make_environment)))
        object.__setattr__(self, "teams", self.read_teams())

    def read_teams(self) -> Mapping[str, TeamSpec]:
        """By name: those of the YAML files."""
        folder = self.folder / self.inner
        teams = {path.stem: load_team(path) for path in sorted(folder.glob("*.yaml"))}
        if not teams:
            why = f"no *.yaml lies in {folder}; a package must include its YAML files (package-data)"
            raise ConfigError(f"scenario {self.name!r}: {why}")
        return teams

    @property
    def folder(self) -> Path:
        return Path(self.file).parent

    @property
    def name(self) -> str:
        return self.folder.name

    @property
    def skill(self) -> float:
        """That of its noisy teacher."""
        return getattr(self.options, "skill", 0.0)

    def environment(self) -> Environment:
        return self.make_environment()

    def task(self, split: Split, index: int) -> Task:
        return split_task(self._key, split, index, self._content_at)

    def content_of(self, task: Task) -> str:
        return self._content_at(task.seed)

    def holds_out(self, content: str) -> bool:
        return is_held_out(self._key, content)

    def demonstrations(self, seed: int, *, expert: bool) -> Iterator[tuple[str, str]]:
        if self.demonstrate is None:
            raise ConfigError(
                f"scenario {self.name!r} has no demonstrations: it is in words, which the tiny base cannot read. "
                "Name a model that can, such as model=smollm2, or one of your own by model.path=..."
            )
        return self.demonstrate(Random(seed), 1.0 if expert else self.skill)

    def fingerprint(self) -> str:
        sample = []
        for expert in (True, False):
            stream = self.demonstrations(0, expert=expert)
            sample += [part for _ in range(128) for part in next(stream)]
        return digest(self.name, self.options_key, *sample)


def expert_of(scenario: Scenario) -> Script | None:
    """The scenario's attribute `expert`, as `FolderScenario` has it. None: nobody wrote one."""
    expert: Script | None = getattr(scenario, "expert", None)
    return expert
