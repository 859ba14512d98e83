"""A class of TRL's `environment_factory` as a scenario: `file.py:CLASS` with rows from a file. TRL is not needed.

    def reset(self, **row) -> str | None       # begin the task of a row; what it returns is added to the prompt
    def get_reward(self) -> float              # what the rollout is worth, asked when it is over
    def search(self, query: str) -> str        # every other public method is a tool, with type hints and a docstring

An episode is one rollout with an instance of its own. An action is a call of a tool, `{"name": ..., "arguments": ...}`,
alone or within `<tool_call>` and `</tool_call>`; any other text is the answer, which ends the episode.

Leaves out: asynchronous methods, pictures, and a class for each row (TRL's field `environment`).
"""

import inspect
import json
from collections.abc import Callable, Iterator, Mapping
from functools import cache, partial
from typing import Annotated, Any, NamedTuple, get_type_hints

from pydantic import Field, PydanticUserError, create_model

from mas.core.environment import Environment, EnvironmentSpec, Step, Task, check_finite
from mas.core.errors import ConfigError, EnvironmentFault, ToolRefused
from mas.core.options import Options
from mas.core.role import RoleSpec
from mas.core.scenario import Split
from mas.core.seeds import digest
from mas.core.team import TeamSpec
from mas.protocols import plan_execute, solo
from mas.roles.chat import written_call
from mas.scenarios.bridges.packages import OwnChance
from mas.scenarios.replay import ReplayEnvironment
from mas.scenarios.rows import DataRow, read_rows, shown
from mas.scenarios.user_class import TEAM, VIEWS, source_of
from mas.scenarios.world import NoOwnTerms, is_held_out
from mas.tools.toolbox import Parameters, Tool, Toolbox

TERM = "reward"
LONGEST = 20_000
"""Characters of an action."""
_RESERVED = ("reset", "get_reward")


class ToolClassOptions(Options):
    """`rows`: the file or data set whose rows `reset` is called with, see `mas.scenarios.rows`. `split`: the field that
    says `train` or `eval` of each row; None: what the data set itself has, or a fifth is held out by content.
    `max_turns`: actions after which an episode is over. `max_tokens`: of an action."""

    rows: Annotated[str, Field(min_length=1)]
    split: str | None = None
    max_turns: Annotated[int, Field(ge=1, le=1000)] = 8
    max_tokens: Annotated[int, Field(ge=1)] = 512


def tools_of(made: Any) -> Toolbox:
    """The public methods of an instance as tools.

    Raises:
        ConfigError: one is asynchronous, or has no docstring, or a parameter without a type that JSON can hold.
    """
    kind: Any = type(made)
    return Toolbox(
        Tool(
            name=name,
            description=method.description,
            parameters=method.parameters,
            function=partial(_perform, getattr(made, name), method.called),
        )
        for name, method in _methods(kind).items()
    )


class ToolMethod(NamedTuple):
    """A public method. `called`: field of its parameters -> the argument's name."""

    description: str
    parameters: type[Parameters]
    called: Mapping[str, str]


@cache
def _methods(kind: type) -> Mapping[str, ToolMethod]:
    found = inspect.getmembers(kind, inspect.isfunction)
    return {name: _method(f) for name, f in found if not name.startswith("_") and name not in _RESERVED}


def _method(function: Callable[..., Any]) -> ToolMethod:
    where, description = function.__qualname__, inspect.getdoc(function)
    if inspect.iscoroutinefunction(function):
        raise ConfigError(f"{where} is asynchronous, which tools here cannot be: write it as a plain method")
    if not description:
        raise ConfigError(f"{where} has no docstring; say what it does: models choose by it")
    try:
        hints = get_type_hints(function)
    except (NameError, TypeError) as error:
        raise ConfigError(f"{where}: its type hints cannot be read: {error}") from error
    fields: dict[str, Any] = {}
    called: dict[str, str] = {}
    for number, one in enumerate([*inspect.signature(function).parameters.values()][1:]):
        if one.kind not in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY) or one.name not in hints:
            raise ConfigError(f"{where}({one}): each parameter of a tool needs a name of its own and a type hint")
        called[f"argument_{number}"] = one.name
        default = ... if one.default is one.empty else one.default
        fields[f"argument_{number}"] = (hints[one.name], Field(default, alias=one.name))
    try:
        parameters = create_model(f"{function.__name__}_arguments", __base__=Parameters, **fields)
        parameters.model_json_schema()
    except PydanticUserError as error:
        raise ConfigError(f"{where}: a parameter has a type that JSON cannot hold: {str(error)[:200]}") from error
    return ToolMethod(description, parameters, called)


def _perform(method: Callable[..., Any], called: Mapping[str, str], given: Parameters) -> str:
    """Whatever a tool raises is its result, as in TRL."""
    try:
        return _text(method(**{name: getattr(given, field) for field, name in called.items()}))
    except Exception as error:  # noqa: BLE001 - a user's code
        return f"error: {error}"


def _text(content: Any) -> str:
    """A text, or the texts of a list of parts."""
    if not isinstance(content, list) or not all(isinstance(part, Mapping) and "type" in part for part in content):
        return str(content)
    return "\n".join(str(part["text"]) if part["type"] == "text" else f"[{part['type']}]" for part in content)


class ToolPlay:
    """One rollout. Satisfies `mas.scenarios.replay.ReplayedWorld`.

    Raises:
        EnvironmentFault: the constructor or `reset` raises.
    """

    def __init__(self, kind: type, rows: tuple[DataRow, ...], max_turns: int, seed: int) -> None:
        self._row, self._kind, self._left = rows[seed], kind, max_turns
        self._chance = OwnChance(seed % 2**32)
        self._told: list[str] = []
        self._paid: float | None = None
        self._made: Any = self._called("the constructor", kind)
        said = self._called("reset", partial(self._made.reset, **self._row.values))
        if said is not None and not isinstance(said, str | list):
            raise self._fault("reset", f"returned {shown(said)}: return a text or None")
        prompt = self._row.values.get("prompt", "")
        if isinstance(prompt, list):
            prompt = "\n".join(_text(message.get("content", "")) for message in prompt)
        self._prompt = str(prompt) + ("" if said is None else _text(said))
        self._tools = tools_of(self._made)

    def to_move(self) -> str | None:
        return TEAM if self._paid is None else None

    def act(self, action: str) -> Step:
        self._left -= 1
        is_illegal, call = False, written_call(action)
        if call is not None:
            try:
                with self._chance:
                    result = self._tools.call(call)
            except ToolRefused as error:
                is_illegal, result = True, f"error: {error}"
            self._told.append(f"call: {call}\nresult: {result}")
        elif action:
            self._told.append(f"answer: {action}")
        if self._left > 0 and (call is not None or not action):
            return Step(rewards={TEAM: {}}, illegal=(TEAM,) if is_illegal else ())
        self._paid = self._reward()
        return Step(rewards={TEAM: {TERM: self._paid}}, illegal=(TEAM,) if is_illegal else ())

    def fields(self, view: str) -> Mapping[str, str]:
        tools = (json.dumps(schema["function"], ensure_ascii=False) for schema in self._tools.schemas())
        return {"prompt": self._prompt, "tools": "\n".join(tools), "history": "\n".join(self._told)}

    def legal(self) -> None:
        return None

    def success(self) -> bool:
        return self._paid is not None and self._paid >= 1

    def render(self) -> str:
        return "\n".join([self._prompt, *self._told, f"reward: {self._paid}"])

    def _reward(self) -> float:
        found = self._called("get_reward", self._made.get_reward)
        try:
            paid = float(found)
        except (TypeError, ValueError):
            raise self._fault("get_reward", f"returned {shown(found)}: return a number") from None
        check_finite({TERM: paid}, f"{self._kind.__name__}.get_reward")
        return paid

    def _called(self, name: str, function: Callable[[], Any]) -> Any:
        try:
            with self._chance:
                return function()
        except Exception as error:  # a user's code
            raise self._fault(name, f"raised {type(error).__name__}: {error}") from error

    def _fault(self, name: str, why: str) -> EnvironmentFault:
        return EnvironmentFault(f"{self._kind.__name__}: {name} {why} ({self._row.where})")


class ToolClassScenario:
    """Satisfies `mas.core.scenario.Scenario`, `Finite` and `SplitByContent`. A task's seed is the number of its row.

    Raises:
        ConfigError: the rows cannot be read, a split has none, or the class cannot begin the first of them.
    """

    def __init__(self, kind: type, options: ToolClassOptions) -> None:
        self.kind, self.name, self.reward = kind, kind.__name__, NoOwnTerms()
        self._options, self._rows = options, tuple(read_rows(options.rows))
        self._contents = tuple(digest(json.dumps(row.values, sort_keys=True, default=str)) for row in self._rows)
        self._splits: dict[Split, list[int]] = {"train": [], "eval": []}
        for number, row in enumerate(self._rows):
            self._splits[_split(row, options.split, self._contents[number])].append(number)
        for split, numbers in self._splits.items():
            if not numbers:
                raise ConfigError(
                    f"{options.rows}: no row is in split {split!r}; add more, or name the field that says it of each "
                    "row, scenario.options.split=FIELD"
                )
        both = {self._contents[number] for number in self._splits["train"]} & set(self._held_out())
        if both:
            raise ConfigError(f"{options.rows} has equal rows in both splits: what is evaluated would be trained on")
        self.teams: Mapping[str, TeamSpec] = getattr(kind, "teams", None) or _teams(kind, options.max_tokens)
        try:
            self.environment().reset(self.task("train", 0))
        except EnvironmentFault as error:
            raise ConfigError(f"scenario {self.name!r}: {error}") from error

    def environment(self) -> Environment:
        spec = EnvironmentSpec(
            name=self.name, seats=(TEAM,), views=VIEWS, max_turns=self._options.max_turns, terms=(TERM,)
        )
        begin = partial(ToolPlay, self.kind, self._rows, self._options.max_turns)
        return ReplayEnvironment(spec, begin, longest=LONGEST)

    def size(self, split: Split) -> int:
        return len(self._splits[split])

    def task(self, split: Split, index: int) -> Task:
        numbers = self._splits[split]
        if not 0 <= index < len(numbers):
            raise ConfigError(f"{self.name} has {len(numbers)} tasks in split {split!r}; there is no {index}")
        return Task(id=f"{split}-{index}", seed=numbers[index], split=split)

    def content_of(self, task: Task) -> str:
        return self._contents[task.seed]

    def holds_out(self, content: str) -> bool:
        return content in self._held_out()

    def demonstrations(self, seed: int, *, expert: bool) -> Iterator[tuple[str, str]]:
        raise ConfigError(
            f"scenario {self.name!r} has no demonstrations: its tools are called in JSON, which the tiny base cannot "
            "write. Name a model that can, model.path=MODEL"
        )

    def fingerprint(self) -> str:
        return digest(self.name, source_of(self.kind), self._options.model_dump_json(), *self._contents)

    def _held_out(self) -> frozenset[str]:
        return frozenset(self._contents[number] for number in self._splits["eval"])


def build(kind: type, options: ToolClassOptions) -> ToolClassScenario:
    """The scenario of a class with these options. ConfigError: as `ToolClassScenario`."""
    return ToolClassScenario(kind, options)


def _split(row: DataRow, field: str | None, content: str) -> Split:
    named = row.split if field is None else row.values.get(field)
    if field is None and named is None:
        return "eval" if is_held_out("rows", content) else "train"
    if named == "train":
        return "train"
    if named in ("eval", "test", "validation"):
        return "eval"
    raise ConfigError(f"{row.where}: its split is {shown(named)}; possible: train, eval, test, validation")


def _teams(kind: type, max_tokens: int) -> dict[str, TeamSpec]:
    """`team`: an adviser speaks before who acts; `solo`: one agent acts."""
    acts = RoleSpec(
        type="executor",
        instructions=(inspect.getdoc(kind) or "You solve a task with tools.").split("\n\n")[0],
        template="{prompt}|{tools}|{history}>",
        format=(
            'Call one tool, as one line of JSON {"name": TOOL, "arguments": {NAME: VALUE}}, or write your final answer.'
        ),
        max_tokens=max_tokens,
    )
    plans = RoleSpec(
        type="planner",
        instructions="You see what your team mate sees, who calls tools and answers.",
        template="{prompt}|{tools}|{history}|Advice:",
        format="What should your team mate do now, and why? Answer in a few short sentences.",
        max_tokens=256,
    )
    advised = acts.model_copy(update={"template": "{prompt}|{tools}|{history}|Advice: {from.planner}>"})
    return {"team": plan_execute(plans, advised), "solo": solo(acts)}
